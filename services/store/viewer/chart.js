// One chart of Apache ECharts in an element: our look, a tooltip of real elements, resizing.

import * as echarts from "./vendor/echarts-6.1.0.esm.min.mjs";
import { isDark } from "./colours.js";
import { element } from "./elements.js";

const GROUP = "panels"; // charts of one group show the crosshair at the same time

/** Colours of axes and text in the scheme that the page has now. */
export function ink() {
  return isDark()
    ? { text: "#c3cad5", faint: "#8993a3", grid: "#2b3340", panel: "#161b22" }
    : { text: "#333d4b", faint: "#667085", grid: "#e4e7ec", panel: "#ffffff" };
}

/** A drawn chart: `draw(option)` as often as wanted, then `dispose()`. */
export class Chart {
  /** onRange: called with (from, to) in milliseconds when a range of time is drawn over. */
  constructor(place, { label, shared = false, onRange = null }) {
    this.place = place;
    this.onRange = onRange;
    this.chart = echarts.init(place, null, { renderer: "canvas" });
    if (shared) {
      this.chart.group = GROUP;
      echarts.connect(GROUP);
    }
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    this.observer = new ResizeObserver(() => this.chart.resize());
    this.observer.observe(place);
    if (onRange) this.selectByDragging();
  }

  /** Draw; what was drawn before is gone. */
  draw(option) {
    const { text } = ink();
    this.chart.setOption(
      {
        animation: false,
        textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: text },
        ...option,
      },
      { notMerge: true },
    );
  }

  dispose() {
    this.observer.disconnect();
    this.chart.dispose();
  }

  selectByDragging() {
    const surface = this.chart.getZr();
    let start = null;
    surface.on("mousedown", (event) => {
      const inside = this.chart.containPixel("grid", [event.offsetX, event.offsetY]);
      start = inside ? event.offsetX : null;
    });
    surface.on("mousemove", (event) => {
      if (start !== null) this.mark(start, event.offsetX);
    });
    surface.on("mouseup", (event) => {
      if (start === null) return;
      const begun = start;
      start = null;
      this.mark(null);
      if (Math.abs(event.offsetX - begun) < 8) return;
      const ends = [begun, event.offsetX].map((x) =>
        this.chart.convertFromPixel({ xAxisIndex: 0 }, x),
      );
      this.onRange(Math.round(Math.min(...ends)), Math.round(Math.max(...ends)));
    });
    surface.on("globalout", () => {
      start = null;
      this.mark(null);
    });
  }

  mark(from, to) {
    this.band?.remove();
    if (from === null) return;
    this.band = element("div", {
      class: "selecting",
      style: { left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px` },
    });
    this.place.append(this.band);
  }
}

/** The part of an option that shows a tooltip of elements made by `content(parameters)`. */
export function tooltip(trigger, content) {
  const { text, panel, grid } = ink();
  return {
    trigger,
    confine: true,
    appendTo: "body",
    backgroundColor: panel,
    borderColor: grid,
    padding: 8,
    textStyle: { color: text, fontSize: 12 },
    axisPointer: { type: "line", lineStyle: { color: text, opacity: 0.5, type: "dashed" } },
    formatter: (parameters) => content(parameters) ?? "",
  };
}

/** Rows of a tooltip below a heading: [{colour, name, text}]. */
export function tooltipRows(heading, rows) {
  return element(
    "div",
    { class: "tip" },
    element("div", { class: "tip-heading" }, heading),
    element(
      "table",
      {},
      rows.map(({ colour, name, text }) =>
        element(
          "tr",
          {},
          element("td", {}, swatch(colour)),
          element("td", {}, name),
          element("td", { class: "number" }, text),
        ),
      ),
    ),
  );
}

/** A small square of a colour; dashed where the line is. */
export const swatch = (colour, dashed = false) =>
  element("span", { class: `swatch${dashed ? " dashed" : ""}`, style: { background: colour } });

/** A time axis over the range that the page shows. */
export function timeAxis({ from, to }, { utc, faint = true } = {}) {
  const colours = ink();
  return {
    type: "time",
    min: from,
    max: to,
    axisLine: { lineStyle: { color: colours.grid } },
    axisTick: { lineStyle: { color: colours.grid } },
    axisLabel: {
      color: colours.faint,
      hideOverlap: true,
      alignMinLabel: "left",
      alignMaxLabel: "right",
      formatter: (at) => tickText(at, to - from, utc),
    },
    splitLine: { show: faint, lineStyle: { color: colours.grid } },
  };
}

function tickText(at, span, utc) {
  const shifted = new Date(at - (utc ? 0 : new Date(at).getTimezoneOffset() * 6e4)).toISOString();
  if (span > 864e5 * 3) return shifted.slice(5, 10);
  if (span > 864e5) return shifted.slice(5, 16).replace("T", " ");
  return span < 6e5 || at % 6e4 ? shifted.slice(11, 19) : shifted.slice(11, 16);
}
