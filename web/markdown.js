// Markdown as DOM nodes. Nothing of the text becomes markup: every piece is a text node or an attribute that is set
// here, links go to http, https and mailto only, and images are shown as links.

import { copyButton, el } from "./dom.js";

const INLINE =
  /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|__(?=\S)([\s\S]*?\S)__(?!\w)|~~(?=\S)([\s\S]*?\S)~~|\*(?=[^\s*])([\s\S]*?[^\s*])\*|(?<!\w)_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)|!?\[([^\]]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)|(https?:\/\/[^\s<>()\[\]"'`]+[^\s<>()\[\]"'`.,;:!?])|\\([\\`*_{}\[\]()#+\-.!~|>])/g;

const safeUrl = (url) => (/^(https?:|mailto:)/i.test(url) ? url : null);

function link(url, children, depth) {
  const target = safeUrl(url);
  const inside = typeof children === "string" ? inline(children, depth + 1) : children;
  return target ? el("a", { href: target, target: "_blank", rel: "noopener noreferrer" }, ...inside) : el("span", {}, ...inside);
}

/** Nodes of a text without blocks. */
export function inline(text, depth = 0) {
  if (depth > 8) return [document.createTextNode(text)];
  const out = [];
  let at = 0;
  for (const m of text.matchAll(INLINE)) {
    if (m.index > at) out.push(document.createTextNode(text.slice(at, m.index)));
    at = m.index + m[0].length;
    const [, , code, strong, strong2, gone, em, em2, label, url, plainUrl, escaped] = m;
    if (code !== undefined) out.push(el("code", { text: code.trim() }));
    else if (strong ?? strong2) out.push(el("strong", {}, ...inline(strong ?? strong2, depth + 1)));
    else if (gone) out.push(el("del", {}, ...inline(gone, depth + 1)));
    else if (em ?? em2) out.push(el("em", {}, ...inline(em ?? em2, depth + 1)));
    else if (label !== undefined) out.push(link(url, label || url, depth));
    else if (plainUrl) out.push(link(plainUrl, [document.createTextNode(plainUrl)], depth));
    else out.push(document.createTextNode(escaped));
  }
  if (at < text.length) out.push(document.createTextNode(text.slice(at)));
  return out;
}

function codeBlock(code, language) {
  return el(
    "figure",
    { class: "code" },
    el("figcaption", {}, el("span", { text: language || "text" }), copyButton(() => code, { "aria-label": "Copy the code" })),
    el("pre", { tabindex: "0" }, el("code", { text: code })),
  );
}

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`\s]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const DIVIDER = /^ {0,3}\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/;

const cellsOf = (line) =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));

function table(lines) {
  const aligned = cellsOf(lines[1]).map((rule) => (!rule.endsWith(":") ? null : rule.startsWith(":") ? "middle" : "num"));
  const row = (line, tag) => el("tr", {}, ...cellsOf(line).map((cell, i) => el(tag, { class: aligned[i] }, ...inline(cell))));
  return el(
    "div",
    { class: "scroll" },
    el("table", {}, el("thead", {}, row(lines[0], "th")), el("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))),
  );
}

// A list from lines[at] on: items at this indentation, with all deeper lines inside them.
function list(lines, at, depth) {
  const first = lines[at].match(ITEM);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const node = el(ordered ? "ol" : "ul", ordered && parseInt(first[2], 10) !== 1 ? { start: parseInt(first[2], 10) } : {});
  while (at < lines.length) {
    const m = lines[at].match(ITEM);
    if (!m || m[1].length < indent || /\d/.test(m[2]) !== ordered) break;
    const width = m[0].length - m[3].length;
    const inside = [m[3]];
    for (++at; at < lines.length; ++at) {
      const next = lines[at].match(ITEM);
      const deeper = lines[at].search(/\S/);
      if (next && next[1].length <= indent) break;
      if (deeper === -1) {
        const after = lines.slice(at).find((line) => line.trim() !== "");
        if (after === undefined || after.search(/\S/) <= indent) break;
      } else if (deeper <= indent && lines[at - 1].trim() === "") {
        break;
      }
      inside.push(lines[at].slice(Math.min(width, Math.max(deeper, 0))));
    }
    node.append(el("li", {}, ...blocks(inside, depth + 1, true)));
    // Items may be apart by an empty line.
    let next = at;
    while (next < lines.length && lines[next].trim() === "") ++next;
    const again = next < lines.length ? lines[next].match(ITEM) : null;
    if (again && again[1].length >= indent && /\d/.test(again[2]) === ordered) at = next;
  }
  return [node, at];
}

function blocks(lines, depth, tight = false) {
  const out = [];
  if (depth > 12) return [document.createTextNode(lines.join("\n"))];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fence = line.match(FENCE);
    const heading = line.match(/^ {0,3}(#{1,6})\s(.*)$/);
    if (line.trim() === "") {
      ++at;
    } else if (fence) {
      const inside = [];
      const end = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},}\\s*$`);
      for (++at; at < lines.length && !end.test(lines[at]); ++at) inside.push(lines[at].replace(new RegExp(`^ {0,${fence[1].length}}`), ""));
      ++at;
      out.push(codeBlock(inside.join("\n"), fence[3]));
    } else if (heading) {
      out.push(el(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2].trim().replace(/#+$/, "").trimEnd())));
      ++at;
    } else if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push(el("hr"));
      ++at;
    } else if (/^ {0,3}>/.test(line)) {
      const inside = [];
      for (; at < lines.length && /^ {0,3}>/.test(lines[at]); ++at) inside.push(lines[at].replace(/^ {0,3}> ?/, ""));
      out.push(el("blockquote", {}, ...blocks(inside, depth + 1)));
    } else if (ITEM.test(line)) {
      const [node, next] = list(lines, at, depth);
      out.push(node);
      at = next;
    } else if (line.includes("|") && at + 1 < lines.length && DIVIDER.test(lines[at + 1]) && lines[at + 1].includes("-")) {
      const from = at;
      for (at += 2; at < lines.length && lines[at].includes("|"); ++at);
      out.push(table(lines.slice(from, at)));
    } else {
      const from = at;
      for (++at; at < lines.length; ++at) {
        const next = lines[at];
        if (next.trim() === "" || FENCE.test(next) || ITEM.test(next) || /^ {0,3}(#{1,6}\s|>)/.test(next)) break;
      }
      const nodes = inline(lines.slice(from, at).join("\n"));
      out.push(...(tight && out.length === 0 ? nodes : [el("p", {}, ...nodes)]));
    }
  }
  return out;
}

/** The nodes of a whole text. */
export function markdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}
