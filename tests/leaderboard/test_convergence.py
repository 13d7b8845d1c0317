"""Training that was cut off, hardly began, or came to nothing is named."""

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.console import Console

from leaderboard import renderings, tables
from leaderboard.board import build as board_of
from leaderboard.convergence import training_notes, training_warnings
from leaderboard.merge import gather
from leaderboard.page import page
from leaderboard.record import Fitted, Record
from leaderboard.store import Store
from tests.records import changed, make_record


def stage(**facts: Any) -> Fitted:
    given = {"epochs": 30, "steps": 900, "best_epoch": 12, "best_score": 0.5, "monitor": "val/task_loss", "cap": 30}
    return Fitted("train", 1.0, **{**given, "score": 0.9, **facts})


def record(*stages: Fitted, trivial: float = 0.1) -> Record:
    return msgspec.structs.replace(make_record(), training=stages, trivial_validation=trivial)


@pytest.mark.parametrize(
    ("facts", "converged"),
    [
        ({}, True),
        ({"best_epoch": 26}, True),
        ({"best_epoch": 27}, False),
        ({"best_epoch": 29}, False),
        ({"best_epoch": 25, "epochs": 28}, True),  # patience ended it
        ({"cap": 4, "epochs": 4, "best_epoch": 3}, False),
        ({"cap": 4, "epochs": 4, "best_epoch": 2}, True),
        ({"best_epoch": 29, "monitor": ""}, True),  # the last epoch was wanted
    ],
)
def test_a_stage_that_was_best_in_its_last_tenth_has_not_converged(facts: dict[str, Any], converged: bool) -> None:
    assert stage(**facts).converged is converged
    assert record(stage(), stage(**facts)).converged is converged
    assert record(stage(**facts), Fitted("solve", 1.0)).converged is converged


def test_what_is_solved_has_converged_and_taken_no_step() -> None:
    solved = record(Fitted("solve", 1.0))
    assert solved.converged and solved.steps == 0 and solved.above_trivial is None
    assert training_warnings([solved]) == ()


def test_the_validation_score_of_the_last_trained_stage_is_held_against_the_trivial_one() -> None:
    assert record(stage(score=0.05), stage(score=0.2), Fitted("solve", 1.0)).above_trivial is True
    assert record(stage(score=0.1)).above_trivial is False
    worse = record(stage(score=0.2), trivial=0.3)
    lower = msgspec.structs.replace(worse, cell=msgspec.structs.replace(worse.cell, higher_is_better=False))
    assert worse.above_trivial is False and lower.above_trivial is True


def test_everything_is_said_once_with_its_number() -> None:
    bad = record(stage(best_epoch=29, steps=60, score=0.1))
    cut_off, few, nothing = training_warnings([bad, bad, record(stage())])
    assert cut_off.startswith("2 of 3 cells still getting better when the epochs were over")
    assert few.startswith("2 of 3 cells trained for fewer than 200 steps")
    assert nothing.startswith("2 of 3 cells not above the trivial score") and nothing.count(bad.cell.label) == 1


# --- On a board -------------------------------------------------------------------------------------------------------


def test_entries_are_named_by_dataset() -> None:
    def entry(label: str, dataset: str, *stages: Fitted) -> Record:
        return changed(record(*stages), label=label, dataset=dataset)

    few, learnt_nothing = stage(steps=60), stage(score=0.1)
    of_all = [entry(label, "xor", few) for label in ("concat", "late")]
    of_one = [entry("concat", "digits", stage(), few), entry("late", "digits", few), entry("gated", "digits", stage())]
    solved = [entry("linear", dataset, Fitted("solve", 1.0)) for dataset in ("xor", "digits")]
    assert training_notes([*of_all, *of_one, *solved]) == [
        "trained for fewer than 200 steps in all: late on digits; all 2 methods that train on xor"
    ]
    assert training_notes([entry("late", "digits", learnt_nothing), *solved, entry("concat", "digits", stage())]) == [
        "not above the trivial predictor on validation rows, so nothing was learnt: late on digits"
    ]


def test_every_board_says_it_once(build: Callable[..., Store]) -> None:
    store = build(seeds=2, datasets=("digits", "shapes"))
    assert "fewer than 200 steps" not in "".join(board_of(gather([store.folder]), "plain").notes)
    for found in [r for r in store.scan().records if r.cell.label == "tensor" and r.cell.dataset == "shapes"]:
        predictions = store.predictions(found.cell.id)
        store.path(found.cell.id).unlink()
        store.write(changed(found, training=(stage(steps=11, score=0.2),), trivial_validation=0.25), predictions)
    board = board_of(gather([store.folder]), "plain")
    table = tables.table(board)
    terminal = io.StringIO()
    Console(file=terminal, width=200).print(renderings.terminal(table, 200))
    head, _, rest = page([board]).partition("<noscript>")
    without_scripts, _, tail = rest.partition("</noscript>")
    for shown in (terminal.getvalue(), renderings.markdown(table), without_scripts, head + tail):
        assert shown.count("trained for fewer than 200 steps in all: tensor on shapes") == 1
        assert shown.count("so nothing was learnt: tensor on shapes") == 1
