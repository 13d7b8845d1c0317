"""A hook of MkDocs: the pages that are generated, one each, go below their index."""

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def on_config(config: Any) -> Any:
    """Fill the folders of the navigation, which `mkdocs.yml` names by their index alone."""
    config.nav = [_filled(entry) for entry in config.nav]
    return config


def _filled(entry: dict[str, Any]) -> dict[str, Any]:
    ((title, target),) = entry.items()
    if not isinstance(target, str) or not target.endswith("/index.md"):
        return entry
    folder = Path(target).parent
    names = sorted(path.stem for path in (DOCS / folder).glob("*.md") if path.stem != "index")
    return {title: [target, *({name: f"{folder}/{name}.md"} for name in names)]}
