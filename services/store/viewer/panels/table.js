// Table: sortable by column, cells with units, colours and links.

import { faded, readable, textOn } from "../colours.js";
import { element, safeAddress } from "../elements.js";
import { placeOf } from "../fields.js";
import { cellLookup, firstOf, interpolate } from "../interpolate.js";

const MOST_ROWS = 1000;

/** Draw into the element; returns {update(data), dispose()}. */
export function table(place, panel, context) {
  const scroller = element("div", {
    class: "scroller",
    tabindex: "0",
    role: "region",
    "aria-label": `Table: ${panel.title}`,
  });
  place.append(scroller);
  const first = panel.options?.sortBy?.[0];
  let sorted = first ? { name: first.displayName, down: Boolean(first.desc) } : null;
  let last = null;
  const redraw = () => scroller.replaceChildren(...tables(last, sorted, sortBy, context));
  const sortBy = (name) => {
    const again = sorted?.name === name;
    sorted = again && sorted.down ? null : { name, down: again };
    redraw();
  };
  return {
    colourByValue: true,
    update(data) {
      last = data;
      redraw();
    },
    dispose() {},
  };
}

function tables({ frames }, sorted, sortBy, context) {
  return frames.map((frame) => {
    const fields = frame.fields.filter(({ config }) => !config.custom.hidden);
    const rows = order(frame, sorted).slice(0, MOST_ROWS);
    const caption =
      frame.length > MOST_ROWS
        ? element("caption", {}, `The first ${MOST_ROWS} of ${frame.length} rows.`)
        : null;
    return element(
      "table",
      { class: "rows" },
      caption,
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          fields.map((f) => heading(f, sorted, sortBy)),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map((row) =>
          element(
            "tr",
            {},
            fields.map((field) => cell(frame, field, row, context)),
          ),
        ),
      ),
    );
  });
}

function order(frame, sorted) {
  const rows = [...Array(frame.length).keys()];
  const field = sorted && frame.fields.find(({ displayName }) => displayName === sorted.name);
  if (!field) return rows;
  const sign = sorted.down ? -1 : 1;
  return rows.sort((a, b) => {
    const [one, other] = [field.values[a], field.values[b]];
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (one < other ? -1 : one > other ? 1 : 0);
  });
}

function heading(field, sorted, sortBy) {
  const mine = sorted?.name === field.displayName;
  return element(
    "th",
    {
      scope: "col",
      class: field.type === "number" ? "number" : "",
      "aria-sort": mine ? (sorted.down ? "descending" : "ascending") : "none",
    },
    element(
      "button",
      { type: "button", onclick: () => sortBy(field.displayName) },
      field.displayName,
      mine ? (sorted.down ? " ↓" : " ↑") : "",
    ),
  );
}

function cell(frame, field, row, context) {
  const value = field.values[row];
  const text = value === null ? shortNothing(field) : field.text(value);
  const { custom } = field.config;
  const align = custom.align && custom.align !== "auto" ? custom.align : "";
  return element(
    "td",
    {
      class: field.type === "number" ? "number" : "",
      style: { textAlign: align, ...look(field, value) },
    },
    linked(text, frame, field, row, context),
  );
}

/** Messages for an empty panel are not repeated in each empty cell. */
const shortNothing = (field) =>
  (field.config.noValue ?? "–").length > 12 ? "–" : (field.config.noValue ?? "–");

function look(field, value) {
  const type = field.config.custom.cellOptions?.type ?? "auto";
  if (value === null || type === "auto") return {};
  const colour = field.colour(value);
  if (type === "color-text") return { color: readable(colour), fontWeight: "600" };
  if (type === "color-background") return { background: colour, color: textOn(colour) };
  if (type === "gauge" && typeof value === "number") {
    const share = `${Math.min(Math.max(placeOf(field, value), 0), 1) * 100}%`;
    return {
      background: `linear-gradient(90deg, ${faded(colour, 0.35)} ${share}, transparent ${share})`,
    };
  }
  return {};
}

function linked(text, frame, field, row, context) {
  const link = field.config.links?.[0];
  if (!link) return text;
  const lookup = firstOf(cellLookup(frame, field, row), context.lookup);
  const href = safeAddress(context.address(interpolate(link.url, lookup)));
  if (!href) return text;
  const title = interpolate(link.title ?? "", lookup);
  const target = link.targetBlank ? "_blank" : null;
  return element("a", { href, title, target, rel: "noopener" }, text);
}
