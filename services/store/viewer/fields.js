// Applies a panel's fieldConfig to each field: name, unit, colour, thresholds, mappings, links.

import { colourAt, colourOf, scaleStops, seriesColour } from "./colours.js";
import { interpolate } from "./interpolate.js";
import { formatText, formatted } from "./units.js";

/**
 * The frames with, on every field, `displayName`, `config` (defaults and overrides merged),
 * `text(value)`, `parts(value)` and `colour(value)`; the last without a value is the series' own.
 * unknown: called with a sentence about each unsupported setting.
 */
export function configured(frames, panel, { utc, unknown, colourByValue = false }) {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const all = frames.flatMap((frame) => frame.fields.map((field) => ({ frame, field })));
  const several = new Set(
    all.filter(({ field }) => field.type !== "time").map(({ field }) => field.name),
  );
  let index = 0;
  return frames.map((frame) => ({
    ...frame,
    fields: frame.fields.map((given) => {
      const baseName = nameOf(given, several.size > 1);
      const config = merged(defaults, overrides, { ...given, baseName, frame }, unknown);
      const field = { ...given, config };
      field.displayName = config.displayName
        ? interpolate(config.displayName, nameLookup(given, baseName))
        : baseName;
      field.index = ["time", "string"].includes(given.type) ? 0 : index++;
      addValues(field, { utc, colourByValue });
      return field;
    }),
  }));
}

function nameOf({ name, labels }, withName) {
  const texts = Object.values(labels).filter(Boolean);
  if (!texts.length) return name;
  return (withName ? [name, ...texts] : texts).join(" ");
}

function nameLookup({ name, labels }, baseName) {
  return (path) => {
    if (path.startsWith("__field.labels.")) return labels[path.slice(15)] ?? "";
    if (path === "__field.labels") return Object.values(labels).join(" ");
    if (path === "__field.name") return name;
    if (path === "__field.displayName" || path === "__series.name") return baseName;
    return undefined;
  };
}

function merged(defaults, overrides, field, unknown) {
  const config = structuredClone(defaults);
  config.custom ??= {};
  for (const { matcher, properties } of overrides) {
    if (!matches(matcher, field, unknown)) continue;
    for (const { id, value } of properties) {
      const path = id.split(".");
      const last = path.pop();
      let place = config;
      for (const key of path) place = place[key] ??= {};
      place[last] = value;
    }
  }
  return config;
}

function matches({ id, options }, { name, baseName, type, frame }, unknown) {
  switch (id) {
    case "byName":
      return options === name || options === baseName;
    case "byRegexp": {
      const found = /^\/(.*)\/(\w*)$/.exec(options);
      const pattern = found ? new RegExp(found[1], found[2]) : new RegExp(`^${options}$`);
      return pattern.test(baseName) || pattern.test(name);
    }
    case "byType":
      return options === type;
    case "byFrameRefID":
    case "byQuery":
      return options === frame.refId;
    case "byNames": {
      const listed = options.names.includes(baseName) || options.names.includes(name);
      return options.mode === "exclude" ? !listed : listed;
    }
    default:
      unknown(`overrides by ${id}`);
      return false;
  }
}

function addValues(field, { utc, colourByValue }) {
  const { config } = field;
  const unit = config.unit ?? (field.type === "time" ? "dateTimeAsIso" : "");
  const decimals = config.decimals ?? null;
  field.parts = (value) => {
    const found = mapped(value, config.mappings);
    if (found?.text) return { prefix: "", text: found.text, suffix: "" };
    if (value === null && config.noValue) return { prefix: "", text: config.noValue, suffix: "" };
    return formatted(value, unit, decimals, { utc });
  };
  field.text = (value) => {
    const { prefix, text, suffix } = field.parts(value);
    return `${prefix}${text}${suffix}`;
  };
  field.axisText = (value) => formatText(value, unit, null, { utc });
  field.colour = (value) => {
    const found = value === undefined ? null : mapped(value, config.mappings);
    return found?.color ? colourOf(found.color) : colourFor(field, value, colourByValue);
  };
}

function colourFor(field, value, colourByValue) {
  const { mode = colourByValue ? "thresholds" : "palette-classic", fixedColor } =
    field.config.color ?? {};
  if (mode === "fixed" || mode === "shades") return colourOf(fixedColor);
  if (mode === "thresholds") {
    return value === undefined ? seriesColour(field.index) : thresholdColour(field, value);
  }
  if (mode.startsWith("continuous") && typeof value === "number") {
    return colourAt(scaleStops(mode), placeOf(field, value));
  }
  return seriesColour(field.index);
}

/** The colour of the highest threshold that a value reaches. */
export function thresholdColour(field, value) {
  const reached = thresholdsOf(field).filter(({ at }) => at === null || value >= at);
  return reached.at(-1)?.colour ?? colourOf("text");
}

/** Thresholds as [{at, colour}], the first with `at` null; percentages are converted to values. */
export function thresholdsOf(field) {
  const { steps = [], mode = "absolute" } = field.config.thresholds ?? {};
  return steps.map(({ value, color }, i) => ({
    at:
      i === 0 || value === null || value === undefined
        ? null
        : mode === "percentage"
          ? ofRange(field, value / 100)
          : value,
    colour: colourOf(color),
  }));
}

function rangeOf({ config, values }) {
  const numbers = values.filter((value) => typeof value === "number");
  const low = config.min ?? numbers.reduce((a, b) => Math.min(a, b), Infinity);
  const high = config.max ?? numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  return [low, high];
}

function ofRange(field, share) {
  const [low, high] = rangeOf(field);
  return low + share * (high - low);
}

/** Position of a value between the field's minimum and maximum: 0 to 1. */
export function placeOf(field, value) {
  const [low, high] = rangeOf(field);
  return high > low ? (value - low) / (high - low) : 1;
}

function mapped(value, mappings = []) {
  for (const { type, options } of mappings) {
    const found = MAPPINGS[type]?.(options, value);
    if (found) return found;
  }
  return null;
}

const SPECIAL = {
  null: (value) => value === null,
  nan: (value) => Number.isNaN(value),
  "null+nan": (value) => value === null || Number.isNaN(value),
  true: (value) => value === true,
  false: (value) => value === false,
  empty: (value) => value === "",
};
const MAPPINGS = {
  value: (options, value) => options[String(value)],
  range: ({ from, to, result }, value) =>
    typeof value === "number" && value >= (from ?? -Infinity) && value <= (to ?? Infinity)
      ? result
      : null,
  regex: ({ pattern, result }, value) => {
    const found = /^\/(.*)\/(\w*)$/.exec(pattern);
    const match = new RegExp(found ? found[1] : pattern, found?.[2]).exec(String(value));
    return match && { ...result, text: String(value).replace(match[0], result.text ?? match[0]) };
  },
  special: ({ match, result }, value) => (SPECIAL[match]?.(value) ? result : null),
};
