// Questions to the simulator: the last ten minutes with other settings, and the load that this machine can hold.

import { send } from "./api.js";
import { byId, copyButton, el, ms, percent } from "./dom.js";
import { colour, prepare } from "./strip.js";

const numberOf = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
const rate = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

async function ask(path, question) {
  const known = Object.fromEntries(Object.entries(question).filter(([, value]) => value !== null));
  const response = await send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(known) });
  return response.json();
}

// While a question is open its button says so, and a second one is not sent.
function onSubmit(form, box, answer) {
  const button = form.querySelector("button");
  const label = button.textContent;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    button.textContent = "Simulating";
    box.replaceChildren();
    try {
      box.replaceChildren(...(await answer()));
    } catch (error) {
      box.replaceChildren(el("p", { class: "error answer-box", role: "alert", text: error.message }));
    }
    button.disabled = false;
    button.textContent = label;
  });
}

function command(text) {
  return el("div", { class: "command" }, el("code", { text }), copyButton(() => text, { "aria-label": "Copy the command" }));
}

// ---- What if ----

// Rows of the comparison: name, value of a result, its text, and whether more is better.
const ROWS = [
  ["requests answered", (r) => r.requests?.completed, (v) => String(v), true],
  ["requests/s", (r) => r.request_throughput, rate, true],
  ["output tokens/s", (r) => r.output_token_throughput, rate, true],
  ["objectives kept", (r) => r.slo_attainment, percent, true],
  ["first token, median", (r) => r.ttft_ms?.p50, ms, false],
  ["first token, P99", (r) => r.ttft_ms?.p99, ms, false],
  ["gap, P99 of all", (r) => r.tbt_ms?.p99, ms, false],
  ["whole answer, median", (r) => r.e2e_ms?.p50, ms, false],
  ["whole answer, P99", (r) => r.e2e_ms?.p99, ms, false],
  ["preemptions", (r) => r.preemptions, (v) => String(v), false],
];
const CLEAR = 0.03; // a smaller relative difference is not coloured

function cell(value, text, same, moreIsBetter) {
  if (value === null || value === undefined) return el("td", { class: "num soft", text: "-" });
  const apart = same === undefined || same === null ? 0 : (value - same) / Math.max(Math.abs(same), 1e-9);
  const better = Math.abs(apart) < CLEAR ? null : apart > 0 === moreIsBetter;
  const change = better === null || !same ? null : el("span", { class: "change", text: `${apart > 0 ? "+" : "−"}${Math.round(100 * Math.abs(apart))} %` });
  return el("td", { class: `num${better === null ? "" : better ? " better" : " worse"}` }, change, text(value));
}

function comparison({ happened, same, changed, command: line }) {
  const head = ["", "happened", "simulated as it was", "simulated with changes"];
  const rows = ROWS.filter(([, of]) => [same, changed].some((r) => of(r) !== undefined && of(r) !== null));
  return [
    el(
      "div",
      { class: "scroll answer-box" },
      el(
        "table",
        { class: "compare" },
        el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", class: i > 0 ? "num" : null, text })))),
        el(
          "tbody",
          {},
          ...rows.map(([name, of, text, more]) =>
            el("tr", {}, el("th", { scope: "row", text: name }), cell(happened ? of(happened) : null, text, null, more), cell(of(same), text, null, more), cell(of(changed), text, of(same), more)),
          ),
        ),
      ),
    ),
    el("p", { class: "hint", text: "The second column shows how far the simulation is from what happened; the third is to be compared with the second." }),
    command(line),
  ];
}

// ---- Capacity ----

function drawRange(canvas, { capacity, rate: asked }) {
  const { context, width, height } = prepare(canvas);
  const top = 1.25 * Math.max(capacity.high, asked);
  const x = (value) => (width * value) / top;
  context.fillStyle = colour("--sunken");
  context.fillRect(0, 20, width, 14);
  context.fillStyle = colour("--good");
  context.fillRect(0, 20, x(capacity.low), 14);
  context.fillStyle = colour("--bar");
  context.fillRect(x(capacity.low), 20, Math.max(x(capacity.high) - x(capacity.low), 2), 14);
  context.fillStyle = colour("--ink");
  context.fillRect(x(asked) - 1, 15, 2, 24);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  const place = (text, at, y) => {
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(at - half, 0), width - 2 * half), y);
  };
  place(`asked: ${rate(asked)}/s`, x(asked), 11);
  context.fillStyle = colour("--ink-soft");
  place(`holds ${rate(capacity.low)} to ${rate(capacity.high)}/s`, x((capacity.low + capacity.high) / 2), height - 6);
}

const VERDICTS = {
  yes: "Yes, this machine holds it.",
  no: "No, this machine does not hold it.",
  uncertain: "It is at the edge of what this machine holds.",
};

function verdict(answer) {
  const { capacity, holds, at_least: least, below, why_none: none, until } = answer;
  const head = el("p", { class: "verdict answer-box", text: VERDICTS[holds] ?? "No load was found that it holds." });
  if (!capacity) {
    const asked = `Asked: ${rate(answer.rate)} requests/s. `;
    const limit = least !== null ? `It holds ${rate(least)} requests/s and more` : below !== null ? `It does not hold ${rate(below)} requests/s either` : (none ?? "");
    return [head, el("p", {}, `${asked}${limit}; the condition: `, el("code", { text: until }), "."), command(answer.command)];
  }
  const canvas = el("canvas", { class: "range", role: "img", "aria-label": `It holds ${rate(capacity.low)} to ${rate(capacity.high)} requests/s; asked: ${rate(answer.rate)}` });
  requestAnimationFrame(() => drawRange(canvas, answer));
  return [
    head,
    el("p", {}, `It holds ${rate(capacity.mean)} requests/s (${rate(capacity.low)} to ${rate(capacity.high)}, with 95 % confidence), as long as `, el("code", { text: until }), "."),
    canvas,
    command(answer.command),
  ];
}

export function startPlan() {
  onSubmit(byId("what-form"), byId("what-answer"), async () =>
    comparison(
      await ask("/simulate", {
        scheduler: byId("what-scheduler").value.trim() || null,
        rate_factor: Number(byId("what-load").value),
        token_budget: numberOf("what-budget"),
        tbt_slo_ms: numberOf("what-tbt"),
        replicas: numberOf("what-replicas"),
      }),
    ),
  );
  const like = byId("hold-like");
  const fields = () => {
    for (const label of byId("hold-form").querySelectorAll("[data-like]")) label.hidden = !label.dataset.like.split(" ").includes(like.value);
    byId("hold-rate").placeholder = like.value === "past" ? "as recorded" : "";
    byId("hold-rate").required = like.value !== "past";
  };
  like.addEventListener("change", fields);
  fields();
  onSubmit(byId("hold-form"), byId("hold-answer"), async () => {
    const question = {
      rate: numberOf("hold-rate"),
      ttft_ms: numberOf("hold-ttft"),
      tbt_ms: numberOf("hold-tbt"),
      share: (numberOf("hold-share") ?? 99) / 100,
      replicas: numberOf("hold-replicas"),
    };
    if (like.value === "lengths") Object.assign(question, { prompt_tokens: numberOf("hold-prompt"), output_tokens: numberOf("hold-output") });
    if (like.value === "trace") {
      const [file] = byId("hold-trace").files;
      if (!file) throw new Error("Choose a trace file.");
      question.trace = await file.text();
    }
    return verdict(await ask("/capacity", question));
  });
}
