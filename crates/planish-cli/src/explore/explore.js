"use strict";
// The page of `planish explore`: lists that only hold the rows which are seen, so that thousands of layers scroll freely.
// Names come from models: they reach the page as text alone.

const at = (id) => document.getElementById(id);
const read = (id) => { const e = at(id); return e ? JSON.parse(e.textContent) : null; };
const plan = read("plan"), other = read("other");
const layers = plan.layers, nodes = plan.nodes || null;
const ROW = 26;
// On paper lists hold all of their rows.
let onPaper = false;

function make(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined && text !== null) e.textContent = text;
  return e;
}
const us = (x) => x == null ? "–" : x >= 1e4 ? (x / 1e3).toFixed(1) + " ms" : x >= 100 ? x.toFixed(0) : x.toFixed(1);
const percent = (x) => x == null ? "–" : (100 * x).toFixed(1) + " %";
const rate = (x) => x == null ? "–" : x >= 100 ? x.toFixed(0) : x.toFixed(1);
const size = (x) => x == null ? "–" : x >= 1e9 ? (x / 1e9).toFixed(2) + " GB" : x >= 1e6 ? (x / 1e6).toFixed(2) + " MB" : x >= 1e3 ? (x / 1e3).toFixed(1) + " kB" : x + " B";
const flop = (x) => x == null ? "–" : x >= 1e9 ? (x / 1e9).toFixed(2) + " GFLOP" : x >= 1e6 ? (x / 1e6).toFixed(2) + " MFLOP" : x + " FLOP";

// A list of rows of equal height: `fill(row, item)` writes one, and rows are used again as they leave the view.
class List {
  constructor(element, className, cells, fill, pick) {
    Object.assign(this, { element, className, cells, fill, pick, items: [], rows: [], selected: null });
    this.space = make("div", "space");
    element.append(this.space);
    element.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(element);
  }
  set(items) { this.items = items; this.space.style.height = items.length * ROW + "px"; this.later(); }
  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }
  draw() {
    const top = this.element.scrollTop, height = this.element.clientHeight;
    this.first = onPaper ? 0 : Math.max(0, Math.floor(top / ROW) - 4);
    this.last = onPaper ? this.items.length : Math.min(this.items.length, Math.ceil((top + height) / ROW) + 4);
    const n = Math.max(0, this.last - this.first);
    while (this.rows.length < n) this.rows.push(this.row());
    this.rows.forEach((row, k) => {
      const i = this.first + k;
      row.hidden = k >= n;
      row.style.display = k >= n ? "none" : "";
      if (k >= n) return;
      row.item = this.items[i];
      row.style.transform = `translateY(${i * ROW}px)`;
      row.classList.toggle("on", this.isOn ? this.isOn(row.item) : row.item === this.selected);
      this.fill(row, row.item);
    });
    if (this.drawn) this.drawn();
  }
  row() {
    const row = make("div", "row " + this.className);
    row.cells = this.cells.map((name) => row.appendChild(make("span", name)));
    row.addEventListener("click", () => this.pick(row.item));
    this.element.append(row);
    return row;
  }
  reveal(item) {
    const i = this.items.indexOf(item);
    if (i < 0) return;
    const y = i * ROW, { scrollTop, clientHeight } = this.element;
    if (y < scrollTop || y + ROW > scrollTop + clientHeight) this.element.scrollTop = Math.max(0, y - clientHeight / 3);
    this.later();
  }
}

layers.forEach((layer, i) => {
  layer.id = i;
  // Exporters may name no node; what it makes has a name.
  const made = layer.outputs.find(Boolean);
  layer.label = layer.name || (made ? made.name : layer.ops);
  layer.text = [layer.label, layer.ops, layer.kernel, layer.precision, layer.backend].join(" ").toLowerCase();
  layer.of = [];
});
if (nodes) nodes.forEach((node, i) => {
  node.id = i;
  node.text = [node.name, node.op, node.fate].join(" ").toLowerCase();
  if (node.layer != null) layers[node.layer].of.push(node);
});
const longest = Math.max(...layers.map((layer) => layer.us || 0), 1e-9);

// What is chosen in all views.
let chosen = null, words = [], only = null, order = { key: "id", down: false };

function matches(item) { return words.every((word) => item.text.includes(word)); }
function shown() { return layers.filter((layer) => matches(layer) && (!only || only.has(layer.id))); }

const columns = [
  ["#", "id", (l) => l.id, "n"], ["layer", "name", (l) => l.label, ""], ["operators", "ops", (l) => l.ops, ""],
  ["kernel", "kernel", (l) => l.kernel, ""], ["in", "precision", (l) => l.precision, ""],
  ["us", "us", (l) => us(l.us), "n"], ["share", "share", (l) => percent(l.share), "n"],
  ["GFLOP/s", "gflop_per_second", (l) => rate(l.gflop_per_second), "n"], ["GB/s", "gb_per_second", (l) => rate(l.gb_per_second), "n"],
  ["of roof", "roof_share", (l) => l.roof_share == null ? "–" : (100 * l.roof_share).toFixed(0) + " %", "n"],
];
const hasPeaks = layers.some((layer) => layer.roof_share != null);
const NO_PEAKS = "The machine's peaks are not known: planish doctor --measure finds them once.";
const head = at("layers-head");
columns.forEach(([title, key, , className]) => {
  const cell = make("span", className, title);
  if (key === "roof_share" && !hasPeaks) cell.title = NO_PEAKS;
  cell.addEventListener("click", () => { order = { key, down: order.key === key ? !order.down : key !== "id" && key !== "name" }; update(); });
  head.append(cell);
});
const layerList = new List(at("layers-list"), "layers", columns.map((c) => c[3]), (row, layer) => {
  columns.forEach(([, , text], k) => { row.cells[k].textContent = text(layer); });
  if (!row.bar) row.bar = row.appendChild(make("i", "bar"));
  row.bar.style.width = 100 * (layer.us || 0) / longest + "%";
}, choose);

// The graph before and after.
const after = new List(at("after"), "steps", ["n", "", "", "n"], (row, layer) => {
  [layer.id, layer.label, layer.ops, us(layer.us)].forEach((text, k) => { row.cells[k].textContent = text; });
}, choose);
after.isOn = (layer) => chosen && (chosen === layer || chosen.layer === layer.id);
const before = new List(at("before"), "nodes", ["n", "", "", ""], (row, node) => {
  [node.id, node.name, node.op, node.layer == null ? node.fate : "→ " + node.layer].forEach((text, k) => { row.cells[k].textContent = text; });
}, choose);
before.isOn = (node) => chosen && (chosen === node || chosen.id === node.layer && chosen.of);
const lines = at("lines");
function drawLines() {
  const { clientWidth: w, clientHeight: h } = lines;
  if (!w || !h || before.first == null || after.first == null) return;
  const scale = window.devicePixelRatio || 1;
  if (lines.width !== Math.round(w * scale)) lines.width = Math.round(w * scale);
  if (lines.height !== Math.round(h * scale)) lines.height = Math.round(h * scale);
  const g = lines.getContext("2d"), place = new Map();
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, w, h);
  // The lists begin below their headings, the canvas does not.
  const top = lines.getBoundingClientRect().top, down = (list) => list.element.getBoundingClientRect().top - top - list.element.scrollTop;
  const left = down(before), right = down(after);
  g.save();
  g.beginPath(); g.rect(0, Math.max(0, after.element.getBoundingClientRect().top - top), w, h); g.clip();
  for (let i = after.first; i < after.last; i++) place.set(after.items[i].id, (i + .5) * ROW + right);
  for (let i = before.first; i < before.last; i++) {
    const node = before.items[i];
    if (!place.has(node.layer)) continue;
    const y = (i + .5) * ROW + left, z = place.get(node.layer), on = before.isOn(node);
    g.strokeStyle = on ? "#d55e00" : "#b7bdc7";
    g.lineWidth = on ? 2 : 1;
    g.beginPath(); g.moveTo(0, y); g.bezierCurveTo(w / 2, y, w / 2, z, w, z); g.stroke();
  }
  g.restore();
}
let linesAsked = false;
before.drawn = after.drawn = () => {
  if (linesAsked) return;
  linesAsked = true;
  requestAnimationFrame(() => { linesAsked = false; drawLines(); });
};

function update() {
  const list = shown();
  const { key, down } = order, sign = down ? -1 : 1;
  list.sort((a, b) => {
    const x = a[key], y = b[key];
    if (x == null || y == null) return (x == null) - (y == null);
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || a.id - b.id;
  });
  layerList.set(list);
  const inOrder = list.slice().sort((a, b) => a.id - b.id), ids = new Set(inOrder.map((layer) => layer.id));
  after.set(inOrder);
  if (nodes) before.set(nodes.filter((node) => matches(node) && (!only || only.has(node.layer)) || words.length && ids.has(node.layer)));
  at("count").textContent = list.length === layers.length ? `${layers.length} layers` : `${list.length} of ${layers.length} layers`;
  at("clear").hidden = !only;
  if (diffList) updateDiff();
}

function choose(item) {
  chosen = item;
  const layer = item.of ? item : item.layer == null ? null : layers[item.layer];
  layerList.selected = layer;
  if (layer) { after.reveal(layer); layerList.reveal(layer); }
  if (nodes && item.of && item.of.length) before.reveal(item.of[0]);
  [layerList, after, before].forEach((list) => list.later());
  tell(item, layer);
  redraw();
}

function field(list, name, value) {
  if (value == null || value === "") return;
  list.append(make("dt", "", name), make("dd", "", value));
}
function table(rows) {
  const t = make("table");
  rows.forEach((cells) => { const r = t.appendChild(make("tr")); cells.forEach((cell) => r.append(make("td", "", cell))); });
  return t;
}
function tell(item, layer) {
  const side = at("detail");
  side.hidden = false;
  side.replaceChildren();
  const close = make("button", "close", "×");
  close.setAttribute("aria-label", "close");
  close.addEventListener("click", () => { side.hidden = true; });
  side.append(close);
  if (!item.of) {
    side.append(make("h2", "", item.name));
    const list = side.appendChild(make("dl"));
    field(list, "operator", item.op); field(list, "gives", item.type); field(list, "became", fates[item.fate] || item.fate);
    field(list, "reads", item.reads.map((i) => nodes[i].name).join(", "));
    if (!layer) return;
  }
  side.append(make("h2", "", `${layer.id}  ${layer.label}`));
  const list = side.appendChild(make("dl"));
  field(list, "operators", layer.ops); field(list, "kernel", layer.kernel); field(list, "computes in", layer.precision); field(list, "runs on", layer.backend);
  field(list, "time", layer.us == null ? null : `${us(layer.us)} us, ${percent(layer.share)} of the run${plan.profiled ? "" : " (tuned, not of now)"}`);
  field(list, "work", layer.flops == null ? null : `${flop(layer.flops)}, ${rate(layer.gflop_per_second)} GFLOP/s`);
  field(list, "traffic", layer.bytes == null ? null : `${size(layer.bytes)}, ${rate(layer.gb_per_second)} GB/s`);
  field(list, "roofline", layer.roof_share == null ? null : `${(100 * layer.roof_share).toFixed(0)} %, bound by ${layer.bound_by} (${us(layer.roof_compute_us)} us of arithmetic, ${us(layer.roof_memory_us)} us of memory at the peaks)`);
  field(list, "tensor cores", layer.not_on_tensor_cores); field(list, "why", layer.why);
  for (const [title, ports] of [["reads", layer.inputs], ["writes", layer.outputs]]) {
    side.append(make("h3", "", title), table(ports.filter(Boolean).map((p) => [p.name, p.type, [p.layout === "plain" ? "" : p.layout, p.storage].filter(Boolean).join(", ")])));
  }
  if (layer.tried && layer.tried.length) {
    side.append(make("h3", "", `tried (${layer.tried.length})`), table(layer.tried.slice(0, 60).map(([name, t, measured]) => [name, `${us(t)}\u00a0us${measured ? "" : "\u00a0predicted"}`])));
  }
  side.append(make("h3", "", "nodes"), table(layer.of.length ? layer.of.map((node) => [node.name, node.op, node.fate]) : layer.nodes));
}
const fates = { kept: "part of the layer, under its name", merged: "its value is made by the layer, fused or replaced", view: "a view: nothing is computed",
  absorbed: "taken up by the layer", folded: "computed when the plan was built", sizes: "follows from the sizes, settled before the run", unused: "left out: nothing needs it" };

// Pictures.
function prepare(canvas) {
  const { clientWidth: w, clientHeight: h } = canvas, scale = window.devicePixelRatio || 1;
  if (!w) return null;
  canvas.width = w * scale; canvas.height = h * scale;
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, w, h);
  g.font = "12px system-ui, sans-serif";
  return { g, w, h, left: 64, right: w - 12, top: 12, bottom: h - 28 };
}
function drawMemory() {
  const p = prepare(at("memory-chart"));
  if (!p) return;
  const alive = plan.memory.alive_bytes, peak = Math.max(...alive, 1), { g, left, right, top, bottom } = p;
  const x = (i) => left + (right - left) * i / Math.max(alive.length, 1), y = (b) => bottom - (bottom - top) * b / peak;
  g.fillStyle = "#9ecae8"; g.strokeStyle = "#0072b2";
  g.beginPath(); g.moveTo(left, bottom);
  alive.forEach((b, i) => { g.lineTo(x(i), y(b)); g.lineTo(x(i + 1), y(b)); });
  g.lineTo(right, bottom); g.closePath(); g.fill();
  if (alive.length < 500) g.stroke();
  const layer = layerList.selected;
  if (layer) { g.fillStyle = "#d55e00"; g.fillRect(x(layer.id), top, Math.max(2, x(1) - x(0)), bottom - top); }
  g.fillStyle = "#5b6270";
  for (let k = 0; k <= 4; k++) { const b = peak * k / 4; g.fillText(size(Math.round(b)), 4, y(b) + 4); }
  g.fillText(`step 0 to ${alive.length - 1}`, left, bottom + 18);
}
function roofline() {
  return layers.filter((l) => l.flops > 0 && l.bytes > 0 && l.us > 0).map((l) => ({ l, x: l.flops / l.bytes, y: l.flops / l.us / 1e3 }));
}
function drawRoofline() {
  const p = prepare(at("roof-chart"));
  if (!p) return;
  const points = roofline(), { g, left, right, top, bottom } = p;
  if (!points.length) { g.fillText("No layer has counted work and a time.", left, 40); return; }
  let flops = 0, bandwidth = 0;
  layers.forEach((l) => { if (l.roof_compute_us > 0) flops = Math.max(flops, l.flops / l.roof_compute_us / 1e3); if (l.roof_memory_us > 0) bandwidth = Math.max(bandwidth, l.bytes / l.roof_memory_us / 1e3); });
  const log = Math.log10, xs = points.map((q) => log(q.x)), ys = points.map((q) => log(q.y));
  const x0 = Math.floor(Math.min(...xs)), x1 = Math.ceil(Math.max(...xs, flops && bandwidth ? log(flops / bandwidth) + .3 : -9)), y0 = Math.floor(Math.min(...ys)), y1 = Math.ceil(Math.max(...ys, flops ? log(flops) : -9));
  const x = (v) => left + (right - left) * (log(v) - x0) / Math.max(1, x1 - x0), y = (v) => bottom - (bottom - top) * (log(v) - y0) / Math.max(1, y1 - y0);
  g.strokeStyle = "#ddd"; g.fillStyle = "#5b6270";
  for (let k = y0; k <= y1; k++) { g.beginPath(); g.moveTo(left, y(10 ** k)); g.lineTo(right, y(10 ** k)); g.stroke(); g.fillText(10 ** k + " GF/s", 4, y(10 ** k) + 4); }
  for (let k = x0; k <= x1; k++) { g.beginPath(); g.moveTo(x(10 ** k), top); g.lineTo(x(10 ** k), bottom); g.stroke(); g.fillText(10 ** k + (k === x1 ? "" : " F/B"), x(10 ** k) - (k === x1 ? 22 : 0), bottom + 18); }
  if (flops && bandwidth) {
    const ridge = flops / bandwidth;
    g.strokeStyle = "#b00020"; g.beginPath(); g.moveTo(x(10 ** x0), y(bandwidth * 10 ** x0)); g.lineTo(x(ridge), y(flops)); g.lineTo(right, y(flops)); g.stroke();
  }
  points.forEach((q) => {
    const on = q.l === layerList.selected;
    g.fillStyle = on ? "#d55e00" : "rgba(0,114,178,.55)";
    g.beginPath(); g.arc(x(q.x), y(q.y), on ? 7 : Math.max(2.5, 14 * Math.sqrt(q.l.share || 0)), 0, 7); g.fill();
    q.px = x(q.x); q.py = y(q.y);
  });
  at("roof-chart").points = points;
}
function redraw() { drawMemory(); drawRoofline(); }
at("memory-chart").addEventListener("click", (e) => {
  const w = e.target.clientWidth - 76, i = Math.floor((e.offsetX - 64) / w * layers.length);
  if (layers[i]) choose(layers[i]);
});
at("memory-chart").addEventListener("mousemove", (e) => {
  const i = Math.floor((e.offsetX - 64) / (e.target.clientWidth - 76) * layers.length);
  if (layers[i]) at("memory-tip").textContent = `step ${i}, ${layers[i].name}: ${size(plan.memory.alive_bytes[i])} alive`;
});
function nearest(e) {
  let best = null, d = 400;
  (e.target.points || []).forEach((q) => { const s = (q.px - e.offsetX) ** 2 + (q.py - e.offsetY) ** 2; if (s < d) { d = s; best = q; } });
  return best;
}
at("roof-chart").addEventListener("click", (e) => { const q = nearest(e); if (q) choose(q.l); });
at("roof-chart").addEventListener("mousemove", (e) => {
  const q = nearest(e);
  at("roof-tip").textContent = q ? `${q.l.id}  ${q.l.name}: ${rate(q.y)} GFLOP/s at ${q.x.toFixed(1)} FLOP a byte, ${us(q.l.us)} us` : "";
});
const largest = at("memory-values");
plan.memory.values.slice(0, 40).forEach(([name, bytes, from, to]) => {
  const row = largest.appendChild(make("tr"));
  row.append(make("td", "", name), make("td", "n", size(bytes)), make("td", "n", from), make("td", "n", to));
});

if (!hasPeaks) at("view-roof").append(make("p", "faint", NO_PEAKS));

// Hazards.
plan.hazards.forEach((hazard) => {
  const card = at("hazards").appendChild(make("div", "hazard"));
  card.append(make("b", "", hazard.kind), hazard.what, hazard.share == null ? "" : ` (${percent(hazard.share)} of the time)`, make("p", "faint", hazard.help));
  card.addEventListener("click", () => { only = new Set(hazard.layers); update(); open("layers"); });
});
if (!plan.hazards.length) at("hazards").append(make("p", "", "Nothing stands out."));
at("hazards").append(make("h2", "", "Tried"));
(plan.trials || []).forEach((trial) => {
  const card = at("hazards").appendChild(make("div", "hazard tried")), result = trial.result;
  card.append(make("b", "", trial.what), result ? result.line : trial.failed);
  if (result) card.append(make("p", "faint", `${result.ms_before.toFixed(3)} to ${result.ms.toFixed(3)} ms, ${result.pairs} pairs of runs` + (result.error == null ? "" : `; results ${result.error.toExponential(1)} apart (relative L2)`)));
});
if (!plan.trials) at("hazards").append(make("p", "faint", "Nothing was tried; planish explore PLAN --try builds the plan with one thing changed at a time, and measures what that gains."));
else if (!plan.trials.length) at("hazards").append(make("p", "", "There is nothing left to try."));

// Two plans.
let diffList = null, pairs = [];
function pairUp() {
  const byName = new Map(), byOutput = new Map(), taken = new Set();
  other.layers.forEach((layer, i) => { layer.id = i; if (layer.name) byName.set(layer.name, layer); layer.outputs.forEach((o) => o && byOutput.set(o.name, layer)); });
  layers.forEach((a) => {
    let b = byName.get(a.name);
    if (!b || taken.has(b)) b = a.outputs.filter(Boolean).map((o) => byOutput.get(o.name)).find((l) => l && !taken.has(l));
    if (b) taken.add(b);
    pairs.push({ a, b: b || null });
  });
  other.layers.forEach((b) => { if (!taken.has(b)) pairs.push({ a: null, b }); });
  pairs.forEach((pair) => {
    const { a, b } = pair;
    pair.text = [a, b].filter(Boolean).map((l) => l.text || [l.name, l.ops, l.kernel].join(" ").toLowerCase()).join(" ");
    pair.change = (a && a.us || 0) - (b && b.us || 0);
    pair.differs = !a || !b || a.kernel !== b.kernel || a.precision !== b.precision;
  });
}
if (other) {
  pairUp();
  const diffHead = at("diff-head");
  ["layer", "kernel here", "kernel there", "us", "us there", "change"].forEach((title, k) => diffHead.append(make("span", k > 2 ? "n" : "", title)));
  diffList = new List(at("diff-list"), "diff", ["", "", "", "n", "n", "n"], (row, { a, b, change }) => {
    const kernel = (l) => l ? `${l.kernel} ${l.precision}` : "not there";
    [(a || b).name, kernel(a), kernel(b), us(a && a.us), us(b && b.us), (change > 0 ? "+" : "") + change.toFixed(1)].forEach((text, k) => { row.cells[k].textContent = text; });
    row.cells[5].className = "n " + (change > 0 ? "slower" : "faster");
  }, (pair) => { if (pair.a) choose(pair.a); });
}
function updateDiff() {
  const changed = at("changed").checked;
  diffList.set(pairs.filter((pair) => matches(pair) && (!changed || pair.differs)).sort((p, q) => Math.abs(q.change) - Math.abs(p.change)));
}

// Views.
function open(name) {
  document.querySelectorAll("nav [data-view]").forEach((tab) => tab.setAttribute("aria-selected", tab.dataset.view === name));
  document.querySelectorAll(".view").forEach((view) => view.classList.toggle("open", view.id === "view-" + name));
  redraw();
}
document.querySelectorAll("nav [data-view]").forEach((tab) => tab.addEventListener("click", () => open(tab.dataset.view)));
at("search").addEventListener("input", (e) => { words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean); update(); });
at("clear").addEventListener("click", () => { only = null; update(); });
if (other) at("changed").addEventListener("change", update);
window.addEventListener("resize", redraw);
function paper(is) {
  onPaper = is;
  [layerList, after, before, diffList].forEach((list) => list && list.draw());
  redraw();
}
window.addEventListener("beforeprint", () => paper(true));
window.addEventListener("afterprint", () => paper(false));
update();
open(location.hash.slice(1) && at("view-" + location.hash.slice(1)) ? location.hash.slice(1) : "layers");
if (new URLSearchParams(location.search).has("layer")) choose(layers[+new URLSearchParams(location.search).get("layer")] || layers[0]);
