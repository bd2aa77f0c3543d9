// Colours by Grafana's names, in shades that remain distinguishable with any colour vision: Okabe &
// Ito, "Color Universal Design", 2008, instead of Grafana's own red and green.

const HUES = {
  green: "#009e73",
  red: "#d55e00",
  blue: "#0072b2",
  orange: "#e69f00",
  yellow: "#f0e442",
  purple: "#cc79a7",
  gray: "#8a8f98",
  grey: "#8a8f98",
  black: "#000000",
  white: "#ffffff",
};
const SERIES = {
  light: ["#0072b2", "#d98e00", "#009e73", "#c2629a", "#3aa0dc", "#d55e00", "#7a6fbe", "#6b7280"],
  dark: ["#4aa3e0", "#e69f00", "#1fc796", "#dd8fbc", "#8fd0f5", "#f07f2e", "#a99ff0", "#b4bac4"],
};
const SHADES = { "super-light": 0.55, light: 0.3, "semi-dark": -0.2, dark: -0.4 };
// Perceptually uniform and readable without colour: "viridis" of Smith & van der Walt, and greys.
const VIRIDIS = [
  "#440154",
  "#46327e",
  "#365c8d",
  "#277f8e",
  "#1fa187",
  "#4ac16d",
  "#a0da39",
  "#fde725",
];
const BLUES = {
  light: ["#eaf2fb", "#bcd7f0", "#7db4e0", "#3b8bc8", "#0b61a4", "#053061"],
  dark: ["#16283c", "#1c4a73", "#2470ac", "#4a9fdd", "#93cbf5", "#e3f3ff"],
};

/** Whether the page is in dark mode. */
export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** A colour by its name in a dashboard file (`green`, `dark-red`, `#0072B2`, `transparent`). */
export function colourOf(name) {
  if (!name || name === "text") return isDark() ? "#d6dbe3" : "#1d2530";
  if (name === "transparent") return "rgba(0,0,0,0)";
  if (/^#|^rgb|^hsl/.test(name)) return name;
  const found = /^(?:(super-light|light|semi-dark|dark)-)?(\w+)$/.exec(name);
  const hue = found && HUES[found[2]];
  if (!hue) return HUES.gray;
  return found[1] ? shaded(hue, SHADES[found[1]]) : hue;
}

/** The colour of the series with this number, from 0. */
export function seriesColour(index) {
  const palette = SERIES[isDark() ? "dark" : "light"];
  return palette[index % palette.length];
}

/** The stops of a colour scale by Grafana's name, from low to high. */
export function scaleStops(name = "", reverse = false) {
  const blue = /blues|continuous-blu/i.test(name) || name === "";
  const stops = blue ? BLUES[isDark() ? "dark" : "light"] : VIRIDIS;
  return reverse ? [...stops].reverse() : stops;
}

/** The colour at a position from 0 to 1 of a scale. */
export function colourAt(stops, place) {
  const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1);
  const [low, high] = [stops[Math.floor(at)], stops[Math.ceil(at)]].map(channels);
  return css(low.map((value, i) => value + (high[i] - value) * (at - Math.floor(at))));
}

/** A colour with an opacity from 0 to 1. */
export function faded(colour, opacity) {
  if (!/^#[0-9a-f]{6}$/i.test(colour)) return colour;
  return `rgba(${channels(colour).join(",")},${opacity})`;
}

/**
 * A colour, made lighter or darker until its contrast with the panel background is sufficient.
 * contrast: the WCAG ratio required: 4.5 for text, 2 for lines that also have a name.
 */
export function readable(colour, contrast = 4.5) {
  if (!/^#[0-9a-f]{6}$/i.test(colour)) return colour;
  const behind = luminance(channels(isDark() ? "#161b22" : "#ffffff"));
  const step = isDark() ? 0.08 : -0.08;
  let found = colour;
  for (let i = 0; i < 30 && ratio(luminance(channels(found)), behind) < contrast; i += 1) {
    found = shaded(found, step);
  }
  return found;
}

const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);

/** Black or white, whichever is readable on a colour. */
export function textOn(colour) {
  const numbers = /^#/.test(colour)
    ? channels(colour)
    : (colour.match(/\d+/g) ?? [0, 0, 0]).map(Number);
  return luminance(numbers) > 0.25 ? "#0b0f14" : "#ffffff";
}

function luminance(numbers) {
  const [red, green, blue] = numbers.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const css = (numbers) =>
  `#${numbers.map((n) => Math.round(n).toString(16).padStart(2, "0")).join("")}`;

function shaded(hex, amount) {
  const to = amount > 0 ? 255 : 0;
  return css(channels(hex).map((value) => value + (to - value) * Math.abs(amount)));
}
