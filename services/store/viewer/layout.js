// Positions panels: Grafana's grid of 24 columns, and collapsible rows.

import { element } from "./elements.js";

/** Add the panels of a dashboard to `place`; `make(panel)` returns the element of a panel. */
export function layOut(place, model, make) {
  const sections = sectionsOf(model.panels ?? []);
  place.replaceChildren(
    ...sections.map(({ row, panels }) => {
      const top = Math.min(...panels.map(({ gridPos }) => gridPos.y));
      const grid = element(
        "div",
        { class: "grid" },
        inOrder(panels).map((panel) => {
          const { x, y, w, h } = panel.gridPos;
          const made = make(panel);
          made.style.setProperty("--column", `${x + 1} / span ${w}`);
          made.style.setProperty("--row", `${y - top + 1} / span ${h}`);
          made.style.setProperty("--height", h);
          return made;
        }),
      );
      if (!row) return grid;
      return element(
        "details",
        { class: "row", open: !row.collapsed },
        element("summary", {}, row.title || "Row"),
        grid,
      );
    }),
  );
  if (!sections.length)
    place.append(element("p", { class: "notice" }, "This dashboard has no panels."));
}

function sectionsOf(panels) {
  const sections = [];
  for (const panel of inOrder(panels)) {
    if (panel.type === "row") sections.push({ row: panel, panels: [...(panel.panels ?? [])] });
    else {
      if (!sections.length) sections.push({ row: null, panels: [] });
      sections.at(-1).panels.push(panel);
    }
  }
  return sections.filter((section) => section.panels.length);
}

const inOrder = (panels) =>
  panels
    .map((panel) => ({ ...panel, gridPos: { x: 0, y: 0, w: 24, h: 8, ...panel.gridPos } }))
    .sort((a, b) => a.gridPos.y - b.gridPos.y || a.gridPos.x - b.gridPos.x);
