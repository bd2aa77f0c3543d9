// Selects the values of a variable: a list, checkboxes if several are allowed, or a text field.

import { dropDown } from "./dropdown.js";
import { element } from "./elements.js";
import { ALL } from "./variables.js";

/** The control of a variable. */
export function picker(dashboard, variable) {
  const { model } = variable;
  const label = model.label || model.name;
  const title = variable.error ? `Could not load the values: ${variable.error}` : model.description;
  const named = (control) =>
    element(
      "label",
      { class: `choice${variable.error ? " failed" : ""}`, title },
      model.hide === 1 ? "" : label,
      control,
    );
  if (model.type === "textbox") {
    return named(
      element("input", {
        value: variable.chosen[0] ?? "",
        "data-key": model.name,
        onchange: ({ target }) => dashboard.choose(variable, [target.value]),
      }),
    );
  }
  if (model.multi) {
    const text =
      variable.texts.length > 2 ? `${variable.texts.length} chosen` : variable.texts.join(", ");
    return element(
      "div",
      { class: "choice", title },
      label,
      dropDown(model.name, text || "none", choices(dashboard, variable)),
    );
  }
  const gone = variable.chosen.filter((value) => !variable.options.some((o) => o.value === value));
  const options = [...variable.options, ...gone.map((value) => ({ value, text: value }))];
  return named(
    element(
      "select",
      {
        "data-key": model.name,
        disabled: !options.length,
        onchange: ({ target }) => dashboard.choose(variable, [target.value]),
      },
      options.length
        ? options.map(({ value, text }) =>
            element("option", { value, selected: variable.chosen.includes(value) }, text),
          )
        : element("option", {}, "No values"),
    ),
  );
}

function choices(dashboard, variable) {
  const toggle = (value) => {
    const others = variable.chosen.filter((each) => each !== value && each !== ALL);
    const next =
      value === ALL ? [ALL] : variable.chosen.includes(value) ? others : [...others, value];
    dashboard.choose(variable, next.length ? next : [variable.options[0].value]);
  };
  if (!variable.options.length) return element("p", {}, "No values.");
  return variable.options.map(({ value, text }) =>
    element(
      "label",
      { class: "option" },
      element("input", {
        type: "checkbox",
        checked: variable.chosen.includes(value),
        "data-key": `${variable.model.name} ${value}`,
        onchange: () => toggle(value),
      }),
      text,
    ),
  );
}
