// Small pictures of gaps between tokens, on a canvas.

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

/** A bar per gap, oldest left; those above `objective` (ms, or null) are in the colour of lateness. */
export function drawGaps(canvas, gaps, objective = null) {
  const { context, width, height } = prepare(canvas);
  if (width === 0 || gaps.length === 0) return;
  const step = Math.max(1.5, Math.min(5, width / gaps.length));
  const room = Math.floor(width / step);
  // If there are more gaps than room, each bar is the longest of several.
  const per = Math.ceil(gaps.length / room);
  const bars = [];
  for (let i = 0; i < gaps.length; i += per) bars.push(Math.max(...gaps.slice(i, i + per)));
  const top = Math.max(...bars, objective === null ? 0 : objective * 1.15, 0.1);
  const fine = colour("--bar");
  const late = colour("--late");
  const sorted = [...bars].sort((a, b) => a - b);
  const limit = objective ?? Infinity;
  const long = objective === null ? 3 * sorted[sorted.length >> 1] : Infinity;
  bars.forEach((gap, i) => {
    const tall = Math.max(1, (gap / top) * (height - 1));
    context.fillStyle = gap > limit || gap > long ? late : fine;
    context.fillRect(i * step, height - tall, Math.max(1, step - 1), tall);
  });
  if (objective !== null) {
    context.fillStyle = colour("--ink-soft");
    context.fillRect(0, Math.round(height - (objective / top) * (height - 1)), Math.min(width, bars.length * step), 1);
  }
}
