"use strict";
/* The view is the URL's fragment: what you see is what a link shows. Names reach the page only as text nodes. */

document.documentElement.dataset.js = "yes";
const DATA = JSON.parse(document.getElementById("data").textContent);
const DEFAULTS = { track: DATA.boards[0].track, league: "", slice: "overview", dataset: "", family: "", q: "", sort: "", method: "",
                   cost: "", on: "", zoom: "", columns: "" };
const state = { ...DEFAULTS, pins: null };
const PINS = 8;
const FEW = 100; // rows drawn at once: the others come when they are asked for
let DETAILS = null; // track -> label -> what charts and drawers show, once it is unpacked

function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

async function unpack() {
  const bytes = Uint8Array.from(atob(document.getElementById("details").textContent), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  DETAILS = JSON.parse(await new Response(stream).text());
}

function board() {
  return DATA.boards.find(b => b.track === state.track);
}

function league() {
  return board().leagues.find(l => l.name === state.league);
}

function datasets() {
  const here = league();
  return here ? board().datasets.filter(d => here.datasets.includes(d.name)) : board().datasets;
}

function dataset(name) {
  return datasets().find(d => d.name === name);
}

/* What charts and drawers know of a method on a dataset; empty for what was never trained. */
function facts(row, name) {
  return DETAILS?.[state.track]?.[row.label]?.entries[name] ?? {};
}

function standings(row) {
  return state.league ? row.leagues[state.league] ?? {} : row.standings;
}

function isReference(row) {
  return DATA.references.includes(row.label);
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) state[key] = given.get(key) ?? DEFAULTS[key];
  if (!DATA.boards.some(b => b.track === state.track)) state.track = DEFAULTS.track;
  // A link to a method need not say on which track it is.
  const home = given.has("track") ? null : DATA.boards.find(b => b.rows.some(r => r.label === state.method && r.method));
  if (home) state.track = home.track;
  if (!Object.hasOwn(DATA.slices, state.slice)) state.slice = DEFAULTS.slice;
  if (!league()) state.league = "";
  if (!dataset(state.dataset)) state.dataset = "";
  if (!dataset(state.on)) state.on = "";
  if (!Object.hasOwn(DATA.measures, state.cost)) state.cost = "";
  if (!board().rows.some(r => r.family === state.family)) state.family = "";
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
  const next = now.includes(label) ? now.filter(x => x !== label) : [...now, label].slice(-PINS);
  update({ pins: next });
}

/* A colour is a family, always the same one; methods of a family are told apart by their dashes. */
function familyColour(family) {
  const at = DATA.families.indexOf(family);
  return at < 0 ? "var(--other)" : `var(--f${at})`;
}

const DASHES = ["none", "7,3", "2,3", "9,3,2,3", "12,4", "4,2", "1,2", "14,3,3,3"];

function dash(label) {
  const family = new Map(board().rows.map(r => [r.label, r.family]));
  const kin = pins().filter(other => family.get(other) === family.get(label));
  return DASHES[Math.max(0, kin.indexOf(label)) % DASHES.length];
}

function visibleRows() {
  return board().rows.filter(row =>
    (!state.family || row.family === state.family) &&
    (!state.league || isReference(row) || row.leagues[state.league]) &&
    (!state.dataset || ["ok", "failed"].includes(row.entries[state.dataset].status)));
}

/* The number behind a column, and half its interval: of one dataset, or the mean over those of the view. */
function value(row, measure, name = state.dataset) {
  if (name) return row.entries[name].m?.[measure];
  const found = datasets().map(d => row.entries[d.name].m?.[measure]?.[0]);
  if (measure === "clean" || found.some(v => v === undefined)) return undefined;
  return [d3.mean(found)];
}

/* The pillars a slice is ordered by, the one that decides first. */
function pillarsShown() {
  const wanted = DATA.pillars.includes(state.slice) ? [state.slice] : state.slice === "overview" ? DATA.pillars : ["clean"];
  return wanted.filter(p => board().rows.some(r => standings(r)[p]));
}

/* Where a method stands in a pillar, in the view: over all datasets, or on the one that is chosen. */
function standing(row, pillar) {
  const s = standings(row)[pillar];
  if (!s || !state.dataset) return s;
  const alone = s.alone[state.dataset];
  if (!alone) return undefined;
  const measure = { clean: "clean", robust: "drop", missing: "missing" }[pillar];
  return { ...s, v: alone[0], e: alone[1], verdict: alone[2], best: row.entries[state.dataset].best?.includes(measure) };
}

function better(measure, name = state.dataset) {
  if (measure === "clean" && name && !dataset(name).higher_is_better) return "lower";
  return DATA.measures[measure].better;
}

/* A number in the style of its measure, as every other output writes it. */
function write(number, style, error = false) {
  if (number === null || number === undefined) return "–";
  const sign = number < 0 ? "-" : "+";
  if (style === "signed") return error ? number.toFixed(3) : sign + Math.abs(number).toFixed(3);
  if (style === "seconds") return number.toFixed(1);
  if (style === "quantity") return Math.abs(number) < 1000 ? String(Number(number.toPrecision(3))) : number.toFixed(0);
  if (style === "count") {
    for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (Math.abs(number) >= size) return Number((number / size).toPrecision(3)) + unit;
    }
    return number.toFixed(0);
  }
  return number.toFixed(3);
}
