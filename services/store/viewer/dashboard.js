// One dashboard on the page: its time range, variables, annotations and refreshes.

import { ask } from "./api.js";
import { colourOf } from "./colours.js";
import { dashboardLookup } from "./interpolate.js";
import { layOut } from "./layout.js";
import { Panel } from "./panel.js";
import { intervalMs, resolveTime } from "./time.js";
import { Variables } from "./variables.js";

// Variables with the time of what a dashboard is about, which it shows until another is chosen.
const OWN_TIME = ["begin", "end"];
const DASHBOARD_PATH = /^\/d\/([^/?#]+)[^?#]*/;

export class Dashboard {
  /** model: the file. changed: called when the toolbar must be redrawn. */
  constructor(model, place, changed) {
    const parameters = new URLSearchParams(location.search);
    this.model = model;
    this.changed = changed;
    this.utc = model.timezone === "utc";
    this.times = {
      from: parameters.get("from") ?? model.time?.from ?? "now-1h",
      to: parameters.get("to") ?? model.time?.to ?? "now",
    };
    this.every = parameters.get("refresh") ?? (model.refresh || "");
    this.viewed = Number(parameters.get("viewPanel")) || null;
    this.variables = new Variables(model.templating?.list ?? [], parameters);
    const hasOwnTime = OWN_TIME.every((name) => this.variables.get(name));
    this.isOwnTime = hasOwnTime && !parameters.has("from") && !parameters.has("to");
    this.sources = (model.annotations?.list ?? []).filter((each) => !each.builtIn);
    this.disabled = new Set(this.sources.filter(({ enable }) => !enable).map(({ name }) => name));
    this.annotations = [];
    this.generation = 0; // number of refreshes
    this.drawable = 0; // the generation whose variables are loaded, so that panels can query
    this.lookup = (name, format) =>
      dashboardLookup({
        variables: this.variables,
        range: { ...this.range, rawFrom: this.times.from, rawTo: this.times.to },
        dashboard: model,
      })(name, format);
    this.resolveRange();
    const made = new Map();
    this.panels = made;
    layOut(place, model, (panel) => {
      const drawn = new Panel(panel, this);
      made.set(drawn.element, drawn);
      return drawn.element;
    });
    this.seen = new Set();
    this.watch();
    this.view(this.viewed, true);
  }

  /** Refresh everything; panels out of view are refreshed when they scroll into view. */
  async refresh({ rangeChanged = true } = {}) {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    this.generation += 1;
    document.documentElement.dataset.state = "loading";
    this.resolveRange();
    try {
      await this.variables.load((what) => this.ask(what), rangeChanged);
      if (this.isOwnTime) this.resolveOwnTime();
      this.changed();
      await this.loadAnnotations();
      this.drawable = this.generation;
      await Promise.all([...this.seen].map((panel) => panel.refresh(this.generation)));
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
    if (signal.aborted) return;
    document.documentElement.dataset.state = "settled";
    this.schedule();
  }

  /** Run one query with the page's time range and variables. */
  ask(what) {
    const { from, to } = this.range;
    const asked = { dashboard: this.model.uid, from_ms: from, to_ms: to, ...what };
    return ask({ ...asked, variables: this.variables.asked() }, this.abort?.signal);
  }

  setRange(times) {
    this.times = times;
    this.isOwnTime = false;
    this.remember();
    return this.refresh();
  }

  setRefresh(every) {
    this.every = every;
    this.remember();
    this.schedule();
  }

  choose(variable, values) {
    variable.given = [];
    variable.choose(values);
    this.variables.all.forEach((each) => (each.loaded = each.model.type !== "query"));
    this.remember();
    return this.refresh();
  }

  toggleAnnotations(name) {
    if (!this.disabled.delete(name)) this.disabled.add(name);
    return this.refresh({ rangeChanged: false });
  }

  /** Show one panel alone, or all panels if it is alone already. */
  view(id, initially = false) {
    this.viewed = !initially && this.viewed === id ? null : id;
    document.body.classList.toggle("viewing", this.viewed !== null);
    for (const { element, model } of this.panels.values()) {
      element.classList.toggle("viewed", model.id === this.viewed);
    }
    if (!initially) this.remember();
  }

  /** This page's address for an address of Grafana: `/d/<uid>…`. */
  address(url) {
    return url.replace(DASHBOARD_PATH, "/dashboards/d/$1");
  }

  annotationsAt(at) {
    const near = (this.range.to - this.range.from) / 200;
    return this.annotations.filter(
      ({ time, timeEnd }) => at >= time - near && at <= (timeEnd ?? time) + near,
    );
  }

  parameters() {
    const made = new URLSearchParams(this.isOwnTime ? {} : this.times);
    if (this.every !== (this.model.refresh || "")) made.set("refresh", this.every);
    if (this.viewed) made.set("viewPanel", this.viewed);
    this.variables.parameters().forEach((value, name) => made.append(name, value));
    return made;
  }

  remember() {
    history.replaceState(null, "", `${location.pathname}?${this.parameters()}`);
  }

  resolveRange() {
    const now = Date.now();
    const from = resolveTime(this.times.from, false, now);
    const to = resolveTime(this.times.to, true, now);
    const good = Number.isFinite(from) && Number.isFinite(to) && from < to;
    this.range = good ? { from, to } : { from: now - 3.6e6, to: now };
    if (!good) this.times = { from: "now-1h", to: "now" };
  }

  resolveOwnTime() {
    const [from, to] = OWN_TIME.map((name) => Number(this.variables.get(name).values[0]));
    if (from < to) this.range = { from, to };
  }

  async loadAnnotations() {
    const wanted = this.sources.filter(({ name }) => !this.disabled.has(name));
    const found = await Promise.all(wanted.map((source) => this.annotationsOf(source)));
    this.annotations = found.flat().sort((a, b) => a.time - b.time);
  }

  async annotationsOf(source) {
    const { name, iconColor } = source;
    try {
      const { result } = await this.ask({ annotation: name });
      source.error = "";
      const at = Object.fromEntries(result.meta.map((column, i) => [column.name.toLowerCase(), i]));
      const time = (row, column) =>
        row[at[column]] === undefined || row[at[column]] === null
          ? null
          : Date.parse(row[at[column]]);
      return result.data.map((row) => ({
        time: time(row, "time"),
        timeEnd: time(row, "timeend"),
        text: [row[at.title], row[at.text]].filter(Boolean).join(": ") || name,
        colour: colourOf(iconColor),
      }));
    } catch (error) {
      if (error.name === "AbortError") throw error;
      source.error = error.message;
      return [];
    }
  }

  /** Refresh a panel when it scrolls into view. */
  watch() {
    const observer = new IntersectionObserver(
      (entries) =>
        entries.forEach(({ target, isIntersecting }) => {
          const panel = this.panels.get(target);
          if (!isIntersecting) this.seen.delete(panel);
          else {
            this.seen.add(panel);
            if (this.drawable === this.generation && this.drawable) panel.refresh(this.drawable);
          }
        }),
      { rootMargin: "300px" },
    );
    for (const element of this.panels.keys()) observer.observe(element);
  }

  schedule() {
    clearTimeout(this.timer);
    const pause = intervalMs(this.every);
    if (!pause) return;
    this.timer = setTimeout(() => (document.hidden ? this.schedule() : this.refresh()), pause);
  }

  recolour() {
    for (const panel of this.panels.values()) panel.recolour();
  }
}
