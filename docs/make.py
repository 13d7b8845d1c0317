"""Write the pages of the site that are made from the code: `make docs` runs this, then MkDocs.

A page for each method and dataset, the reference of the command line, and the headline of the README. The last two are
kept in git, where people read them; tests compare them with what they are made from. So is the page of the claims, but
`polymodal claims run --output docs` writes it.
"""

import os
import re
import shutil
from pathlib import Path

import make_cli
import make_datasets
import make_methods
from published import headline, published

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"
BOARD = re.compile(r"(<!-- board -->\n)(.*?)(<!-- /board -->)", flags=re.S)


def pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    boards = published()
    return {
        **make_methods.pages(boards),
        **make_datasets.pages(boards),
        "reference/cli.md": make_cli.page(),
    }


def readme() -> str:
    """The README with the headline of the published board, as it is now, between its marks."""
    said = headline(published())
    return BOARD.sub(lambda found: found[1] + said + found[3], README.read_text(encoding="utf-8"))


def main() -> None:
    """Write them; pages of what is no longer registered go."""
    os.environ.pop("POLYMODAL_DATA", None)  # the site must not depend on what this machine has
    for folder in ("methods", "datasets"):
        shutil.rmtree(DOCS / folder, ignore_errors=True)
    for path, text in pages().items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(text, encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")


if __name__ == "__main__":
    main()
