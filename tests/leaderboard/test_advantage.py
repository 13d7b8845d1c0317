"""The advantage over the control, and that nobody else can move it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderboard.advantage import Advantage, advantages
from leaderboard.moderated import Panel, panel, unit
from leaderboard.ranking import Ranking, rank
from tests.leaderboard.planted_rows import World, summaries

CONTROL = "m00"


def synthetic(seed: int, methods: int = 7) -> dict[str, Panel]:
    """Datasets on which some methods do not apply."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in ("red", "green", "blue"):
        world = World(rows=int(rng.integers(20, 60)), spread=0.8, own=0.2)
        values = world.values(rng, methods, int(rng.integers(2, 5)), 0.1 * rng.standard_normal(methods))
        applies = {m for m in range(methods) if m == 0 or rng.random() < 0.7}
        own = {m: s for i, (m, s) in enumerate(summaries(values).items()) if i in applies}
        found[name] = panel(own, unit(0.1, True))
    return found


def without(panels: dict[str, Panel], gone: set[str]) -> dict[str, Panel]:
    """The board as if some methods had never run: the prior is fitted again."""
    return {d: panel({m: s for m, s in p.methods.items() if m not in gone}, p.unit) for d, p in panels.items()}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sets(st.integers(1, 6), min_size=1, max_size=5))
def test_no_method_moves_another(seed: int, numbers: set[int]) -> None:
    panels, gone = synthetic(seed), {f"m{i:02d}" for i in numbers}
    every = [a for a in advantages(panels, CONTROL) if a.method not in gone]
    fewer = advantages(without(panels, gone), CONTROL)
    assert [a.method for a in every] == [a.method for a in fewer]
    assert [a.effect.value for a in every] == [a.effect.value for a in fewer]
    assert [(a.on, a.of) for a in every] == [(a.on, a.of) for a in fewer]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sets(st.integers(1, 6), min_size=1, max_size=5))
def test_with_a_frozen_prior_not_even_its_interval(seed: int, numbers: set[int]) -> None:
    panels, gone = synthetic(seed), {f"m{i:02d}" for i in numbers}
    kept = {d: {m: s for m, s in p.methods.items() if m not in gone} for d, p in panels.items()}
    frozen = {d: panel(kept[d], p.unit, p.prior) for d, p in panels.items()}
    assert [a for a in advantages(panels, CONTROL) if a.method not in gone] == list(advantages(frozen, CONTROL))


def test_by_hand() -> None:
    panels = synthetic(3)
    for a in advantages(panels, CONTROL):
        own = {d: p for d, p in panels.items() if a.method in p.methods}
        gaps = [(p.methods[a.method].mean - p.methods[CONTROL].mean) / 0.9 for p in own.values()]
        assert a.effect.value == pytest.approx(np.mean(gaps))
        variances = [p.difference(a.method, CONTROL).variance for p in own.values()]
        assert a.effect.variance == pytest.approx(sum(variances) / len(own) ** 2)
        assert (a.on, a.of) == (len(own), 3)
        sides = [np.sign(e.value) * (e.p <= 0.05) for e in a.by_dataset.values()]
        assert (a.wins, a.ties, a.losses) == (sides.count(1), sides.count(0), sides.count(-1))
        assert set(a.by_dataset) == set(own)


def test_order_and_the_control_itself() -> None:
    found = advantages(synthetic(4), CONTROL)
    assert [a.effect.value for a in found] == sorted((a.effect.value for a in found), reverse=True)
    itself = next(a for a in found if a.method == CONTROL)
    assert (itself.effect.value, itself.effect.variance, itself.ties, itself.on) == (0, 0, 3, 3)
    assert any(a.on < a.of for a in found), "some method applies to fewer datasets, and has its place all the same"


def test_an_error_counts_the_other_way() -> None:
    values = World(rows=60).values(np.random.default_rng(5), 2, 4, np.array([0.0, 0.2]))

    def ahead(higher: bool) -> Advantage:
        found = advantages({"d": panel(summaries(values), unit(0.5, higher))}, CONTROL)
        return next(a for a in found if a.method == "m01")

    assert ahead(True).wins == 1 and ahead(False).losses == 1


def test_a_control_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no results on blue, green, red"):
        advantages(synthetic(6), "nobody")


def test_means_over_datasets_are_calibrated() -> None:
    """Equals on three unlike datasets, 180 boards with 5 methods each: standard error .008."""
    rng = np.random.default_rng(7)
    worlds = [World(rows=100), World(rows=60, seed=0.03), World(rows=80, own=0.2)]
    effects = []
    for _ in range(180):
        panels = {str(i): w.board(rng, 6, 3) for i, w in enumerate(worlds)}
        effects += [a.effect for a in advantages(panels, CONTROL) if a.method != CONTROL]
    assert 0.025 <= np.mean([e.p <= 0.05 for e in effects]) <= 0.08


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 1.6])
def test_the_power_line_is_kept_alone_and_among_all(share: float) -> None:
    """Two datasets, 15 methods of which a third are ahead by what the line says, or by more of it."""
    rng = np.random.default_rng(8)
    worlds = [World(rows=150), World(rows=100, seed=0.02)]
    names = [f"m{i:02d}" for i in range(16)]

    def boards(number: int, ahead: float) -> list[Ranking]:
        means = np.where(np.arange(16) % 3 == 1, ahead, 0.0)
        return [rank({str(i): w.board(rng, 16, 5, means) for i, w in enumerate(worlds)}, names, CONTROL)
                for _ in range(number)]  # fmt: skip

    before = boards(40, 0.0)
    alone, among = (float(np.median([getattr(r, line) or 0 for r in before])) for line in ("resolves", "adjusted"))
    assert among > 1.2 * alone
    planted = [m for i, m in enumerate(names) if i % 3 == 1]
    powers = {}
    for line, size in (("alone", alone), ("among", among)):
        standings = [r.standings[m] for r in boards(80, share * size) for m in planted]
        # An interval that leaves out 0 is the verdict on one method alone; `verdict` is adjusted for all.
        powers[line] = np.mean([(s.low or 0) > 0 if line == "alone" else s.verdict == "win" for s in standings])
    if share == 1:
        assert powers["alone"] == pytest.approx(0.8, abs=0.06)
        assert 0.74 <= powers["among"] <= 0.95, "Holm finds what Bonferroni does, and more"
    else:
        assert min(powers.values()) > 0.95
