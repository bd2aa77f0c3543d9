// Time series: lines, bars or points over time, with thresholds, annotations and a legend.

import { Chart, ink, timeAxis, tooltip, tooltipRows } from "../chart.js";
import { faded, readable } from "../colours.js";
import { thresholdsOf } from "../fields.js";
import { bridged, hasNumber, parted } from "../gaps.js";
import { legend } from "../legend.js";
import { timeText } from "../time.js";

const DASHES = ["solid", [6, 3], [2, 2], [10, 3, 2, 3]];
const STEPS = { stepBefore: "end", stepAfter: "start" };

/** Draw into the element; returns {update(data), dispose()}. */
export function timeseries(place, panel, context) {
  const chartPlace = place.appendChild(document.createElement("div"));
  chartPlace.className = "chart";
  const key = legend(place, panel, () => redraw());
  const chart = new Chart(chartPlace, {
    label: `Graph: ${panel.title}`,
    shared: true,
    onRange: context.onRange,
  });
  let last = null;
  const redraw = () => chart.draw(option(last, panel, context, key));
  return {
    update(data) {
      last = { ...data, series: seriesOf(data.frames) };
      key.show(last.series.filter(({ custom }) => !custom.hideFrom?.legend));
      redraw();
    },
    dispose: () => chart.dispose(),
  };
}

function seriesOf(frames) {
  const found = frames.flatMap((frame) => {
    const time = frame.fields.find((field) => field.type === "time");
    if (!time) return [];
    return frame.fields
      .filter((field) => ["number", "boolean"].includes(field.type))
      .map((field) => ({
        field,
        custom: field.config.custom,
        name: field.displayName,
        colour: readable(field.colour(), 2),
        values: field.values,
        points: time.values.map((at, i) => [at, numeric(field, field.values[i])]),
      }))
      .filter(({ custom }) => !custom.hideFrom?.viz);
  });
  // Series of the same colour have different dash patterns.
  const used = new Map();
  for (const each of found) {
    each.repeated = used.get(each.colour) ?? 0;
    used.set(each.colour, each.repeated + 1);
  }
  return found;
}

const numeric = (field, value) => {
  const number = value === true ? 1 : value === false ? 0 : value;
  return field.config.custom.transform === "negative-Y" && number !== null ? -number : number;
};

function option(data, panel, context, key) {
  const shown = data.series.filter(({ name }) => key.isShown(name));
  const axes = axesOf(shown.length ? shown : data.series);
  const series = shown.map((each) => drawn(each, axes, data));
  decorate(series, shown, data, axes);
  return {
    useUTC: context.utc,
    grid: { left: 8, right: 20, top: 12, bottom: 4, containLabel: true },
    xAxis: timeAxis(data.range, { utc: context.utc }),
    yAxis: axes.map(axisOption),
    series,
    tooltip: tooltip("axis", (points) => tipOf(points, shown, panel, context)),
  };
}

function axesOf(series) {
  const axes = [];
  for (const { field, custom } of series) {
    const scale = custom.scaleDistribution ?? { type: "linear" };
    const name = JSON.stringify([field.config.unit, custom.axisPlacement, custom.axisLabel, scale]);
    if (!axes.some((axis) => axis.name === name)) {
      const before = axes.filter(({ side }) => side === "left").length;
      const side =
        custom.axisPlacement === "right" || (before && custom.axisPlacement !== "left")
          ? "right"
          : "left";
      axes.push({ name, field, custom, scale, side, fields: [] });
    }
    axes.find((axis) => axis.name === name).fields.push(field);
  }
  return axes;
}

function axisOption({ field, custom, scale, side, fields }) {
  const { faint, grid } = ink();
  const logarithmic = scale.type === "log";
  const numbers = fields.flatMap(({ values }) => values.filter((v) => typeof v === "number"));
  const flat = numbers.length > 0 && numbers.every((value) => value === numbers[0]);
  const binary = /^(bytes|binBps|[kmg]bytes|bits)$/.test(field.config.unit) && !logarithmic;
  return {
    type: logarithmic ? "log" : "value",
    logBase: scale.log ?? 10,
    position: side,
    show: custom.axisPlacement !== "hidden",
    name: custom.axisLabel ?? "",
    nameLocation: "middle",
    nameGap: 44,
    nameTextStyle: { color: faint },
    min:
      field.config.min ??
      bound(custom.axisSoftMin, Math.min) ??
      (flat && numbers[0] === 0 ? 0 : null),
    max: field.config.max ?? bound(custom.axisSoftMax, Math.max),
    scale: custom.drawStyle !== "bars" && custom.stacking?.mode !== "normal",
    axisLabel: { color: faint, hideOverlap: true, formatter: (value) => field.axisText(value) },
    splitLine: { lineStyle: { color: grid } },
    splitNumber: 4,
    ...(binary ? binarySteps(numbers) : {}),
  };
}

/** Axis steps in units of 1024: a power of two, which gives round labels. */
function binarySteps(numbers) {
  const most = numbers.reduce((a, b) => Math.max(a, b), 0);
  return most > 0 ? { min: 0, interval: 2 ** Math.ceil(Math.log2(most / 5)) } : {};
}

/** A soft bound: the axis extends at least to it. */
const bound = (soft, choose) =>
  soft === undefined || soft === null
    ? null
    : (extent) => choose(soft, choose === Math.min ? extent.min : extent.max);

function drawn({ field, custom, name, colour, points, repeated }, axes, { interval }) {
  const yAxisIndex = Math.max(
    0,
    axes.findIndex((axis) => axis.fields.includes(field)),
  );
  const logarithmic = axes[yAxisIndex]?.scale.type === "log";
  const there = logarithmic ? points.map(([at, v]) => [at, v > 0 ? v : null]) : points;
  const data = parted(bridged(there, custom.spanNulls), custom.insertNulls, interval);
  const stacked = ["normal", "percent"].includes(custom.stacking?.mode);
  const stack = stacked ? `${yAxisIndex} ${custom.stacking.group ?? "A"}` : undefined;
  const base = { name, data, yAxisIndex, stack, color: colour, emphasis: { disabled: true } };
  const opacity = (custom.fillOpacity ?? 0) / 100;
  if (custom.drawStyle === "bars") {
    return {
      ...base,
      type: "bar",
      barGap: "0%",
      barCategoryGap: "10%",
      barMinWidth: 1,
      barMaxWidth: 24,
      itemStyle: { color: faded(colour, Math.max(opacity, 0.3)) },
    };
  }
  const alone = (index) => !hasNumber(data[index - 1]) && !hasNumber(data[index + 1]);
  const always = custom.drawStyle === "points" || custom.showPoints === "always";
  const never = custom.showPoints === "never";
  const size = custom.pointSize ?? 5;
  return {
    ...base,
    type: "line",
    step: STEPS[custom.lineInterpolation] ?? false,
    smooth: custom.lineInterpolation === "smooth" ? 0.3 : false,
    smoothMonotone: "x",
    connectNulls: custom.spanNulls === true,
    showSymbol: !never,
    symbol: "circle",
    symbolSize: (value, { dataIndex }) => (always || alone(dataIndex) ? size : 0),
    lineStyle: {
      width: custom.drawStyle === "points" ? 0 : (custom.lineWidth ?? 1),
      type:
        custom.lineStyle?.fill === "dash"
          ? (custom.lineStyle.dash ?? "dashed")
          : DASHES[repeated % 4],
    },
    areaStyle: opacity > 0 ? { opacity, origin: "start" } : undefined,
  };
}

/** Thresholds and annotations are attached to the first series, or to one without points. */
function decorate(series, shown, { annotations, range }, axes) {
  const lines = [];
  const areas = [];
  for (const { field, custom } of axes) {
    const style = custom.thresholdsStyle?.mode ?? "off";
    if (style === "off") continue;
    for (const { at, colour } of thresholdsOf(field).filter((each) => each.at !== null)) {
      const type = style.includes("dashed") ? "dashed" : "solid";
      lines.push({ yAxis: at, lineStyle: { color: colour, type, width: 1.5 }, symbol: "none" });
    }
  }
  for (const { time, timeEnd, colour } of annotations) {
    const [start, end] = [Math.max(time, range.from), Math.min(timeEnd ?? time, range.to)];
    if (end < range.from || start > range.to) continue;
    lines.push({ xAxis: start, lineStyle: { color: colour, type: "dotted", width: 1.5 } });
    if (end > start) {
      areas.push([{ xAxis: start, itemStyle: { color: colour, opacity: 0.07 } }, { xAxis: end }]);
    }
  }
  const carrier = {
    type: "line",
    data: [[range.from, null]],
    silent: true,
    markLine: { silent: true, symbol: "none", label: { show: false }, data: lines },
    markArea: { silent: true, data: areas },
  };
  series.push(carrier);
}

function tipOf(points, shown, panel, { utc, annotationsAt }) {
  const { mode = "single", sort = "none" } = panel.options?.tooltip ?? {};
  if (mode === "none" || !points.length) return null;
  const at = points[0].axisValue;
  const rows = points
    .filter(({ value, seriesName }) => value?.[1] != null && seriesName)
    .map(({ value, seriesName }) => {
      const { field, colour, name } = shown.find((each) => each.name === seriesName);
      return { name, colour, number: value[1], text: field.text(value[1]) };
    });
  if (sort !== "none") rows.sort((a, b) => (sort === "asc" ? 1 : -1) * (a.number - b.number));
  const notes = annotationsAt(at).map(({ colour, text }) => ({ colour, name: text, text: "" }));
  return tooltipRows(timeText(at, utc), [...rows.slice(0, 30), ...notes.slice(0, 5)]);
}
