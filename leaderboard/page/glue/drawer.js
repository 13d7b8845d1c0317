"use strict";
/* Everything there is to know of one method, in a modal dialog, made when it is opened. */

function heat(number) {
  if (number === null || number === undefined) return {};
  const share = Math.max(0, Math.min(1, number));
  return { "--heat": `${(100 * share ** 1.5).toFixed(1)}%`, class: share > 0.68 ? "heat strong" : "heat" };
}

function pairsTable(object, caption) {
  const entries = Object.entries(object ?? {}).filter(([, v]) => v !== null && v !== "");
  if (!entries.length) return null;
  const say = v => typeof v === "object" ? JSON.stringify(v) : String(v);
  return el("div", {}, el("h3", {}, caption),
    el("dl", {}, entries.map(([k, v]) => [el("dt", {}, k), el("dd", {}, say(v))])));
}

function heatMap(entry) {
  if (!entry.curves?.length) return null;
  return el("div", { class: "scroll" }, el("table", { class: "heatmap" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Corruption"),
      [0, 1, 2, 3, 4, 5].map(s => el("th", { scope: "col" }, s ? String(s) : "clean")))),
    el("tbody", {}, entry.curves.map(([modality, corruption, y]) => el("tr", {},
      el("th", { scope: "row" }, corruption, el("span", { class: "family" }, corruption === "joint" ? "all" : modality)),
      y.map(v => el("td", heat(v), v === null ? "–" : v.toFixed(2))))),
      (entry.missing ?? []).map(([absent, v]) => el("tr", {}, el("th", { scope: "row" }, "missing", el("span", { class: "family" }, absent)),
        el("td", {}), el("td", { ...heat(v), colspan: 5 }, v === null ? "–" : v.toFixed(2)))))));
}

function trials(entry) {
  if (!entry.tuning) return null;
  const points = entry.tuning.scores.map((score, trial) => ({ trial, score, chosen: trial === entry.tuning.trial })).filter(p => p.score !== null);
  const failed = entry.tuning.scores.length - points.length;
  return el("figure", { class: "trials" }, el("h4", {}, "Validation score by trial; trial 0 is the default, filled: chosen"),
    Plot.plot({ ...BASE, width: 420, height: 150, marginLeft: 46, x: { label: "trial →", tickFormat: "d", ticks: d3.range(entry.tuning.scores.length) }, y: { label: null, grid: true, nice: true },
      ariaLabel: "Validation score by trial", marks: [Plot.dot(points, { x: "trial", y: "score", r: 4, stroke: "var(--accent)", fill: p => p.chosen ? "var(--accent)" : "var(--paper)" })], color: { type: "identity" } }),
    failed ? note(`${count(failed, "trial")} failed.`) : null);
}

function datasetPart(row, name) {
  const entry = row.entries[name];
  if (entry.status !== "ok") {
    return el("section", {}, el("h3", {}, name), el("p", { class: entry.status === "failed" ? "failed" : "quiet" }, entry.reason));
  }
  const more = facts(row, name);
  const about = board().datasets.find(d => d.name === name);
  const list = Object.entries(entry.m).map(([m, [v, e]]) => {
    const own = DATA.measures[m];
    return el("tr", {}, el("th", { scope: "row", title: own.help }, own.title), el("td", { class: entry.best.includes(m) ? "best" : "" }, write(v, own.style)),
      el("td", { class: "err" }, e === undefined ? "" : "±" + write(e, own.style, true)));
  });
  const said = (pairs, digits) => Object.entries(pairs ?? {}).map(([k, v]) => `${k} ${v.toFixed(digits)}`).join(", ");
  const [audit, relies] = [said(more.audit, 2), said(more.reliance, 3)];
  const make = () => [
    entry.unconverged ? el("p", {}, `† ${count(entry.unconverged, "seed")} of ${more.seeds.length} still getting better when the epochs were over.`) : null,
    el("div", { class: "two" }, el("table", { class: "facts" }, el("tbody", {}, list)),
      el("div", {}, el("h4", {}, "Chance-normalised score by severity"), heatMap(more) ?? el("p", { class: "quiet" }, "No corrupted conditions."))),
    trials(more),
    audit ? el("p", {}, "Attention audit: " + audit) : null,
    relies ? el("p", {}, "Reliance on each modality (Shapley): " + relies) : null,
    el("p", { class: "quiet" }, "Clean score per seed: " + more.scores.map((v, i) => `${v.toFixed(4)} (${more.seeds[i]})`).join(", ")),
    pairsTable(more.cost, "Cost"),
    pairsTable(more.summary, "Measured once per cell"),
    more.training ? el("div", {}, el("h3", {}, "Stages"), el("ul", {}, more.training.map(s => el("li", {},
      Object.entries(s).map(([k, v]) => `${k} ${v}`).join(" · "))))) : null,
    el("p", { class: "quiet" }, "Cells: " + more.cells.join(", "))];
  const part = el("details", {}, el("summary", {}, name, el("span", { class: "family" }, `${about.metric} · ${count(more.seeds.length, "seed")} · ${count(about.rows, "row")}`)));
  const fill = () => { if (part.open && part.childElementCount === 1) part.append(...make().filter(Boolean)); };
  part.addEventListener("toggle", fill);
  if (name === (state.dataset || datasets()[0].name)) { part.open = true; fill(); }
  return part;
}

function drawDrawer() {
  const drawer = document.getElementById("drawer");
  const row = board().rows.find(r => r.label === state.method && r.method);
  if (!row || !DETAILS) { if (drawer.open) drawer.close(); return; }
  const more = DETAILS[state.track][row.label] ?? {};
  const badges = Object.entries(standings(row)).map(([p, s]) => el("span", { class: "badge" },
    `${p}: ${row.label === DATA.control ? "control" : write(s.v, "signed") + (s.e === null ? "" : ` ±${s.e.toFixed(3)}`)} on ${s.on} of ${s.of}` + (s.best ? ", may be the best" : "")));
  const others = Object.entries(more.folded ?? {}).map(([label, scores]) => el("li", {}, label + ": " +
    Object.entries(scores).map(([name, score]) => `${name} ${score}`).join(", ")));
  const named = row.label === row.method ? "" : `${row.method} · `;
  drawer.replaceChildren(
    el("div", { class: "drawer-head" },
      el("div", {}, el("h2", { id: "drawer-title" }, row.label), DATA.about[row.method] ? el("p", {}, DATA.about[row.method]) : null,
        el("p", { class: "quiet" }, `${named}${row.family} · ${state.track} track`)),
      el("button", { type: "button", class: "close", "aria-label": "Close", autofocus: true, onclick: () => drawer.close() }, "✕")),
    el("div", { class: "drawer-body" },
      el("p", {}, badges.length ? badges : "No control to compare with."),
      row.holes.length ? el("p", { class: "quiet" }, row.holes.join("; ")) : null,
      others.length ? el("div", {}, el("h3", {}, "Stands for"), el("ul", {}, others)) : null,
      pairsTable(more.options, "Hyper-parameters") ?? el("p", { class: "quiet" }, "No hyper-parameters of its own."),
      Object.keys(row.entries).map(name => datasetPart(row, name)),
      pairsTable(more.recipe, "Recipe"),
      pairsTable(more.provenance, "Provenance")));
  if (!drawer.open) drawer.showModal();
  drawer.scrollTop = 0;
}

function prepareDrawer() {
  const drawer = document.getElementById("drawer");
  drawer.addEventListener("close", () => {
    const label = state.method;
    if (label) update({ method: "" });
    for (const button of document.querySelectorAll("button.name")) if (button.textContent === label) { button.focus(); break; }
  });
  drawer.addEventListener("click", event => { if (event.target === drawer) drawer.close(); });
}
