// The dialog with one request's schedule: what it waited for and computed (/v1/requests/{id}/explain).

import { getJson } from "./api.js";
import { byId, count, el, ms, setText } from "./dom.js";

// Causes in the order of their colours; the others share the last one.
const CAUSES = ["prefill", "decode", "queue", "places", "budget", "kv", "preempted", "recompute", "passed_over", "in_flight", "intake"];
const WORDS = {
  intake: "text read and tokenised",
  in_flight: "arrived during a step",
  queue: "others were ahead",
  places: "all places taken",
  budget: "the step was full",
  kv: "no KV blocks",
  sibling: "waited for its first choice",
  preempted: "its KV was taken",
  passed_over: "left out of steps",
  prefill: "its prompt was computed",
  recompute: "computed again",
  decode: "its answer was generated",
  elsewhere: "on another replica",
  disk: "waited for KV from disk",
};
const classOf = (cause) => `cause-${Math.min(CAUSES.indexOf(cause) < 0 ? CAUSES.length : CAUSES.indexOf(cause), CAUSES.length)}`;

function bar(schedule, total) {
  const row = el("div", { class: "timeline", role: "img", "aria-label": "The schedule, in the order of time" });
  for (const s of schedule.segments) {
    const part = el("span", { class: classOf(s.cause), title: `${s.cause}: ${ms(s.to_ms - s.from_ms)}, from ${ms(s.from_ms)} on` });
    part.style.flexGrow = String(Math.max(s.to_ms - s.from_ms, total / 2000));
    row.append(part);
  }
  return row;
}

function body(r) {
  const facts = [
    ["state", r.ended ? `ended (${r.finish_reason})` : "running"],
    ["class", r.class || "none"],
    ["prompt", `${count(r.prompt_tokens)} tokens${r.cache ? `, ${count(r.cache.cached_tokens)} of them cached` : ""}`],
    ["answer", `${count(r.completion_tokens)} tokens`],
    ["first token", ms(r.ttft_ms)],
    ["whole", ms(r.e2e_ms)],
    ["longest gap", r.longest_gap ? `${ms(r.longest_gap.ms)} (${r.longest_gap.cause})` : "-"],
    ["preemptions", String(r.preemptions)],
  ];
  for (const o of r.objectives) {
    const kept = o.kept === null ? "not decided" : o.kept ? "kept" : o.cause ? `missed: ${o.cause}, ${ms(o.cost_ms)} of it` : "missed";
    facts.push([`${o.objective} objective`, `${ms(o.stated_ms)}: ${kept}`]);
  }
  const causes = Object.entries(r.totals_ms).sort((a, b) => b[1] - a[1]);
  return [
    bar(r, r.e2e_ms),
    el("p", { class: "axis" }, el("span", { text: "arrival" }), el("span", { text: ms(r.e2e_ms) })),
    el(
      "table",
      { class: "causes" },
      el("thead", {}, el("tr", {}, ...["cause", "", "time", "share"].map((t, i) => el("th", { scope: "col", class: i > 1 ? "num" : null, text: t })))),
      el(
        "tbody",
        {},
        ...causes.map(([cause, time]) =>
          el(
            "tr",
            {},
            el("td", {}, el("span", { class: `swatch ${classOf(cause)}` }), cause.replaceAll("_", " ")),
            el("td", { class: "soft", text: WORDS[cause] ?? "" }),
            el("td", { class: "num", text: ms(time) }),
            el("td", { class: "num", text: `${Math.round((100 * time) / Math.max(r.e2e_ms, 0.001))} %` }),
          ),
        ),
      ),
    ),
    el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })])),
  ];
}

/** Shows the schedule of the request with this id; null: the server does not show it to this key. */
export async function showRequest(id) {
  const dialog = byId("request-dialog");
  const place = byId("request-body");
  setText(byId("h-request"), id ?? "Request");
  place.replaceChildren(el("p", { class: "empty", text: "Loading." }));
  if (!dialog.open) dialog.showModal();
  if (id === null) {
    place.replaceChildren(el("p", { class: "empty", text: "This request was sent with another key, which alone may see its schedule." }));
    return;
  }
  try {
    place.replaceChildren(...body(await getJson(`/v1/requests/${encodeURIComponent(id)}/explain`)));
  } catch (error) {
    place.replaceChildren(el("p", { class: "error", role: "alert", text: error.message }));
  }
}

export function startRequestDialog() {
  const dialog = byId("request-dialog");
  byId("request-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
