// The time range and the refresh interval.

import { dropDown } from "./dropdown.js";
import { element } from "./elements.js";
import { QUICK_RANGES, REFRESH_INTERVALS, inputMs, inputText, rangeText } from "./time.js";

/** Buttons and fields for the time range. */
export function timePicker(dashboard) {
  const { utc, range, isOwnTime } = dashboard;
  const times = isOwnTime ? { from: String(range.from), to: String(range.to) } : dashboard.times;
  const from = element("input", {
    type: "datetime-local",
    step: "1",
    value: inputText(range.from, utc),
  });
  const to = element("input", {
    type: "datetime-local",
    step: "1",
    value: inputText(range.to, utc),
  });
  const span = range.to - range.from;
  const absolute = (start, end) => {
    if (start < end)
      dashboard.setRange({ from: String(Math.round(start)), to: String(Math.round(end)) });
  };
  const apply = () => absolute(inputMs(from.value, utc), inputMs(to.value, utc));
  const button = (key, text, title, onclick) =>
    element(
      "button",
      { type: "button", title, "aria-label": title, "data-key": key, onclick },
      text,
    );
  return element(
    "div",
    { class: "group", role: "group", "aria-label": "Time range" },
    button("earlier", "‹", "Earlier", () => absolute(range.from - span / 2, range.to - span / 2)),
    dropDown(
      "range",
      rangeText(times, utc),
      element(
        "div",
        { class: "quick" },
        QUICK_RANGES.map(([start, text]) =>
          element(
            "button",
            {
              type: "button",
              "aria-pressed": String(times.from === start && times.to === "now"),
              onclick: () => dashboard.setRange({ from: start, to: "now" }),
            },
            text,
          ),
        ),
      ),
      element("label", {}, "From", from),
      element("label", {}, "To", to),
      element("button", { type: "button", onclick: apply }, "Apply time range"),
    ),
    button("later", "›", "Later", () => absolute(range.from + span / 2, range.to + span / 2)),
    button("wider", "−", "Zoom out", () => absolute(range.from - span / 2, range.to + span / 2)),
  );
}

/** A refresh button, and the interval of automatic refreshes. */
export function refreshPicker(dashboard) {
  const intervals = [...new Set([...REFRESH_INTERVALS, dashboard.every])];
  const select = element(
    "select",
    {
      "aria-label": "Refresh every",
      "data-key": "every",
      onchange: ({ target }) => dashboard.setRefresh(target.value),
    },
    intervals.map((each) =>
      element("option", { value: each, selected: each === dashboard.every }, each || "Off"),
    ),
  );
  return element(
    "div",
    { class: "group" },
    element(
      "button",
      {
        type: "button",
        "data-key": "refresh",
        title: "Refresh now",
        onclick: () => dashboard.refresh(),
      },
      "Refresh",
    ),
    select,
  );
}
