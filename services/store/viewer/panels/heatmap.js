// Heatmap: counts by time and band. One column per band, from the lowest to the highest.

import { Chart, ink, timeAxis, tooltip, tooltipRows } from "../chart.js";
import { colourAt, scaleStops } from "../colours.js";
import { element } from "../elements.js";
import { timeText } from "../time.js";

/** Draw into the element; returns {update(data), dispose()}. */
export function heatmap(place, panel, context) {
  const chartPlace = element("div", { class: "chart" });
  const scale = element("div", { class: "scale", "aria-hidden": "true" });
  place.append(chartPlace, scale);
  const chart = new Chart(chartPlace, {
    label: `Heatmap: ${panel.title}`,
    shared: true,
    onRange: context.onRange,
  });
  if (panel.options?.calculate) context.unknown("heatmaps calculated from raw values");
  return {
    update(data) {
      const drawn = cellsOf(data);
      chart.draw(option(drawn, data, panel, context));
      if (panel.options?.legend?.show !== false) scale.replaceChildren(...scaleOf(drawn, panel));
    },
    dispose: () => chart.dispose(),
  };
}

/** Bands by name, cells as [from, to, band, count], the maximum count, the unit of counts. */
function cellsOf({ frames, interval }) {
  const bands = [];
  const cells = [];
  let greatest = 0;
  for (const frame of frames) {
    const time = frame.fields.find((field) => field.type === "time");
    if (!time) continue;
    for (const field of frame.fields.filter(({ type }) => type === "number")) {
      const band = bands.push(field.displayName) - 1;
      field.values.forEach((count, row) => {
        if (!count) return;
        greatest = Math.max(greatest, count);
        cells.push([time.values[row], time.values[row] + interval, band, count]);
      });
    }
  }
  return { bands, cells, greatest };
}

/** Position of a count on the colour scale, from 0 to 1. */
function placeOf(count, greatest, { scale, exponent = 0.5 } = {}) {
  if (!greatest) return 0;
  return scale === "linear" ? count / greatest : (count / greatest) ** exponent;
}

function option({ bands, cells, greatest }, { range }, panel, context) {
  const colours = ink();
  const chosen = panel.options?.color ?? {};
  const stops = scaleStops(chosen.scheme, chosen.reverse);
  const unit = panel.options?.yAxis?.unit ?? panel.fieldConfig?.defaults?.unit ?? "";
  return {
    useUTC: context.utc,
    grid: { left: 20, right: 20, top: 8, bottom: 4, containLabel: true },
    xAxis: timeAxis(range, { utc: context.utc, faint: false }),
    yAxis: {
      type: "category",
      data: bands,
      name: panel.options?.yAxis?.axisLabel ?? "",
      axisTick: { show: false },
      axisLine: { lineStyle: { color: colours.grid } },
      axisLabel: { color: colours.faint, formatter: (band) => withUnit(band, unit) },
    },
    series: [
      {
        type: "custom",
        data: cells,
        encode: { x: [0, 1], y: 2 },
        clip: true,
        renderItem: (_, api) => {
          const [start, middle] = api.coord([api.value(0), api.value(2)]);
          const [end] = api.coord([api.value(1), api.value(2)]);
          // Whole pixels, to avoid seams between cells.
          const [left, right] = [Math.floor(start), Math.floor(end)];
          const height = api.size([0, 1])[1];
          const fill = colourAt(stops, placeOf(api.value(3), greatest, chosen));
          return {
            type: "rect",
            shape: { x: left, y: middle - height / 2, width: Math.max(right - left, 1), height },
            style: { fill },
          };
        },
      },
    ],
    tooltip: tooltip("item", ({ value, color }) =>
      tooltipRows(timeText(value[0], context.utc), [
        {
          colour: colourAt(stops, placeOf(value[3], greatest, chosen)) ?? color,
          name: withUnit(bands[value[2]], unit),
          text: `${value[3].toLocaleString("en-US")} outputs`.replace(" outputs", ""),
        },
      ]),
    ),
  };
}

const withUnit = (band, unit) =>
  ["", "short", "none", "string"].includes(unit) ? band : `${band} ${unit}`;

function scaleOf({ greatest }, panel) {
  const chosen = panel.options?.color ?? {};
  const stops = scaleStops(chosen.scheme, chosen.reverse);
  // Equal steps of the count, so that an exponential scale is visible as such.
  const shades = [...Array(21).keys()].map((i) => colourAt(stops, placeOf(i / 20, 1, chosen)));
  return [
    element("span", {}, "0"),
    element("span", {
      class: "ramp",
      style: { background: `linear-gradient(90deg, ${shades.join(",")})` },
    }),
    element("span", {}, greatest.toLocaleString("en-US")),
  ];
}
