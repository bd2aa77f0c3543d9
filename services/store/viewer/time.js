// Time ranges in Grafana's notation: epoch milliseconds, ISO times, `now`, `now-6h`, `now-1d/d`.

const UNIT_MS = { s: 1e3, m: 6e4, h: 3.6e6, d: 8.64e7, w: 6.048e8 };
const EXPRESSION = /^now(?:([+-])(\d+)([smhdwMy]))?(?:\/([smhdwMy]))?$/;

export const QUICK_RANGES = [
  ["now-5m", "Last 5 minutes"],
  ["now-15m", "Last 15 minutes"],
  ["now-30m", "Last 30 minutes"],
  ["now-1h", "Last hour"],
  ["now-3h", "Last 3 hours"],
  ["now-6h", "Last 6 hours"],
  ["now-12h", "Last 12 hours"],
  ["now-24h", "Last 24 hours"],
  ["now-2d", "Last 2 days"],
  ["now-7d", "Last 7 days"],
  ["now-30d", "Last 30 days"],
  ["now-90d", "Last 90 days"],
  ["now-1y", "Last year"],
];
export const REFRESH_INTERVALS = ["", "1s", "5s", "10s", "30s", "1m", "5m", "15m", "30m", "1h"];

/** Epoch milliseconds of a time in Grafana's notation, or NaN. A `/d` rounds up if `end`. */
export function resolveTime(text, end = false, now = Date.now()) {
  const plain = String(text).trim();
  if (/^\d{10,}$/.test(plain)) return Number(plain);
  const found = EXPRESSION.exec(plain);
  if (!found) return Date.parse(plain);
  const [, sign, amount, unit, rounding] = found;
  let at = new Date(now);
  if (sign) at = shifted(at, (sign === "-" ? -1 : 1) * Number(amount), unit);
  if (rounding) {
    at = floored(at, rounding);
    if (end) at = new Date(shifted(at, 1, rounding).getTime() - 1);
  }
  return at.getTime();
}

function shifted(at, amount, unit) {
  const moved = new Date(at);
  if (unit === "M") moved.setMonth(moved.getMonth() + amount);
  else if (unit === "y") moved.setFullYear(moved.getFullYear() + amount);
  else moved.setTime(moved.getTime() + amount * UNIT_MS[unit]);
  return moved;
}

function floored(at, unit) {
  const start = new Date(at);
  if (unit === "s") start.setMilliseconds(0);
  if (unit === "m") start.setSeconds(0, 0);
  if (unit === "h") start.setMinutes(0, 0, 0);
  if ("dwMy".includes(unit)) start.setHours(0, 0, 0, 0);
  if (unit === "w") start.setDate(start.getDate() - ((start.getDay() + 6) % 7));
  if (unit === "M") start.setDate(1);
  if (unit === "y") start.setMonth(0, 1);
  return start;
}

/** Milliseconds of an interval such as `5s`; 0 for none. */
export function intervalMs(text) {
  const found = /^(\d+)([smhdw])$/.exec(text || "");
  return found ? Number(found[1]) * UNIT_MS[found[2]] : 0;
}

/** The time picker's text for a range. */
export function rangeText({ from, to }, utc) {
  const quick = QUICK_RANGES.find(([start]) => start === from);
  if (quick && to === "now") return quick[1];
  const relative = EXPRESSION.test(from) || EXPRESSION.test(to);
  if (relative) return `${from} to ${to}`;
  return `${timeText(resolveTime(from), utc)} to ${timeText(resolveTime(to, true), utc)}`;
}

/** `2026-11-21 15:04:05`, with milliseconds unless they are 0. */
export function timeText(ms, utc) {
  if (!Number.isFinite(ms)) return "";
  const shift = utc ? 0 : new Date(ms).getTimezoneOffset() * 6e4;
  const iso = new Date(ms - shift).toISOString().replace("T", " ");
  return iso.slice(0, ms % 1000 ? 23 : 19);
}

/** A time for `<input type="datetime-local" step="1">`, and back. */
export const inputText = (ms, utc) => timeText(Math.floor(ms / 1000) * 1000, utc).replace(" ", "T");
export const inputMs = (text, utc) => Date.parse(utc ? `${text}Z` : text);
