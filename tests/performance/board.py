"""The board of 40 methods, 10 datasets and 5 seeds: 10,000 bootstrap draws and ranks in five seconds, a page in two.

Run by `make performance`. The page is timed in Chromium from the start of the navigation until everything is drawn.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from leaderboard import stats
from leaderboard.board import build_all
from leaderboard.merge import gather
from leaderboard.page import page
from tests.leaderboard.conftest import Planted, write_results

METHODS, DATASETS, SEEDS, ROWS = 40, 10, 5, 1000
STATISTICS, PAGE = 5.0, 2.0


def statistics() -> float:
    rng = np.random.default_rng(0)
    methods = [f"method_{i}" for i in range(METHODS)]
    samples = {
        f"set_{d}": {m: {s: (rng.random(ROWS) < 0.7).astype(float) for s in range(SEEDS)} for m in methods}
        for d in range(DATASETS)
    }
    points = np.array([[np.mean(list(samples[d][m].values())) for m in methods] for d in sorted(samples)])
    took = []
    for _ in range(3):
        started = time.perf_counter()
        stats.standings(methods, points, stats.bootstrap(samples, methods))
        took.append(time.perf_counter() - started)
    return min(took)


def loading(chromium: str, folder: Path) -> float:
    from playwright.sync_api import sync_playwright

    methods = {f"method_{i}": Planted(0.6 + 0.007 * i, 0.02, weighs=i % 3 == 0) for i in range(METHODS)}
    names = [f"set_{d}" for d in range(DATASETS)]
    store = write_results(folder / "results", methods, datasets=names, seeds=2, rows=60)
    path = folder / "leaderboard.html"
    path.write_text(page(build_all(gather([store.folder]), draws=200)), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        took = []
        for _ in range(3):
            tab.goto(path.as_uri())
            tab.wait_for_selector("html[data-ready]")
            took.append(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
        browser.close()
    return min(took)


def report(name: str, took: float, bound: float) -> bool:
    print(f"{name}: {took:.2f} s (bound {bound}) {'ok' if took <= bound else 'MISSED'}")
    return took > bound


def main() -> int:
    size = f"{METHODS} methods x {DATASETS} datasets"
    status = report(f"bootstrap and ranks, {size} x {SEEDS} seeds", statistics(), STATISTICS)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("page: not timed, no Chromium here")
        return int(status)
    with tempfile.TemporaryDirectory() as folder:
        status |= report(f"page, {size}", loading(chromium, Path(folder)), PAGE)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
