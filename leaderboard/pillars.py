"""What a board ranks by, as weighted sums over conditions, so that rows and seeds are counted alike in each.

Clean: the score itself. Robust: the *change* from clean under corruption, 0 for a method that loses nothing (an area
under the curve repeats the clean score). Missing: the mean score over absent subsets of modalities. Higher is better
wherever it is in the score.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from leaderboard.measures import area_weights
from leaderboard.moderated import Panel
from leaderboard.robustness import LEVELS, WEAK, Curve

Weights = dict[str, float]
"""Condition id -> weight."""


def clean() -> Weights:
    """The clean score."""
    return {"clean": 1.0}


def single(curves: Collection[Curve]) -> Weights:
    """Area under the severity curves of single modalities, less the clean score: minus the drop.

    Args:
        curves: Modality and corruption, those that all methods of a dataset have.
    """
    if not curves:
        raise ValueError("Expected at least one severity curve, but got none")
    return _sum({"clean": -1.0}, area_weights(frozenset(curves)))


def joint() -> Weights:
    """Area under the severity curve with every modality corrupted, less the clean score: minus the drop."""
    step = 1 / LEVELS
    weights = {f"joint:{s}": step for s in range(1, LEVELS)}
    return {"clean": step / 2 - 1, **weights, f"joint:{LEVELS}": step / 2}


def robust(curves: Collection[Curve]) -> Weights:
    """Half the change under single corruptions, half that under joint corruption."""
    return _scaled(_sum(single(curves), joint()), 0.5)


def missing(subsets: Collection[str]) -> Weights:
    """Mean score over absent subsets of modalities.

    Args:
        subsets: Condition ids.
    """
    if not subsets:
        raise ValueError("Expected at least one absent subset, but got none")
    return dict.fromkeys(sorted(subsets), 1 / len(subsets))


def strong(clean: Panel, trivial: float, control: str) -> frozenset[str]:
    """Methods with something to lose: a clean score of at least `WEAK` of the control's, both chance-normalised.

    A method at chance loses nothing under corruption, and would lead any order by drops. It depends on the method and
    the control alone.

    Args:
        clean: The clean scores, in chance-normalised units.
        trivial: The score of the trivial predictor.
        control: The method all are compared with.
    """
    above = {name: (method.mean - trivial) * clean.unit for name, method in clean.methods.items()}
    return frozenset(name for name, score in above.items() if score > 0 and score >= WEAK * above[control])


def _sum(a: Mapping[str, float], b: Mapping[str, float]) -> Weights:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}


def _scaled(weights: Mapping[str, float], factor: float) -> Weights:
    return {name: factor * weight for name, weight in weights.items()}
