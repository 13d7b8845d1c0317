"""Write the pages of the site that are made from the code: `make docs` runs this, then MkDocs.

One page a method, a dataset and a claim list, and the reference of the command line. They are not kept in git, except
the last, which people read there; a test compares it with the parser.
"""

import os
import shutil
from pathlib import Path

import make_claims
import make_cli
import make_datasets
import make_methods
from published import published

DOCS = Path(__file__).parent


def pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    board = published()
    return {
        **make_methods.pages(board),
        **make_datasets.pages(board),
        "claims.md": make_claims.page(),
        "reference/cli.md": make_cli.page(),
    }


def main() -> None:
    """Write them; pages of what is no longer registered go."""
    os.environ.pop("POLYMODAL_DATA", None)  # the site must not depend on what this machine has
    for folder in ("methods", "datasets"):
        shutil.rmtree(DOCS / folder, ignore_errors=True)
    for path, text in pages().items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
