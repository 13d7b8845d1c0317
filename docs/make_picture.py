"""Draw the published board as the README shows it: its page, photographed in Chromium.

Run by hand after `polymodal export --publish`: the picture is kept in git, as the results are.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from leaderboard import load
from leaderboard.board import build_all
from leaderboard.page import page

PICTURE = Path(__file__).parent / "guides" / "board.png"
SIZE = {"width": 1280, "height": 1150}


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "board.html"
        path.write_text(page(build_all(load("reference", setting="default").evidence)), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE)  # pyright: ignore[reportArgumentType] - a dictionary with these keys
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
