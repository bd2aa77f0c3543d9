// A button that opens a popup below it.

import { element } from "./elements.js";

/** A details element that closes on a click or focus elsewhere. */
export function dropDown(name, label, ...content) {
  const details = element(
    "details",
    { class: "drop", "data-name": name },
    element("summary", { "data-key": name }, label),
    element("div", { class: "drop-content" }, content),
  );
  details.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    details.open = false;
    details.querySelector("summary").focus();
  });
  return details;
}

document.addEventListener("click", ({ target }) => {
  for (const open of document.querySelectorAll("details.drop[open]")) {
    if (target.isConnected && !open.contains(target)) open.open = false;
  }
});
