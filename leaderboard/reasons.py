"""Why one method beats another, as far as the records tell: where they differ, and on which rows, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leaderboard import rows
from leaderboard.comparison import Comparison, Difference
from leaderboard.merge import Evidence
from leaderboard.record import Record


@dataclass(frozen=True)
class Answer:
    """A test row whose clean answers differ: what the methods said with the first seed, and how often each was right.

    Attributes:
        a: Mean over seeds of what the row adds to the score of A.
        said: Predictions of A and B with the first seed both have, None where they are not one number a row.
    """

    row: int
    a: float
    b: float
    said: tuple[float, float] | None


def sentences(found: Comparison, evidence: Evidence) -> tuple[str, ...]:
    """What differs most, dataset by dataset, then how the two were trained."""
    said: list[str] = []
    for dataset in dict.fromkeys(d.dataset for d in found.differences):
        own = [d for d in found.differences if d.dataset == dataset]
        said += [_clean(found, own[0]), *_broken(found, own[1:]), *_trained(found, dataset, evidence)]
    return tuple(said)


def _clean(found: Comparison, d: Difference) -> str:
    words = {
        "win": f"{found.a} is better by {d.difference:.3f}",
        "loss": f"{found.b} is better by {-d.difference:.3f}",
        "tie": f"the difference of {d.difference:+.3f} may be chance",
    }
    return f"On clean {d.dataset} ({d.metric}) {found.a} has {d.a:.3f} and {found.b} {d.b:.3f}: {words[d.verdict]}."


def _broken(found: Comparison, lines: Sequence[Difference]) -> list[str]:
    """The severest difference in favour of each, under corruption and without modalities."""
    said: list[str] = []
    for kinds, words in ((("curve",), "Under corruption"), (("missing",), "When modalities are missing")):
        own = [d for d in lines if d.kind in kinds]
        sure = [d for d in own if d.verdict != "tie"]
        if own and not sure:
            said.append(f"{words} no difference on {own[0].dataset} is more than chance may make.")
        for verdict, winner in (("win", found.a), ("loss", found.b)):
            best = max((d for d in sure if d.verdict == verdict), key=lambda d: abs(d.difference), default=None)
            if best is not None:
                said.append(
                    f"{words} {winner} is better on {best.dataset}, most with {best.what}: "
                    f"{found.a} {best.a:.3f}, {found.b} {best.b:.3f}."
                )
    return said


def _trained(found: Comparison, dataset: str, evidence: Evidence) -> list[str]:
    parts: list[str] = []
    short: list[str] = []
    for label in (found.a, found.b):
        own = records_of(evidence, label, dataset)
        size = own[0].cost.get("trainable_parameters", own[0].cell.parameters)  # as boards count them
        facts = [f"{size:,.0f} parameters"]
        if all(r.training for r in own):  # an export may have none
            facts.append(f"{np.mean([sum(stage.epochs for stage in r.training) for r in own]):.0f} epochs")
        if all("train_seconds" in r.cost for r in own):
            facts.append(f"{np.mean([r.cost['train_seconds'] for r in own]):.1f} s")
        parts.append(f"{label} {', '.join(facts)}")
        if not all(r.converged for r in own):
            short.append(label)
    more = f" {' and '.join(short)} had not converged when the epochs were over." if short else ""
    return [f"Cost on {dataset}: {'; '.join(parts)}.{more}"]


def records_of(evidence: Evidence, label: str, dataset: str) -> list[Record]:
    """The cells of a method on a dataset, by seed."""
    own = [r for r in evidence.records if r.cell.label == label and r.cell.dataset == dataset]
    return sorted(own, key=lambda r: r.cell.seed)


def differing(evidence: Evidence, a: str, b: str, dataset: str, top: int) -> tuple[list[Answer], list[Answer]]:
    """The rows that A answers better than B on clean data, and those that B does; at most `top` of each."""
    mine, theirs = (_contributions(evidence, records_of(evidence, label, dataset)) for label in (a, b))
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return [], []
    gap = np.round(mine - theirs, 9)
    order = np.argsort(gap, kind="stable")
    said = _said(evidence, a, b, dataset)

    answers = {
        i: Answer(i, float(mine[i]), float(theirs[i]), None if said is None else (said[0][i], said[1][i]))
        for i in map(int, {*order[:top], *order[-top:]})
    }
    for_a = [answers[int(i)] for i in order[::-1][:top] if gap[i] > 0]
    return for_a, [answers[int(i)] for i in order[:top] if gap[i] < 0]


def _contributions(evidence: Evidence, records: Sequence[Record]) -> np.ndarray | None:
    """Mean over seeds of what each row adds to the clean score; None where that is not kept."""
    known: list[np.ndarray] = []
    for record in records:
        values = rows.contributions(evidence.stores[record.cell.id], record, {"clean": 1.0})
        if values is None:
            return None
        known.append(values)
    return np.mean(known, axis=0)


def _said(evidence: Evidence, a: str, b: str, dataset: str) -> tuple[list[float], list[float]] | None:
    """The clean predictions of both with the first seed both have, where a prediction is one number."""
    own = [{r.cell.seed: r for r in records_of(evidence, label, dataset)} for label in (a, b)]
    shared = sorted(set(own[0]) & set(own[1]))
    if not shared:
        return None
    said: list[list[float]] = []
    for cell in (own[0][shared[0]].cell, own[1][shared[0]].cell):
        found = rows.read(evidence.stores[cell.id], cell.id, cell.metric, ["clean"])
        if found is None or found[1][0].ndim != 1:
            return None
        said.append(found[1][0].astype(float).tolist())
    return said[0], said[1]
