"use strict";
/* Everything there is to know of one method, in a modal dialog. */

function heat(number) {
  if (number === null || number === undefined) return {};
  const share = Math.max(0, Math.min(1, number));
  return { "--heat": `${(100 * share ** 1.5).toFixed(1)}%`, class: share > 0.68 ? "heat strong" : "heat" };
}

function pairsTable(object, caption) {
  const entries = Object.entries(object).filter(([, v]) => v !== null && v !== "");
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
    el("tbody", {}, entry.curves.map(c => el("tr", {},
      el("th", { scope: "row" }, c.corruption, el("span", { class: "family" }, c.corruption === "joint" ? "all" : c.modality)),
      c.y.map(v => el("td", heat(v), v === null ? "–" : v.toFixed(2))))),
      entry.missing.map(m => el("tr", {}, el("th", { scope: "row" }, "missing", el("span", { class: "family" }, m.absent)),
        el("td", {}), el("td", { ...heat(m.v), colspan: 5 }, m.v.toFixed(2)))))));
}

function datasetPart(name, entry) {
  const facts = dataset(name);
  if (entry.status !== "ok") {
    return el("section", {}, el("h3", {}, name), el("p", { class: entry.status === "failed" ? "failed" : "quiet" }, entry.reason));
  }
  const list = Object.entries(entry.m).map(([m, v]) => el("tr", {}, el("th", { scope: "row", title: DATA.measures[m].help }, DATA.measures[m].title),
    el("td", { class: entry.best.includes(m) ? "best" : "" }, v.t), el("td", { class: "err" }, v.e === undefined ? "" : "±" + v.e)));
  const audit = Object.entries(entry.audit).map(([k, v]) => `${k} ${v.toFixed(2)}`).join(", ");
  const relies = Object.entries(entry.reliance).map(([k, v]) => `${k} ${v.toFixed(3)}`).join(", ");
  return el("details", { open: name === (state.dataset || board().datasets[0].name) },
    el("summary", {}, name, el("span", { class: "family" }, `${facts.metric} · ${count(entry.seeds.length, "seed")} · ${count(facts.rows, "row")}`)),
    el("div", { class: "two" }, el("table", { class: "facts" }, el("tbody", {}, list)),
      el("div", {}, el("h4", {}, "Chance-normalised score by severity"), heatMap(entry) ?? el("p", { class: "quiet" }, "No corrupted conditions."))),
    audit ? el("p", {}, "Attention audit: " + audit) : null,
    relies ? el("p", {}, "Reliance on each modality (Shapley): " + relies) : null,
    el("p", { class: "quiet" }, "Clean score per seed: " + entry.seedScores.map((v, i) => `${v.toFixed(4)} (${entry.seeds[i]})`).join(", ")),
    pairsTable(entry.cost, "Cost"),
    pairsTable(entry.summary, "Measured once per cell"),
    entry.training.length ? el("div", {}, el("h3", {}, "Stages"), el("ul", {}, entry.training.map(s => el("li", {},
      Object.entries(s).map(([k, v]) => `${k} ${v}`).join(" · "))))) : null,
    el("p", { class: "quiet" }, "Cells: " + entry.cells.join(", ")));
}

function drawDrawer() {
  const drawer = document.getElementById("drawer");
  const row = board().rows.find(r => r.label === state.method);
  if (!row) { if (drawer.open) drawer.close(); return; }
  const places = Object.entries(row.standings).map(([p, s]) => el("span", { class: "badge" },
    `${p}: ${s.text} on ${s.on} of ${s.of}` + (s.best ? ", may be the best" : "")));
  const others = Object.entries(row.folded).map(([label, scores]) => el("li", {}, label + ": " +
    Object.entries(scores).map(([name, score]) => `${name} ${score}`).join(", ")));
  drawer.replaceChildren(
    el("div", { class: "drawer-head" },
      el("div", {}, el("h2", { id: "drawer-title" }, row.label), el("p", { class: "quiet" }, `${row.method} · ${row.family} · ${state.track} track`)),
      el("button", { type: "button", class: "close", "aria-label": "Close", autofocus: true, onclick: () => drawer.close() }, "✕")),
    el("div", { class: "drawer-body" },
      el("p", {}, places.length ? places : "No control to compare with."),
      row.holes.length ? el("p", { class: "quiet" }, row.holes.join("; ")) : null,
      others.length ? el("div", {}, el("h3", {}, "Stands for"), el("ul", {}, others)) : null,
      pairsTable(row.options, "Hyper-parameters") ?? el("p", { class: "quiet" }, "No hyper-parameters of its own."),
      Object.entries(row.entries).map(([name, entry]) => datasetPart(name, entry)),
      pairsTable(row.recipe, "Recipe"),
      pairsTable(row.provenance, "Provenance")));
  if (!drawer.open) drawer.showModal();
  drawer.scrollTop = 0;
}

function prepareDrawer() {
  const drawer = document.getElementById("drawer");
  drawer.addEventListener("close", () => {
    const label = state.method;
    if (label) update({ method: "" });
    for (const button of document.querySelectorAll("button.name")) if (button.textContent === label) button.focus();
  });
  drawer.addEventListener("click", event => { if (event.target === drawer) drawer.close(); });
}
