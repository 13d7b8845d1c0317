"""Planted effects, in records whose rows and seeds are drawn: a board finds them as often as its power line says."""

import msgspec
import numpy as np
import pytest
from scipy.stats import norm

from leaderboard.board import Board, build
from leaderboard.merge import gather
from leaderboard.record import Condition
from leaderboard.store import Store
from tests.leaderboard.conftest import Planted, make_record

BOARDS, SEEDS, ROWS = 40, 5, 500
EFFECTS = {"equal": 0.0, "little": 0.02, "much": 0.05}
TWINS = 4  # methods of each effect
AT_80 = norm.ppf(0.975) + norm.ppf(0.8)  # standard errors from 0 of what is found with 80 % power


@pytest.fixture(scope="module", name="boards")
def boards_fixture(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """Every dataset is a board of its own: rows, seeds and what is hard for whom are drawn anew for each."""
    store = Store(tmp_path_factory.mktemp("power") / "results")
    store.prepare()
    rng = np.random.default_rng(5)
    methods = {"concat": 0.0, **{f"{name}{i}": effect for name, effect in EFFECTS.items() for i in range(TWINS)}}
    for number in range(BOARDS):
        hard = 0.15 * rng.standard_normal(ROWS)
        for label, effect in methods.items():
            own = 0.7 + effect + hard + 0.05 * rng.standard_normal(ROWS)
            for seed in range(SEEDS):
                right = rng.random(ROWS) < own + 0.006 * rng.standard_normal()
                _write(store, label, f"d{number:02d}", seed, right)
    return build(gather([store.folder]), "plain")


def _write(store: Store, label: str, dataset: str, seed: int, right: np.ndarray) -> None:
    record, predictions = make_record(label, Planted(), dataset, seed, ROWS, extra=[Condition("clean")])
    target = predictions["target"]
    predictions["pred:clean"] = np.where(right, target, (target + 1) % 4)
    clean = Condition("clean").measured(float(right.mean()))
    store.write(msgspec.structs.replace(record, conditions=(clean,)), predictions)


def _stated(board: Board, effect: float) -> float:
    """By the power line of each dataset alone: the effect in units of what it says is found with 80 % power."""
    lines = np.array([d.resolves for d in board.datasets], dtype=float)
    return float(norm.cdf(effect / lines * AT_80 - norm.ppf(0.975)).mean())


def _found(board: Board, kind: str) -> float:
    rows = [r for r in board.rows if r.label.startswith(kind)]
    return float(np.mean([v == "win" for r in rows for v in r.standings["clean"].by_dataset.values()]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", EFFECTS)
def test_planted_effects_are_found_with_the_power_the_board_states(boards: Board, kind: str) -> None:
    """160 comparisons, four of which share a control: the standard error of a share is about .05."""
    stated = _stated(boards, EFFECTS[kind])
    assert _found(boards, kind) == pytest.approx(stated, abs=0.1)
    # A line that is far off would say so here: neither effect is found always or never.
    assert {"equal": 0 < stated < 0.05, "little": 0.2 < stated < 0.6, "much": 0.85 < stated < 1}[kind]
