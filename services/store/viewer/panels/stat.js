// Stat: large numbers, one per field, coloured by thresholds.

import { readable, textOn } from "../colours.js";
import { element } from "../elements.js";
import { reduced } from "../frames.js";

/** Draw into the element; returns {update(data), dispose()}. */
export function stat(place, panel) {
  const figures = element("div", { class: "figures" });
  place.append(figures);
  const { colorMode = "value", textMode = "auto", reduceOptions = {} } = panel.options ?? {};
  return {
    colourByValue: true,
    update({ frames }) {
      const chosen = frames.flatMap((frame) => figuresOf(frame, reduceOptions));
      const named = ["name", "value_and_name"].includes(textMode) || chosen.length > 1;
      const longest = Math.max(4, ...chosen.map(({ parts }) => lengthOf(parts)));
      figures.style.setProperty("--letters", Math.ceil(longest * Math.max(1, chosen.length)));
      figures.replaceChildren(
        ...chosen.map(({ name, parts, colour }) => {
          const { prefix, text, suffix } = parts;
          const filled = colorMode.startsWith("background");
          const ink = filled ? textOn(colour) : colorMode === "value" ? readable(colour) : "";
          return element(
            "div",
            { class: "figure", style: { background: filled ? colour : "", color: ink } },
            textMode !== "value" && named ? element("span", { class: "name" }, name) : null,
            textMode === "name" || textMode === "none"
              ? null
              : element(
                  "span",
                  { class: "value" },
                  prefix,
                  text,
                  element("span", { class: "suffix" }, suffix),
                ),
          );
        }),
      );
    },
    dispose() {},
  };
}

/** Number of characters of a value; those of its unit count about half. */
const lengthOf = ({ prefix, text, suffix }) => prefix.length + text.length + 0.55 * suffix.length;

function figuresOf(frame, { calcs = ["lastNotNull"], fields = "", values = false, limit = 25 }) {
  const wanted = wantedBy(fields);
  const named = frame.fields.find((field) => field.type === "string");
  return frame.fields.filter(wanted).flatMap((field) => {
    if (!values) {
      const value = reduced(field.values, calcs[0]);
      return [{ name: field.displayName, parts: field.parts(value), colour: field.colour(value) }];
    }
    return field.values.slice(0, limit).map((value, row) => ({
      name: named && named !== field ? named.text(named.values[row]) : field.displayName,
      parts: field.parts(value),
      colour: field.colour(value),
    }));
  });
}

function wantedBy(fields) {
  if (!fields) return (field) => ["number", "boolean"].includes(field.type);
  const pattern = /^\/(.*)\/(\w*)$/.exec(fields);
  if (!pattern) return (field) => field.displayName === fields || field.name === fields;
  const matcher = new RegExp(pattern[1], pattern[2]);
  return (field) => matcher.test(field.displayName);
}
