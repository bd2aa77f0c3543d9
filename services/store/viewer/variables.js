// The variables of a dashboard: options, selected values, queries and text.

export const ALL = "$__all";
const ON_TIME_RANGE_CHANGED = 2;

export class Variables {
  /** parameters: the page's URLSearchParams, in which `var-<name>` is the selection. */
  constructor(list, parameters) {
    this.all = list.map((model) => new Variable(model, parameters.getAll(`var-${model.name}`)));
  }

  /** Variables that can be selected on the page. */
  get shown() {
    const chosen = ["query", "custom", "textbox", "interval"];
    return this.all.filter(({ model }) => model.hide !== 2 && chosen.includes(model.type));
  }

  /** Unsupported types. */
  get unknown() {
    const known = ["query", "custom", "textbox", "interval", "constant", "datasource"];
    return this.all.filter(({ model }) => !known.includes(model.type));
  }

  /** Query the options of variables, in order, because a query may use the variables before it. */
  async load(ask, rangeChanged) {
    for (const variable of this.all) {
      const { type, refresh } = variable.model;
      const again = !variable.loaded || (rangeChanged && refresh === ON_TIME_RANGE_CHANGED);
      if (type === "query" && again) await variable.load(ask);
    }
  }

  /** {values, texts} of a variable, or undefined. */
  get(name) {
    const found = this.all.find(({ model }) => model.name === name);
    return found && { values: found.chosen, texts: found.texts };
  }

  /** Values as the store expects them: a text, a list, or `$__all`. */
  asked() {
    const asking = this.all.filter(({ model }) => !["datasource", "constant"].includes(model.type));
    return Object.fromEntries(
      asking.map(({ model, chosen }) => [model.name, model.multi ? chosen : (chosen[0] ?? "")]),
    );
  }

  /** The selection as address parameters. */
  parameters() {
    const made = new URLSearchParams();
    for (const { model, chosen } of this.shown) {
      for (const value of chosen) made.append(`var-${model.name}`, value);
    }
    return made;
  }
}

class Variable {
  constructor(model, given) {
    this.model = model;
    this.given = given.map((value) => (value === "All" && model.includeAll ? ALL : value));
    this.loaded = model.type !== "query";
    this.error = "";
    this.options = this.withAll(fixedOptions(model));
    this.choose(this.given.length ? this.given : currentOf(model));
    if (this.loaded) this.settle();
  }

  /** Texts of the selected values. */
  get texts() {
    return this.chosen.map(
      (value) => this.options.find((option) => option.value === value)?.text ?? value,
    );
  }

  choose(values) {
    this.chosen = values.length > 1 ? values.filter((value) => value !== ALL) : values;
  }

  async load(ask) {
    try {
      const { result } = await ask({ variable: this.model.name });
      const rows = result.data.map(([value, text]) => ({
        value: String(value),
        text: String(text ?? value),
      }));
      const pattern = /^\/(.*)\/(\w*)$/.exec(this.model.regex ?? "");
      const kept = pattern
        ? rows.filter(({ text }) => new RegExp(pattern[1], pattern[2]).test(text))
        : rows;
      this.options = this.withAll(kept);
      this.error = "";
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.error = error.message;
    }
    this.loaded = true;
    this.settle();
  }

  /** Drop selected values that are no longer options, unless the address requested them. */
  settle() {
    if (this.model.type === "textbox") return;
    const known = new Set(this.options.map(({ value }) => value));
    const kept = this.chosen.filter((value) => known.has(value) || this.given.includes(value));
    if (kept.length) this.choose(kept);
    else this.choose(this.options.length ? [this.options[0].value] : []);
  }

  withAll(options) {
    return this.model.includeAll ? [{ value: ALL, text: "All" }, ...options] : options;
  }
}

function fixedOptions({ type, query }) {
  if (!["custom", "interval"].includes(type)) return [];
  return String(query ?? "")
    .split(",")
    .map((part) => {
      const at = part.lastIndexOf(" : ");
      const value = part.slice(at < 0 ? 0 : at + 3).trim();
      return { value, text: at < 0 ? value : part.slice(0, at).trim() };
    });
}

function currentOf({ type, current, query }) {
  const value = current?.value;
  if (value === undefined || value === null || value === "") {
    return ["textbox", "constant"].includes(type) ? [String(query ?? "")] : [];
  }
  return [value].flat().map(String);
}
