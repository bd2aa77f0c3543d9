// Text: a subset of Markdown; HTML in it is shown as text.

import { element, safeAddress } from "../elements.js";
import { interpolate } from "../interpolate.js";

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(([^)\s]+)\)/g;

/** Draw into the element; returns {update(), dispose()}. */
export function text(place, panel, context) {
  const article = element("div", { class: "text", tabindex: "0" });
  place.append(article);
  return {
    update() {
      const { content = "", mode = "markdown" } = panel.options ?? {};
      const filled = interpolate(content, context.lookup);
      if (mode === "markdown") article.replaceChildren(...blocks(filled, context));
      else article.replaceChildren(element("pre", {}, filled));
    },
    dispose() {},
  };
}

function blocks(source, context) {
  const made = [];
  const list = (name) => {
    if (made.at(-1)?.localName !== name) made.push(element(name));
    return made.at(-1);
  };
  for (const block of source.trim().split(/\n{2,}/)) {
    if (block.startsWith("```")) {
      made.push(element("pre", {}, block.replace(/^```\w*\n?|\n?```$/g, "")));
      continue;
    }
    let open = null;
    for (const line of block.split("\n")) {
      const heading = /^(#{1,4})\s+(.*)/.exec(line);
      const item = /^\s*(?:([-*])|\d+\.)\s+(.*)/.exec(line);
      if (heading) made.push(element(`h${heading[1].length + 2}`, {}, inline(heading[2], context)));
      else if (item)
        list(item[1] ? "ul" : "ol").append(element("li", {}, inline(item[2], context)));
      else if (open) open.append(" ", ...inline(line, context));
      else made.push((open = element("p", {}, inline(line, context))));
      if (heading || item) open = null;
    }
  }
  return made;
}

function inline(source, context) {
  const made = [];
  let at = 0;
  for (const found of source.matchAll(INLINE)) {
    made.push(source.slice(at, found.index));
    const [whole, code, strong, emphasis, label, url] = found;
    const href = url && safeAddress(context.address(url));
    if (code) made.push(element("code", {}, code));
    else if (strong) made.push(element("strong", {}, strong));
    else if (emphasis) made.push(element("em", {}, emphasis));
    else made.push(href ? element("a", { href, rel: "noopener" }, label) : whole);
    at = found.index + whole.length;
  }
  made.push(source.slice(at));
  return made;
}
