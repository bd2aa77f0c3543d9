// The legend of a chart: a button per series that shows or hides it, with calculations.

import { swatch } from "./chart.js";
import { element } from "./elements.js";
import { reduced } from "./frames.js";

const NAMES = { lastNotNull: "last", firstNotNull: "first", mean: "mean", max: "max", min: "min" };

/** {show(series), isShown(name)}; `changed` is called when the user shows or hides a series. */
export function legend(place, panel, changed) {
  const options = panel.options?.legend ?? {};
  const hidden = new Set();
  const visible = options.showLegend !== false && options.displayMode !== "hidden";
  const list = element("ul", { class: `legend ${options.placement ?? "bottom"}` });
  if (visible) place.append(list);
  place.classList.toggle("legend-right", visible && options.placement === "right");
  let last = [];

  const toggle = (name, alone) => {
    const others = last.filter((each) => each.name !== name);
    if (alone) {
      const only = !hidden.has(name) && others.every((each) => hidden.has(each.name));
      hidden.clear();
      if (!only) others.forEach((each) => hidden.add(each.name));
    } else if (!hidden.delete(name)) hidden.add(name);
    fill();
    changed();
  };
  const fill = () =>
    list.replaceChildren(
      ...last.map(({ name, colour, field, values, repeated }) =>
        element(
          "li",
          {},
          element(
            "button",
            {
              type: "button",
              "aria-pressed": String(!hidden.has(name)),
              title: `Show or hide ${name}; Ctrl-click to show only this series`,
              onclick: (event) => toggle(name, event.ctrlKey || event.metaKey),
            },
            swatch(colour, repeated > 0),
            name,
          ),
          ...(options.calcs ?? []).map((calculation) =>
            element(
              "span",
              { class: "calculation" },
              `${NAMES[calculation] ?? calculation} ${field.text(reduced(values, calculation))}`,
            ),
          ),
        ),
      ),
    );
  return {
    show(series) {
      last = series;
      fill();
    },
    isShown: (name) => !hidden.has(name),
  };
}
