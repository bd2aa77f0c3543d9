// Formats numbers in Grafana's units:
// https://grafana.com/docs/grafana/latest/panels-visualizations/

import { timeText } from "./time.js";

const scale = (base, names) => ({ base, names });
const IEC = scale(1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]);
const SI = scale(1000, ["", "k", "M", "G", "T", "P"]);
const SHORT = scale(1000, ["", " K", " Mil", " Bil", " Tri"]);
// Seconds per unit of duration, from short to long, with the value from which each is used.
const DURATIONS = [
  [1e-9, "ns"],
  [1e-6, "µs"],
  [1e-3, "ms"],
  [1, "s"],
  [60, "min"],
  [3600, "h"],
  [86400, "d"],
  [604800, "weeks", 1209600],
  [31536000, "years"],
];
const IN_SECONDS = {
  ns: 1e-9,
  µs: 1e-6,
  us: 1e-6,
  ms: 1e-3,
  s: 1,
  m: 60,
  h: 3600,
  d: 86400,
  dtdurations: 1,
  dtdurationms: 1e-3,
  clocks: 1,
  clockms: 1e-3,
};
const SCALED = {
  short: [SHORT, ""],
  bytes: [IEC, " B"],
  decbytes: [SI, " B"],
  bits: [IEC, " b"],
  decbits: [SI, " b"],
  Bps: [SI, " B/s"],
  binBps: [IEC, " B/s"],
  bps: [SI, " b/s"],
  binbps: [IEC, " b/s"],
  hertz: [SI, " Hz"],
  cps: [SHORT, " c/s"],
  ops: [SHORT, " ops/s"],
  reqps: [SHORT, " req/s"],
  rps: [SHORT, " rd/s"],
  wps: [SHORT, " wr/s"],
  iops: [SHORT, " io/s"],
  mps: [SHORT, " msg/s"],
  recps: [SHORT, " rec/s"],
  rowsps: [SHORT, " rows/s"],
  eps: [SHORT, " evt/s"],
  cpm: [SHORT, " c/m"],
  opm: [SHORT, " ops/m"],
  kbytes: [IEC, " B", 1024],
  mbytes: [IEC, " B", 1024 ** 2],
  gbytes: [IEC, " B", 1024 ** 3],
  deckbytes: [SI, " B", 1e3],
  decmbytes: [SI, " B", 1e6],
  rotmhz: [SI, " Hz", 1e6],
};
const PLAIN = { celsius: " °C", mhz: " MHz", cores: " cores" };

/** Text of a number in a unit: {prefix, text, suffix}. decimals: null for as many as needed. */
export function formatted(value, unit = "", decimals = null, { utc = false } = {}) {
  if (value === null || value === undefined || Number.isNaN(value)) return parts("–");
  if (typeof value === "boolean") return parts(booleanText(value, unit));
  if (typeof value !== "number") return parts(String(value));
  if (/^dateTime/.test(unit)) return parts(timeText(value, utc));
  if (!Number.isFinite(value)) return parts(value > 0 ? "∞" : "−∞");
  if (value === 0 && unit in IN_SECONDS) return parts("0", ` ${unit}`);
  if (unit in IN_SECONDS) return duration(value * IN_SECONDS[unit], decimals);
  if (unit in SCALED) return scaled(value, ...SCALED[unit], decimals);
  if (unit === "percent") return parts(percent(value, decimals), "%");
  if (unit === "percentunit") return parts(percent(value * 100, decimals), "%");
  if (unit === "sci") return parts(value.toExponential(decimals ?? 2));
  if (unit.startsWith("prefix:")) return parts(digits(value, decimals), "", unit.slice(7));
  if (unit.startsWith("suffix:")) return parts(digits(value, decimals), ` ${unit.slice(7).trim()}`);
  if (unit.startsWith("si:")) return scaled(value, SI, ` ${unit.slice(3)}`, 1, decimals);
  if (unit in PLAIN) return parts(digits(value, decimals), PLAIN[unit]);
  return parts(digits(value, decimals), isKnown(unit) ? "" : ` ${unit}`);
}

/** The same as one string. */
export function formatText(value, unit, decimals, options) {
  const { prefix, text, suffix } = formatted(value, unit, decimals, options);
  return `${prefix}${text}${suffix}`;
}

/** Whether a unit is supported; others are appended to the number. */
const isKnown = (unit) => ["", "none", "string", "locale", "bool", "bool_yes_no"].includes(unit);

function parts(text, suffix = "", prefix = "") {
  return { prefix, text, suffix };
}

function booleanText(value, unit) {
  if (unit === "bool_yes_no") return value ? "Yes" : "No";
  return String(value);
}

/** Never rounds up to 100: one wrong output of a thousand must be visible. */
function percent(value, decimals) {
  const almost = decimals === null && value > 99 && value < 100;
  return almost ? String(Math.floor(value * 1000) / 1000) : digits(value, decimals);
}

function digits(value, decimals) {
  const size = Math.abs(value);
  const fraction = decimals ?? (size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
  if (decimals === null && size > 0 && size < 0.1) return String(Number(value.toPrecision(2)));
  const text = value.toLocaleString("en-US", {
    minimumFractionDigits: decimals ?? 0,
    maximumFractionDigits: Math.min(fraction, 20),
    useGrouping: size >= 10000,
  });
  return text.replaceAll(",", "\u202f").replace("-", "−");
}

function scaled(value, { base, names }, suffix, factor = 1, decimals = null) {
  const [given, places] = typeof factor === "number" ? [factor, decimals] : [1, factor];
  let size = value * given;
  let step = 0;
  while (Math.abs(size) >= base && step < names.length - 1) {
    size /= base;
    step += 1;
  }
  const unit =
    suffix.startsWith(" ") && !names[step].startsWith(" ")
      ? ` ${names[step]}${suffix.slice(1)}`
      : `${names[step]}${suffix}`;
  return parts(digits(size, places), unit);
}

function duration(seconds, decimals) {
  const size = Math.abs(seconds);
  const fitting = DURATIONS.filter(([length, , from]) => size >= (from ?? length));
  const [length, name] = fitting.at(-1) ?? DURATIONS[0];
  return parts(digits(seconds / length, decimals), ` ${name}`);
}
