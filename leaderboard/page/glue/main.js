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
  const families = [...new Set(here.rows.map(r => r.family))].sort();
  segment("track", DATA.boards.map(b => b.track), "track");
  document.getElementById("track").hidden = DATA.boards.length < 2;
  segment("slice", Object.keys(DATA.slices).filter(s => DATA.slices[s].length), "slice");
  choices("league", [["", "all"], ...here.leagues.map(l => [l.name, l.name])], state.league);
  document.getElementById("league").parentElement.hidden = !here.leagues.length;
  choices("dataset", [["", `all ${datasets().length}`], ...datasets().map(d => [d.name, d.name])], state.dataset);
  choices("family", [["", "all"], ...families.map(f => [f, f])], state.family);
  choices("cost", DATA.slices.cost.map(m => [m, DATA.measures[m].title]), state.cost || "parameters");
  choices("curveset", datasets().map(d => [d.name, d.name]), state.dataset || state.on || datasets()[0].name);
  document.getElementById("curveset").disabled = Boolean(state.dataset);
  const query = document.getElementById("query");
  if (query.value !== state.q) query.value = state.q;
  const seeds = d3.max(here.datasets, d => d.seeds);
  const when = DATA.finished ? ` · last run ${DATA.finished.slice(0, 10)}` : "";
  document.getElementById("summary").textContent =
    `${count(here.rows.filter(r => r.method).length, "method")} · ${count(here.datasets.length, "dataset")} · ${count(seeds, "seed")}${when}`;
}

function drawAnswer() {
  document.getElementById("answer").replaceChildren(...board().answer.map(([text, slice]) => el("li", {}, text, " ",
    slice === "overview" ? null : el("button", { type: "button", class: "plain see", onclick: () => { update({ slice, sort: "" }); jump("board"); } }, `see ${slice}`))));
}

function drawNotes() {
  const here = board();
  document.getElementById("notes").replaceChildren(
    el("details", {}, el("summary", {}, "What the numbers mean"), el("p", {}, `An advantage is the mean, over the datasets a method applies to, of its chance-normalised difference from ${DATA.control}; no other method can move it. A cell is the mean over seeds. Intervals are of 95 %, by a moderated t: over seeds, and over rows where the number is a mean over rows. Bold: may be the best (comparison with the best, 95 % for all at once). Robust compares the drop from clean; who is too near chance to have something to lose has no place there. A league is a shape of task, with the methods that are complete on it. A colour is a family of methods, the same in every chart and on every board. The plain and the augmented track are never compared.`)),
    el("details", {}, el("summary", {}, "Every column"), el("dl", {}, Object.values(DATA.measures).map(m => [el("dt", {}, m.title), el("dd", {}, m.help)]))),
    here.notes.length ? el("div", {}, el("h3", {}, "Notes on these results"), el("ul", {}, here.notes.map(text => el("li", {}, text)))) : el("span"));
}

const TABLE = [drawControls, drawAnswer, drawTable, drawNotes];
const CHARTS = [drawScatter, drawCurves, drawAdvantages, drawAudit, drawProfile, drawDrawer];

function draw() {
  for (const part of DETAILS ? [...TABLE, ...CHARTS] : TABLE) part();
}

function update(changes) {
  Object.assign(state, changes);
  if ("track" in changes || "league" in changes) Object.assign(state, { league: league() ? state.league : "", family: "", on: "" });
  if ("track" in changes) state.pins = null;
  if (!dataset(state.dataset)) state.dataset = "";
  writeHash();
  if ("method" in changes) drawDrawer();
  else if ("q" in changes || "columns" in changes || Object.keys(changes).join() === "sort") drawTable();
  else if (Object.keys(changes).join() === "zoom") drawScatter();
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
  listen("league", "change", e => update({ league: e.target.value, sort: "" }));
  listen("zoom", "click", () => update({ zoom: state.zoom === "all" ? "" : "all" }));
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
  window.addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; drawTable(); if (DETAILS) { drawScatter(); drawAudit(); } } });
  draw();
  document.documentElement.dataset.table = "yes";
  requestAnimationFrame(() => setTimeout(finish)); // once the table is painted
}

async function finish() {
  try { await unpack(); }
  catch { document.getElementById("scatter").replaceChildren(note("This browser is too old to unpack the charts and the drawers.")); return; }
  for (const part of CHARTS) part();
  document.documentElement.dataset.ready = "yes";
}

start();
