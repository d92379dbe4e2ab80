// The chat: conversations, messages, answers as they stream.

import { eventsOf, getJson, send } from "./api.js";
import { byId, copyButton, count, el, ms, setText } from "./dom.js";
import { markdown } from "./markdown.js";
import { showRequest, startRequestDialog } from "./request.js";
import { deleteChat, listChats, loadChat, newChat, renameChat, saveChat } from "./store.js";
import { drawGaps, gapAt } from "./strip.js";

// Parameters of a conversation. Each has a field with its name as id.
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const OBJECTIVES = ["ttft_ms", "tbt_ms"];
const FIELDS = ["system", ...NUMBERS, ...OBJECTIVES, "stop_strings", "tools"];
const MOST_GAPS = 4000; // kept of an answer
const NEAR_END_PX = 80;
const REST = 3; // a drawing is followed by a pause this many times as long: long answers take long to draw

let models = []; // names that the server serves
let chat = newChat();
let running = new Map(); // answer: AbortController
const shown = new WeakMap(); // answer: its AnswerView

const turnsBox = byId("turns");
const say = (text) => setText(byId("said"), text);

// ---- One answer ----

/** Draws an answer, again whenever it has grown; at most once per frame of the screen. */
class AnswerView {
  constructor(turn, answer) {
    this.turn = turn;
    this.answer = answer;
    this.text = el("div", { class: "text" });
    this.reasoning = el("div", { class: "folded-text" });
    this.reasoningBox = el("details", { class: "fold", hidden: true }, el("summary", { text: "Reasoning" }), this.reasoning);
    this.tools = el("div", {});
    this.results = el("form", { class: "results", hidden: true, onsubmit: (event) => sendResults(event, turn, answer) });
    this.problem = el("p", { class: "error", role: "alert", hidden: true });
    this.strip = el("canvas", { class: "strip", role: "img", hidden: true });
    this.strip.addEventListener("pointermove", (event) => this.point(event));
    this.strip.addEventListener("pointerleave", () => this.changed());
    this.figures = el("span", { class: "figures" });
    this.why = el("button", { type: "button", class: "quiet", text: "Timeline", title: "What the request waited for", onclick: () => showRequest(answer.requestId) });
    this.again = el("button", { type: "button", class: "quiet", text: "Regenerate", onclick: () => regenerate(turn, answer) });
    this.node = el(
      "article",
      { class: "answer", "aria-label": `Answer of ${answer.model}` },
      el("h3", { class: "from", text: answer.model }),
      this.reasoningBox,
      this.text,
      this.tools,
      this.results,
      this.problem,
      this.strip,
      el("div", { class: "under" }, this.figures, copyButton(() => answer.text, { "aria-label": "Copy the answer" }), this.why, this.again),
    );
    this.asked = false;
    this.notBefore = 0;
    shown.set(answer, this);
  }

  changed() {
    if (this.asked) return;
    this.asked = true;
    const draw = () => {
      this.asked = false;
      const began = performance.now();
      const atEnd = turnsBox.scrollHeight - turnsBox.scrollTop - turnsBox.clientHeight < NEAR_END_PX;
      this.draw();
      if (atEnd) turnsBox.scrollTop = turnsBox.scrollHeight;
      const now = performance.now();
      this.notBefore = now + REST * (now - began);
    };
    const wait = this.notBefore - performance.now();
    if (wait > 0) setTimeout(() => requestAnimationFrame(draw), wait);
    else requestAnimationFrame(draw);
  }

  draw() {
    const a = this.answer;
    const busy = running.has(a);
    this.node.classList.toggle("busy", busy);
    this.node.setAttribute("aria-busy", String(busy));
    this.text.replaceChildren(...markdown(a.text));
    this.reasoningBox.hidden = !a.reasoning;
    setText(this.reasoning, a.reasoning);
    if (this.tools.childElementCount !== a.tools.length) {
      this.tools.replaceChildren(...a.tools.map(() => el("details", { class: "fold" }, el("summary"), el("pre", {}, el("code")))));
    }
    a.tools.forEach((tool, i) => {
      setText(this.tools.children[i].querySelector("summary"), `Tool call: ${tool.name}`);
      setText(this.tools.children[i].querySelector("code"), tool.arguments);
    });
    this.drawResults(busy);
    this.problem.hidden = !a.error;
    setText(this.problem, a.error);
    this.again.hidden = busy || this.turn !== chat.turns.at(-1);
    this.why.hidden = !a.requestId || busy;
    this.drawFigures(busy);
  }

  // Fields for what the called tools give, under the last answer.
  drawResults(busy) {
    const a = this.answer;
    const wanted = !busy && a.state === "tool_calls" && this.turn === chat.turns.at(-1);
    this.results.hidden = !wanted;
    if (!wanted || this.results.childElementCount > 0) return;
    this.results.append(
      ...a.tools.map((tool) => el("label", {}, `Result of ${tool.name}`, el("textarea", { rows: "2", required: true }))),
      el("button", { type: "submit", text: a.tools.length > 1 ? "Send the results" : "Send the result" }),
    );
  }

  point(event) {
    const gap = gapAt(this.strip, this.answer.figures.gaps, event);
    if (gap) setText(this.figures, `${gap.first === gap.last ? `gap ${gap.first}` : `longest of gaps ${gap.first} to ${gap.last}`}: ${ms(gap.ms)}`);
  }

  drawFigures(busy) {
    const f = this.answer.figures;
    const gaps = f.gaps;
    this.strip.hidden = gaps.length < 2;
    if (gaps.length >= 2) drawGaps(this.strip, gaps, f.objective ?? null);
    const parts = [];
    if (f.ttft !== null) parts.push(`first token ${ms(f.ttft)}`);
    const time = gaps.reduce((sum, gap) => sum + gap, 0);
    const tokens = f.tokens ?? gaps.length + 1;
    if (gaps.length > 0 && time > 0) {
      parts.push(`${((1000 * (tokens - 1)) / time).toFixed(1)} tokens/s`);
      parts.push(`longest gap ${ms(Math.max(...gaps))}`);
      if (f.objective) parts.push(`${count(gaps.filter((gap) => gap > f.objective).length)} above ${ms(f.objective)}`);
    }
    if (f.tokens !== null) parts.push(`${count(f.tokens)} tokens`);
    if (!busy && this.answer.state === "length") parts.push("cut at the most tokens");
    if (!busy && this.answer.state === "stopped") parts.push("stopped");
    setText(this.figures, parts.join(" · "));
    this.strip.setAttribute("aria-label", `Gaps between tokens: ${parts.join(", ")}`);
  }
}

function newAnswer(model) {
  const objective = Number(chat.settings.tbt_ms) || null;
  return { model, text: "", reasoning: "", tools: [], state: "running", error: "", requestId: null, figures: { ttft: null, gaps: [], tokens: null, objective } };
}

// ---- Asking ----

/** The messages up to this turn, with the answers of this model where it has given some. */
function messagesFor(model, upTo) {
  const messages = [];
  if (chat.settings.system) messages.push({ role: "system", content: chat.settings.system });
  const turns = chat.turns.slice(0, chat.turns.indexOf(upTo) + 1).filter((turn) => !turn.results || turn.model === model);
  turns.forEach((turn, i) => {
    if (turn.results) for (const { id, content } of turn.results) messages.push({ role: "tool", tool_call_id: id, content });
    else messages.push({ role: "user", content: turn.text });
    if (turn === upTo) return;
    if (turns[i + 1].results) {
      const { text, tools } = turn.answers.find((a) => a.model === model);
      messages.push({ role: "assistant", content: text, tool_calls: tools.map(toolCall) });
      return;
    }
    const answer = turn.answers.find((a) => a.model === model && a.text) ?? turn.answers.find((a) => a.text);
    if (answer) messages.push({ role: "assistant", content: answer.text });
  });
  return messages;
}

const toolCall = (tool) => ({ id: tool.id, type: "function", function: { name: tool.name, arguments: tool.arguments } });

/** The tools as the API takes them; bare descriptions of functions are wrapped. */
function toolsOf(text) {
  let list;
  try {
    list = [JSON.parse(text)].flat();
  } catch (error) {
    throw new Error(`Tools (parameters): no valid JSON: ${error.message}`);
  }
  return list.map((tool) => (tool?.function ? tool : { type: "function", function: tool }));
}

const isSet = (name) => (chat.settings[name] ?? "") !== "";

function bodyFor(model, turn) {
  const body = { model, messages: messagesFor(model, turn), stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) {
    if (isSet(name)) body[name] = Number(chat.settings[name]);
  }
  const stated = OBJECTIVES.filter(isSet);
  if (stated.length > 0) body.slo = Object.fromEntries(stated.map((name) => [name, Number(chat.settings[name])]));
  const stops = (chat.settings.stop_strings ?? "").split("\n").filter(Boolean);
  if (stops.length > 0) body.stop = stops;
  if (chat.settings.tools?.trim()) body.tools = toolsOf(chat.settings.tools);
  return body;
}

function addDelta(answer, delta) {
  answer.text += delta.content ?? "";
  answer.reasoning += delta.reasoning_content ?? delta.reasoning ?? "";
  for (const call of delta.tool_calls ?? []) {
    const at = call.index ?? 0;
    answer.tools[at] ??= { id: "", name: "", arguments: "" };
    answer.tools[at].id ||= call.id ?? "";
    answer.tools[at].name += call.function?.name ?? "";
    answer.tools[at].arguments += call.function?.arguments ?? "";
  }
}

// From here on the answer is drawn as one that runs.
function begin(answer) {
  running.set(answer, new AbortController());
  return answer;
}

async function run(turn, answer) {
  const control = running.get(answer);
  const of = chat;
  buttons();
  const view = () => shown.get(answer)?.changed();
  view();
  const began = performance.now();
  let last = null;
  try {
    const response = await send("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(bodyFor(answer.model, turn)),
      signal: control.signal,
    });
    answer.requestId = response.headers.get("X-Request-Id");
    for await (const { data } of eventsOf(response)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) answer.figures.tokens = chunk.usage.completion_tokens;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const delta = choice.delta ?? {};
      if (delta.content || delta.reasoning_content || delta.reasoning || delta.tool_calls) {
        const now = performance.now();
        if (last === null) answer.figures.ttft = now - began;
        else if (answer.figures.gaps.length < MOST_GAPS) answer.figures.gaps.push(Math.round(100 * (now - last)) / 100);
        last = now;
        addDelta(answer, delta);
        view();
      }
      if (choice.finish_reason) answer.state = choice.finish_reason;
    }
    if (answer.state === "running") throw new Error("The answer ended before it was complete.");
    say(`The answer of ${answer.model} is complete.`);
  } catch (error) {
    if (error.name === "AbortError") {
      answer.state = "stopped";
      say("Stopped.");
    } else {
      answer.state = "error";
      answer.error = error.message;
    }
  }
  running.delete(answer);
  if (loadChat(of.id) !== null || of === chat) keep(of);
  view();
  buttons();
}

function ask(turn) {
  const asked = turn.results ? [turn.model] : chat.models.filter((name) => models.includes(name));
  turn.answers = (asked.length > 0 ? asked : models.slice(0, 1)).map(newAnswer);
  if (turn.answers.length === 0) turn.answers = [newAnswer("")];
  turn.answers.forEach(begin);
  drawTurns();
  turnsBox.scrollTop = turnsBox.scrollHeight;
  keep(chat);
  for (const answer of turn.answers) run(turn, answer);
}

function regenerate(turn, answer) {
  const fresh = begin(newAnswer(answer.model));
  turn.answers[turn.answers.indexOf(answer)] = fresh;
  drawTurns();
  turnsBox.scrollTop = turnsBox.scrollHeight;
  run(turn, fresh);
}

function submit(text) {
  if (!text.trim() || busyHere()) return false;
  const turn = { text, answers: [] };
  chat.turns.push(turn);
  if (!chat.title) chat.title = text.trim().split("\n")[0].slice(0, 60);
  ask(turn);
  return true;
}

// The answer's tools have been run by the user; the model goes on with what they gave.
function sendResults(event, turn, answer) {
  event.preventDefault();
  if (busyHere() || turn !== chat.turns.at(-1)) return;
  const contents = [...event.target.querySelectorAll("textarea")].map((area) => area.value);
  const next = { text: "", model: answer.model, results: answer.tools.map(({ id, name }, i) => ({ id, name, content: contents[i] })), answers: [] };
  chat.turns.push(next);
  ask(next);
}

const answersOf = (of) => of.turns.flatMap((turn) => turn.answers);
const busyHere = () => answersOf(chat).some((answer) => running.has(answer));

function stop() {
  for (const answer of answersOf(chat)) running.get(answer)?.abort();
}

function buttons() {
  const busy = busyHere();
  byId("stop").hidden = !busy;
  byId("send").hidden = busy;
}

// ---- Drawing ----

function editing(turn, box) {
  const area = el("textarea", { "aria-label": "Edit the message", rows: Math.min(12, turn.text.split("\n").length + 1) });
  area.value = turn.text;
  const done = () => {
    if (!area.value.trim()) return;
    turn.text = area.value;
    chat.turns.length = chat.turns.indexOf(turn) + 1; // what followed answered another message
    ask(turn);
  };
  const buttons = el(
    "div",
    { class: "row" },
    el("span", { class: "grow" }),
    el("button", { type: "button", text: "Cancel", onclick: drawTurns }),
    el("button", { type: "button", class: "primary", text: "Send again", onclick: done }),
  );
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      done();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      drawTurns();
    }
  });
  box.replaceChildren(area, buttons);
  area.focus();
}

function drawTurn(turn) {
  const box = el("div", { class: "question" });
  if (turn.results) {
    box.append(...turn.results.map(({ name, content }) => el("details", { class: "fold" }, el("summary", { text: `Result of ${name}` }), el("pre", {}, el("code", { text: content })))));
  } else {
    const edit = el("button", { type: "button", class: "quiet", text: "Edit", onclick: () => busyHere() || editing(turn, box) });
    const copy = copyButton(() => turn.text, { "aria-label": "Copy the message" });
    box.append(el("div", { class: "bubble", text: turn.text }), el("div", { class: "under" }, copy, edit));
  }
  const answers = turn.answers.map((answer) => new AnswerView(turn, answer));
  const grid = el("div", { class: answers.length > 1 ? "answers several" : "answers" }, ...answers.map((view) => view.node));
  return [el("section", { class: "turn" }, box, grid), answers];
}

function drawTurns() {
  if (chat.turns.length === 0) {
    turnsBox.replaceChildren(
      el("div", { class: "welcome" }, el("h1", { text: "Start a conversation" }), el("p", { text: models.length > 0 ? `Messages go to ${models[0]}, on this server. They are kept in this browser only.` : "The server is not ready yet." })),
    );
    return;
  }
  const drawn = chat.turns.map(drawTurn);
  turnsBox.replaceChildren(...drawn.map(([node]) => node));
  for (const view of drawn.flatMap(([, views]) => views)) view.draw();
}

function drawList() {
  const list = byId("chat-list");
  list.replaceChildren(
    ...listChats().map((entry) => {
      const item = el("li", { class: entry.id === chat.id ? "current" : null });
      const open = el("button", { type: "button", class: "title", text: entry.title || "New conversation", "aria-current": entry.id === chat.id ? "true" : null, onclick: () => openChat(entry.id) });
      const rename = el("button", { type: "button", class: "quiet", text: "Rename", "aria-label": `Rename ${entry.title}`, onclick: () => renaming(item, entry) });
      const remove = el("button", { type: "button", class: "quiet", text: "Delete", "aria-label": `Delete ${entry.title}` });
      remove.addEventListener("click", () => {
        if (remove.dataset.sure) return drop(entry.id);
        remove.dataset.sure = "yes";
        remove.textContent = "Sure?";
        setTimeout(() => {
          delete remove.dataset.sure;
          remove.textContent = "Delete";
        }, 3000);
        return undefined;
      });
      item.append(open, el("span", { class: "actions" }, rename, remove));
      return item;
    }),
  );
}

function renaming(item, entry) {
  const field = el("input", { "aria-label": "Title", maxlength: "80" });
  field.value = entry.title;
  let over = false;
  const done = (keepIt) => {
    if (over) return;
    over = true;
    if (keepIt && field.value.trim()) {
      renameChat(entry.id, field.value.trim());
      if (entry.id === chat.id) chat.title = field.value.trim();
    }
    drawList();
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") done(true);
    if (event.key === "Escape") done(false);
  });
  field.addEventListener("blur", () => done(true));
  item.replaceChildren(field);
  field.focus();
  field.select();
}

function keep(of) {
  if (of.turns.length === 0) return;
  if (!saveChat(of)) say("The browser's storage is full: this conversation is not kept.");
  drawList();
}

function drop(id) {
  if (id === chat.id) {
    stop();
    chat = newChat(chat);
    drawAll();
  }
  deleteChat(id);
  drawList();
}

function openChat(id) {
  const found = id === chat.id ? chat : loadChat(id);
  if (!found) return;
  if (found !== chat) stop();
  chat = found;
  for (const answer of answersOf(chat)) {
    if (answer.state === "running" && !running.has(answer)) answer.state = "stopped"; // the page was closed meanwhile
  }
  drawAll();
  narrowList(false);
  turnsBox.scrollTop = turnsBox.scrollHeight;
}

function drawModels() {
  const box = byId("models");
  box.hidden = models.length < 2;
  const chosen = chat.models.filter((name) => models.includes(name));
  if (chosen.length === 0) chosen.push(...models.slice(0, 1));
  box.replaceChildren(
    box.querySelector("legend"),
    ...models.map((name) => {
      const check = el("input", { type: "checkbox", value: name, checked: chosen.includes(name) });
      check.addEventListener("change", () => {
        chat.models = [...box.querySelectorAll("input:checked")].map((input) => input.value);
        keep(chat);
      });
      return el("label", {}, check, name);
    }),
  );
}

function drawSettings() {
  for (const name of FIELDS) byId(name).value = chat.settings[name] ?? "";
}

function drawAll() {
  drawTurns();
  drawList();
  drawModels();
  drawSettings();
  buttons();
}

// ---- The frame ----

function narrowList(open) {
  byId("chats").classList.toggle("open", open);
  byId("open-chats").setAttribute("aria-expanded", String(open));
}

function toggleSettings(open) {
  byId("settings").hidden = !open;
  byId("open-settings").setAttribute("aria-expanded", String(open));
  byId(open ? "system" : "open-settings").focus();
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
}

export function startChat() {
  const prompt = byId("prompt");
  startRequestDialog();
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!submit(prompt.value)) return;
    prompt.value = "";
    grow(prompt);
  });
  prompt.addEventListener("input", () => grow(prompt));
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("composer").requestSubmit();
  });
  byId("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]") || byId("chat").hidden) return;
    if (busyHere()) stop();
    else narrowList(false);
  });
  byId("new-chat").addEventListener("click", () => {
    stop();
    chat = newChat(chat);
    drawAll();
    narrowList(false);
    prompt.focus();
  });
  byId("open-chats").addEventListener("click", () => narrowList(!byId("chats").classList.contains("open")));
  byId("open-settings").addEventListener("click", () => toggleSettings(byId("settings").hidden));
  byId("close-settings").addEventListener("click", () => toggleSettings(false));
  for (const name of FIELDS) {
    byId(name).addEventListener("change", () => {
      chat.settings[name] = byId(name).value;
      keep(chat);
    });
  }
  addEventListener("resize", () => answersOf(chat).forEach((answer) => shown.get(answer)?.changed()));
  const latest = listChats()[0];
  if (latest) openChat(latest.id);
  else drawAll();
  return {
    show(seen) {
      byId("open-chats").classList.toggle("gone", !seen);
      if (seen) answersOf(chat).forEach((answer) => shown.get(answer)?.changed());
    },
    async reload() {
      try {
        models = (await getJson("/v1/models")).data.map((model) => model.id);
        setText(byId("server-text"), models[0]);
      } catch (error) {
        models = [];
        setText(byId("server-text"), error.status === 401 ? "needs a key" : "ready");
      }
      drawModels();
      if (chat.turns.length === 0) drawTurns();
    },
  };
}
