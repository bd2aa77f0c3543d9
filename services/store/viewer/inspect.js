// Shows the rows and the SQL of a panel.

import { element } from "./elements.js";
import { tableFrame } from "./frames.js";

const MOST_ROWS = 500;

/** Open the dialog for a panel. */
export function inspect(panel) {
  const dialog = element("dialog", {
    class: "inspect",
    "aria-label": `Data of ${panel.model.title}`,
  });
  const close = () => dialog.close();
  dialog.append(
    element(
      "header",
      {},
      element("h2", {}, panel.heading.textContent),
      element("button", { type: "button", onclick: close, autofocus: true }, "Close"),
    ),
    element("p", {}, panel.model.description ?? ""),
    ...panel.answers.flatMap(answer),
    panel.answers.length ? "" : element("p", {}, "No query has run yet."),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function answer({ target, sql, elapsed_s, result, error }) {
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(sql);
    copy.textContent = "Copied";
  });
  const rows = result?.data.length ?? 0;
  const said = error ?? `${rows} rows in ${Math.round(elapsed_s * 1000)} ms`;
  return [
    element("h3", {}, `Query ${target.refId ?? ""}: ${said}`),
    element("div", { class: "sql" }, element("pre", { tabindex: "0" }, sql.trim()), copy),
    result ? element("div", { class: "scroller", tabindex: "0" }, plainTable(result)) : "",
  ];
}

function plainTable(result) {
  const { fields, length } = tableFrame("", result);
  const shown = [...Array(Math.min(length, MOST_ROWS)).keys()];
  return element(
    "table",
    { class: "rows" },
    length > MOST_ROWS ? element("caption", {}, `The first ${MOST_ROWS} rows.`) : null,
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        fields.map(({ name }) => element("th", { scope: "col" }, name)),
      ),
    ),
    element(
      "tbody",
      {},
      shown.map((row) =>
        element(
          "tr",
          {},
          fields.map(({ type, values }) => element("td", {}, plain(values[row], type))),
        ),
      ),
    ),
  );
}

function plain(value, type) {
  if (value === null) return "null";
  return type === "time" ? new Date(value).toISOString() : String(value);
}
