"use strict";
/* The table: columns of the slice as a real <table>, sorted and searched by DataTables. */

let shownTable = null;
const HOLES_LAST = (a, b, sign) => isNaN(a) ? (isNaN(b) ? 0 : 1) : isNaN(b) ? -1 : sign * (a - b);
DataTable.type("measure", {
  order: { pre: text => parseFloat(text), asc: (a, b) => HOLES_LAST(a, b, 1), desc: (a, b) => HOLES_LAST(a, b, -1) },
});
DataTable.ext.errMode = "throw";

function columns() {
  const measures = DATA.slices[state.slice];
  const names = board().datasets.map(d => d.name);
  const alone = state.dataset || (names.length === 1 ? names[0] : "");
  const found = [{ key: "method", title: "Method", cell: methodCell, order: ["asc", "desc"] }];
  const several = names.length > 1;
  pillarsShown().forEach((pillar, i) => {
    const standing = row => row.standings[pillar];
    if (!i && board().ranked) found.push({ key: "place", title: "#", cell: row => plainCell(row, standing(row)?.place), order: ["asc", "desc"],
      help: "place by the advantage in " + pillar });
    found.push({ key: "advantage:" + pillar, over: pillar, title: "Advantage", cell: row => advantageCell(row, pillar), order: ["desc", "asc"],
      help: `mean over a method's datasets of its chance-normalised difference from ${DATA.control}, with its 95 % interval` });
    if (!i && board().rows.some(r => standing(r) && standing(r).on < standing(r).of)) found.push({ key: "on", title: "On",
      cell: row => plainCell(row, standing(row)?.on, s => `${s.on} of ${s.of}`, pillar), order: ["desc", "asc"], help: "datasets compared on" });
    if (!i && several) found.push({ key: "tally", title: "W/T/L", cell: row => tallyCell(row, pillar), order: ["desc", "asc"],
      help: `datasets won, tied and lost against ${DATA.control}, 5 % each` });
  });
  if (alone) {
    for (const m of measures) found.push(measureColumn(m, alone, ""));
    return found;
  }
  for (const name of names) found.push(measureColumn(measures[0], name, name));
  for (const m of measures.slice(1)) found.push(measureColumn(m, "", "mean"));
  return found;
}

function measureColumn(measure, name, over) {
  const first = better(measure, name) === "lower" ? ["asc", "desc"] : ["desc", "asc"];
  const facts = DATA.measures[measure];
  const metric = measure === "clean" && name ? ` (${dataset(name).metric})` : "";
  return { key: `${name || "mean"}:${measure}`, over, title: facts.title, help: facts.help + metric, measure, name, order: first,
           cell: (row, column) => measureCell(row, column) };
}

function methodCell(row) {
  const pinned = pins().includes(row.label);
  const pin = el("button", { type: "button", class: "pin", "aria-pressed": String(pinned), "--own": colour(row.label),
    "aria-label": `Colour ${row.label} in the charts`, title: "Colour in the charts", onclick: () => togglePin(row.label) });
  const open = el("button", { type: "button", class: "name", "aria-haspopup": "dialog", onclick: () => update({ method: row.label }) },
    row.label);
  return el("th", { scope: "row", "data-order": row.label, "data-search": `${row.label} ${row.family}` },
    el("span", { class: "who" }, pin, el("span", {}, open, el("span", { class: "family" }, row.family))));
}

function plainCell(row, number, say = null, pillar = null) {
  if (number === undefined) return el("td", { class: "hole", "data-order": "" }, "–");
  return el("td", { "data-order": number }, say ? say(row.standings[pillar]) : String(number));
}

function tallyCell(row, pillar) {
  const s = row.standings[pillar];
  if (!s || row.label === DATA.control) return el("td", { class: "hole", "data-order": "" }, "–");
  const said = Object.entries(s.by_dataset).map(([name, verdict]) => `${name}: ${verdict}`).join("\n");
  return el("td", { "data-order": s.wins - s.losses, title: said }, `${s.wins}/${s.ties}/${s.losses}`);
}

function advantageCell(row, pillar) {
  const s = row.standings[pillar];
  if (!s) return el("td", { class: "hole", "data-order": "", title: row.holes.join("\n") || "not measured, or too near chance to have something to lose" }, "–");
  const [value, half] = row.label === DATA.control ? ["control", undefined] : s.text.split(" ");
  const title = s.best ? `may be the best of the ${s.league} methods that have its datasets` : "";
  return el("td", { class: s.best ? "rank best" : "rank", "data-order": s.advantage, title },
    el("span", { class: "val" }, value), half ? el("span", { class: "err" }, half) : null);
}

function measureCell(row, column) {
  const entry = column.name ? row.entries[column.name] : null;
  if (entry && entry.status !== "ok") {
    const said = entry.status === "not applicable" ? "n/a" : entry.status;
    return el("td", { class: entry.status === "failed" ? "failed" : "hole", "data-order": "", title: entry.reason }, said);
  }
  const found = value(row, column.measure, column.name);
  if (!found) return el("td", { class: "hole", "data-order": "", title: entry?.reason || "not measured on every dataset" }, "–");
  const best = Boolean(entry && entry.best.includes(column.measure));
  const cell = el("td", { class: [best ? "best" : "", column.measure === "gain" && found.v < 0 ? "failed" : ""].join(" "), "data-order": found.v }, el("span", { class: "val" }, found.t));
  if (best) cell.title = "may be the best of the column";
  if (found.e !== undefined) {
    cell.append(el("span", { class: "err" }, "±" + found.e));
    const [low, high] = column.domain;
    const at = v => `${(100 * (v - low) / (high - low || 1)).toFixed(1)}%`;
    cell.append(el("span", { class: "iv", "aria-hidden": "true", "--a": at(found.l), "--b": at(found.h), "--m": at(found.v) }));
  }
  return cell;
}

function withDomains(list, rows) {
  for (const column of list.filter(c => c.measure)) {
    const found = rows.map(row => value(row, column.measure, column.name)).filter(v => v && v.e !== undefined);
    column.domain = [d3.min(found, v => v.l), d3.max(found, v => v.h)];
  }
  return list;
}

function drawTable() {
  const holder = document.getElementById("table");
  if (shownTable) shownTable.destroy();
  const rows = visibleRows();
  const list = withDomains(columns(), rows);
  const head = list.map(c => el("th", { scope: "col", title: c.help, class: c.key === "method" ? "" : "number",
                                        "aria-label": c.over ? `${c.over} ${c.title}` : c.title },
    c.over ? el("span", { class: "over" }, c.over) : null, el("span", {}, c.title)));
  const table = el("table", { class: "board" }, el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, rows.map(row => el("tr", { class: pins().includes(row.label) ? "pinned" : "" }, list.map(c => c.cell(row, c))))));
  holder.replaceChildren(table);
  shownTable = new DataTable(table, {
    paging: false, info: false, autoWidth: false,
    layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null },
    order: startOrder(list),
    search: { search: state.q },
    language: { emptyTable: "No method here.", zeroRecords: "No method matches." },
    columns: list.map(c => ({ type: c.key === "method" ? "string" : "measure", orderSequence: c.order })),
  });
  shownTable.on("order", () => {
    const [now] = shownTable.order();
    const sort = now ? `${list[now[0]].key},${now[1]}` : "";
    if (sort !== state.sort && now) { state.sort = sort; writeHash(); }
  });
}

function startOrder(list) {
  const comma = state.sort.lastIndexOf(",");
  const at = list.findIndex(c => c.key === state.sort.slice(0, comma));
  if (comma > 0 && at >= 0) return [[at, state.sort.slice(comma + 1) === "asc" ? "asc" : "desc"]];
  const first = list.findIndex(c => c.key.startsWith("advantage:"));
  if (first > 0) return [[first, "desc"]];
  return list.length > 1 ? [[1, list[1].order[0]]] : [[0, "asc"]];
}
