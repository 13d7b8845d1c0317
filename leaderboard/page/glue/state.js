"use strict";
/* The view is the URL's fragment: what you see is what a link shows. Names reach the page only as text nodes. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const DEFAULTS = { track: DATA.boards[0].track, slice: "overview", dataset: "", family: "", q: "", sort: "", method: "",
                   cost: "", on: "" };
const state = { ...DEFAULTS, pins: null };
const COLOURS = 8;

function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return node;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function board() {
  return DATA.boards.find(b => b.track === state.track);
}

function dataset(name) {
  return board().datasets.find(d => d.name === name);
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) state[key] = given.get(key) ?? DEFAULTS[key];
  if (!DATA.boards.some(b => b.track === state.track)) state.track = DEFAULTS.track;
  if (!(state.slice in DATA.slices)) state.slice = DEFAULTS.slice;
  if (!dataset(state.dataset)) state.dataset = "";
  if (!dataset(state.on)) state.on = "";
  state.pins = given.has("pin") ? given.getAll("pin").filter(label => label) : null;
}

function writeHash() {
  const out = new URLSearchParams();
  for (const key of Object.keys(DEFAULTS)) if (state[key] !== DEFAULTS[key]) out.set(key, state[key]);
  if (state.pins) (state.pins.length ? state.pins : [""]).forEach(label => out.append("pin", label));
  history.replaceState(null, "", "#" + out.toString());
}

function pins() {
  const known = new Set(board().rows.map(r => r.label));
  return (state.pins ?? board().pins).filter(label => known.has(label));
}

function togglePin(label) {
  const now = pins();
  const next = now.includes(label) ? now.filter(x => x !== label) : [...now, label].slice(-COLOURS);
  update({ pins: next });
}

function colour(label) {
  const at = pins().indexOf(label);
  return at < 0 ? "var(--faint)" : `var(--c${at % COLOURS})`;
}

function visibleRows() {
  return board().rows.filter(row =>
    (!state.family || row.family === state.family) && (!state.dataset || ["ok", "failed"].includes(row.entries[state.dataset].status)));
}

/* The number behind a column: of one dataset, or the mean over all of them. */
function value(row, measure, name = state.dataset) {
  if (!name) return row.means[measure];
  return row.entries[name].m?.[measure];
}

/* The pillars a slice is ordered by, the one that decides first. */
function pillarsShown() {
  if (state.dataset) return [];
  const wanted = DATA.pillars.includes(state.slice) ? [state.slice] : state.slice === "overview" ? DATA.pillars : ["clean"];
  return wanted.filter(p => board().rows.some(r => r.standings[p]));
}

function better(measure, name = state.dataset) {
  if (measure === "clean" && name && !dataset(name).higher_is_better) return "lower";
  return DATA.measures[measure].better;
}
