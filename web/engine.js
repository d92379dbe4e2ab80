// The view of the engine, from GET /events. Connected only while it is seen.

import { follow, send } from "./api.js";
import { boxAt, drawKv, drawQueue, drawSteps, drawTimes, drawTree, markStep, requestColour, stepAt } from "./charts.js";
import { byId, count, el, ms, percent, setText, tiles } from "./dom.js";
import { showRequest } from "./request.js";
import { drawGaps } from "./strip.js";

const MOST_STEPS = 800;
const MOST_GAPS = 90; // of a row
const MOST_ROWS = 64;
const MOST_ENDED = 40;
const KEEP_ENDED_MS = 2500; // a row stays for that time after its request
const RATE_MS = 3000; // tokens per second are over this time
const SAY_MS = 3000; // between two descriptions of the charts
const MISSES_MS = 5000; // between two readings of the misses

let hello = null;
let frame = null; // the newest
let classes = {};
let tree = { blocks: 0, too_large: false, branches: [] };
let boxes = []; // of the drawn tree
let pointedBox = null;
let steps = [];
let totals = []; // {at, prompt, generated} of the last frames
let ended = [];
let lost = { frames: 0, records: 0 };
const streams = new Map(); // request: {request, id, class, ..., choices, endedAt}
let causes = new Map(); // "tbt: passed_over": misses since the server's start
let causesAt = -Infinity;
let composition = { top: 0, chunkAt: () => null }; // as drawn
const rows = new Map(); // "request/choice": row
let paused = false;
let pointed = null; // the step under the pointer
let control = null;
let drawing = false;
let saidAt = 0;

function take(f) {
  frame = f;
  if (f.classes) classes = f.classes;
  if (f.prefix_tree) tree = f.prefix_tree;
  lost.frames += f.lost_frames;
  lost.records += f.lost_records;
  const now = performance.now();
  totals.push({ at: now, prompt: f.totals.prompt_tokens, generated: f.totals.generation_tokens });
  while (totals.length > 2 && totals[0].at < now - RATE_MS) totals.shift();
  if (!paused) steps = steps.concat(f.steps).slice(-MOST_STEPS);
  if (f.whole) {
    const live = new Set(f.streams.map((s) => s.request));
    for (const [request, s] of streams) if (!live.has(request) && !s.endedAt) streams.delete(request);
  }
  for (const s of f.streams) {
    const known = streams.get(s.request);
    const choices = new Map(known?.choices);
    for (const c of s.choices) {
      const gaps = (choices.get(c.choice)?.gaps ?? []).concat(c.gaps_ms).slice(-MOST_GAPS);
      choices.set(c.choice, { ...c, gaps });
    }
    streams.set(s.request, { ...s, choices });
  }
  for (const e of f.finished) {
    const s = streams.get(e.request);
    if (s) s.endedAt = now;
    ended.unshift(e);
  }
  ended = ended.slice(0, MOST_ENDED);
  for (const [request, s] of streams) if (s.endedAt && s.endedAt < now - KEEP_ENDED_MS) streams.delete(request);
}

// The causes of misses are counted by the server (/metrics), so that they are complete.
async function readCauses() {
  if (performance.now() < causesAt + MISSES_MS) return;
  causesAt = performance.now();
  try {
    const text = await (await send("/metrics")).text();
    const found = new Map();
    for (const [, objective, cause, n] of text.matchAll(/^tactus_slo_misses_total\{.*?objective="(\w+)",cause="(\w+)"\} (\S+)$/gm)) {
      found.set(`${objective}: ${cause}`, (found.get(`${objective}: ${cause}`) ?? 0) + Number(n));
    }
    causes = found;
  } catch {
    // the next reading may succeed
  }
}

// ---- Drawing ----

function drawTiles() {
  const first = totals[0];
  const last = totals.at(-1);
  const seconds = Math.max((last.at - first.at) / 1000, 0.001);
  const rate = (key) => (totals.length < 2 ? 0 : (last[key] - first[key]) / seconds);
  const times = steps.slice(-100).map((s) => s.ms).sort((a, b) => a - b);
  const t = frame.totals;
  const drafts = Object.values(frame.speculation);
  const drafted = drafts.reduce((sum, d) => sum + d.draft_tokens, 0);
  const accepted = drafts.reduce((sum, d) => sum + d.accepted_tokens, 0);
  const kv = frame.kv_blocks;
  const all = [
    ["running", String(frame.running)],
    ["waiting", String(frame.waiting), frame.waiting_tokens > 0 ? `${count(frame.waiting_tokens)} tokens` : ""],
    ["output", count(rate("generated")), "tokens/s"],
    ["prompts", count(rate("prompt")), "tokens/s"],
    ["step", times.length > 0 ? ms(times[times.length >> 1]) : "-", "median of 100"],
    ["KV cache", percent(kv.in_use / Math.max(kv.total, 1)), `${count(kv.cached)} cached`],
    ["prefix hits", t.prefix_query_tokens > 0 ? percent(t.prefix_hit_tokens / t.prefix_query_tokens) : "-", "of prompts"],
    ["speculation", drafted > 0 ? percent(accepted / drafted) : "-", drafted > 0 ? "of guesses right" : "no guesses"],
    ["preemptions", count(t.preemptions), `of ${count(t.steps)} steps`],
  ];
  tiles(byId("tiles"), all);
}

function describe(s) {
  const parts = [`${s.decodes} ${s.decodes === 1 ? "decode" : "decodes"}`];
  for (const c of s.chunks) parts.push(`${c.tokens} of the prompt of ${idOf(c.request) ?? `#${c.request}`}`);
  return parts.join(" + ");
}

/** The id of a request that is or was on this view; undefined: it was not. */
const idOf = (request) => (streams.get(request) ?? ended.find((e) => e.request === request))?.id;

function drawCharts() {
  const running = [...streams.values()].filter((s) => !s.endedAt);
  const objectives = running.map((s) => s.objectives_ms.tbt).filter((value) => value !== undefined);
  const objective = objectives.length > 0 ? Math.min(...objectives) : null;
  if (pointed && !steps.includes(pointed)) pointed = null;
  composition = drawSteps(byId("steps"), steps);
  drawTimes(byId("times"), steps, objective);
  if (pointed) for (const id of ["steps", "times"]) markStep(byId(id), steps, pointed);
  drawQueue(byId("queue"), steps);
  drawKv(byId("kv"), steps, Math.max(hello.kv_blocks_total, 1));
  const s = pointed ?? steps.at(-1);
  const above = s && s.budget_tokens !== null && s.budget_tokens > composition.top;
  setText(byId("budget-now"), above ? `token budget: ${count(s.budget_tokens)}, above this scale` : "token budget");
  setText(byId("steps-now"), s ? `step ${s.step}: ${describe(s)}` : "");
  setText(byId("times-now"), s ? `${ms(s.ms)}, ${s.predicted_ms === null ? "not predicted" : `predicted ${ms(s.predicted_ms)}`}` : "");
  setText(byId("queue-now"), s ? `${s.running} running, ${s.waiting} waiting` : "");
  setText(byId("kv-now"), s ? `${count(s.kv_blocks_in_use)} in use, ${count(s.kv_blocks_cached)} cached of ${count(hello.kv_blocks_total)} blocks` : "");
  if (!s || performance.now() - saidAt < SAY_MS) return;
  saidAt = performance.now();
  byId("steps").setAttribute("aria-label", `Tokens of each step. The last: ${describe(s)}; budget ${s.budget_tokens ?? "none"}`);
  byId("times").setAttribute("aria-label", `Time of each step. The last: ${byId("times-now").textContent}`);
  byId("queue").setAttribute("aria-label", `Sequences: ${byId("queue-now").textContent}`);
  byId("kv").setAttribute("aria-label", `KV cache: ${byId("kv-now").textContent}`);
}

function describeBranch(b) {
  const tokens = (blocks) => `${count(blocks * hello.block_size)} tokens`;
  const users = b.sequences === 0 ? "cached" : `of ${b.sequences} running ${b.sequences === 1 ? "sequence" : "sequences"}`;
  return `${tokens(b.blocks)} after ${tokens(b.depth)}, ${users}; ${count(b.below)} blocks continue it`;
}

let drawnTree = null;
function drawPrefixTree() {
  const canvas = byId("tree");
  const key = `${canvas.clientWidth} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
  if (drawnTree?.tree !== tree || drawnTree.key !== key) {
    boxes = drawTree(canvas, tree);
    drawnTree = { tree, key };
    pointedBox = null;
  }
  const shared = tree.branches.filter((b) => b.sequences > 1).reduce((sum, b) => sum + b.blocks, 0);
  let text = `${count(tree.blocks)} blocks, ${count(shared)} of them shared by several running sequences`;
  if (tree.too_large) text = `${count(tree.blocks)} blocks, too many to draw`;
  else if (tree.blocks === 0) text = "empty, or no step has run since this view was opened";
  setText(byId("tree-now"), pointedBox ? describeBranch(pointedBox.branch) : text);
  canvas.setAttribute("aria-label", `The prefix tree: ${text}`);
}

// A dot in the request's colour, and its id as a button.
function nameOf(s) {
  const dot = el("span", { class: "swatch" });
  dot.style.background = requestColour(s.request);
  const text = s.id ?? `#${s.request}`;
  return el("span", { class: "name" }, dot, el("button", { type: "button", class: "link", text, title: `${text}: show its timeline`, onclick: () => showRequest(s.id) }));
}

function newRow(s) {
  const bar = el("progress", { max: "1" });
  const cells = {
    prompt: el("td", {}, bar, el("span", { class: "soft" })),
    tokens: el("td", { class: "num" }),
    ttft: el("td", { class: "num" }),
    gaps: el("canvas", { class: "gaps", role: "img", "aria-label": "Gaps between tokens" }),
    last: el("td", { class: "num" }),
    longest: el("td", { class: "num" }),
    objective: el("td", { class: "num" }),
  };
  const node = el("tr", {}, el("td", {}, nameOf(s)), el("td", { text: s.class || "-" }), cells.prompt, cells.tokens, cells.ttft, el("td", {}, cells.gaps), cells.last, cells.longest, cells.objective);
  return { node, bar, ...cells };
}

function drawRow(row, s, c) {
  const tbt = s.objectives_ms.tbt ?? null;
  const ttft = s.objectives_ms.ttft ?? null;
  row.node.classList.toggle("over", Boolean(s.endedAt));
  row.bar.value = Math.min(1, Math.max(c.computed_tokens, s.cached_tokens) / Math.max(s.prompt_tokens, 1));
  setText(row.prompt.lastChild, count(s.prompt_tokens));
  setText(row.tokens, count(c.completion_tokens));
  setText(row.ttft, ms(c.ttft_ms));
  row.ttft.classList.toggle("missed", ttft !== null && c.ttft_ms !== null && c.ttft_ms > ttft);
  setText(row.last, ms(c.gaps.at(-1)));
  setText(row.longest, ms(c.longest_gap_ms));
  row.longest.classList.toggle("missed", tbt !== null && c.longest_gap_ms !== null && c.longest_gap_ms > tbt);
  setText(row.objective, tbt === null ? "-" : ms(tbt));
  drawGaps(row.gaps, c.gaps, tbt);
}

function drawStreams() {
  const all = [...streams.values()].sort((a, b) => b.request - a.request);
  const wanted = all.flatMap((s) => [...s.choices.values()].map((c) => [`${s.request}/${c.choice}`, s, c])).slice(0, MOST_ROWS);
  const body = byId("stream-rows");
  const names = new Set(wanted.map(([name]) => name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    row.node.remove();
    rows.delete(name);
  }
  wanted.forEach(([name, s], i) => {
    if (!rows.has(name)) rows.set(name, newRow(s));
    const { node } = rows.get(name);
    if (body.children[i] !== node) body.insertBefore(node, body.children[i] ?? null);
  });
  for (const [name, s, c] of wanted) drawRow(rows.get(name), s, c);
  byId("no-streams").hidden = wanted.length > 0;
}

function bars(box, entries, empty) {
  if (entries.length === 0) {
    box.replaceChildren(el("p", { class: "empty", text: empty }));
    return;
  }
  box.replaceChildren(
    ...entries.map(({ name, share, text, late }) => {
      const fill = el("span", { class: late ? "fill late" : "fill" });
      fill.style.width = `${Math.min(100, 100 * share)}%`;
      return el("div", { class: "bar-row" }, el("span", { class: "bar-name", text: name }), el("span", { class: "bar-track", "aria-hidden": "true" }, fill), el("span", { class: "num", text }));
    }),
  );
}

const OBJECTIVES = { all: "all objectives", ttft: "first token", tbt: "longest gap", jct: "whole answer", gaps: "single gaps" };

// A row per class, a column per stated objective: the share that was kept.
function drawClasses(box) {
  const stated = Object.keys(OBJECTIVES).filter((objective) => Object.values(classes).some((c) => c[objective]));
  if (stated.length === 0) {
    box.replaceChildren(el("p", { class: "empty", text: "No request has stated an objective." }));
    return;
  }
  const share = (kept) => {
    if (!kept) return el("td", { class: "num soft", text: "-" });
    const part = kept.kept / kept.stated;
    const fill = el("span", { class: part >= 0.99 ? "fill" : part >= 0.9 ? "fill near" : "fill late" });
    fill.style.width = `${100 * part}%`;
    return el("td", { class: "num share" }, `${percent(part)} `, el("span", { class: "bar-track", "aria-hidden": "true" }, fill));
  };
  const head = ["class", "requests", ...stated.map((objective) => OBJECTIVES[objective])];
  const rows = Object.entries(classes).map(([name, c]) => {
    const requests = c.completed + c.failed + c.rejected;
    const refused = c.rejected > 0 ? ` (${count(c.rejected)} refused)` : "";
    return el("tr", {}, el("th", { scope: "row", text: name || "no class" }), el("td", { class: "num", text: `${count(requests)}${refused}` }), ...stated.map((objective) => share(c[objective])));
  });
  box.replaceChildren(el("table", { class: "classes" }, el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", class: i > 0 ? "num" : null, text })))), el("tbody", {}, ...rows)));
}

const SOURCES = { forced: "forced by a grammar", ngram: "repeated text", model: "draft model" };

function drawServer() {
  const guessed = Object.entries(frame.speculation).filter(([, d]) => d.draft_tokens > 0);
  bars(
    byId("guesses"),
    guessed.map(([name, d]) => ({ name: SOURCES[name] ?? name, share: d.accepted_tokens / d.draft_tokens, text: `${percent(d.accepted_tokens / d.draft_tokens)} of ${count(d.draft_tokens)}` })),
    "No token has been guessed (--speculation).",
  );
  const facts = [
    ["version", hello.version],
    ["model", hello.names.join(", ")],
    ["architecture", `${hello.architecture}, ${count(hello.parameters)} parameters, ${hello.weights}`],
    ["device", [hello.device, hello.kernels].filter(Boolean).join(", ")],
    ["context", `${count(hello.max_model_len)} tokens`],
    ["scheduler", hello.scheduler],
    ["steps", `at most ${count(hello.step_tokens)} tokens`],
    ["KV cache", `${count(hello.kv_blocks_total)} blocks of ${hello.block_size} tokens, ${(hello.kv_bytes_per_token / 1024).toFixed(0)} KiB per token at 16 bits`],
    ["memory", `${(hello.memory_bytes / 2 ** 30).toFixed(2)} GiB`],
  ];
  byId("server-facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
}

let drawnSummary = "";
function drawSummaries() {
  const summary = JSON.stringify([classes, [...causes], ended.length, ended[0]?.request, frame.speculation]);
  if (summary === drawnSummary) return;
  drawnSummary = summary;
  drawServer();
  drawClasses(byId("classes"));
  const most = Math.max(1, ...causes.values());
  const misses = [...causes].sort((a, b) => b[1] - a[1]);
  bars(byId("causes"), misses.map(([name, n]) => ({ name: name.replaceAll("_", " "), share: n / most, text: count(n), late: true })), "None.");
  byId("no-ended").hidden = ended.length > 0;
  byId("ended-rows").replaceChildren(
    ...ended.map((e) =>
      el(
        "tr",
        {},
        el("td", {}, nameOf(e)),
        el("td", { text: e.class || "-" }),
        el("td", { text: e.refused ? "refused" : e.finish_reason }),
        ...[count(e.prompt_tokens), count(e.cached_tokens), count(e.completion_tokens), ms(e.ttft_ms), ms(e.e2e_ms), ms(e.longest_gap_ms)].map((text) => el("td", { class: "num", text })),
        el("td", { class: "missed", text: Object.entries(e.misses).map(([objective, cause]) => `${objective}: ${cause.replaceAll("_", " ")}`).join(", ") }),
      ),
    ),
  );
}

function draw() {
  if (drawing || !frame || !hello || totals.length === 0) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (byId("engine").hidden) return;
    drawTiles();
    drawCharts();
    drawPrefixTree();
    drawStreams();
    drawSummaries();
    const parts = [`${hello.model}, scheduler ${hello.scheduler}${hello.device ? `, on ${hello.device}` : ""}`];
    if (paused) parts.push("charts of steps are paused");
    if (lost.frames + lost.records > 0) parts.push(`this view missed ${count(lost.frames)} frames and ${count(lost.records)} records`);
    note(parts.join("; "), false);
  });
}

function note(text, bad) {
  setText(byId("engine-note"), text);
  byId("engine-note").classList.toggle("bad", bad);
}

// ---- The connection ----

function onEvent(event, data) {
  if (event === "hello") {
    if (hello && data.model !== hello.model) steps = [];
    hello = data;
    totals = [];
    lost = { frames: 0, records: 0 };
  } else if (event === "frame") {
    take(data);
    if (data.classes) readCauses();
    draw();
  }
}

export function startEngine() {
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    byId("pause").textContent = paused ? "Go on" : "Pause";
    draw();
  });
  for (const id of ["steps", "times"]) {
    byId(id).addEventListener("pointermove", (event) => {
      pointed = stepAt(byId(id), steps, event);
      draw();
    });
    for (const kind of ["pointerleave", "blur"]) {
      byId(id).addEventListener(kind, () => {
        pointed = null;
        draw();
      });
    }
    byId(id).addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const from = pointed ? steps.indexOf(pointed) : steps.length - (by < 0 ? 0 : 1);
      pointed = steps[Math.min(Math.max(from + by, 0), steps.length - 1)] ?? null;
      saidAt = -Infinity; // the step is described at once
      draw();
    });
  }
  byId("steps").addEventListener("click", (event) => {
    const step = stepAt(byId("steps"), steps, event);
    const chunk = step ? composition.chunkAt(step, event) : null;
    const id = chunk ? idOf(chunk.request) : undefined;
    if (id !== undefined) showRequest(id);
  });
  byId("tree").addEventListener("pointermove", (event) => {
    pointedBox = boxAt(byId("tree"), boxes, event);
    draw();
  });
  byId("tree").addEventListener("pointerleave", () => {
    pointedBox = null;
    draw();
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    rows.clear();
    byId("stream-rows").replaceChildren();
    drawnSummary = "";
    draw();
  });
  return {
    show(seen) {
      if (seen === (control !== null)) return;
      if (seen) {
        control = new AbortController();
        follow("/events", control.signal, onEvent, (why) => note(why, true));
        draw();
      } else {
        control.abort();
        control = null;
      }
    },
  };
}
