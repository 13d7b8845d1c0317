"use strict";
/* The columns of a view, the most telling first: what does not fit the window is left out from the right. */

const ADVANTAGE = `mean over a method's datasets of its chance-normalised difference from ${DATA.control}, with half its 95 % interval`;

function columns() {
  const all = DATA.slices[state.slice];
  const names = datasets().map(d => d.name);
  const alone = state.dataset || (names.length === 1 ? names[0] : "");
  const each = DATA.perDataset[state.slice] ?? 1;
  const order = orderColumns(names.length > 1 && !state.dataset);
  const scores = alone ? all.map(m => measureColumn(m, alone, "")) : names.flatMap(name => all.slice(0, each).map(m => measureColumn(m, name, name)));
  const means = alone ? [] : all.slice(each).map(m => measureColumn(m, "", "mean"));
  const method = { key: "method", title: "Method", cell: methodCell, order: ["asc", "desc"], sort: row => row.label };
  return board().ranked ? [method, ...order, ...scores, ...means] : [method, ...scores.slice(0, alone ? 1 : scores.length), ...order, ...scores.slice(alone ? 1 : scores.length), ...means];
}

function orderColumns(several) {
  const found = [];
  pillarsShown().forEach((pillar, i) => {
    const at = row => standing(row, pillar);
    if (!i && board().ranked) found.push({ key: "place", title: "#", cell: row => plainCell(places(pillar).get(row.label)), order: ["asc", "desc"],
      sort: row => places(pillar).get(row.label), help: "place by the advantage, " + pillar });
    found.push({ key: "advantage:" + pillar, over: pillar, title: "Advantage", cell: row => advantageCell(row, pillar), order: ["desc", "asc"],
      sort: row => at(row)?.v, help: state.dataset ? `chance-normalised difference from ${DATA.control} here` : ADVANTAGE });
    if (i || state.dataset) return;
    if (board().rows.some(r => at(r) && at(r).on < at(r).of)) found.push({ key: "on", title: "On", order: ["desc", "asc"], sort: row => at(row)?.on,
      cell: row => plainCell(at(row) && `${at(row).on} of ${at(row).of}`), help: "datasets compared on" });
    if (several) found.push({ key: "tally", title: "W/T/L", cell: row => tallyCell(row, pillar), order: ["desc", "asc"],
      sort: row => at(row) && at(row).tally[0] - at(row).tally[2], help: `datasets won, tied and lost against ${DATA.control}, 5 % each` });
  });
  return found;
}

/* Label -> place in the view, ties sharing theirs; made once per drawing. */
let shownPlaces = new Map();

function places(pillar) {
  if (!shownPlaces.has(pillar)) {
    const found = board().rows.map(r => [r.label, standing(r, pillar)?.v]).filter(([, v]) => v !== undefined);
    const sorted = found.map(([, v]) => v).sort((a, b) => b - a);
    // Over all datasets the places are those of every other output; numbers here are rounded.
    const given = state.dataset ? new Map() : new Map(board().rows.map(r => [r.label, standing(r, pillar)?.place]));
    shownPlaces.set(pillar, new Map(found.map(([label, v]) => [label, given.get(label) ?? 1 + sorted.indexOf(v)])));
  }
  return shownPlaces.get(pillar);
}

function measureColumn(measure, name, over) {
  const own = DATA.measures[measure];
  const said = measure === "clean" && name ? dataset(name) : null;
  return { key: `${name || "mean"}:${measure}`, over, title: said ? said.metric : own.title, help: own.help, measure, name,
           order: better(measure, name) === "lower" ? ["asc", "desc"] : ["desc", "asc"], sort: row => value(row, measure, name)?.[0],
           under: said && said.trivial !== null ? `trivial ${said.trivial.toFixed(3)}` : "", cell: measureCell };
}

function methodCell(row) {
  const pinned = pins().includes(row.label);
  const trained = row.method !== "";
  const pin = trained ? el("button", { type: "button", class: "pin", "aria-pressed": String(pinned), "--own": familyColour(row.family),
    "aria-label": `Draw ${row.label} in the charts`, title: "Draw in the charts", onclick: () => togglePin(row.label) }) : el("span", { class: "pin none" });
  const open = trained ? el("button", { type: "button", class: "name", "aria-haspopup": "dialog", onclick: () => update({ method: row.label }) }, breakable(row.label))
    : el("span", { class: "name plain" }, row.label);
  return el("th", { scope: "row" }, el("span", { class: "who" }, pin, el("span", {}, open, el("span", { class: "family" }, row.family))));
}

/* A long name breaks where its words end. */
function breakable(label) {
  return label.split(/(?<=[_[(])/).flatMap((part, i) => i ? [el("wbr"), part] : [part]);
}

function plainCell(text) {
  return text === undefined ? el("td", { class: "hole" }, "–") : el("td", {}, String(text));
}

function tallyCell(row, pillar) {
  const s = standing(row, pillar);
  if (!s || row.label === DATA.control) return el("td", { class: "hole" }, "–");
  return el("td", { title: Object.entries(s.alone).map(([name, [, , verdict]]) => `${name}: ${verdict}`).join("\n") }, s.tally.join("/"));
}

function advantageCell(row, pillar) {
  const s = standing(row, pillar);
  if (!s) return el("td", { class: "hole", title: row.holes.join("\n") || "not measured, or too near chance to have something to lose" }, "–");
  const control = row.label === DATA.control;
  return el("td", { class: s.best ? "best" : "", title: s.best ? "may be the best of those that have the same datasets" : "" },
    el("span", { class: "val" }, control ? "control" : write(s.v, "signed")), control || s.e === null ? null : el("span", { class: "err" }, "±" + s.e.toFixed(3)));
}

function measureCell(row, column) {
  const entry = column.name ? row.entries[column.name] : null;
  if (entry && entry.status !== "ok") {
    const said = entry.status === "not applicable" ? "n/a" : entry.status;
    return el("td", { class: entry.status === "failed" ? "failed" : "hole", title: entry.reason }, said);
  }
  const found = value(row, column.measure, column.name);
  if (!found) return el("td", { class: "hole", title: "not measured on every dataset" }, "–");
  const style = DATA.measures[column.measure].style;
  const best = Boolean(entry && entry.best.includes(column.measure));
  const loses = entry && ["clean", "gain"].includes(column.measure) && entry.m.gain?.[0] < 0;
  const marks = [loses ? el("abbr", { class: "failed", title: "below the best single modality" }, "↓") : null,
    column.measure === "clean" && entry?.unconverged ? el("abbr", { title: "still getting better when its epochs were over" }, "†") : null];
  const cell = el("td", { class: best ? "best" : "" }, el("span", { class: "val" }, write(found[0], style)), marks);
  if (best) cell.title = "may be the best of the column";
  if (found[1] !== undefined) {
    cell.append(el("span", { class: "err" }, within(column, found) ?? "±" + write(found[1], style, true)));
    const [low, high] = column.domain;
    const at = v => `${(100 * Math.min(1, Math.max(0, (v - low) / (high - low || 1)))).toFixed(1)}%`;
    cell.append(el("span", { class: "iv", "aria-hidden": "true", "--a": at(found[0] - found[1]), "--b": at(found[0] + found[1]), "--m": at(found[0]) }));
  }
  return cell;
}

/* The ends of an interval that would leave the range of its metric, cut there. */
function within(column, [mean, half]) {
  if (column.measure !== "clean" || !dataset(column.name)?.bounded || (mean - half >= 0 && mean + half <= 1)) return null;
  return `[${Math.max(0, mean - half).toFixed(3)}, ${Math.min(1, mean + half).toFixed(3)}]`;
}

/* The scale of the little bars: the range of the means and the usual interval, so that one wild method flattens no other. */
function withDomains(list, rows) {
  for (const column of list.filter(c => c.measure)) {
    const found = rows.map(row => value(row, column.measure, column.name)).filter(v => v && v[1] !== undefined);
    const room = d3.median(found, v => v[1]) ?? 0;
    column.domain = [d3.min(found, v => v[0]) - room, d3.max(found, v => v[0]) + room];
  }
  return list;
}
