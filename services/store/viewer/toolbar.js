// The toolbar above the panels: other dashboards, time range, refresh, variables, annotations.

import { dropDown } from "./dropdown.js";
import { element, safeAddress } from "./elements.js";
import { interpolate } from "./interpolate.js";
import { refreshPicker, timePicker } from "./timepicker.js";
import { picker } from "./variablepicker.js";

/** Draw the toolbar of a dashboard; entries: all dashboards. */
export function toolbar(place, dashboard, entries) {
  const opened = place.querySelector("details[open]")?.dataset.name;
  const focused = place.contains(document.activeElement)
    ? document.activeElement.dataset.key
    : null;
  const rest = [
    element("nav", { "aria-label": "Dashboards" }, links(dashboard, entries)),
    element(
      "div",
      { class: "bar-choices" },
      dashboard.variables.shown.map((variable) => picker(dashboard, variable)),
      dashboard.variables.unknown.map(({ model }) =>
        element(
          "span",
          { class: "remark" },
          `This viewer does not support variables of type “${model.type}” (${model.name}).`,
        ),
      ),
      annotations(dashboard),
    ),
  ];
  // A redraw would clear a field that is being edited, and even moving it would lose its focus.
  if (isTyping(place)) {
    while (place.children.length > 1) place.lastElementChild.remove();
    place.append(...rest);
  } else place.replaceChildren(top(dashboard), ...rest);
  if (opened)
    place.querySelector(`details[data-name="${CSS.escape(opened)}"]`)?.setAttribute("open", "");
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

const isTyping = (place) =>
  place.contains(document.activeElement) && document.activeElement.type === "datetime-local";

const top = (dashboard) =>
  element(
    "div",
    { class: "bar-top" },
    element("a", { class: "home", href: "/dashboards/", title: "All dashboards" }, "Tidegauge"),
    element("h1", { title: dashboard.model.description ?? "" }, dashboard.model.title),
    timePicker(dashboard),
    refreshPicker(dashboard),
  );

function links(dashboard, entries) {
  return (dashboard.model.links ?? []).flatMap((link) => {
    const withKept = (url, keepsTime = link.keepTime) => {
      const kept = new URLSearchParams(keepsTime ? dashboard.times : {});
      if (link.includeVars) dashboard.variables.parameters().forEach((v, k) => kept.append(k, v));
      return kept.size ? `${url}${url.includes("?") ? "&" : "?"}${kept}` : url;
    };
    if (link.type === "dashboards") {
      const tags = link.tags ?? [];
      const wanted = entries.filter(
        (entry) => !entry.error && tags.every((tag) => entry.tags.includes(tag)),
      );
      return wanted.map(({ uid, title, tags: own }) =>
        element(
          "a",
          {
            href: withKept(`/dashboards/d/${uid}`, link.keepTime && !own.includes("own-time")),
            "aria-current": uid === dashboard.model.uid ? "page" : null,
          },
          title,
        ),
      );
    }
    const href = safeAddress(
      dashboard.address(interpolate(withKept(link.url ?? ""), dashboard.lookup)),
    );
    const target = link.targetBlank ? "_blank" : null;
    return href
      ? [element("a", { href, target, rel: "noopener", title: link.tooltip }, link.title)]
      : [];
  });
}

function annotations(dashboard) {
  const shown = dashboard.sources.filter(({ hide }) => !hide);
  if (!shown.length) return [];
  const boxes = shown.map(({ name, error }) =>
    element(
      "label",
      { class: "option" },
      element("input", {
        type: "checkbox",
        checked: !dashboard.disabled.has(name),
        "data-key": `annotation ${name}`,
        onchange: () => dashboard.toggleAnnotations(name),
      }),
      error ? `${name} (failed: ${error})` : name,
    ),
  );
  const failed = shown.some(({ error }) => error);
  return element(
    "div",
    { class: `choice${failed ? " failed" : ""}` },
    dropDown("annotations", "Annotations", boxes),
  );
}
