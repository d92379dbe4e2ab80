// Small pictures of gaps between tokens, on a canvas.

// A gap above this is an outlier. The network joins tokens, so the median alone may be near zero.
function outlier(gaps) {
  const sorted = [...gaps].sort((a, b) => a - b);
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
  return 3 * Math.max(mean, sorted[sorted.length >> 1]);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The canvas's context, scaled so that one unit is a CSS pixel, and cleared; {width, height} in CSS pixels. */
export function prepare(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const scale = devicePixelRatio || 1;
  const w = Math.round(width * scale);
  const h = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// The width of a bar and its gaps: if there are more gaps than room, each bar is the longest of several.
function layout(width, number) {
  const step = Math.max(1.5, Math.min(5, width / number));
  return { step, per: Math.ceil(number / Math.max(1, Math.floor(width / step))) };
}

/** A bar per gap, oldest left. In the colour of lateness: those above `objective` (ms), or without one the outliers. */
export function drawGaps(canvas, gaps, objective = null) {
  const { context, width, height } = prepare(canvas);
  if (width === 0 || gaps.length === 0) return;
  const { step, per } = layout(width, gaps.length);
  const bars = [];
  for (let i = 0; i < gaps.length; i += per) bars.push(Math.max(...gaps.slice(i, i + per)));
  const top = Math.max(...bars, objective === null ? 0 : objective * 1.15, 0.1);
  const fine = colour("--bar");
  const late = colour("--late");
  const limit = objective ?? outlier(gaps);
  bars.forEach((gap, i) => {
    const tall = Math.max(1, (gap / top) * (height - 1));
    context.fillStyle = gap > limit ? late : fine;
    context.fillRect(i * step, height - tall, Math.max(1, step - 1), tall);
  });
  if (objective !== null) {
    context.fillStyle = colour("--ink-soft");
    context.fillRect(0, Math.round(height - (objective / top) * (height - 1)), Math.min(width, bars.length * step), 1);
  }
}

/** The bar of drawGaps under the pointer: {first, last, ms}, counted from 1; null: none. */
export function gapAt(canvas, gaps, event) {
  const box = canvas.getBoundingClientRect();
  if (box.width === 0 || gaps.length === 0) return null;
  const { step, per } = layout(box.width, gaps.length);
  const from = Math.floor((event.clientX - box.left) / step) * per;
  const seen = from < 0 ? [] : gaps.slice(from, from + per);
  return seen.length === 0 ? null : { first: from + 1, last: from + seen.length, ms: Math.max(...seen) };
}
