"""The board of 40 methods, 10 datasets and 5 seeds, predictions read and compared, in fifteen seconds; a page in two.

Run by `make performance`. The page is timed in Chromium from the start of the navigation until everything is drawn.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from leaderboard.board import build_all
from leaderboard.merge import gather
from leaderboard.page import page
from tests.leaderboard.conftest import Planted, write_results

METHODS, DATASETS, SEEDS, ROWS = 40, 10, 5, 1000
STATISTICS, PAGE = 15.0, 2.0


def _results(folder: Path, seeds: int, rows: int) -> Path:
    methods = {f"method_{i}": Planted(0.6 + 0.007 * i, 0.02, weighs=i % 3 == 0) for i in range(METHODS - 1)}
    methods["concat"] = Planted(0.7)
    return write_results(folder, methods, [f"set_{d}" for d in range(DATASETS)], seeds, rows).folder


def statistics(folder: Path) -> float:
    evidence = gather([_results(folder / "many", SEEDS, ROWS)])
    started = time.perf_counter()
    build_all(evidence)
    return time.perf_counter() - started


def loading(chromium: str, folder: Path) -> float:
    from playwright.sync_api import sync_playwright

    path = folder / "leaderboard.html"
    path.write_text(page(build_all(gather([_results(folder / "results", 2, 60)]))), encoding="utf-8")
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
    with tempfile.TemporaryDirectory() as folder:
        status = report(f"board, {size} x {SEEDS} seeds", statistics(Path(folder)), STATISTICS)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if chromium is None:
            print("page: not timed, no Chromium here")
        else:
            status |= report(f"page, {size}", loading(chromium, Path(folder)), PAGE)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
