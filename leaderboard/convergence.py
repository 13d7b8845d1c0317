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


def _who(bad: Sequence[Record], most: int = 5) -> str:
    names = list(dict.fromkeys(f"{record.cell.label} on {record.cell.dataset}" for record in bad))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
