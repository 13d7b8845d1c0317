"""A board of 20,000 records, few methods with many seeds and many methods with few: every format bounded, and the page.

Run by `make performance`. Records and predictions are synthetic, several cells sharing a file of predictions. Seconds
are those of the command, started cold; memory is the largest resident set of it and of each process it starts.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from leaderboard.record import Fitted, Record
from leaderboard.store import Store
from tests.performance.store import conditions
from tests.records import changed, make_record

ROWS, CLASSES, KINDS = 600, 10, 40
SHAPES = {"40 methods x 10 datasets x 50 seeds": (40, 10, 50), "2000 methods x 2 datasets x 5 seeds": (2000, 2, 5)}
SECONDS = {"html": 15.0, "csv": 15.0, "json": 15.0, "markdown": 15.0, "latex": 15.0}
MEGABYTES, PAGE, USABLE = 1000, 5.0, 2.0


def kinds(store: Store, dataset: str, rng: np.random.Generator) -> list[tuple[Record, Path]]:
    """Records of different quality on a dataset, each with its predictions."""
    target, hard = rng.integers(0, CLASSES, ROWS), rng.random(ROWS)
    history = tuple({"val/accuracy": x, "val/loss": 1 - x} for x in rng.random(30).tolist())
    found = []
    for k in range(KINDS):
        arrays = {"target": target, "row": np.arange(ROWS)}
        right = []
        for c in conditions():
            wrong = (hard + rng.random(ROWS)) / 2 > 0.95 - 0.4 * k / KINDS - 0.03 * c.severity
            arrays[f"pred:{c.id}"] = np.where(wrong, (target + 1) % CLASSES, target).astype(np.int8)
            right.append(msgspec.structs.replace(c, score=float((~wrong).mean())))
        record = make_record(
            label="x", method="x", seed=100_000 + k, dataset=dataset, modalities=("image", "audio"), rows=ROWS,
            recipe={"width": 64, "epochs": 30}, trivial=float((target == np.bincount(target).argmax()).mean()),
            conditions=tuple(right), training=(Fitted("train", 1.0, 30, 300, 20, 0.8, "val/accuracy", history, 30),),
            cost={"parameters": 1000.0 * (k + 1), "train_seconds": 3.0}, provenance={"finished": "2026-01-01T00:00:00"},
        )  # fmt: skip
        record = store.write(record, arrays)
        store.path(record.cell.id).unlink()
        found.append((record, store.path(record.cell.id, ".npz")))
    return found


def fill(folder: Path, methods: int, datasets: int, seeds: int) -> None:
    store, rng = Store(folder), np.random.default_rng(0)
    store.prepare()
    names = ["concat", "unimodal[image]", "unimodal[audio]", *(f"method_{i}" for i in range(methods - 3))]
    for d in range(datasets):
        made = kinds(store, f"set_{d}", rng)
        for n, name in enumerate(names):
            options = {"modality": name[9:-1]} if name.startswith("unimodal") else {"hidden": n}
            for s in range(seeds):
                record, predictions = made[(7 * n + s) % KINDS]
                other = changed(
                    record, label=name, method=name.partition("[")[0], options=options, seed=s,
                    # No two runs take the same time: with equal ones the board would refuse all as copies.
                    cost=record.cost | {"train_seconds": 3.0 + (n * seeds + s) / 1000},
                )  # fmt: skip
                store.path(other.cell.id).write_text(other.to_json())
                os.link(predictions, store.path(other.cell.id, ".npz"))
        for _, predictions in made:
            predictions.unlink()


def command(folder: Path, format: str) -> tuple[float, float]:
    """Seconds and megabytes of `polymodal leaderboard`."""
    started = time.perf_counter()
    arguments = ["leaderboard", str(folder), "--format", format, "--output", str(folder / "board")]
    run = "import sys; from benchmark.cli import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", run, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3


def usable(path: Path) -> float | None:
    """Seconds from the start of the navigation until the table is drawn; None without a browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.goto(path.as_uri(), wait_until="commit")
        tab.wait_for_selector("html[data-table]")
        took = tab.evaluate("performance.now()") / 1000
        tab.wait_for_selector("html[data-ready]")
        browser.close()
    return took


def report(name: str, found: float, bound: float, unit: str) -> bool:
    print(f"{name}: {found:.2f} {unit} (bound {bound}) {'ok' if found <= bound else 'MISSED'}", flush=True)
    return found > bound


def main() -> int:
    missed = False
    for shape, sizes in SHAPES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "results"
            fill(folder, *sizes)
            for format, bound in SECONDS.items():
                took, memory = command(folder, format)
                missed |= report(f"{shape}, {format}", took, bound, "s")
                missed |= report(f"{shape}, {format}, memory", memory, MEGABYTES, "MB")
            path = folder / "board" / "leaderboard.html"
            missed |= report(f"{shape}, page", path.stat().st_size / 1e6, PAGE, "MB")
            took = usable(path)
            if took is None:
                print("page: not timed, no Chromium here")
            else:
                missed |= report(f"{shape}, table drawn", took, USABLE, "s")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
