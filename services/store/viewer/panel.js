// One panel: its frame, its queries, and messages if there is nothing to draw.
//
// `data-state` of its element is loading, drawn, empty, error or unsupported.

import { configured } from "./fields.js";
import { element, safeAddress } from "./elements.js";
import { framesOf, transformed, unknownTransformations } from "./frames.js";
import { inspect } from "./inspect.js";
import { interpolate } from "./interpolate.js";
import { barchart } from "./panels/barchart.js";
import { heatmap } from "./panels/heatmap.js";
import { stat } from "./panels/stat.js";
import { table } from "./panels/table.js";
import { text } from "./panels/text.js";
import { timeseries } from "./panels/timeseries.js";

const KINDS = { barchart, heatmap, stat, table, text, timeseries };
const NOTHING = "No data in this time range.";

export class Panel {
  /** dashboard: the dashboard that contains it; see dashboard.js. */
  constructor(model, dashboard) {
    this.model = model;
    this.dashboard = dashboard;
    this.answers = [];
    this.notes = new Set();
    this.generation = -1;
    this.build();
  }

  build() {
    const { model } = this;
    const name = `panel-${model.id}`;
    this.heading = element("h2", { id: name });
    this.links = element("span", { class: "links" });
    this.body = element("div", { class: "body" });
    this.message = element("p", { class: "message", hidden: true });
    this.remark = element("p", { class: "remark", hidden: true });
    this.element = element(
      "section",
      {
        class: `panel ${model.type}${model.transparent ? " transparent" : ""}`,
        "aria-labelledby": name,
        "data-panel": model.id,
        "data-type": model.type,
        "data-state": "loading",
      },
      element("header", {}, this.heading, this.info(), this.links, this.menu()),
      this.body,
      this.message,
      this.remark,
    );
    this.retitle();
    const kind = KINDS[model.type];
    if (!kind) {
      this.show(
        "unsupported",
        `This viewer does not support panels of type “${model.type}”. Use Grafana.`,
      );
      return;
    }
    if (unknownTransformations(model).length) this.note("transformations");
    if (model.repeat) this.note("repeated panels");
    if (model.timeFrom || model.timeShift) this.note("a time range of its own");
    this.kind = kind;
  }

  info() {
    const { description } = this.model;
    if (!description) return null;
    const id = `about-${this.model.id}`;
    return element(
      "span",
      { class: "about" },
      element(
        "button",
        { type: "button", "aria-label": "About this panel", "aria-describedby": id },
        "i",
      ),
      element("span", { class: "about-text", role: "tooltip", id }, description),
    );
  }

  menu() {
    const inspecting = () => inspect(this);
    const viewing = () => this.dashboard.view(this.model.id);
    return element(
      "span",
      { class: "menu" },
      element(
        "button",
        {
          type: "button",
          title: "Data and query",
          "aria-label": `Data and query of ${this.model.title}`,
          onclick: inspecting,
        },
        "≡",
      ),
      element(
        "button",
        {
          type: "button",
          title: "Enlarge or restore",
          "aria-label": `Enlarge or restore: ${this.model.title}`,
          onclick: viewing,
        },
        "⤢",
      ),
    );
  }

  retitle() {
    const { lookup } = this.dashboard;
    this.heading.textContent = interpolate(this.model.title ?? "", lookup);
    this.links.replaceChildren(
      ...(this.model.links ?? []).flatMap(({ title, url, targetBlank }) => {
        const href = safeAddress(this.dashboard.address(interpolate(url, lookup)));
        const target = targetBlank ? "_blank" : null;
        return href ? [element("a", { href, target, rel: "noopener" }, title || "Link")] : [];
      }),
    );
  }

  /** Query and draw, unless already done for this generation. Never rejects. */
  async refresh(generation) {
    if (!this.kind || this.generation === generation) return;
    this.generation = generation;
    this.element.setAttribute("aria-busy", "true");
    this.retitle();
    try {
      const targets = (this.model.targets ?? []).filter(({ hide }) => !hide);
      const points = Math.max(50, Math.round(this.body.clientWidth / 50) * 50 || 600);
      const answers = await Promise.all(
        targets.map(({ refId = "A" }) =>
          this.dashboard.ask({ panel: this.model.id, ref: refId, points }),
        ),
      );
      if (this.generation !== generation) return;
      this.answers = answers.map((answer, i) => ({ target: targets[i], ...answer }));
      this.draw();
    } catch (error) {
      if (error.name === "AbortError" || this.generation !== generation) return;
      this.answers = error.sql ? [{ target: {}, sql: error.sql, error: error.message }] : [];
      this.show("error", sentence(error.message));
    } finally {
      if (this.generation === generation) this.element.removeAttribute("aria-busy");
    }
  }

  /** Draw the latest answers again, for example when the page's colours change. */
  draw() {
    if (!this.kind || this.answers.some(({ error }) => error)) return;
    const { utc, range } = this.dashboard;
    const asked = this.answers.flatMap(({ target, result }) => framesOf(target, result));
    const raw = transformed(asked, this.model);
    const unknown = (what) => this.note(what);
    const colourByValue = ["stat", "table"].includes(this.model.type);
    this.frames = configured(raw, this.model, { utc, unknown, colourByValue });
    if (this.model.type !== "text" && isEmpty(this.frames, this.model.type)) {
      this.show("empty", this.model.fieldConfig?.defaults?.noValue || NOTHING);
      return;
    }
    this.show("drawn");
    this.drawing ??= this.kind(this.body, this.model, this.context());
    const interval = Math.max(0, ...this.answers.map(({ interval_s }) => interval_s * 1000));
    this.drawing.update({
      frames: this.frames,
      range,
      interval,
      annotations: this.dashboard.annotations,
    });
  }

  /** Recreate the chart: colours are set at creation. */
  recolour() {
    this.drawing?.dispose();
    this.drawing = null;
    this.body.replaceChildren();
    if (this.answers.length || this.model.type === "text") this.draw();
  }

  context() {
    const { dashboard } = this;
    return {
      utc: dashboard.utc,
      lookup: dashboard.lookup,
      address: (url) => dashboard.address(url),
      unknown: (what) => this.note(what),
      onRange: (from, to) => dashboard.setRange({ from: String(from), to: String(to) }),
      annotationsAt: (at) => dashboard.annotationsAt(at),
    };
  }

  show(state, message = "") {
    this.element.dataset.state = state;
    this.message.hidden = !message;
    this.message.textContent = message;
    this.body.hidden = Boolean(message);
  }

  /** Note an unsupported setting of the file. */
  note(what) {
    this.notes.add(what);
    this.remark.hidden = false;
    this.remark.textContent = `Not shown here: ${[...this.notes].join(", ")}.`;
  }
}

function isEmpty(frames, type) {
  const filled = frames.filter(({ length }) => length);
  if (!filled.length) return true;
  return (
    type === "stat" &&
    filled.every(({ fields }) => fields.every(({ values }) => values.every((v) => v === null)))
  );
}

/** ClickHouse's message without its code and version. */
const sentence = (text) =>
  text
    .replace(/^Code: \d+\. /, "")
    .replace(/^DB::Exception: /, "")
    .replace(/\(version [^)]*\)\s*$/, "");
