// The page: all dashboards at `/dashboards/`, one dashboard at `/dashboards/d/<uid>`.
//
// It shows the Grafana dashboard files of deploy/grafana/dashboards and no others.

import { listDashboards, loadDashboard } from "./api.js";
import { Dashboard } from "./dashboard.js";
import { element } from "./elements.js";
import { toolbar } from "./toolbar.js";

const bar = document.getElementById("bar");
const main = document.getElementById("main");

async function begin() {
  const entries = await listDashboards();
  const uid = /^\/dashboards\/d\/([^/]+)/.exec(location.pathname)?.[1];
  if (!uid) {
    showList(entries);
    return;
  }
  const model = await loadDashboard(decodeURIComponent(uid));
  document.title = `${model.title} · Tidegauge`;
  const dashboard = new Dashboard(model, main, () => toolbar(bar, dashboard, entries));
  toolbar(bar, dashboard, entries);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dashboard.recolour());
  await dashboard.refresh();
}

function showList(entries) {
  bar.replaceChildren(
    element(
      "div",
      { class: "bar-top" },
      element("a", { class: "home", href: "/dashboards/" }, "Tidegauge"),
      element("h1", {}, "Dashboards"),
    ),
  );
  const folders = [...new Set(entries.map(({ folder }) => folder))];
  main.replaceChildren(
    ...folders.map((folder) =>
      element(
        "section",
        { class: "folder" },
        folder ? element("h2", {}, folder) : null,
        element("ul", { class: "cards" }, entries.filter((e) => e.folder === folder).map(card)),
      ),
    ),
    entries.length ? "" : element("p", { class: "notice" }, "There are no dashboards."),
  );
  document.documentElement.dataset.state = "settled";
}

const card = ({ uid, title, description, error }) =>
  element(
    "li",
    {},
    error
      ? element("p", { class: "failed" }, error)
      : element(
          "a",
          { href: `/dashboards/d/${uid}` },
          element("strong", {}, title),
          element("span", {}, description),
        ),
  );

begin().catch((error) => {
  main.replaceChildren(element("p", { class: "notice failed" }, error.message));
  document.documentElement.dataset.state = "settled";
});
