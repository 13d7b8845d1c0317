"use strict";
/* Charts by Observable Plot; every colour is a CSS variable, so that they follow the theme and the printer. */

function put(id, ...nodes) {
  const figure = document.getElementById(id);
  figure.replaceChildren(...nodes.filter(Boolean));
}

function note(text) {
  return el("p", { class: "quiet" }, text);
}

function width(id, most = 1100) {
  return Math.max(280, Math.min(most, document.getElementById(id).clientWidth || most));
}

const BASE = { style: { background: "transparent", fontSize: "12px", fontFamily: "inherit", overflow: "visible" } };

function legend(labels) {
  const family = new Map(board().rows.map(r => [r.label, r.family]));
  return el("ul", { class: "legend" }, labels.map(label => el("li", {}, line(label, family.get(label)),
    el("button", { type: "button", class: "name", onclick: () => update({ method: label }) }, label))));
}

function line(label, family) {
  return Plot.plot({ width: 30, height: 10, margin: 1, axis: null, x: { domain: [0, 1] }, y: { domain: [0, 1] }, color: { type: "identity" }, ariaHidden: "true",
    marks: [Plot.ruleY([0.5], { stroke: familyColour(family), strokeWidth: 2.6, strokeDasharray: dash(label) })] });
}

/* The families that are there, in their colours. */
function families(rows) {
  const here = [...new Set(rows.map(r => r.family))];
  const order = f => { const at = DATA.families.indexOf(f); return at < 0 ? DATA.families.length : at; };
  return el("ul", { class: "legend" }, here.sort((x, y) => order(x) - order(y)).map(f => el("li", { class: "dot", "--own": familyColour(f) }, f)));
}

/* --- Clean against robust ------------------------------------------------------------------------------------------- */

function onFront(points) {
  const beats = (a, b) => a.x >= b.x && a.y >= b.y && a.cost <= b.cost && (a.x > b.x || a.y > b.y || a.cost < b.cost);
  return points.filter(p => !points.some(q => beats(q, p)));
}

function scatterPoints(cost) {
  const names = state.dataset ? [state.dataset] : datasets().map(d => d.name);
  const mean = list => list.some(v => v === undefined || v === null) ? undefined : d3.mean(list);
  return visibleRows().map(row => ({
    label: row.label, family: row.family, row, cost: mean(names.map(n => row.entries[n].m?.[cost]?.[0])) ?? NaN,
    x: mean(names.map(n => facts(row, n).abar)), y: mean(names.map(n => row.entries[n].m?.area?.[0])),
  })).filter(p => p.x !== undefined && p.y !== undefined);
}

/* The better half and whoever is on the front: what a reader looks for is there, and crowded when all are shown.
   Where most of what would be drawn is empty, those beyond the void are left out. */
function leaders(points, front) {
  const sum = p => p.x + p.y;
  const middle = d3.median(points, sum);
  const half = points.filter(p => sum(p) >= middle || front.includes(p) && sum(p) >= d3.quantile(points, 0.25, sum));
  const order = half.map(sum).sort(d3.ascending);
  const gap = d3.maxIndex(d3.pairs(order), ([a, b]) => b - a);
  const isVoid = half.length - gap > 3 && order[gap + 1] - order[gap] > (order[half.length - 1] - order[0]) / 2;
  return isVoid ? half.filter(p => sum(p) > order[gap]) : half;
}

function drawScatter() {
  const cost = state.cost || "parameters";
  const points = scatterPoints(cost);
  const zoom = document.getElementById("zoom");
  zoom.hidden = points.length < 6;
  if (points.length < 2) return put("scatter", note("Needs two methods with a clean and a robust score on every dataset shown."));
  const front = onFront(points.filter(p => p.cost > 0));
  const zoomed = state.zoom !== "all" && points.length >= 6;
  zoom.textContent = zoomed ? "Show all" : "Zoom to the leaders";
  const shown = zoomed ? leaders(points, front) : points;
  const wide = width("scatter", 1400);
  const high = Math.min(560, Math.max(340, wide * 0.5));
  const pad = ([low, most]) => [low - 0.06 * (most - low || 0.1), most + 0.06 * (most - low || 0.1)];
  const [x, y] = [pad(d3.extent(shown, p => p.x)), pad(d3.extent(shown, p => p.y))];
  const own = DATA.measures[cost];
  const title = p => `${p.label}\n${p.family}\nclean ${p.x.toFixed(3)}\nrobust ${p.y.toFixed(3)}\n${own?.title ?? cost} ${isNaN(p.cost) ? "–" : write(p.cost, own?.style)}`;
  const scale = { x: v => 52 + (v - x[0]) / (x[1] - x[0]) * (wide - 72), y: v => high - 44 - (v - y[0]) / (y[1] - y[0]) * (high - 64) };
  const costs = d3.extent(points.filter(p => p.cost > 0), p => p.cost);
  const radius = d3.scaleLog(costs, [4, 12]);
  const reach = p => p.cost > 0 ? radius(p.cost) : 4;
  const dots = { x: "x", y: "y", fill: p => familyColour(p.family), fillOpacity: 0.75 };
  put("scatter", families(shown.map(p => p.row)), Plot.plot({
    ...BASE, width: wide, height: high, marginRight: 20, marginTop: 20, marginBottom: 44, marginLeft: 52, grid: true, ariaLabel: "Scatter of clean against robust score",
    x: { label: "clean, chance-normalised →", domain: x }, y: { label: "↑ robust area", domain: y, ticks: 8 },
    r: { range: [4, 12], type: "log", domain: costs }, color: { type: "identity" },
    marks: [
      Plot.dot(shown.filter(p => !(p.cost > 0)), { ...dots, r: 4 }),
      Plot.dot(shown.filter(p => p.cost > 0), { ...dots, r: "cost" }),
      Plot.dot(front.filter(p => shown.includes(p)), { x: "x", y: "y", r: "cost", stroke: "currentColor", strokeWidth: 2 }),
      labels(shown, front, scale, reach, wide).map(l => Plot.text([l.point], { x: "x", y: "y", text: "label", textAnchor: l.anchor, dx: l.dx, dy: l.dy, fill: "currentColor", stroke: "var(--paper)", strokeWidth: 4 })),
      Plot.tip(shown, Plot.pointer({ x: "x", y: "y", title, anchor: "bottom" })),
    ],
  }), note(`Dot size: ${own?.title ?? cost}. Ringed: nobody is better in clean, robust and cost at once (${front.length} of ${points.length})` +
    (shown.length < points.length ? `; ${count(points.length - shown.length, "method")} further down or left.` : ".")));
}

/* A name beside every dot where there is room for it, those of the front first; the tip names the others. */
function labels(points, front, scale, reach, wide) {
  const taken = points.map(p => { const [x, y, r] = [scale.x(p.x), scale.y(p.y), reach(p)]; return [x - r, y - r, x + r, y + r]; });
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${BASE.style.fontSize} ${getComputedStyle(document.body).fontFamily}`;
  const found = [];
  for (const point of [...front, ...points.filter(p => !front.includes(p))].filter(p => points.includes(p)).slice(0, 150)) {
    const [x, y, r, size] = [scale.x(point.x), scale.y(point.y), reach(point), pen.measureText(point.label).width + 4];
    const places = [["start", r + 3, 0, x + r + 2, y - 7], ["end", -r - 3, 0, x - r - 2 - size, y - 7], ["middle", 0, -r - 9, x - size / 2, y - r - 16], ["middle", 0, r + 9, x - size / 2, y + r + 2]];
    for (const [anchor, dx, dy, left, top] of places) {
      const box = [left, top, left + size, top + 14];
      if (box[0] < 0 || box[2] > wide || taken.some(t => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1])) continue;
      taken.push(box);
      found.push({ point, anchor, dx, dy });
      break;
    }
  }
  return found;
}

/* --- Severity curves ------------------------------------------------------------------------------------------------ */

function panels(name) {
  const found = new Map();
  const pinned = pins();
  const rows = visibleRows();
  for (const row of rows.filter((r, i) => i < FEW || pinned.includes(r.label))) {
    const sums = new Map();
    for (const [modality, corruption, y] of facts(row, name).curves ?? []) {
      const panel = corruption === "joint" ? "all modalities at once" : corruption === "misaligned" ? "pairing broken" : modality;
      if (!sums.has(panel)) sums.set(panel, []);
      sums.get(panel).push(y);
    }
    for (const [panel, list] of sums) {
      if (!found.has(panel)) found.set(panel, []);
      const y = d3.range(6).map(s => d3.mean(list, c => c[s]));
      found.get(panel).push(...y.map((v, s) => ({ label: row.label, family: row.family, severity: s, y: v })));
    }
  }
  return found;
}

function drawCurves() {
  const name = state.dataset || state.on || datasets()[0].name;
  const found = panels(name);
  if (!found.size) return put("curves", note(`No severity curves on ${name}.`));
  const pinned = pins();
  const all = [...found.values()].flat();
  const domain = [Math.min(0, d3.min(all, p => p.y)), Math.max(1, d3.max(all, p => p.y))];
  const one = (panel, points) => {
    const reference = dataset(name).without[panel] ?? null; // what ignoring the modality would score
    const own = points.filter(p => pinned.includes(p.label));
    return el("div", { class: "panel" }, el("h3", {}, panel), Plot.plot({
      ...BASE, width: 340, height: 250, marginLeft: 36, marginBottom: 36, grid: true, ariaLabel: `Severity curves, ${panel} corrupted, on ${name}`,
      x: { label: "severity →", ticks: d3.range(6), tickFormat: "d" }, y: { label: null, domain },
      marks: [
        Plot.ruleY([0], { strokeOpacity: 0.4 }),
        Plot.line(points.filter(p => !pinned.includes(p.label)), { x: "severity", y: "y", z: "label", stroke: "var(--faint)", strokeWidth: 1 }),
        reference === null ? null : Plot.ruleY([reference], { strokeDasharray: "5,4", strokeWidth: 1.2 }),
        pinned.map(label => Plot.line(own.filter(p => p.label === label), { x: "severity", y: "y", stroke: p => familyColour(p.family), strokeWidth: 2.4, strokeDasharray: dash(label) })),
        Plot.dot(own, { x: "severity", y: "y", fill: p => familyColour(p.family), r: 2.6 }),
        Plot.tip(points, Plot.pointer({ x: "severity", y: "y", title: p => `${p.label}\nseverity ${p.severity}: ${p.y.toFixed(3)}` })),
      ],
      color: { type: "identity" },
    }));
  };
  put("curves", legend(pinned), el("div", { class: "panels" }, [...found].map(([panel, points]) => one(panel, points))));
}

/* --- Advantages ----------------------------------------------------------------------------------------------------- */

const MOST = 60; // methods of a chart: a longer one is a list, and the table is that

function drawAdvantages() {
  const parts = [];
  let more = 0;
  for (const pillar of DATA.pillars) {
    const every = d3.sort(visibleRows().filter(r => standing(r, pillar)).map(r => ({ label: r.label, family: r.family, ...standing(r, pillar) })), p => -p.v);
    if (every.length < 2) continue;
    const points = every.filter((p, i) => i < MOST || p.label === DATA.control);
    more = Math.max(more, every.length - points.length);
    parts.push(el("div", { class: "panel wide" }, el("h3", {}, pillar),
      Plot.plot({
        ...BASE, width: 500, height: 60 + 19 * points.length, marginLeft: 150, marginRight: 12, marginBottom: 36, ariaLabel: `Advantages, ${pillar}`,
        x: { label: `advantage over ${DATA.control}, 95 % interval →`, grid: true, nice: true },
        y: { domain: points.map(p => p.label), label: null, tickFormat: t => t.length > 22 ? t.slice(0, 10) + "…" + t.slice(-11) : t, tickSize: 0 },
        color: { type: "identity" },
        marks: [
          Plot.ruleX([0]),
          Plot.link(points.filter(p => p.e !== null), { x1: p => p.v - p.e, x2: p => p.v + p.e, y1: "label", y2: "label", stroke: p => familyColour(p.family), strokeOpacity: 0.45, strokeWidth: 5, strokeLinecap: "round" }),
          Plot.dot(points, { x: "v", y: "label", r: 4.5, fill: p => p.best ? familyColour(p.family) : "var(--paper)", stroke: p => familyColour(p.family), strokeWidth: 1.8,
            title: p => `${p.label}: ${write(p.v, "signed")} on ${p.on} of ${p.of} datasets` }),
        ],
      })));
  }
  document.getElementById("ranktext").replaceChildren(el("span", { class: "line" }, state.dataset || state.league ? "" : board().across[DATA.pillars[0]]));
  put("ranks", parts.length ? families(visibleRows().filter(r => standing(r, "clean"))) : null, parts.length ? el("div", { class: "panels" }, parts) : note("Nobody has an advantage: there is no control."),
    parts.length ? note("Filled: may be the best of the methods that have its datasets." + (more ? ` The first ${MOST} are drawn.` : "")) : null);
}

/* --- Attention audit, interaction profile --------------------------------------------------------------------------- */

function drawAudit() {
  const names = state.dataset ? [state.dataset] : datasets().map(d => d.name);
  const points = visibleRows().flatMap(row => names.flatMap(name =>
    Object.entries(facts(row, name).audit ?? {}).map(([modality, v]) => ({ label: row.label, family: row.family, name, modality, v }))));
  document.getElementById("s-audit").hidden = !points.length;
  if (!points.length) return;
  const labels = d3.groupSort(points, list => d3.mean(list, p => p.v), p => p.label).slice(0, MOST);
  const modalities = [...new Set(points.map(p => p.modality))];
  const shapes = ["circle", "square", "triangle", "diamond", "star", "cross", "wye"].map(name => d3[`symbol${name[0].toUpperCase()}${name.slice(1)}`]);
  const range = modalities.map((_, i) => shapes[i % shapes.length]);
  const key = (m, i) => el("li", {}, Plot.plot({ width: 14, height: 14, margin: 0, axis: null, x: { domain: [0, 1] }, y: { domain: [0, 1] }, ariaHidden: "true",
    marks: [Plot.dot([[0.5, 0.5]], { symbol: () => range[i], r: 4, fill: "currentColor" })], symbol: { type: "identity" } }), m);
  put("audit", el("ul", { class: "legend" }, modalities.map(key)), Plot.plot({
    ...BASE, width: width("audit", 760), height: 80 + 24 * labels.length, marginLeft: 150, marginBottom: 36, ariaLabel: "Attention audit",
    x: { domain: [-1, 1], label: "correlation of weight with severity →", grid: true }, y: { domain: labels, label: null, tickSize: 0 },
    color: { type: "identity" }, symbol: { domain: modalities, range },
    marks: [
      Plot.ruleX([0]),
      Plot.dot(points.filter(p => labels.includes(p.label)), { x: "v", y: "label", fill: p => familyColour(p.family), symbol: "modality", r: 5, fillOpacity: 0.8, title: p => `${p.label}\n${p.name}, ${p.modality}: ${p.v.toFixed(2)}` }),
    ],
  }));
}

function drawProfile() {
  const sets = datasets().filter(d => d.ceiling);
  document.getElementById("s-profile").hidden = !sets.length;
  if (!sets.length) return;
  const rows = visibleRows().filter(r => sets.some(d => facts(r, d.name).abar !== undefined)).slice(0, FEW);
  document.getElementById("profile").replaceChildren(el("table", { class: "heatmap" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Method"), sets.map(d => el("th", { scope: "col" }, d.name.replace(/^interactions_/, ""))))),
    el("tbody", {}, rows.map(r => el("tr", {}, el("th", { scope: "row" }, r.label), sets.map(d => {
      const own = facts(r, d.name).abar;
      const share = own === undefined ? null : own / d.ceiling;
      return el("td", heat(share), share === null ? "–" : share.toFixed(2));
    }))))));
}
