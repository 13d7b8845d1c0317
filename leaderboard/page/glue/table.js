"use strict";
/* The table: a real <table>, sorted, searched, and never wider than the window. The references stay on top. */

let shownAll = false;

function sorted(rows, list) {
  const comma = state.sort.lastIndexOf(",");
  let column = list.find(c => c.key === state.sort.slice(0, comma));
  let way = state.sort.slice(comma + 1) === "asc" ? "asc" : "desc";
  if (!column) {
    column = list.find(c => c.key.startsWith("advantage:")) ?? list.find(c => c.measure) ?? list[0];
    way = column.order[0];
  }
  const sign = way === "asc" ? 1 : -1;
  const key = new Map(rows.map(row => [row, column.sort(row)]));
  const compare = (a, b) => {
    const [x, y] = [key.get(a), key.get(b)];
    if (x === undefined || x === null) return y === undefined || y === null ? 0 : 1; // holes last, either way
    if (y === undefined || y === null) return -1;
    return sign * (x < y ? -1 : x > y ? 1 : 0);
  };
  return { column, way, rows: [...rows.filter(isReference), ...rows.filter(r => !isReference(r)).sort(compare)] };
}

function matching(rows) {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(row => words.every(word => `${row.label} ${row.family}`.toLowerCase().includes(word)));
}

function headCell(column, sort) {
  const on = column === sort.column;
  const next = on && sort.way === column.order[0] ? column.order[1] : column.order[0];
  return el("th", { scope: "col", title: column.help, class: column.key === "method" ? "" : "number",
                    "aria-sort": on ? (sort.way === "asc" ? "ascending" : "descending") : null },
    el("button", { type: "button", class: "sort", onclick: () => update({ sort: `${column.key},${next}` }) },
      column.over ? el("span", { class: "over" }, column.over) : null, el("span", {}, column.title), el("span", { class: "arrow", "aria-hidden": "true" }, on ? (sort.way === "asc" ? "▴" : "▾") : ""),
      column.under ? el("span", { class: "over" }, column.under) : null));
}

function drawTable() {
  const holder = document.getElementById("table");
  shownPlaces = new Map();
  const visible = visibleRows();
  const list = withDomains(columns(), visible);
  const sort = sorted(matching(visible), list);
  const rows = shownAll ? sort.rows : sort.rows.slice(0, FEW);
  const table = el("table", { class: "board" }, el("thead", {}, el("tr", {}, list.map(c => headCell(c, sort)))),
    el("tbody", {}, rows.map(row => el("tr", { class: isReference(row) ? "reference" : "" }, list.map(c => c.cell(row, c))))));
  holder.replaceChildren(table);
  holder.classList.toggle("sideways", state.columns === "all");
  const left = state.columns === "all" ? [] : fit(holder, table, list);
  const shown = list.slice(0, list.length - left.length);
  const more = sort.rows.length - rows.length;
  document.getElementById("under").replaceChildren(
    ...(rows.length ? [] : [el("p", {}, "No method matches.")]),
    ...(more > 0 ? [el("p", {}, el("button", { type: "button", onclick: () => { shownAll = true; drawTable(); } }, `${count(more, "more method")}`))] : []),
    ...(left.length ? [el("p", { class: "leftout" }, "Not shown at this width: " + left.map(c => [c.over, c.title].filter(Boolean).join(" ")).join(", ") + ". ",
      el("button", { type: "button", onclick: () => update({ columns: "all" }) }, "Show every column"))] : []),
    ...(state.columns === "all" ? [el("p", {}, el("button", { type: "button", onclick: () => update({ columns: "" }) }, "Only the columns that fit"))] : []),
    el("details", { class: "columns" }, el("summary", {}, "What these columns are"), glossary(shown)),
    ...powerLines().map(text => el("p", {}, text)));
}

/* Leave out columns from the right until the table is no wider than its place. */
function fit(holder, table, list) {
  const left = [];
  while (table.scrollWidth > holder.clientWidth && list.length - left.length > 2) {
    left.unshift(list[list.length - 1 - left.length]);
    for (const tr of table.rows) tr.lastElementChild.remove();
  }
  return left;
}

function glossary(list) {
  const said = new Map(list.filter(c => c.help).map(c => [c.measure ? DATA.measures[c.measure].title : c.title, c.help]));
  return el("dl", {}, [...said].map(([title, help]) => [el("dt", {}, title), el("dd", {}, help)]),
    el("dt", {}, "±"), el("dd", {}, "half the 95 % interval, over seeds, and rows where the number is a mean over rows"),
    el("dt", {}, "bold"), el("dd", {}, "may be the best of the column (95 % for all at once)"),
    el("dt", {}, "↓"), el("dd", {}, "below the best single modality of the dataset"),
    el("dt", {}, "†"), el("dd", {}, "a seed was still getting better when its epochs were over"));
}

function powerLines() {
  const lines = [];
  const here = state.dataset ? dataset(state.dataset) : datasets().length === 1 ? datasets()[0] : null;
  if (here) {
    const bounds = [here.trivial === null ? "" : `the trivial predictor has ${here.trivial.toFixed(3)}`, here.bayes === null ? "" : `the best possible is ${here.bayes.toFixed(3)}`];
    lines.push(`${here.name}: ${[here.metric, `${count(here.seeds, "seed")}, ${count(here.rows, "test row")}`, here.modalities.map((m, i) => here.inputs[i] ? `${m} (${here.inputs[i]})` : m).join(" + "), ...bounds.filter(Boolean)].join("; ")}.`);
    if (here.resolves !== null) lines.push(`The smallest difference of ${here.metric} found with 80 % power is ${here.resolves.toFixed(3)}.`);
  } else if (!state.league) {
    const { resolves, adjusted } = board();
    const found = pillarsShown().filter(p => resolves[p] !== null && adjusted[p] !== null).map(p => `${resolves[p].toFixed(3)} / ${adjusted[p].toFixed(3)} (${p})`);
    if (found.length) lines.push(`${DATA.power}: ${found.join(", ")}.`);
  } else lines.push(`${league().name}: ${league().about}.`);
  return lines;
}
