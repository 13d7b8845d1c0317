"""What the records of a run say about its training: who was cut off, who hardly began, who learnt nothing."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.record import Record

FEW_STEPS = 200  # of all stages of a cell: below, a network has hardly left its initial weights


def training_warnings(records: Sequence[Record]) -> tuple[str, ...]:
    """A sentence for each thing that is wrong with the training of some cells; failed cells are not looked at."""
    fine = [record for record in records if record.status == "ok"]
    trained = [record for record in fine if record.steps]
    cut_off = [r for r in trained if not r.converged]
    few = [r for r in trained if r.steps < FEW_STEPS]
    nothing = [r for r in fine if r.above_trivial is False]
    cases = (
        (cut_off, "still getting better when the epochs were over", "raise recipe.epochs"),
        (few, f"trained for fewer than {FEW_STEPS} steps", "raise recipe.epochs, or lower recipe.batch_size"),
        (nothing, "not above the trivial score on validation rows", "nothing learnt"),
    )
    return tuple(
        f"{len(bad)} of {len(fine)} cells {said} ({advice}): {_who(bad)}" for bad, said, advice in cases if bad
    )


def training_notes(records: Sequence[Record]) -> list[str]:
    """The same for a board: which entries, by dataset, hardly trained or learnt nothing; who was cut off is marked."""
    trained = [record for record in records if record.steps]
    few = [r for r in trained if r.steps < FEW_STEPS]
    nothing = [r for r in records if r.above_trivial is False]
    cases = (
        (few, trained, "methods that train", f"trained for fewer than {FEW_STEPS} steps in all"),
        (nothing, records, "methods", "not above the trivial predictor on validation rows, so nothing was learnt"),
    )
    return [f"{said}: {_by_dataset(bad, of, called)}" for bad, of, called, said in cases if bad]


def _by_dataset(bad: Sequence[Record], of: Sequence[Record], called: str) -> str:
    said: list[str] = []
    for dataset in sorted({r.cell.dataset for r in bad}):
        own, every = ({r.cell.label for r in several if r.cell.dataset == dataset} for several in (bad, of))
        who = f"all {len(every)} {called}" if own == every and len(own) > 1 else some(sorted(own))
        said.append(f"{who} on {dataset}")
    return "; ".join(said)


def _who(bad: Sequence[Record]) -> str:
    return some(list(dict.fromkeys(f"{record.cell.label} on {record.cell.dataset}" for record in bad)))


def some(names: Sequence[str], most: int = 5) -> str:
    """The first of the names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
