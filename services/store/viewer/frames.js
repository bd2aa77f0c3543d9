// Converts ClickHouse's answers to frames, as Grafana's ClickHouse data source does.
//
// A frame is {refId, length, fields}; a field is {name, type, values, labels}, type being time,
// number, boolean or string; times are epoch milliseconds.

const WRAPPED = /^(?:Nullable|LowCardinality)\((.*)\)$/;

/** The frames of a target's answer: a table unchanged; a time series with a field per label. */
export function framesOf(target, result) {
  const table = tableFrame(target.refId ?? "A", result);
  return isTimeSeries(target) ? [wideFrame(table)] : [table];
}

const isTimeSeries = ({ queryType, format }) => queryType === "timeseries" || format === 0;

/** A frame with a field per column. */
export function tableFrame(refId, { meta, data }) {
  const fields = meta.map(({ name, type }, column) => {
    const kind = kindOf(type);
    return { name, type: kind, labels: {}, values: data.map((row) => read(row[column], kind)) };
  });
  return { refId, length: data.length, fields };
}

function kindOf(type) {
  const inner = WRAPPED.exec(type);
  if (inner) return kindOf(inner[1]);
  if (/^Date/.test(type)) return "time";
  if (/^(U?Int|Float|BFloat|Decimal)/.test(type)) return "number";
  return type === "Bool" ? "boolean" : "string";
}

function read(value, kind) {
  if (value === null) return null;
  if (kind === "time") return Date.parse(value);
  if (kind === "number") return Number(value);
  if (kind === "boolean") return Boolean(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Long to wide: one time field, and one field per value column and combination of labels. */
function wideFrame(table) {
  const time = table.fields.find((field) => field.type === "time");
  const labels = table.fields.filter((field) => field.type === "string");
  const numbers = table.fields.filter((field) => ["number", "boolean"].includes(field.type));
  if (!time || !numbers.length) return table;
  const times = [...new Set(time.values)].filter((at) => at !== null).sort((a, b) => a - b);
  const row = new Map(times.map((at, index) => [at, index]));
  const series = new Map();
  for (let i = 0; i < table.length; i += 1) {
    const at = row.get(time.values[i]);
    if (at === undefined) continue;
    const names = labels.map((field) => [field.name, field.values[i] ?? ""]);
    for (const number of numbers) {
      const key = JSON.stringify([names, number.name]);
      if (!series.has(key)) {
        series.set(key, {
          name: number.name,
          type: number.type,
          labels: Object.fromEntries(names),
          values: new Array(times.length).fill(null),
        });
      }
      series.get(key).values[at] = number.values[i];
    }
  }
  const byTime = { name: time.name, type: "time", labels: {}, values: times };
  return { refId: table.refId, length: times.length, fields: [byTime, ...series.values()] };
}

const PIVOT = "groupingToMatrix";

/** Names of a panel's unsupported transformations. */
export const unknownTransformations = (panel) =>
  (panel.transformations ?? []).filter(({ id, disabled }) => id !== PIVOT && !disabled);

/** Frames after the panel's supported transformations. */
export function transformed(frames, { transformations = [] }) {
  return transformations
    .filter(({ id, disabled }) => id === PIVOT && !disabled)
    .reduce((before, { options }) => before.map((frame) => matrix(frame, options)), frames);
}

/** One row per value of `rowField`, one column per value of `columnField`. */
function matrix(frame, { rowField, columnField, valueField }) {
  const named = (name) => frame.fields.find((field) => field.name === name);
  const [rows, columns, cells] = [rowField, columnField, valueField].map(named);
  if (!rows || !columns || !cells) return frame;
  const rowNames = [...new Set(rows.values)];
  const place = new Map(rowNames.map((name, index) => [name, index]));
  const series = new Map();
  for (let i = 0; i < frame.length; i += 1) {
    const name = String(columns.values[i]);
    if (!series.has(name)) series.set(name, new Array(rowNames.length).fill(null));
    series.get(name)[place.get(rows.values[i])] = cells.values[i];
  }
  const head = { ...rows, name: `${rowField}\\${columnField}`, values: rowNames };
  const fields = [...series].map(([name, values]) => ({ ...cells, name, values }));
  return { refId: frame.refId, length: rowNames.length, fields: [head, ...fields] };
}

/** Reduces values to one; Grafana calls this a calculation. */
export function reduced(values, calculation) {
  const there = values.filter((value) => value !== null && !Number.isNaN(value));
  const numbers = there.filter((value) => typeof value === "number");
  const sum = numbers.reduce((total, value) => total + value, 0);
  const extreme = (better) =>
    numbers.length ? numbers.reduce((a, b) => (better(a, b) ? a : b)) : null;
  switch (calculation) {
    case "last":
      return values.at(-1) ?? null;
    case "first":
      return values[0] ?? null;
    case "firstNotNull":
      return there[0] ?? null;
    case "min":
      return extreme((a, b) => a <= b);
    case "max":
      return extreme((a, b) => a >= b);
    case "mean":
      return numbers.length ? sum / numbers.length : null;
    case "median":
      return numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? null;
    case "sum":
    case "total":
      return numbers.length ? sum : null;
    case "count":
      return values.length;
    case "range":
      return extreme((a, b) => a >= b) - extreme((a, b) => a <= b);
    case "diff":
      return there.length ? there.at(-1) - there[0] : null;
    case "changeCount":
      return there.filter((value, i) => i && value !== there[i - 1]).length;
    default:
      return there.at(-1) ?? null;
  }
}
