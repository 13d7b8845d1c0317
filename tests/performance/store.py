"""A results folder of 10,000 records: listing, validating with every score taken again, and asking what is left to run.

Run by `make performance`.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from leaderboard.record import Condition, Fitted, Measured
from leaderboard.store import Store
from tests.records import changed, make_record

RECORDS, ROWS, CLASSES = 10_000, 600, 10
BOUNDS = {"list and check all records": 5.0, "validate, with predictions": 10.0, "what is left to run": 5.0}


def conditions() -> tuple[Measured, ...]:
    """As many as the set `standard` has for two modalities, each with the numbers a classification task reports."""
    planned = [Condition("clean")]
    for name in ("image", "audio"):
        for corruption in ("gaussian_noise", "occlusion", "blur"):
            planned += [Condition("single", name, corruption, severity) for severity in range(1, 6)]
        planned += [Condition("misaligned", name, severity=severity) for severity in range(1, 6)]
        planned += [Condition("missing", absent=(name,))]
    planned += [Condition("joint", severity=severity) for severity in range(1, 6)]
    planned += [Condition("missing_rate", rate=rate / 10) for rate in range(1, 10, 2)]
    numbers = np.random.default_rng(0).random((len(planned), 6)).tolist()
    return tuple(
        condition.measured(
            0.8,
            metrics={"macro_f1": n[0]},
            calibration={"nll": n[1], "brier": n[2], "ece": n[3]},
            weights=(n[4], n[5]),
        )
        for condition, n in zip(planned, numbers, strict=True)
    )


def fill(folder: Path) -> Store:
    rng = np.random.default_rng(0)
    history = [{"val/accuracy": x, "val/loss": 1 - x, "train/loss": 1 - x} for x in rng.random(30).tolist()]
    record = make_record(
        options={"hidden": 64}, dataset="av_digits", modalities=("image", "audio"), recipe={"width": 64, "epochs": 30},
        rows=ROWS, conditions=conditions(), training=(Fitted("train", 1.0, history=tuple(history)),),
        provenance={"finished": "2026-01-01T00:00:00"},
    )  # fmt: skip
    target = rng.integers(0, CLASSES, ROWS)
    arrays = {"target": target, "row": np.arange(ROWS), "prob:clean": rng.random((ROWS, CLASSES), dtype=np.float32)}
    right = []
    for condition in record.conditions:
        wrong = rng.random(ROWS) < 0.2
        predicted = np.where(wrong, rng.integers(0, CLASSES, ROWS), target).astype(np.int8)
        arrays[f"pred:{condition.id}"] = predicted
        right.append(msgspec.structs.replace(condition, score=float((predicted == target).mean())))
    record = changed(record, conditions=tuple(right), trivial=float(np.bincount(target).max() / ROWS))
    store = Store(folder)
    record = store.write(record, arrays)
    predictions = store.path(record.cell.id, ".npz").read_bytes()
    text = record.to_json()
    for i in range(RECORDS):
        other = changed(record, seed=i, cost={"train_seconds": float(i)})
        store.path(other.cell.id).write_text(other.to_json())
        store.path(other.cell.id, ".npz").write_bytes(predictions)
    sizes = len(text) / 1e3, len(predictions) / 1e3
    total = RECORDS * sum(sizes) / 1e6
    print(
        f"{RECORDS} records of {len(record.conditions)} conditions: {sizes[0]:.0f} + {sizes[1]:.0f} kB, {total:.2f} GB"
    )
    return store


def timed(name: str, work: Callable[[], int]) -> bool:
    took = []
    for _ in range(3):
        started = time.perf_counter()
        if work() != RECORDS:
            raise RuntimeError(f"{name}: not all records were found")
        took.append(time.perf_counter() - started)
    bound = BOUNDS[name]
    print(f"{name}: {min(took):.2f} s (bound {bound}) {'ok' if min(took) <= bound else 'MISSED'}")
    return min(took) > bound


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        store = fill(Path(folder))
        names = [path.stem for path in store.folder.glob("*.json")]
        missed = timed("list and check all records", lambda: len(store.scan().records))
        missed |= timed("validate, with predictions", lambda: sum(verdict.status == "ok" for verdict in store.verify()))
        missed |= timed("what is left to run", lambda: len(store.settled(names)))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
