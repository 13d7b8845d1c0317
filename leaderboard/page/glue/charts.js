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
  return el("ul", { class: "legend" }, labels.map(label => el("li", { "--own": colour(label) },
    el("button", { type: "button", class: "name", onclick: () => update({ method: label }) }, label))));
}

/* --- Clean against robust ------------------------------------------------------------------------------------------- */

function onFront(points) {
  const beats = (a, b) => a.x >= b.x && a.y >= b.y && a.cost <= b.cost && (a.x > b.x || a.y > b.y || a.cost < b.cost);
  return points.filter(p => !points.some(q => beats(q, p)));
}

function drawScatter() {
  const cost = state.cost || "parameters";
  const points = visibleRows().map(row => ({
    label: row.label, family: row.family, cost: value(row, cost)?.v ?? NaN, says: value(row, cost)?.t ?? "–",
    x: state.dataset ? row.entries[state.dataset].abar : row.means.clean?.v, y: value(row, "area")?.v,
  })).filter(p => p.x !== undefined && p.x !== null && p.y !== undefined && p.y !== null);
  if (points.length < 2) return put("scatter", note("Needs two methods with a clean and a robust score on every dataset shown."));
  const front = onFront(points.filter(p => p.cost > 0));
  const wide = width("scatter");
  const title = p => `${p.label}\n${p.family}\nclean ${p.x.toFixed(3)}\nrobust ${p.y.toFixed(3)}\n${DATA.measures[cost]?.title ?? cost} ${p.says}`;
  put("scatter", Plot.plot({
    ...BASE, width: wide, height: Math.min(520, Math.max(340, wide * 0.55)), marginRight: 90, marginBottom: 42, marginLeft: 48, grid: true,
    ariaLabel: "Scatter of clean against robust score", x: { label: "clean, chance-normalised →", nice: true }, y: { label: "↑ robust area", nice: true, ticks: 8 },
    r: { range: [5, 14], type: "log", domain: d3.extent(points.filter(p => p.cost > 0), p => p.cost) },
    color: { legend: true, domain: [...new Set(board().rows.map(r => r.family))], range: d3.range(COLOURS).map(i => `var(--c${i})`) },
    marks: [
      Plot.dot(points.filter(p => !(p.cost > 0)), { x: "x", y: "y", r: 4, fill: "family", fillOpacity: 0.75 }),
      Plot.dot(points.filter(p => p.cost > 0), { x: "x", y: "y", r: "cost", fill: "family", fillOpacity: 0.75 }),
      Plot.dot(front, { x: "x", y: "y", r: "cost", stroke: "currentColor", strokeWidth: 2 }),
      Plot.text(spread(front), { x: "x", y: "y", text: "label", textAnchor: "start", dx: 17, fill: "currentColor", stroke: "var(--paper)", strokeWidth: 4 }),
      Plot.tip(points, Plot.pointer({ x: "x", y: "y", title })),
    ],
  }), note(`Dot size: ${DATA.measures[cost]?.title ?? cost}. ${front.length} of ${points.length} methods are on the front.`));
}

/* Labels that would print over each other: only the better of two close ones keeps its name; the tip names the other. */
function spread(points) {
  const rangeX = (d3.max(points, p => p.x) - d3.min(points, p => p.x)) || 1;
  const rangeY = (d3.max(points, p => p.y) - d3.min(points, p => p.y)) || 1;
  const kept = [];
  for (const p of [...points].sort((a, b) => b.y - a.y)) {
    if (!kept.some(q => Math.abs(p.y - q.y) / rangeY < 0.045 && Math.abs(p.x - q.x) / rangeX < 0.16)) kept.push(p);
  }
  return kept;
}

/* --- Severity curves ------------------------------------------------------------------------------------------------ */

function panels(name) {
  const found = new Map();
  for (const row of visibleRows()) {
    const sums = new Map();
    for (const c of row.entries[name].curves ?? []) {
      const panel = c.corruption === "joint" ? "all modalities at once" : c.corruption === "misaligned" ? "pairing broken" : c.modality;
      if (!sums.has(panel)) sums.set(panel, []);
      sums.get(panel).push(c.y);
    }
    for (const [panel, list] of sums) {
      if (!found.has(panel)) found.set(panel, []);
      const y = d3.range(6).map(s => d3.mean(list, c => c[s]));
      found.get(panel).push(...y.map((v, s) => ({ label: row.label, severity: s, y: v })));
    }
  }
  return found;
}

function drawCurves() {
  const name = state.dataset || state.on || board().datasets[0].name;
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
        Plot.line(own, { x: "severity", y: "y", z: "label", stroke: p => colour(p.label), strokeWidth: 2.4 }),
        Plot.dot(own, { x: "severity", y: "y", fill: p => colour(p.label), r: 2.6 }),
        Plot.tip(points, Plot.pointer({ x: "severity", y: "y", title: p => `${p.label}\nseverity ${p.severity}: ${p.y.toFixed(3)}` })),
      ],
      color: { type: "identity" },
    }));
  };
  put("curves", legend(pinned), el("div", { class: "panels" }, [...found].map(([panel, points]) => one(panel, points))));
}

/* --- Advantages ----------------------------------------------------------------------------------------------------- */

function drawAdvantages() {
  const parts = [];
  for (const pillar of DATA.pillars) {
    const points = d3.sort(board().rows.filter(r => r.standings[pillar]).map(r => ({ label: r.label, ...r.standings[pillar] })), p => -p.advantage);
    if (points.length < 2) continue;
    parts.push(el("div", { class: "panel wide" }, el("h3", {}, pillar),
      Plot.plot({
        ...BASE, width: 500, height: 60 + 19 * points.length, marginLeft: 150, marginRight: 12, marginBottom: 36, ariaLabel: `Advantages, ${pillar}`,
        x: { label: `advantage over ${DATA.control}, 95 % interval →`, grid: true, nice: true },
        y: { domain: points.map(p => p.label), label: null, tickFormat: t => t.length > 22 ? t.slice(0, 21) + "…" : t, tickSize: 0 },
        color: { type: "identity" },
        marks: [
          Plot.ruleX([0]),
          Plot.link(points.filter(p => p.low !== null), { x1: "low", x2: "high", y1: "label", y2: "label", stroke: "var(--accent)", strokeOpacity: 0.45, strokeWidth: 5, strokeLinecap: "round" }),
          Plot.dot(points, { x: "advantage", y: "label", r: 4.5, fill: p => p.best ? "var(--accent)" : "var(--paper)", stroke: "var(--accent)", strokeWidth: 1.8,
            title: p => `${p.label}: ${p.text} on ${p.on} of ${p.of} datasets` }),
        ],
      })));
  }
  document.getElementById("ranktext").replaceChildren(el("span", { class: "line" }, board().across[DATA.pillars[0]]));
  put("ranks", parts.length ? el("div", { class: "panels" }, parts) : note("Nobody has an advantage: there is no control."),
    parts.length ? note("Filled: may be the best of the methods that have its datasets.") : null);
}

/* --- Attention audit, interaction profile --------------------------------------------------------------------------- */

function drawAudit() {
  const names = state.dataset ? [state.dataset] : board().datasets.map(d => d.name);
  const points = visibleRows().flatMap(row => names.flatMap(name =>
    Object.entries(row.entries[name].audit ?? {}).map(([modality, v]) => ({ label: row.label, name, modality, v }))));
  document.getElementById("s-audit").hidden = !points.length;
  if (!points.length) return;
  const labels = d3.groupSort(points, list => d3.mean(list, p => p.v), p => p.label);
  put("audit", Plot.plot({
    ...BASE, width: width("audit", 760), height: 80 + 24 * labels.length, marginLeft: 150, marginBottom: 36, ariaLabel: "Attention audit",
    x: { domain: [-1, 1], label: "correlation of weight with severity →", grid: true }, y: { domain: labels, label: null, tickSize: 0 },
    color: { legend: true, domain: [...new Set(points.map(p => p.modality))], range: d3.range(COLOURS).map(i => `var(--c${i})`) },
    marks: [
      Plot.ruleX([0]),
      Plot.dot(points, { x: "v", y: "label", fill: "modality", r: 5, fillOpacity: 0.8, title: p => `${p.label}\n${p.name}, ${p.modality}: ${p.v.toFixed(2)}` }),
    ],
  }));
}

function drawProfile() {
  const sets = board().datasets.filter(d => d.ceiling);
  document.getElementById("s-profile").hidden = !sets.length;
  if (!sets.length) return;
  const rows = visibleRows().filter(r => sets.some(d => r.entries[d.name].status === "ok"));
  document.getElementById("profile").replaceChildren(el("table", { class: "heatmap" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Method"), sets.map(d => el("th", { scope: "col" }, d.name.replace(/^interactions_/, ""))))),
    el("tbody", {}, rows.map(r => el("tr", {}, el("th", { scope: "row" }, r.label), sets.map(d => {
      const entry = r.entries[d.name];
      const share = entry.status === "ok" ? entry.abar / d.ceiling : null;
      return el("td", heat(share), share === null ? "–" : share.toFixed(2));
    }))))));
}
