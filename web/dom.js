// Elements without markup: text is always text.

/** A new element. `props`: attributes; `text`; `class`; functions under "onclick" and the like. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Sets the text if it differs, so that screen readers and selections are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** "7.3 ms", "1.20 s", "-" for null. */
export function ms(value) {
  if (value === null || value === undefined) return "-";
  if (value < 9.95) return `${value.toFixed(1)} ms`;
  if (value < 999.5) return `${Math.round(value)} ms`;
  if (value < 99_500) return `${(value / 1000).toFixed(2)} s`;
  return `${Math.round(value / 1000)} s`;
}

/** "12", "3.4 k", "1.20 M". */
export function count(value) {
  if (value < 10_000) return String(Math.round(value));
  if (value < 1e6) return `${(value / 1e3).toFixed(1)} k`;
  return `${(value / 1e6).toFixed(2)} M`;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1)} %`;

/** Fills a list with tiles: [name, value, note]. */
export function tiles(box, all) {
  if (box.childElementCount !== all.length) {
    box.replaceChildren(...all.map(() => el("div", { class: "tile" }, el("dt"), el("dd", { class: "value" }), el("dd", { class: "note" }))));
  }
  all.forEach((texts, i) => texts.forEach((text, j) => setText(box.children[i].children[j], text)));
}

export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages of plain HTTP from another machine have no clipboard object.
  const area = el("textarea", { class: "hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A button that copies and says so. */
export function copyButton(text, props = {}) {
  const button = el("button", { type: "button", class: "quiet", text: "Copy", ...props });
  button.addEventListener("click", async () => {
    try {
      await copyText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}
