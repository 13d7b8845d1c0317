"""From argv to results: the matrix, the plan, the runner, the sweep and the command line."""

from importlib.util import find_spec
from pathlib import Path


def _check_root() -> None:
    """The names of our packages are generic: make sure that each is ours, and name the intruder if one is not."""
    root = Path(__file__).resolve().parent.parent
    for name in ("datamodules", "methods", "leaderboard"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(f"Polymodal is incomplete: no package `{name}` beside {root / 'benchmark'}")
        found = Path(spec.origin).resolve().parent.parent
        if found != root:
            raise ImportError(
                f"`import {name}` finds {found / name}, not Polymodal's own in {root}: rename the intruder, or "
                "run your script by `polymodal python FILE`, which puts Polymodal's packages first"
            )


_check_root()
