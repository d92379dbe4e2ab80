// The view of a fleet at a router (tactus route), from its GET /events. Connected only while it is seen.

import { follow } from "./api.js";
import { drawStacked, requestColour } from "./charts.js";
import { byId, count, el, percent, setText, tiles } from "./dom.js";

const MOST_FRAMES = 800;
const RATE_MS = 5000; // answers per second are over this time

let hello = null;
let frames = []; // {at, totals, replicas}
const colours = new Map(); // url: number of a colour
const rows = new Map(); // url: row
let lost = 0;
let drawing = false;

function take(f) {
  lost += f.lost_frames;
  for (const r of f.fleet.replicas) if (!colours.has(r.url)) colours.set(r.url, colours.size);
  frames.push({ at: f.now_ms, totals: f.totals, ready: f.fleet.ready, model: f.fleet.model, replicas: f.fleet.replicas });
  frames = frames.slice(-MOST_FRAMES);
}

const sum = (replicas, member) => replicas.reduce((total, r) => total + (r[member] ?? 0), 0);

function drawTiles(last) {
  const first = frames.find((f) => f.at >= last.at - RATE_MS);
  const rate = (last.totals.answers - first.totals.answers) / Math.max((last.at - first.at) / 1000, 0.001);
  const moved = Object.values(last.totals.migrations).reduce((total, n) => total + n, 0);
  tiles(byId("fleet-tiles"), [
    ["ready", `${last.ready} of ${last.replicas.length}`, "replicas"],
    ["in flight", count(sum(last.replicas, "in_flight")), "requests"],
    ["running", count(sum(last.replicas, "running")), "sequences"],
    ["waiting", count(sum(last.replicas, "waiting")), "sequences"],
    ["answers", frames.length > 1 ? rate.toFixed(1) : "-", "per second"],
    ["failed", count(last.totals.failed), `of ${count(last.totals.answers)} answers`],
    ["retries", count(last.totals.retries), `${count(last.totals.hedges)} hedges`],
    ["moved", count(moved), "sequences"],
  ]);
}

function newRow(r) {
  const dot = el("span", { class: "swatch" });
  dot.style.background = requestColour(colours.get(r.url));
  const bar = el("progress", { max: "1" });
  const kv = el("span", { class: "soft" });
  const cells = ["state", "version", "in_flight", "running", "waiting", "kv", "requests", "failures", "ejections"].map((name) => el("td", { class: ["state", "version", "kv"].includes(name) ? null : "num" }));
  cells[5].append(bar, kv);
  const address = r.url.replace(/^https?:../, "");
  const link = el("a", { href: `${r.url}/#/engine`, target: "_blank", rel: "noopener noreferrer", text: address, title: `The page of ${address}` });
  return { node: el("tr", {}, el("td", {}, el("span", { class: "name" }, dot, link)), ...cells), cells, bar, kv };
}

function drawRow(row, r) {
  const [state, version, inFlight, running, waiting, , requests, failures, ejections] = row.cells;
  const known = r.kv_tokens > 0;
  setText(state, r.why ? `${r.state}: ${r.why}` : r.state);
  state.classList.toggle("missed", r.state !== "ready");
  setText(version, [r.kind, r.version].filter(Boolean).join(" "));
  setText(inFlight, count(r.in_flight));
  setText(running, "running" in r ? count(r.running) : "-");
  setText(waiting, "waiting" in r ? count(r.waiting) : "-");
  row.bar.hidden = !known;
  const used = known ? Math.min(1, Math.max(0, 1 - r.free_kv_tokens / r.kv_tokens)) : 0;
  row.bar.value = used;
  setText(row.kv, known ? percent(used) : "-");
  setText(requests, count(r.requests));
  setText(failures, count(r.failures));
  setText(ejections, count(r.ejections));
}

function drawRows(replicas) {
  const body = byId("replica-rows");
  const urls = new Set(replicas.map((r) => r.url));
  for (const [url, row] of rows) {
    if (urls.has(url)) continue;
    row.node.remove();
    rows.delete(url);
  }
  for (const r of replicas) {
    if (!rows.has(r.url)) {
      rows.set(r.url, newRow(r));
      body.append(rows.get(r.url).node);
    }
    drawRow(rows.get(r.url), r);
  }
}

function note(text, bad) {
  setText(byId("fleet-note"), text);
  byId("fleet-note").classList.toggle("bad", bad);
}

function draw() {
  if (drawing || frames.length === 0 || !hello) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (byId("fleet").hidden) return;
    const last = frames.at(-1);
    drawTiles(last);
    drawRows(last.replicas);
    for (const [id, member] of [["in-flight", "in_flight"], ["fleet-waiting", "waiting"]]) {
      drawStacked(byId(id), frames, (f) => f.replicas.map((r) => ({ value: r[member] ?? 0, colour: colours.get(r.url) })));
      const now = `${count(sum(last.replicas, member))} ${member === "waiting" ? "waiting" : "in flight"}`;
      setText(byId(`${id}-now`), now);
    }
    const missed = lost > 0 ? `; this view missed ${count(lost)} frames` : "";
    note(`${last.model || "no model yet"}, balancer ${hello.balancer}, Tactus ${hello.version}${missed}`, false);
  });
}

export function startFleet() {
  let control = null;
  addEventListener("resize", draw);
  const events = (event, data) => {
    if (event === "hello") {
      hello = data;
      frames = [];
      lost = 0;
    } else if (event === "frame") {
      take(data);
      draw();
    }
  };
  return {
    show(seen) {
      if (seen === (control !== null)) return;
      if (seen) {
        control = new AbortController();
        follow("/events", control.signal, events, (why) => note(why, true));
        draw();
      } else {
        control.abort();
        control = null;
      }
    },
  };
}
