"use strict";
/* Controls, and who is drawn again when the view changes. */

function segment(id, options, key) {
  document.getElementById(id).replaceChildren(...options.map(option => el("button",
    { type: "button", "aria-pressed": String(state[key] === option), onclick: () => update({ [key]: option, sort: "" }) }, option)));
}

function choices(id, options, now) {
  const select = document.getElementById(id);
  select.replaceChildren(...options.map(([key, text]) => el("option", { value: key, selected: key === now }, text)));
  select.value = now;
}

function drawControls() {
  const here = board();
  segment("track", DATA.boards.map(b => b.track), "track");
  document.getElementById("track").hidden = DATA.boards.length < 2;
  segment("slice", Object.keys(DATA.slices).filter(s => DATA.slices[s].length), "slice");
  choices("dataset", [["", `all ${here.datasets.length}`], ...here.datasets.map(d => [d.name, d.name])], state.dataset);
  choices("family", [["", "all"], ...[...new Set(here.rows.map(r => r.family))].sort().map(f => [f, f])], state.family);
  choices("cost", DATA.slices.cost.map(m => [m, DATA.measures[m].title]), state.cost || "parameters");
  choices("curveset", here.datasets.map(d => [d.name, d.name]), state.dataset || state.on || here.datasets[0].name);
  document.getElementById("curveset").disabled = Boolean(state.dataset);
  const query = document.getElementById("query");
  if (query.value !== state.q) query.value = state.q;
  const seeds = d3.max(here.datasets, d => d.seeds);
  const when = DATA.finished ? ` · last run ${DATA.finished.slice(0, 10)}` : "";
  document.getElementById("summary").textContent =
    `${count(here.rows.length, "method")} · ${count(here.datasets.length, "dataset")} · ${count(seeds, "seed")}${when}`;
}

function drawAnswer() {
  document.getElementById("answer").replaceChildren(...board().answer.map(text => el("li", {}, text)));
}

function drawNotes() {
  const here = board();
  const shown = state.dataset ? [dataset(state.dataset)] : [];
  const lines = [];
  for (const pillar of pillarsShown()) {
    if (here.resolves[pillar] !== null) {
      lines.push(`${pillar[0].toUpperCase() + pillar.slice(1)}: the smallest advantage found with 80 % power is ${here.resolves[pillar].toFixed(3)} (chance-normalised).`);
    }
  }
  for (const d of shown) {
    if (d.resolves !== null) lines.push(`${d.name}: the smallest difference of ${d.metric} found with 80 % power is ${d.resolves.toFixed(3)}, by its ${count(d.seeds, "seed")} and ${count(d.rows, "row")}.`);
    const bounds = [d.trivial === null ? "" : `trivial predictor ${d.trivial.toFixed(3)}`, d.bayes === null ? "" : `Bayes optimum ${d.bayes.toFixed(3)}`];
    lines.push(`${d.name}, version ${d.version}: ${[d.modalities.join(", "), ...bounds.filter(Boolean)].join("; ")}.`);
  }
  const more = here.notes.length ? el("p", {}, el("button", { type: "button", onclick: () => jump("h-notes") },
    `${count(here.notes.length, "note")} on these results`)) : null;
  document.getElementById("under").replaceChildren(...lines.map(text => el("p", {}, text)), ...(more ? [more] : []));
  document.getElementById("notes").replaceChildren(
    el("p", {}, `An advantage is the mean, over the datasets a method applies to, of its chance-normalised difference from ${DATA.control}; no other method can move it. A cell is the mean over seeds. Intervals are of 95 %, by a moderated t: over seeds, and over rows where the number is a mean over rows. Bold: may be the best (comparison with the best, 95 % for all at once). Robust compares the drop from clean; who is too near chance to have something to lose has no place there. The plain and the augmented track are never compared.`),
    el("details", {}, el("summary", {}, "Every column"), el("dl", {}, Object.values(DATA.measures).map(m => [el("dt", {}, m.title), el("dd", {}, m.help)]))),
    here.notes.length ? el("div", {}, el("h3", {}, "Notes on these results"), el("ul", {}, here.notes.map(text => el("li", {}, text)))) : el("span"));
}

const DRAWN = [drawControls, drawAnswer, drawTable, drawNotes, drawScatter, drawCurves, drawAdvantages, drawAudit, drawProfile, drawDrawer];

function draw() {
  for (const part of DRAWN) part();
}

function update(changes) {
  Object.assign(state, changes);
  if ("track" in changes) Object.assign(state, { dataset: dataset(state.dataset) ? state.dataset : "", family: "", pins: null, on: "" });
  writeHash();
  if ("method" in changes) drawDrawer();
  else if ("q" in changes) shownTable.search(state.q).draw();
  else draw();
}

/* The fragment is the view, so a jump within the page must not change it. */
function jump(id) {
  const there = document.getElementById(id);
  there.scrollIntoView();
  there.focus({ preventScroll: true });
}

function theme(next) {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = next ?? (now === "dark" ? "light" : "dark");
}

function start() {
  readHash();
  prepareDrawer();
  const listen = (id, event, act) => document.getElementById(id).addEventListener(event, act);
  listen("dataset", "change", e => update({ dataset: e.target.value, sort: "" }));
  listen("family", "change", e => update({ family: e.target.value }));
  listen("cost", "change", e => update({ cost: e.target.value }));
  listen("curveset", "change", e => update({ on: e.target.value }));
  listen("query", "input", e => update({ q: e.target.value }));
  document.querySelector(".skip").addEventListener("click", e => { e.preventDefault(); jump("board"); });
  listen("theme", "click", () => theme());
  listen("copy", "click", async e => {
    try { await navigator.clipboard.writeText(location.href); e.target.textContent = "Copied"; }
    catch { e.target.textContent = "Copy it from the address bar"; }
    setTimeout(() => { e.target.textContent = "Copy link"; }, 1600);
  });
  window.addEventListener("hashchange", () => { readHash(); draw(); });
  let last = innerWidth;
  window.addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; drawScatter(); drawAudit(); } });
  draw();
  document.documentElement.dataset.ready = "yes";
}

start();
