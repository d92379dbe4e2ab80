// The frame of the page: which view is shown, the server's state, the key.

import { apiKey, askForKey, setKeyDialog } from "./api.js";
import { byId, setText } from "./dom.js";
import { startChat } from "./chat.js";
import { startEngine } from "./engine.js";
import { startFleet } from "./fleet.js";
import { startPlan } from "./plan.js";

const VIEWS = ["chat", "engine", "fleet", "plan"];
const CHECK_MS = 5000;

const views = { chat: startChat(), engine: startEngine(), fleet: startFleet() };
let router = null; // whether this is a router (tactus route); null: not known yet
startPlan();

function show() {
  const asked = location.hash.slice(2); // "#/engine": no element has this id, so the browser scrolls nowhere
  const shown = router ? ["chat", "fleet"] : ["chat", "engine", "plan"];
  const name = shown.includes(asked) ? asked : "chat";
  for (const view of VIEWS) {
    byId(view).hidden = view !== name;
    byId(`tab-${view}`).hidden = !shown.includes(view);
    if (view === name) byId(`tab-${view}`).setAttribute("aria-current", "page");
    else byId(`tab-${view}`).removeAttribute("aria-current");
  }
  const seen = document.visibilityState === "visible";
  views.engine.show(name === "engine" && seen);
  views.fleet.show(name === "fleet" && seen);
  views.chat.show(name === "chat");
}

function showKeyDialog(why) {
  const dialog = byId("key-dialog");
  setText(byId("key-why"), why);
  byId("key").value = "";
  byId("key-keep").checked = apiKey.kept();
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "use"), { once: true });
  });
}

function startKeyDialog() {
  const dialog = byId("key-dialog");
  setKeyDialog(showKeyDialog);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    apiKey.set(byId("key").value.trim(), byId("key-keep").checked);
    dialog.close("use");
  });
  byId("key-cancel").addEventListener("click", () => dialog.close(""));
  byId("open-key").addEventListener("click", async () => {
    const why = apiKey.get() ? "A key is set. An empty one removes it." : "No key is set.";
    if (await askForKey(why)) views.chat.reload();
  });
}

// The server's state, and its model once it is ready.
let state = "";
async function check() {
  let now = "unreachable";
  try {
    const response = await fetch("/ready", { cache: "no-store" });
    const answer = await response.json();
    now = answer.status;
    const known = router;
    router = "replicas" in answer;
    if (router !== known) show();
  } catch {
    // no answer
  }
  byId("server").dataset.state = now;
  byId("server").title = now;
  if (router === null) show();
  if (now !== "ready" || state !== "ready") setText(byId("server-text"), now);
  const became = now === "ready" && state !== "ready";
  state = now;
  if (became) views.chat.reload();
  setTimeout(check, now === "ready" ? CHECK_MS : 1000);
}

startKeyDialog();
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", show);
check();
