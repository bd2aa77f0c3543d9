// Bar chart: groups by the first text (or time) column, one bar per number column.

import { Chart, ink, tooltip, tooltipRows } from "../chart.js";
import { faded, readable, textOn } from "../colours.js";
import { legend } from "../legend.js";

const MOST_GROUPS = 200;

/** Draw into the element; returns {update(data), dispose()}. */
export function barchart(place, panel, context) {
  const chartPlace = place.appendChild(document.createElement("div"));
  chartPlace.className = "chart";
  const key = legend(place, panel, () => redraw());
  const chart = new Chart(chartPlace, { label: `Bar chart: ${panel.title}` });
  let last = null;
  const redraw = () => chart.draw(option(last, panel, key, chartPlace.clientWidth));
  return {
    update({ frames }) {
      last = groupsOf(frames, panel, context);
      key.show(last.series);
      redraw();
    },
    dispose: () => chart.dispose(),
  };
}

function groupsOf(frames, panel, context) {
  const [frame] = frames;
  const wanted = panel.options?.xField;
  const axis =
    frame.fields.find((f) =>
      wanted ? [f.name, f.displayName].includes(wanted) : f.type === "string",
    ) ??
    frame.fields.find((f) => f.type === "time") ??
    frame.fields[0];
  const series = frame.fields
    .filter((field) => field !== axis && ["number", "boolean"].includes(field.type))
    .filter(({ config }) => !config.custom.hideFrom?.viz)
    .map((field) => ({
      field,
      name: field.displayName,
      colour: readable(field.colour(), 2),
      values: field.values,
    }));
  if (frame.length > MOST_GROUPS) context.unknown(`more than ${MOST_GROUPS} groups of bars`);
  return {
    axis,
    names: axis.values.slice(0, MOST_GROUPS).map((value) => axis.text(value)),
    series,
  };
}

function option({ axis, names, series }, panel, key, width) {
  const { text, faint, grid } = ink();
  const {
    orientation = "auto",
    stacking = "none",
    showValue = "auto",
    barWidth = 0.9,
    tooltip: tip = {},
    xTickLabelRotation = 0,
  } = panel.options ?? {};
  const lying = orientation === "horizontal";
  const shown = series.filter(({ name }) => key.isShown(name));
  const custom = series[0]?.field.config.custom ?? {};
  const room = lying ? 160 : Math.floor((width * 0.85) / Math.max(1, names.length));
  const groups = {
    type: "category",
    data: names,
    inverse: lying,
    name: axis.config.custom.axisLabel ?? "",
    nameLocation: "middle",
    nameGap: lying ? 120 : 24,
    nameTextStyle: { color: faint },
    axisTick: { show: false },
    axisLine: { lineStyle: { color: grid } },
    axisLabel: {
      color: faint,
      hideOverlap: true,
      rotate: -xTickLabelRotation,
      width: Math.max(room, 44),
      overflow: "truncate",
      interval: room >= 44 ? 0 : "auto",
    },
  };
  const values = {
    type: custom.scaleDistribution?.type === "log" ? "log" : "value",
    min: series[0]?.field.config.min ?? null,
    max: series[0]?.field.config.max ?? null,
    axisLabel: { color: faint, formatter: (value) => series[0]?.field.axisText(value) ?? value },
    splitLine: { lineStyle: { color: grid } },
  };
  return {
    grid: {
      left: axis.config.custom.axisLabel && lying ? 28 : 8,
      right: 16,
      top: 20,
      bottom: axis.config.custom.axisLabel && !lying ? 22 : 4,
      containLabel: true,
    },
    xAxis: lying ? values : groups,
    yAxis: lying ? groups : values,
    series: shown.map(({ field, name, colour, values: numbers }) => ({
      type: "bar",
      name,
      stack: stacking === "none" ? undefined : "all",
      data: numbers.slice(0, MOST_GROUPS),
      barCategoryGap: `${(1 - barWidth) * 100}%`,
      barMaxWidth: 80,
      itemStyle: { color: faded(colour, (field.config.custom.fillOpacity ?? 80) / 100) },
      emphasis: { disabled: true },
      label: {
        show: showValue === "always" || (showValue === "auto" && shown.length * names.length <= 24),
        position: stacking === "none" ? (lying ? "right" : "top") : "inside",
        color: stacking === "none" ? text : textOn(colour),
        fontSize: 10,
        formatter: ({ value }) => (value === null || value === undefined ? "" : field.text(value)),
      },
      labelLayout: { hideOverlap: true },
    })),
    tooltip: tooltip("axis", (points) =>
      tip.mode === "none"
        ? null
        : tooltipRows(
            points[0].name,
            points.map((point) => {
              const { field, colour, name } = shown[point.seriesIndex];
              return { colour, name, text: field.text(point.value ?? null) };
            }),
          ),
    ),
  };
}
