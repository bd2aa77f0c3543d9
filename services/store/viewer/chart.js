// One Apache ECharts chart in an element: theme, a tooltip made of elements, resizing.

import * as echarts from "./vendor/echarts-6.1.0.esm.min.mjs";
import { isDark } from "./colours.js";
import { element } from "./elements.js";

const GROUP = "panels"; // charts of one group show the crosshair together

/** Colours of axes and text in the current colour scheme. */
export function ink() {
  return isDark()
    ? { text: "#c3cad5", faint: "#8993a3", grid: "#2b3340", panel: "#161b22" }
    : { text: "#333d4b", faint: "#667085", grid: "#e4e7ec", panel: "#ffffff" };
}

/** A chart: call `draw(option)` any number of times, then `dispose()`. */
export class Chart {
  /** onRange: called with (from, to) in milliseconds when the user selects a time range. */
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

  /** Draw, replacing the previous content. */
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

/** The tooltip option, whose elements `content(parameters)` creates. */
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

/** A small square of a colour; dashed if the line is. */
export const swatch = (colour, dashed = false) =>
  element("span", { class: `swatch${dashed ? " dashed" : ""}`, style: { background: colour } });

/** A time axis over the page's time range. */
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
