"""A results folder of 10,000 records: listing, validating and asking what is left to run take under five seconds each.

Run by `make performance`.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from leaderboard.record import Condition, Record
from leaderboard.store import Store

RECORDS, ROWS, CLASSES = 10_000, 600, 10
BOUND = 5.0


def conditions() -> tuple[Condition, ...]:
    """As many as the set `standard` has for two modalities, each with the numbers a classification task reports."""
    found = [Condition("clean", 0.9)]
    for name in ("image", "audio"):
        for corruption in ("gaussian_noise", "occlusion", "blur"):
            found += [Condition("single", 0.8, name, corruption, severity) for severity in range(1, 6)]
        found += [Condition("misaligned", 0.5, name, severity=severity) for severity in range(1, 6)]
        found += [Condition("missing", 0.6, absent=(name,))]
    found += [Condition("joint", 0.7, severity=severity) for severity in range(1, 6)]
    found += [Condition("missing_rate", 0.7, rate=rate / 10) for rate in range(1, 10, 2)]
    numbers = np.random.default_rng(0).random((len(found), 6)).tolist()
    return tuple(
        replace(
            condition,
            metrics={"macro_f1": n[0]},
            calibration={"nll": n[1], "brier": n[2], "ece": n[3]},
            weights=(n[4], n[5]),
        )
        for condition, n in zip(found, numbers, strict=True)
    )


def fill(folder: Path) -> Store:
    rng = np.random.default_rng(0)
    history = [{"val/accuracy": x, "val/loss": 1 - x, "train/loss": 1 - x} for x in rng.random(30).tolist()]
    record = Record(
        cell="template", status="ok", method="concat", label="concat", family="baseline", track="plain",
        options={"hidden": 64}, dataset="av_digits", dataset_version="1", dataset_options={}, seed=0,
        modalities=("image", "audio"), target="multiclass", metric="accuracy", higher_is_better=True,
        recipe={"width": 64, "epochs": 30}, trivial=0.1, rows=ROWS, conditions=conditions(),
        training=({"name": "train", "history": history},), provenance={"finished": "2026-01-01T00:00:00"},
    )  # fmt: skip
    target = rng.integers(0, CLASSES, ROWS)
    arrays = {"target": target, "row": np.arange(ROWS), "prob:clean": rng.random((ROWS, CLASSES), dtype=np.float32)}
    for condition in record.conditions:
        wrong = rng.random(ROWS) < 0.2
        arrays[f"pred:{condition.id}"] = np.where(wrong, rng.integers(0, CLASSES, ROWS), target).astype(np.int8)
    store = Store(folder)
    store.write(record, arrays)
    text, predictions = record.to_json(), store.path("template", ".npz").read_bytes()
    for suffix in (".json", ".npz"):
        store.path("template", suffix).unlink()
    for i in range(RECORDS):
        cell = f"concat-av_digits-{i}-0123456789ab"
        store.path(cell).write_text(text.replace('"template"', f'"{cell}"'))
        store.path(cell, ".npz").write_bytes(predictions)
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
    print(f"{name}: {min(took):.2f} s (bound {BOUND}) {'ok' if min(took) <= BOUND else 'MISSED'}")
    return min(took) > BOUND


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        store = fill(Path(folder))
        names = [path.stem for path in store.folder.glob("*.json")]
        missed = timed("list and check all records", lambda: len(store.scan().records))
        missed |= timed("validate, with predictions", lambda: sum(verdict.status == "ok" for verdict in store.verify()))
        missed |= timed("what is left to run", lambda: sum(store.done(name) is not None for name in names))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
