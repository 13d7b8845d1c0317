"""The answer to somebody with data and no time: which fusion, what it adds, what a broken group costs, what is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmark.own_data.small_board import SIMPLEST_FIRST
from leaderboard.comparison import Difference, compare
from leaderboard.merge import Evidence
from leaderboard.record import Record
from leaderboard.robustness import Baselines

_FEW_STEPS = 200
_SEVERITY = 3
Held = Mapping[str, Sequence[Record]]


def table(evidence: Evidence) -> list[str]:
    """A line for each method, best first, and one for who never looks at the rows."""
    held = _held(evidence)
    one = next(iter(held.values()))[0]
    lines = [(_mean(records), label, " ".join(f"{r.clean:.3f}" for r in records)) for label, records in held.items()]
    if one.trivial is not None:
        lines.append((one.trivial, "(without looking)", ""))
    lines.sort(key=lambda line: line[0], reverse=one.cell.higher_is_better)
    width = max(len(label) for _, label, _ in lines) + 2
    head = f"{'':{width}}{one.cell.metric}, and of each seed"
    return [head, *(f"{label:{width}}{mean:.3f}   {values}".rstrip() for mean, label, values in lines)]


def sentences(evidence: Evidence) -> list[str]:
    """What the records of one dataset show."""
    held = _held(evidence)
    failed = sorted({r.cell.label for r in evidence.failed})
    lost = [f"{', '.join(failed)} failed, and is left out: `polymodal show` says why."] if failed else []
    fused = {label: own for label, own in held.items() if own[0].cell.method != "unimodal"}
    single = Baselines.of(evidence.records).chosen()
    if not fused:
        return [*lost, "No method that fuses has a result: nothing can be said."]
    level = _level(evidence, fused)
    advised = min(level, key=_simplicity)
    found = [*lost, *_use(held[advised], [label for label in level if label != advised])]
    found += _learnt(fused[level[0]])
    if single is not None:
        found += _adds(evidence, held, advised, single)
    found += [*_missing(held, advised), *_noisy(held, advised)]
    return [*found, *_open(evidence, fused, advised, single)]


def advised_cell(evidence: Evidence) -> str:
    """The id of the cell to go on with, the first seed of the method that is advised; empty if none is."""
    fused = {label: own for label, own in _held(evidence).items() if own[0].cell.method != "unimodal"}
    return fused[min(_level(evidence, fused), key=_simplicity)][0].cell.id if fused else ""


def _level(evidence: Evidence, fused: Held) -> list[str]:
    """The best method, and those that cannot be told from it."""
    best = _best(fused)
    ahead = {label: _clean(evidence, best, label) for label in fused if label != best}
    return [best, *(label for label, found in ahead.items() if found.verdict != "win")]


def _held(evidence: Evidence) -> dict[str, list[Record]]:
    held: dict[str, list[Record]] = {}
    for record in sorted(evidence.records, key=lambda r: (r.cell.label, r.cell.seed)):
        held.setdefault(record.cell.label, []).append(record)
    return held


def _mean(records: Sequence[Record]) -> float:
    return float(np.mean([record.clean for record in records]))


def _best(fused: Held) -> str:
    sign = 1 if next(iter(fused.values()))[0].cell.higher_is_better else -1
    return max(fused, key=lambda label: sign * _mean(fused[label]))


def _simplicity(label: str) -> int:
    name = label.partition("[")[0]
    return SIMPLEST_FIRST.index(name) if name in SIMPLEST_FIRST else len(SIMPLEST_FIRST)


def _clean(evidence: Evidence, a: str, b: str) -> Difference:
    return next(d for d in compare(evidence, a, b).differences if d.kind == "clean")


def _use(records: Sequence[Record], level: Sequence[str]) -> list[str]:
    cell = records[0].cell
    text = f"Use {cell.label}: {cell.metric} {_mean(records):.3f} over {len(records)} seed{'s' * (len(records) > 1)}"
    if records[0].trivial is not None:
        text += f", where not looking at the rows gives {records[0].trivial:.3f}"
    others = f" {_and(level)} cannot be told from it; it is the simplest of them." if level else ""
    return [f"{text}.{others}"]


def _learnt(records: Sequence[Record]) -> list[str]:
    """A warning where the best method is not above the trivial score, or was hardly trained."""
    found, cell, trivial = [], records[0].cell, records[0].trivial
    sign = 1 if cell.higher_is_better else -1
    if trivial is not None and all(sign * (r.clean - trivial) <= 0 for r in records):
        found.append("NOTHING WAS LEARNT: no method is better than not looking at the rows.")
    steps = min((stage.steps for r in records for stage in r.training if stage.steps), default=_FEW_STEPS)
    if steps < _FEW_STEPS:
        found.append(f"HARDLY TRAINED: {steps} steps; give more `epochs` or a smaller `batch_size`.")
    return found


def _adds(evidence: Evidence, held: Held, advised: str, single: str) -> list[str]:
    found, group = _clean(evidence, advised, single), held[single][0].cell.options["modality"]
    interval = f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    alone = f"{group}, the best single group ({found.b:.3f})"
    if not np.isfinite(found.low):
        return [f"With one seed fusing is {found.difference:+.3f} from {alone}."]
    if found.verdict == "win":
        return [f"Fusing adds {interval} over {alone}."]
    if found.verdict == "loss":
        return [f"Fusing LOSES {interval} to {alone}: use that group alone."]
    return [f"Fusing adds nothing that can be measured over {alone}: {interval}."]


def _missing(held: Held, advised: str) -> list[str]:
    """What becomes of the advised method without each group, and who stands that best."""
    found = []
    for group in held[advised][0].cell.modalities:
        left = {label: score for label, own in held.items() if (score := _under(own, f"missing:{group}")) is not None}
        if advised not in left:
            continue
        text = f"Without {group}: {_mean(held[advised]):.3f} -> {left[advised]:.3f}"
        fused = {label: score for label, score in left.items() if held[label][0].cell.method != "unimodal"}
        sign = 1 if held[advised][0].cell.higher_is_better else -1
        best = max(fused, key=lambda label, s=sign, f=fused: s * f[label])
        other = (
            f" ({best} keeps {fused[best]:.3f})"
            if best != advised and sign * (fused[best] - left[advised]) > 0.01
            else ""
        )
        found.append(f"{text}{other}.")
    return found


def _noisy(held: Held, advised: str) -> list[str]:
    own = held[advised]
    found = []
    for c in own[0].conditions:
        if c.kind == "single" and c.severity == _SEVERITY:
            score = _under(own, c.id)
            found.append(f"{c.modality} {_mean(own):.3f} -> {score:.3f} ({c.corruption})")
    return [f"With noise of middle strength on one group: {'; '.join(found)}."] if found else []


def _under(records: Sequence[Record], condition: str) -> float | None:
    """Mean score under a condition; None unless every seed has it."""
    scores = [c.score for r in records for c in r.conditions if c.id == condition]
    return float(np.mean(scores)) if len(scores) == len(records) else None


def _open(evidence: Evidence, fused: Held, advised: str, single: str | None) -> list[str]:
    """How small a difference these rows and seeds show at all."""
    others = [label for label in (single, *fused) if label is not None and label != advised]
    widths = [(d.high - d.low) / 2 for d in (_clean(evidence, advised, label) for label in others)]
    widths = [w for w in widths if np.isfinite(w)]
    one = fused[advised][0] if advised in fused else None
    if not widths or one is None:
        return ["One seed cannot say how sure any of this is: give --seeds 3 or more."]
    return [
        f"Not resolved: with {one.rows:,} test rows and {len(fused[advised])} seeds, differences below about "
        f"{float(np.median(widths)):.3f} look like none. More rows, or `--seeds 5`, would tell."
    ]


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
