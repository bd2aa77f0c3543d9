// `$name`, `${name:format}` and Grafana's own `${__…}` in titles, texts and links.

const PATTERN = /\$\{([\w.]+)(?:\[["']?([^\]"']+)["']?\])?((?:\.[\w]+)*)(?::([\w]+))?\}|\$(\w+)/g;

/**
 * The text with known variables replaced; unknown ones are kept as they are.
 * lookup: a function of name and format that returns a string, or undefined.
 */
export function interpolate(text, lookup) {
  return String(text ?? "").replace(PATTERN, (whole, name, key, rest, format, plain) => {
    const path = plain ?? `${name}${key ? `.${key}` : ""}${rest ?? ""}`;
    return lookup(path, format ?? "") ?? whole;
  });
}

/** Lookup of the dashboard's variables and time range. */
export function dashboardLookup({ variables, range, dashboard }) {
  return (name, format) => {
    if (name === "__from") return String(range.from);
    if (name === "__to") return String(range.to);
    if (name === "__url_time_range") return timeParameters(range);
    if (name === "__all_variables") return variables.parameters().toString();
    if (name === "__dashboard" || name === "__dashboard.uid") return dashboard.uid;
    const found = variables.get(name);
    return found && written(found, name, format);
  };
}

function written({ values, texts }, name, format) {
  switch (format) {
    case "queryparam":
      return values.map((value) => `var-${name}=${encodeURIComponent(value)}`).join("&");
    case "percentencode":
      return encodeURIComponent(values.join(","));
    case "csv":
    case "raw":
      return values.join(",");
    case "sqlstring":
    case "singlequote":
      return values.map((value) => `'${value}'`).join(",");
    case "pipe":
      return values.join("|");
    default:
      return texts.join(" + ");
  }
}

/** Lookup of one cell: the field, its labels, and the other cells of its row. */
export function cellLookup(frame, field, row) {
  const fieldNamed = (name) => frame.fields.find((f) => f.displayName === name || f.name === name);
  return (path) => {
    if (path === "__value.raw" || path === "__value") return text(field.values[row]);
    if (path === "__value.text") return field.text(field.values[row]);
    if (path === "__value.time")
      return text(frame.fields.find((f) => f.type === "time")?.values[row]);
    if (path === "__field.name") return field.name;
    if (path === "__field.displayName" || path === "__series.name") return field.displayName;
    if (path.startsWith("__field.labels.")) return field.labels[path.slice(15)] ?? "";
    const cell = /^__data\.fields\.(.+?)(?:\.(text|numeric))?$/.exec(path);
    if (!cell) return undefined;
    const named = fieldNamed(cell[1]) ?? frame.fields[Number(cell[1])];
    if (!named) return undefined;
    return cell[2] === "text" ? named.text(named.values[row]) : text(named.values[row]);
  };
}

/** Several lookups as one: the first that returns a value. */
export const firstOf =
  (...lookups) =>
  (name, format) => {
    for (const lookup of lookups) {
      const found = lookup(name, format);
      if (found !== undefined) return found;
    }
    return undefined;
  };

const text = (value) => (value === null || value === undefined ? "" : String(value));
const timeParameters = ({ rawFrom, rawTo }) =>
  new URLSearchParams({ from: rawFrom, to: rawTo }).toString();
