// The status page asks debug/lanes once a second. It shows the answer, and how fast its counters
// grow. debug/history has the five minutes before the page was opened. debug/watchers has the slow
// watches and debug/consumers who costs what; they are asked more seldom, because each answer takes watchfan some work for each watch.
// Everything in an answer becomes text and never markup: only node() and svg() make nodes.
"use strict";

const pollEvery = 1000;    // ms between two requests
const patience = 3000;     // ms; the page is stale after so long without an answer
const span = 300000;       // ms that plots show
const gap = 5000;          // ms; a line breaks where two answers are further apart
const latencyOver = 10000; // ms; quantiles are of the deliveries of so long
const slowEvery = 5000;    // ms between two requests for the slow watches
const slowShare = 20;      // the least time between two, in times that the last answer took
const slowShown = 20;      // watches

const $ = (id) => document.getElementById(id);

function node(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// setText does not touch text that is already right, to keep a selection in it.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// ---- numbers as people read them ----

function count(n) {
  if (n < 10000) return n.toLocaleString("en", { maximumFractionDigits: n > 0 && n < 10 ? 1 : 0 });
  return n.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

const of = (n, thing, plural = "s") => count(n) + " " + thing + (count(n) === "1" ? "" : plural);

const exact = (n) => n.toLocaleString("en");

function bytes(n) {
  let unit = 0;
  for (; n >= 1000 && unit < 4; unit++) n /= 1024;
  return n.toFixed(unit > 0 && n < 100 ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

const processors = (n) => n.toFixed(n < 10 ? 2 : 1);

function seconds(s) {
  if (s < 0.001) return (s * 1e6).toFixed(0) + " µs";
  if (s < 1) return (s * 1000).toFixed(s < 0.1 ? 1 : 0) + " ms";
  return s.toFixed(s < 10 ? 2 : 1) + " s";
}

function age(s) {
  if (s === undefined) return "–";
  s = Math.max(0, Math.floor(s));
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}

// ---- state ----

let state;          // the last answer
let answered = 0;   // when it came, in ms of performance.now(); 0 is never
let answeredAt;     // the same as local time
let paused = false;
let recent = [];    // {at, totals}: the answers of the last latencyOver ms
let lanes = new Map();
let cursor = null;  // the pointer's place in a plot, as ms ago

// rate returns a counter's growth per second. A counter that is smaller than before has restarted at
// an unknown time, and counts as 0.
const rate = (now, before, elapsed) => Math.max(0, now - before) / elapsed;

// since returns the seconds from a time to the last answer.
const since = (time) => time === undefined ? undefined : (Date.parse(state.time) - Date.parse(time)) / 1000;

// quantile returns the time within which a share q of the deliveries between two answers were made. It
// interpolates as Prometheus' histogram_quantile does. It is undefined without deliveries.
function quantile(q, now, before) {
  const total = now.count - before.count;
  if (total <= 0) return undefined;
  let low = 0, below = 0;
  for (let i = 0; i < now.buckets.length; i++) {
    const upTo = now.buckets[i].count - before.buckets[i].count;
    const high = now.buckets[i].le;
    if (upTo >= q * total) return low + (high - low) * (q * total - below) / (upTo - below);
    [low, below] = [high, upTo];
  }
  return low;
}

// Each plot computes its value from a sample, which is made of two consecutive answers. In
// debug/history the value has the name of the plot.
const plots = [
  {
    id: "clients", title: "Clients", show: count,
    value: (s) => s.totals.clients,
    note: (s) => "over " + of(s.totals.connections, "connection"),
  },
  {
    id: "deliveries", title: "Deliveries", unit: "/s", show: count,
    value: (s) => s.rate("deliveredEvents"),
    note: (s) => s.rate("flushes") > 0 ? of(s.rate("deliveredEvents") / s.rate("flushes"), "event") + " per write" : "none now",
  },
  {
    id: "bytes", title: "Bytes sent", unit: "/s", show: bytes,
    value: (s) => s.rate("deliveredBytes"),
    note: (s) => bytes(s.totals.deliveredBytes) + " in all",
  },
  {
    id: "upstream", title: "Upstream events", unit: "/s", show: count,
    value: (s) => s.rate("upstreamEvents"),
    note: (s) => s.rate("upstreamEvents") > 0 ? "each delivered " + of(s.rate("deliveredEvents") / s.rate("upstreamEvents"), "time") : "none now",
  },
  {
    id: "latency", title: "Latency, p99", show: seconds,
    value: (s) => s.quantile(0.99),
    note: (s) => s.quantile(0.5) === undefined ? "no deliveries in 10 s" : "median " + seconds(s.quantile(0.5)) + ", over 10 s",
  },
  {
    id: "lag", title: "Clients that lag", show: count,
    value: (s) => s.totals.parkedClients,
    note: (s) => "do not read; " + of(s.totals.parks, "time") + " in all",
  },
  {
    id: "evictions", title: "Evictions", unit: "/s", show: count,
    value: (s) => s.rate("endedWatches", "evicted"),
    note: (s) => exact(s.totals.endedWatches.evicted) + " in all, too far behind",
  },
  {
    id: "passed", title: "Passed through", unit: "/s", show: count,
    value: (s) => s.rate("passthroughRequests"),
    note: (s) => count(s.served) + "/s served, " + of(s.totals.passthroughErrors, "error"),
  },
  {
    id: "processors", title: "Processors", show: processors,
    value: (s) => s.rate("processorSeconds"),
    note: () => "in use of " + exact(state.processors),
  },
  {
    id: "memory", title: "Memory", show: bytes,
    value: (s) => s.totals.memoryBytes || undefined,
    note: () => (state.memoryLimitBytes > 0 ? "limit " + bytes(state.memoryLimitBytes) : "no limit") +
      (state.totals.heldBytes > 0 ? " · " + bytes(state.totals.heldBytes) + " held for clients" : ""),
  },
];

for (const plot of plots) {
  plot.points = []; // {at, value}, oldest first; value may be undefined
  plot.line = svg("path", { class: "line" });
  plot.area = svg("path", { class: "area" });
  plot.cursor = svg("line", { class: "cursor", y1: 0, y2: 100, visibility: "hidden" });
  plot.picture = svg("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img" },
    svg("path", { class: "grid", d: "M60 0V100M120 0V100M180 0V100M240 0V100" }), plot.area, plot.line, plot.cursor); // a vertical line each minute
  plot.peak = node("span", { class: "peak" });
  plot.number = node("span", {}, "–");
  plot.noteElement = node("p", { class: "note" });
  $("plots").append(node("article", { class: "plot", id: "plot-" + plot.id, "aria-labelledby": "title-" + plot.id },
    node("h3", {}, node("span", { id: "title-" + plot.id }, plot.title), plot.peak),
    node("p", { class: "value" }, plot.number, node("small", {}, plot.unit || "")),
    plot.noteElement, plot.picture));
  plot.picture.addEventListener("pointermove", (event) => {
    const box = plot.picture.getBoundingClientRect();
    point(span * (1 - (event.clientX - box.left) / box.width));
  });
  plot.picture.addEventListener("pointerleave", () => point(null));
}

// point moves the cursor to so many ms ago, or takes it away.
function point(to) {
  cursor = to;
  draw();
  if (cursor === null && sample) showValues();
}

const steps = { ArrowLeft: 5000, ArrowRight: -5000 }; // ms

$("plots").addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key in steps) point(Math.min(span, Math.max(0, (cursor ?? 0) + steps[event.key])));
  else if (event.key === "Home") point(span);
  else if (event.key === "End") point(0);
  else if (event.key === "Escape" && cursor !== null) point(null);
  else return;
  event.preventDefault();
});
$("plots").addEventListener("blur", () => point(null));

// ---- asking ----

// ask returns an answer as {status, content, time}: without content if there is none, and time in ms.
async function ask(path, within) {
  const began = performance.now();
  try {
    const response = await fetch(path, { cache: "no-store", headers: { Accept: "application/json" }, signal: AbortSignal.timeout(within) });
    const content = response.ok ? await response.json() : undefined;
    return { status: response.status, content, time: performance.now() - began };
  } catch {
    return { status: 0, time: performance.now() - began }; // tick shows how old the last answer is
  }
}

async function poll() {
  const { content } = await ask("debug/lanes?format=json", patience);
  if (content) take(content);
}

// recall shows what watchfan has done before the page was opened, or while it did not look.
async function recall() {
  const { content } = await ask("debug/history", patience);
  const samples = content?.samples ?? [];
  if (samples.length === 0) return;
  const now = performance.now();
  for (const plot of plots) {
    const known = samples.map((s) => ({ at: now - s.age * 1000, value: plot.id === "memory" ? s.memory || undefined : s[plot.id] }));
    const [first, last] = [known[0].at, known.at(-1).at];
    plot.points = [...plot.points.filter((p) => p.at < first), ...known, ...plot.points.filter((p) => p.at > last)];
  }
}

let sample; // of the last two answers

function take(answer) {
  const before = state;
  const restarted = before && before.startTime !== answer.startTime;
  const missed = performance.now() - answered > gap;
  state = answer;
  answered = performance.now();
  answeredAt = new Date().toLocaleTimeString();
  if (restarted) recent = [];
  const elapsed = before && !restarted ? (Date.parse(answer.time) - Date.parse(before.time)) / 1000 : 0;
  recent = recent.filter((r) => r.at > answered - latencyOver);
  const oldest = recent[0];
  recent.push({ at: answered, totals: answer.totals });

  const earlier = lanes;
  lanes = new Map(answer.lanes.map((lane) => [[lane.group, lane.version, lane.resource, lane.encoding].join(" "), lane]));
  let served = 0;
  for (const [key, lane] of lanes) {
    const was = earlier.get(key) || { events: 0, served: 0 };
    lane.rate = elapsed > 0 ? rate(lane.events, was.events, elapsed) : 0;
    served += elapsed > 0 ? rate(lane.served, was.served, elapsed) : 0;
  }
  sample = {
    totals: answer.totals, served,
    rate: (...path) => {
      const at = (totals) => path.reduce((value, key) => value[key], totals);
      return elapsed > 0 ? rate(at(answer.totals), at(before.totals), elapsed) : 0;
    },
    quantile: (q) => oldest && quantile(q, answer.totals.delivery, oldest.totals.delivery),
  };
  for (const plot of plots) plot.points.push({ at: answered, value: elapsed > 0 ? plot.value(sample) : undefined });
  if (!before || restarted || missed) recall();
  showValues();
  setText($("version"), answer.version);
  setText($("uptime"), " · up " + age(since(answer.startTime)));
  showStory();
  showChecks();
  showLanes();
  showThrough();
  showObserved();
  showWays();
  tick();
}

// showValues shows the present value of each plot.
function showValues() {
  for (const plot of plots) {
    const value = plot.value(sample);
    setText(plot.number, value === undefined ? "–" : plot.show(value));
    setText(plot.noteElement, plot.note(sample));
  }
}

// ---- the story ----

function showStory() {
  const { clients } = state.totals;
  const upstream = state.lanes.filter((lane) => lane.watchBegan !== undefined).length;
  let story = "No watch is open: point a client's kubeconfig at watchfan.";
  if (clients > 0) {
    story = exact(clients) + (clients === 1 ? " watch is" : " watches are") + " served from " + exact(upstream) +
      (upstream === 1 ? " upstream watch" : " upstream watches");
    story += clients > upstream ? ": kube-apiserver has " + exact(clients - upstream) + " fewer." : ".";
    const [came, left] = [sample.rate("upstreamEvents"), sample.rate("deliveredEvents")];
    if (came > 0 && left > came) story += " " + of(came, "change") + "/s came in, " + of(left, "event") + "/s went out.";
  }
  setText($("story"), story);
  setText($("facts"), "kube-apiserver at " + state.upstream + " · " + processors(sample.rate("processorSeconds")) + " of " +
    of(state.processors, "processor") + (state.totals.memoryBytes > 0 ? " · " + bytes(state.totals.memoryBytes) + " of memory" : ""));
}

// ---- plots ----

function draw() {
  const now = performance.now();
  for (const plot of plots) {
    while (plot.points.length && plot.points[0].at < now - span - gap) plot.points.shift();
    const known = plot.points.filter((p) => p.value !== undefined);
    const highest = known.reduce((most, p) => Math.max(most, p.value), 0);
    const x = (p) => (300 * (1 - (now - p.at) / span)).toFixed(2);
    const y = (p) => (96 - (highest > 0 ? 88 * p.value / highest : 0)).toFixed(2);
    let line = "", area = "", last;
    for (const p of plot.points) {
      if (p.value === undefined) continue;
      if (!last || p.at - last.at > gap) {
        if (last) area += `L${x(last)} 100Z`;
        area += `M${x(p)} 100L${x(p)} ${y(p)}`;
        line += `M${x(p)} ${y(p)}`;
      } else {
        area += `L${x(p)} ${y(p)}`;
        line += `L${x(p)} ${y(p)}`;
      }
      last = p;
    }
    if (last) area += `L${x(last)} 100Z`;
    plot.line.setAttribute("d", line);
    plot.area.setAttribute("d", area);
    const shown = (value) => plot.show(value) + (plot.unit || "");
    setText(plot.peak, highest > 0 ? "peak " + plot.show(highest) : "");
    plot.picture.setAttribute("aria-label", known.length
      ? `${plot.title} in the last five minutes: now ${shown(known.at(-1).value)}, at most ${shown(highest)}` : `${plot.title}: nothing yet`);

    plot.cursor.setAttribute("visibility", cursor === null ? "hidden" : "visible");
    if (cursor === null) continue;
    const at = 300 * (1 - cursor / span);
    plot.cursor.setAttribute("x1", at);
    plot.cursor.setAttribute("x2", at);
    const near = known.reduce((best, p) => !best || Math.abs(now - p.at - cursor) < Math.abs(now - best.at - cursor) ? p : best, undefined);
    setText(plot.number, near && Math.abs(now - near.at - cursor) < gap ? plot.show(near.value) : "–");
    setText(plot.noteElement, near && Math.abs(now - near.at - cursor) < gap ? shown(near.value) + " there" : "no data there");
  }
  setText($("cursor"), cursor === null ? "" : "shown as of " + age(cursor / 1000) + " ago");
}

// ---- health ----

const glyph = (text) => node("span", { class: "glyph", "aria-hidden": "true" }, text);

// What a check means, for those that are not known from kube-apiserver's own readiness.
const checkMeanings = {
  "resident-resources": "the caches that are always kept are filled",
  "shutdown": "it is not stopping",
  "upstream": "kube-apiserver answers",
};

let checksShown;

function showChecks() {
  if (checksShown === JSON.stringify(state.checks)) return;
  checksShown = JSON.stringify(state.checks);
  $("checks").replaceChildren(...state.checks.map((check) => check.error === undefined
    ? node("li", { "data-tone": "good" }, glyph("✓"), " " + check.name + " ok", meaningOf(check))
    : node("li", { "data-tone": "bad" }, glyph("✕"), " " + check.name + " failed: " + check.error)));
}

const meaningOf = (check) => checkMeanings[check.name] ? node("span", { class: "muted" }, ": " + checkMeanings[check.name]) : "";

// tick shows whether the last answer is old, and redraws the plots.
function tick() {
  const late = performance.now() - answered;
  const stale = !paused && late > patience && (answered > 0 || performance.now() > patience);
  document.body.toggleAttribute("data-stale", stale);
  let [tone, sign, text] = ["good", "●", "Live"];
  if (stale) [tone, sign, text] = ["bad", "✕", "Stale"];
  else if (paused) [tone, sign, text] = ["warn", "‖", "Paused"];
  else if (answered === 0) [tone, sign, text] = ["muted", "◌", "Connecting"];
  $("link").dataset.tone = tone;
  setText($("link").firstElementChild, sign);
  setText($("link-text"), text);
  $("stale").hidden = !stale;
  if (stale) {
    setText($("stale"), answered === 0 ? "watchfan does not answer."
      : "watchfan has not answered since " + answeredAt + ". This page shows its last answer.");
  }
  if (!paused) draw();
}

// ---- lanes ----

const states = { Synced: ["good", "●"], Idle: ["good", "○"], Syncing: ["warn", "◌"], Relisting: ["warn", "↻"], Broken: ["bad", "✕"] };

const nameOf = (lane) => [lane.group, lane.version, lane.resource].filter(Boolean).join("/");

// A column is sorted by the values of sort. On a narrow screen, columns with a width are only in the
// details.
const columns = [
  { title: "Resource", sort: nameOf },
  { title: "State", sort: (l) => l.state },
  { title: "Clients", sort: (l) => l.clients, show: (l) => exact(l.clients) },
  { title: "Filters", width: "middle", sort: (l) => l.filters, show: (l) => exact(l.filters) },
  { title: "Objects", width: "middle", sort: (l) => l.objects, show: (l) => exact(l.objects) },
  { title: "Size", width: "middle", sort: (l) => l.bytes, show: (l) => bytes(l.bytes) },
  { title: "Events/s", width: "middle", sort: (l) => l.rate, show: (l) => count(l.rate) },
  { title: "Last heard", width: "wide", sort: (l) => since(l.lastHeard) ?? Infinity, show: (l) => age(since(l.lastHeard)) },
  { title: "Filled from", width: "wide", words: true, sort: sourceOf, show: sourceOf },
  { title: "Self-check", width: "wide", words: true, sort: (l) => checkOf(l), show: (l) => checkOf(l), tone: (l) => checkTones[l.selfCheck?.result] },
];

const sources = { sibling: "sibling", disk: "--cache-dir", upstream: "kube-apiserver" };

// sourceOf says where a lane's objects came from first. A lane of Tables keeps none.
function sourceOf(lane) {
  if (lane.table) return "no objects";
  if (lane.filled === undefined) return "–";
  return sources[lane.filled.source];
}

function filling(lane) {
  const f = lane.filled;
  if (f === undefined) return sourceOf(lane);
  const from = sources[f.source] + (f.address === undefined ? "" : " " + f.address);
  const why = f.noSibling === undefined ? "" : "; no sibling: " + f.noSibling;
  return from + ", " + of(f.objects, "object") + " in " + seconds(f.seconds) + ", " + ago(f.time) + why;
}

const checkTones = { equal: "good", different: "bad", failed: "warn" };

function checkOf(lane) {
  if (lane.selfCheck !== undefined) return lane.selfCheck.result;
  if (lane.table) return "no objects";
  return state.selfCheckSeconds > 0 ? "none yet" : "off";
}

function selfCheck(lane) {
  const c = lane.selfCheck;
  const next = lane.selfCheckDue === undefined ? "" : "; next in " + age(-since(lane.selfCheckDue));
  return checkOf(lane) + (c === undefined ? "" : ", " + ago(c.time) + ", took " + seconds(c.seconds)) + next;
}

const details = [
  ["Clients", (l) => exact(l.clients)],
  ["Different filters", (l) => exact(l.filters)],
  ["Requests answered", (l) => exact(l.served)],
  ["Objects", (l) => exact(l.objects) + ", " + bytes(l.bytes)],
  ["History", (l) => exact(l.historyEvents) + " events, " + bytes(l.historyBytes)],
  ["Forms of views", (l) => bytes(l.formBytes)],
  ["resourceVersion", (l) => l.resourceVersion],
  ["Oldest version to resume from", (l) => l.oldestResourceVersion],
  ["Upstream events", (l) => exact(l.events) + ", " + count(l.rate) + "/s"],
  ["Last change", (l) => ago(l.lastChange)],
  ["Last event or bookmark", (l) => ago(l.lastHeard)],
  ["Upstream watch", (l) => l.watchBegan === undefined ? "none now" : "open for " + age(since(l.watchBegan))],
  ["Upstream watch breaks", (l) => exact(l.breaks)],
  ["Filled from", filling],
  ["Self-check", selfCheck],
  ["Digest of the objects", (l) => l.selfCheck?.digest === undefined ? "none yet" : l.selfCheck.digest + " at " + l.selfCheck.resourceVersion],
  ["Relists, resets", (l) => exact(l.relists) + ", " + exact(l.resets)],
  ["Freshness proofs", (l) => exact(l.proofs) + ", " + exact(l.unproven) + " failed"],
  ["Last error", (l) => l.lastError === undefined ? "none" : l.lastError.kind + ", " + ago(l.lastError.time)],
];

const ago = (time) => time === undefined ? "never" : age(since(time)) + " ago";

const table = document.querySelector("table");
const body = table.tBodies[0];
let order = { column: columns[2], down: true };

for (const column of columns) {
  const button = node("button", { type: "button" }, column.title);
  column.head = node("th", { scope: "col", class: classes(column) }, button);
  table.tHead.rows[0].append(column.head);
  button.addEventListener("click", () => {
    order = { column, down: order.column === column ? !order.down : column.show !== undefined && !column.words };
    if (state) showLanes();
  });
}

function classes(column) {
  return [column.show && !column.words ? "num" : "", column.width || ""].join(" ").trim();
}

const rows = new Map(); // by lane key

function newRow(key) {
  const id = "details-" + key.replace(/[^a-z0-9]/g, "-");
  const row = {
    toggle: node("button", { type: "button", "aria-expanded": "false", "aria-controls": id }),
    name: node("strong"), form: node("small"), sign: glyph(""), state: node("span"),
    values: columns.map((column) => column.show && node("td", { class: classes(column) })),
    facts: details.map(() => node("dd")),
  };
  row.toggle.append(node("span", {}, row.name, row.form));
  row.badge = node("span", { class: "badge" }, row.sign, row.state);
  row.watchers = node("a");
  row.element = node("tr", { class: "lane" },
    node("th", { scope: "row" }, row.toggle), node("td", {}, row.badge), ...row.values.filter(Boolean));
  row.details = node("tr", { class: "details", id, hidden: "" }, node("td", { colspan: columns.length },
    node("dl", {}, ...details.map(([title], i) => node("div", {}, node("dt", {}, title), row.facts[i]))), row.watchers));
  unfolds(row.toggle, row.details, [row.element, row.details]);
  body.append(row.element, row.details);
  return row;
}

// unfolds makes a button show and hide details. Escape within one of the elements hides them.
function unfolds(button, details, elements, shown = () => {}) {
  const show = (visible) => {
    details.hidden = !visible;
    button.setAttribute("aria-expanded", String(visible));
    if (visible) shown();
  };
  button.addEventListener("click", () => show(details.hidden));
  for (const element of elements) {
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || details.hidden) return;
      show(false);
      button.focus();
    });
  }
}

function showLanes() {
  for (const [key, row] of rows) {
    if (lanes.has(key)) continue;
    row.element.remove();
    row.details.remove();
    rows.delete(key);
  }
  for (const [key, lane] of lanes) {
    if (!rows.has(key)) rows.set(key, newRow(key));
    const row = rows.get(key);
    const [tone, sign] = states[lane.state] || ["muted", "?"];
    setText(row.name, lane.resource);
    setText(row.form, [lane.group, lane.version].filter(Boolean).join("/") + " · " + lane.encoding);
    row.badge.dataset.tone = tone;
    setText(row.sign, sign);
    setText(row.state, lane.state === "Synced" ? lane.state : lane.state + " for " + age(since(lane.since)));
    columns.forEach((column, i) => {
      if (!column.show) return;
      setText(row.values[i], column.show(lane));
      if (column.tone) row.values[i].dataset.tone = column.tone(lane) ?? "";
    });
    details.forEach(([, show], i) => setText(row.facts[i], show(lane)));
    setText(row.watchers, "Watchers of " + nameOf(lane));
    row.watchers.setAttribute("href", "debug/watchers?resource=" + encodeURIComponent(nameOf(lane)));
  }
  const without = state.lanes.filter((lane) => lane.watchBegan === undefined).length;
  $("lane-count").dataset.tone = without > 0 ? "bad" : "";
  setText($("lane-count"), exact(lanes.size) + (without > 0 ? ", " + exact(without) + " of them without an upstream watch now" : ", one upstream watch each"));
  $("lane-count").hidden = lanes.size === 0;
  $("no-lanes").hidden = lanes.size > 0;
  table.hidden = lanes.size === 0;
  sort();
}

// sort puts the rows in order. The focus stays where it is.
function sort() {
  for (const column of columns) {
    if (column === order.column) column.head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else column.head.removeAttribute("aria-sort");
  }
  const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  const sorted = [...lanes.keys()].sort((a, b) => {
    const [x, y] = [lanes.get(a), lanes.get(b)];
    return (order.down ? -1 : 1) * compare(order.column.sort(x), order.column.sort(y)) || compare(nameOf(x), nameOf(y)) || compare(a, b);
  });
  const wanted = sorted.flatMap((key) => [rows.get(key).element, rows.get(key).details]);
  if (wanted.every((element, i) => body.children[i] === element)) return;
  keepFocus(() => body.append(...wanted));
}

// keepFocus leaves the focus where it is while elements move.
function keepFocus(move) {
  const focused = document.activeElement;
  move();
  if (focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

// ---- slow watches ----

const slowRows = new Map(); // by the watch's id
let slowRefused = false;

// askSlow asks for the slow watches. It returns the ms until the next request.
async function askSlow() {
  const { status, content, time } = await ask("debug/watchers?format=json&sort=slowest&limit=" + slowShown, 2 * slowEvery);
  slowRefused = status === 403;
  if (slowRefused) setText($("none-slow"), "Watches are shown to programs on watchfan's own host only, for example through kubectl port-forward, or with --profiling.");
  else if (content?.slow) showSlow(content);
  return content ? Math.max(slowEvery, slowShare * time) : slowEvery;
}

function showSlow(answer) {
  const causes = new Map(answer.slow.map((c) => [c.reason, c]));
  const total = answer.slow.reduce((sum, c) => sum + c.watches, 0);
  const watches = answer.watchers.filter((w) => causes.has(w.reason));
  $("slow-count").dataset.tone = total > 0 ? "bad" : "";
  setText($("slow-count"), total === 0 ? "" : exact(total) + " of " + exact(answer.matching) + (total > watches.length ? ", the slowest " + watches.length + " are shown" : ""));
  setText($("none-slow"), answer.matching > 0 ? "None: each client has been sent all there is." : "None: no watch is open.");
  $("none-slow").hidden = total > 0;
  $("slow-list").hidden = total === 0;
  const open = new Set(watches.map((w) => w.id));
  for (const [id, row] of slowRows) {
    if (open.has(id)) continue;
    row.element.remove();
    slowRows.delete(id);
  }
  for (const watch of watches) {
    if (!slowRows.has(watch.id)) slowRows.set(watch.id, newSlowRow(watch.id));
    const row = slowRows.get(watch.id);
    setText(row.reason, watch.reason);
    setText(row.who, " · " + watch.resource + " · " + (watch.userAgent || "no user agent"));
    setText(row.meaning, [
      causes.get(watch.reason).meaning,
      watch.lagEvents > 0 && of(watch.lagEvents, "event") + " (" + bytes(watch.lagBytes) + ") behind for " + seconds(watch.lagSeconds),
      watch.queuedBytes > 0 && bytes(watch.queuedBytes) + " in its socket",
      watch.client + " over " + watch.protocol,
    ].filter(Boolean).join(" · "));
  }
  const wanted = watches.map((w) => slowRows.get(w.id).element);
  if (!wanted.every((element, i) => $("slow-list").children[i] === element)) keepFocus(() => $("slow-list").append(...wanted));
}

function newSlowRow(id) {
  const row = { reason: node("strong"), who: node("span"), meaning: node("small"), verdict: node("div", { class: "verdict", id: "verdict-" + id, hidden: "" }) };
  row.toggle = node("button", { type: "button", "aria-expanded": "false", "aria-controls": "verdict-" + id }, node("span", {}, row.reason, row.who, row.meaning));
  row.element = node("li", {}, row.toggle, row.verdict);
  unfolds(row.toggle, row.verdict, [row.element], async () => {
    row.verdict.replaceChildren("…");
    const { content } = await ask("debug/watchers/" + id + "?format=json", 2 * slowEvery);
    const verdict = content?.verdict;
    row.verdict.replaceChildren(...verdict ? [node("p", {}, verdict.message), node("p", {}, verdict.advice)] : [node("p", {}, "The watch has ended.")]);
  });
  return row;
}

// ---- watches that pass through ----

let throughShown;

function showThrough() {
  const through = state.passedWatches;
  if (throughShown === JSON.stringify(through)) return;
  throughShown = JSON.stringify(through);
  const total = through.reduce((sum, t) => sum + t.watches, 0);
  setText($("through-count"), total > 0 ? exact(total) + ", one upstream watch each" : "");
  $("none-through").hidden = total > 0;
  $("through-list").hidden = total === 0;
  $("through-list").replaceChildren(...through.map((t) => node("li", {},
    node("strong", {}, t.resource), " · " + exact(t.watches) + " · " + t.reason, node("small", {}, t.message))));
}

// ---- what passes through and is compared with a cache ----

let observedShown;

function showObserved() {
  const seen = state.observed;
  $("observed-part").hidden = !seen;
  if (!seen || observedShown === JSON.stringify(seen)) return;
  observedShown = JSON.stringify(seen);
  const sum = (counts) => Object.values(counts).reduce((all, n) => all + n, 0);
  setText($("observed-count"), of(seen.watches, "watch", "es") + " now");
  setText($("observed-verdict"), seen.verdict);
  $("observed-list").hidden = seen.resources.length === 0;
  $("observed-list").replaceChildren(...seen.resources.slice(0, 50).map((r) => node("li", {},
    node("strong", {}, r.resource), " · " + of(r.events, "event") + " · " + of(r.lists, "list"),
    node("small", {}, sum(r.differences) > 0 ? of(sum(r.differences), "difference") : "no difference"))));
}

// ---- who costs what ----

const consumersShown = 10;

// askConsumers asks for the consumers. It returns the ms until the next request.
async function askConsumers() {
  const { content, time } = await ask("debug/consumers?format=json", 2 * slowEvery);
  if (content?.consumers) showConsumers(content);
  return Math.max(slowEvery, slowShare * (time ?? 0));
}

function showConsumers(answer) {
  const shown = answer.consumers.filter((c) => c.total.requests > 0 || c.watches > 0).slice(0, consumersShown);
  const cores = (n) => (1000 * n).toFixed(0) + "m";
  $("consumers-part").hidden = shown.length === 0;
  setText($("consumers-count"), answer.suffers ? "kube-apiserver is slow, fails or refuses requests" : "");
  $("consumers-list").replaceChildren(...shown.map((c) => node("li", {},
    node("strong", {}, c.program), " · " + (c.user || "user shown on this host only") + " · " + cores(c.cpu) + " CPU, alone " + cores(c.cpuAlone),
    node("small", {}, [
      count(c.requestsPerSecond) + " requests/s, " + count(c.passedPerSecond) + " of them to kube-apiserver",
      bytes(c.bytesPerSecond) + "/s", of(c.watches, "watch", "es"), of(Math.round(c.clients), "client"),
      c.rejectedPerSecond > 0 && count(c.rejectedPerSecond) + "/s rejected, at most " + count(c.budget) + " may pass",
    ].filter(Boolean).join(" · ")),
    ...c.faults.map((fault) => node("small", {}, fault)))));
}

// ---- how watches reach their clients ----

const ways = new Map(); // the value's element, by title

function showWays() {
  const { totals, watches } = state;
  const encodings = new Map();
  for (const lane of state.lanes) encodings.set(lane.encoding, (encodings.get(lane.encoding) ?? 0) + lane.clients);
  const facts = [
    ["Connections", exact(totals.connections) + ", " + exact(totals.http2Connections) + " of them HTTP/2"],
    ...Object.entries(watches.protocols).map(([name, n]) => ["Over " + name, name === "HTTP/2" ? of(n, "stream") : of(n, "watch", "es")]),
    ...[...encodings].filter(([, n]) => n > 0).sort(([a], [b]) => a < b ? -1 : 1).map(([name, n]) => ["As " + name, of(n, "watch", "es")]),
    ["Compressed", of(watches.gzip, "watch", "es") + " with gzip"],
    ["Passed through now", of(totals.passthroughStreams, "stream")],
  ];
  const titles = new Set(facts.map(([title]) => title));
  for (const [title, value] of ways) {
    if (titles.has(title)) continue;
    value.parentElement.remove();
    ways.delete(title);
  }
  for (const [title, text] of facts) {
    if (!ways.has(title)) ways.set(title, node("dd"));
    setText(ways.get(title), text);
  }
  const wanted = facts.map(([title]) => ways.get(title).parentElement ?? node("div", {}, node("dt", {}, title), ways.get(title)));
  if (!wanted.every((element, i) => $("ways-list").children[i] === element)) $("ways-list").append(...wanted);
}

// ---- running ----

$("pause").addEventListener("click", () => {
  paused = !paused;
  setText($("pause"), paused ? "Resume" : "Pause");
  tick();
});

async function run() {
  for (;;) {
    const began = performance.now();
    if (!paused) await poll();
    await new Promise((done) => setTimeout(done, Math.max(0, pollEvery - (performance.now() - began))));
  }
}

async function runSlow() {
  for (;;) {
    const wait = paused || answered === 0 || slowRefused ? pollEvery : await askSlow();
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function runConsumers() {
  for (;;) {
    const wait = paused || answered === 0 ? pollEvery : await askConsumers();
    await new Promise((done) => setTimeout(done, wait));
  }
}

setInterval(tick, 500);
run();
runSlow();
runConsumers();
