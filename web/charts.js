// Moving charts over steps, newest right. Each draws the last steps that fit its canvas.

import { count, ms } from "./dom.js";
import { colour, prepare } from "./strip.js";

export const BAR_PX = 8; // of a step, with the space after it
const LEFT_PX = 46;
const TOP_PX = 8;
const COLOURS = 10;

export const requestColour = (request) => colour(`--c${request % COLOURS}`);

/** The smallest round number that is at least `value`. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-6)));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value * 0.9999);
}

/** A canvas with grid and scale: y() of a value, the steps that fit, x() of the i-th of them. */
function frameOf(canvas, steps, topOf, label) {
  const { context, width, height } = prepare(canvas);
  const room = Math.max(1, Math.floor((width - LEFT_PX) / BAR_PX));
  const seen = steps.slice(-room);
  const top = roundUp(Math.max(topOf(seen), 1e-3));
  const bottom = height - 2;
  const y = (value) => bottom - (Math.min(value, top * 1.02) / top) * (bottom - TOP_PX);
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    context.fillStyle = colour("--line");
    context.fillRect(LEFT_PX, Math.round(y(top * share)), width - LEFT_PX, 1);
    context.fillStyle = colour("--ink-soft");
    if (label === count && !Number.isInteger(top * share)) continue; // there is no half of a sequence
    if (share > 0) context.fillText(label(top * share), LEFT_PX - 6, y(top * share) + (share === 1 ? 2 : 0));
  }
  const x = (i) => width - (seen.length - i) * BAR_PX;
  return { context, width, seen, top, x, y, bottom };
}

/** A line through steps, with a step of its own height each; null leaves a hole. */
function stepLine({ context, x, y }, values, style, dash = []) {
  context.strokeStyle = style;
  context.lineWidth = 1.5;
  context.setLineDash(dash);
  context.beginPath();
  let open = false;
  values.forEach((value, i) => {
    if (value === null) {
      open = false;
      return;
    }
    if (open) context.lineTo(x(i), y(value));
    else context.moveTo(x(i), y(value));
    context.lineTo(x(i + 1), y(value));
    open = true;
  });
  context.stroke();
  context.setLineDash([]);
}

const tokensOf = (s) => s.decodes + s.prompt_tokens;

/** Draws the composition. Returns the top of the scale, and chunkAt(step, event): the chunk under the pointer, or null. */
export function drawSteps(canvas, steps) {
  const top = (seen) => {
    const most = Math.max(0, ...seen.map(tokensOf));
    const budget = Math.max(0, ...seen.map((s) => s.budget_tokens ?? 0));
    // A budget far above every step would leave no height for them.
    return budget <= 3 * most ? Math.max(most, budget) : most;
  };
  const f = frameOf(canvas, steps, top, count);
  f.seen.forEach((s, i) => {
    let base = 0;
    const part = (tokens, style) => {
      const from = f.y(base);
      base += tokens;
      f.context.fillStyle = style;
      const tall = Math.max(from - f.y(base), 2.5);
      f.context.fillRect(f.x(i), from - tall, BAR_PX - 1.5, tall);
    };
    if (s.decodes > 0) part(s.decodes, s.ok ? colour("--decode") : colour("--late"));
    for (const chunk of s.chunks) part(chunk.tokens, requestColour(chunk.request));
    const named = s.chunks.reduce((sum, chunk) => sum + chunk.tokens, 0);
    if (named < s.prompt_tokens) part(s.prompt_tokens - named, colour("--ink-soft"));
  });
  stepLine(f, f.seen.map((s) => (s.budget_tokens !== null && s.budget_tokens <= f.top ? s.budget_tokens : null)), colour("--ink"), [5, 3]);
  const chunkAt = (step, event) => {
    const at = event.clientY - canvas.getBoundingClientRect().top;
    let base = step.decodes;
    for (const chunk of step.chunks) {
      base += chunk.tokens;
      if (at >= f.y(base) && at < f.y(base - chunk.tokens)) return chunk;
    }
    return null;
  };
  return { top: f.top, chunkAt };
}

/** A column behind the step that is described. */
export function markStep(canvas, steps, step) {
  const fromRight = steps.length - 1 - steps.indexOf(step);
  const { width, height } = canvas.getBoundingClientRect();
  const x = width - (fromRight + 1) * BAR_PX;
  if (x < LEFT_PX) return;
  const context = canvas.getContext("2d");
  context.globalAlpha = 0.12;
  context.fillStyle = colour("--ink");
  context.fillRect(x - 0.75, TOP_PX, BAR_PX, height - TOP_PX);
  context.globalAlpha = 1;
}

export function drawTimes(canvas, steps, objective) {
  const top = (seen) => Math.max(0, ...seen.map((s) => Math.max(s.ms, Math.min(s.predicted_ms ?? 0, 3 * s.ms))));
  const f = frameOf(canvas, steps, (seen) => (objective !== null && objective < 2.5 * top(seen) ? Math.max(top(seen), objective) : top(seen)), ms);
  f.context.fillStyle = colour("--bar");
  f.seen.forEach((s, i) => f.context.fillRect(f.x(i), f.y(s.ms), BAR_PX - 1.5, Math.max(f.bottom - f.y(s.ms), 1)));
  stepLine(f, f.seen.map((s) => s.predicted_ms), colour("--ink"), [5, 3]);
  if (objective !== null && objective <= f.top) {
    f.context.fillStyle = colour("--late");
    f.context.fillRect(LEFT_PX, Math.round(f.y(objective)), f.width - LEFT_PX, 1.5);
  }
}

export function drawQueue(canvas, steps) {
  const f = frameOf(canvas, steps, (seen) => Math.max(1, ...seen.map((s) => Math.max(s.running, s.waiting))), count);
  f.context.fillStyle = colour("--bar-soft");
  f.seen.forEach((s, i) => f.context.fillRect(f.x(i), f.y(s.running), BAR_PX, f.bottom - f.y(s.running)));
  stepLine(f, f.seen.map((s) => s.running), colour("--bar"));
  stepLine(f, f.seen.map((s) => s.waiting), colour("--late"));
}

/** Bars of parts on top of each other; partsOf(frame): [{value, colour: number}]. */
export function drawStacked(canvas, frames, partsOf) {
  const total = (f) => partsOf(f).reduce((sum, part) => sum + part.value, 0);
  const f = frameOf(canvas, frames, (seen) => Math.max(1, ...seen.map(total)), count);
  f.seen.forEach((frame, i) => {
    let base = 0;
    for (const part of partsOf(frame)) {
      const from = f.y(base);
      base += part.value;
      f.context.fillStyle = requestColour(part.colour);
      f.context.fillRect(f.x(i), f.y(base), BAR_PX - 1, from - f.y(base));
    }
  });
}

/** Blocks in use, and above them the cached ones, as shares of all. */
export function drawKv(canvas, steps, total) {
  const f = frameOf(canvas, steps, () => 1, (share) => `${Math.round(100 * share)} %`);
  const used = (s) => s.kv_blocks_in_use / total;
  const held = (s) => (s.kv_blocks_in_use + s.kv_blocks_cached) / total;
  f.seen.forEach((s, i) => {
    f.context.fillStyle = colour("--cached");
    f.context.fillRect(f.x(i), f.y(held(s)), BAR_PX, f.y(used(s)) - f.y(held(s)));
    f.context.fillStyle = colour("--bar-soft");
    f.context.fillRect(f.x(i), f.y(used(s)), BAR_PX, f.bottom - f.y(used(s)));
  });
  stepLine(f, f.seen.map(used), colour("--bar"));
}

/**
 * The prefix tree from the root down: a box per branch, its width the share of its blocks and of all that follow it.
 * Returns the boxes, for boxAt.
 */
export function drawTree(canvas, tree) {
  const { context, width, height } = prepare(canvas);
  const boxes = [];
  const levels = tree.branches.reduce((most, b, i) => {
    boxes.push({ branch: b, level: b.parent === null ? 0 : boxes[b.parent].level + 1, used: 0, index: i });
    return Math.max(most, boxes[i].level + 1);
  }, 1);
  const tall = Math.min(34, (height - 2) / levels);
  let root = 0;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const box of boxes) {
    const b = box.branch;
    const wide = (width * (b.blocks + b.below)) / Math.max(tree.blocks, 1);
    const above = b.parent === null ? null : boxes[b.parent];
    box.x = above ? above.x + above.used : root;
    if (above) above.used += wide;
    else root += wide;
    box.width = wide;
    box.y = box.level * tall;
    box.height = tall;
    if (wide < 0.75) continue;
    const inner = Math.max(wide - 1.5, 0.75);
    context.fillStyle = colour("--cached");
    context.fillRect(box.x, box.y, inner, tall - 2);
    context.fillStyle = colour("--tree");
    context.fillRect(box.x, box.y, (inner * b.in_use) / b.blocks, tall - 2);
    const text = b.sequences > 1 ? `${b.blocks} × ${b.sequences}` : String(b.blocks);
    if (context.measureText(text).width + 10 > inner) continue;
    context.fillStyle = colour("--ink");
    context.fillText(text, box.x + 6, box.y + tall / 2 - 1);
  }
  return boxes;
}

/** The box under the pointer; null: none. */
export function boxAt(canvas, boxes, event) {
  const at = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - at.left, event.clientY - at.top];
  return boxes.find((b) => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + b.height) ?? null;
}

/** The step under the pointer; null: none. */
export function stepAt(canvas, steps, event) {
  const box = canvas.getBoundingClientRect();
  const fromRight = Math.floor((box.right - event.clientX) / BAR_PX);
  return event.clientX - box.left < LEFT_PX ? null : (steps[steps.length - 1 - fromRight] ?? null);
}
