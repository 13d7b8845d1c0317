"""`polymodal new`: a plugin that works, to be changed into yours."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path
from string import Template

from benchmark.commands.python import shadows

NAME = "new"
HELP = "Write a working plugin, a method or a dataset, and its test."
EXAMPLE = """examples:
  polymodal new method my_fusion
  polymodal check my_fusion --plugin my_fusion.py
  polymodal run --plugin my_fusion.py --methods my_fusion,concat --datasets interactions_xor --seeds 2
"""

_METHOD = Template('''"""$title: say in a line what the idea is."""

import torch
from torch import Tensor, nn

from datamodules.spec import Task
from methods import Method, Recipe, register


@register("$name")
class $title(Method):
    """Average the encodings, weighted by a softmax over learned scores."""

    family = "plugin"

    def __init__(self, task: Task, recipe: Recipe, *, temperature: float = 1.0) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.temperature = temperature
        self.score = nn.Linear(recipe.width, 1)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        # -inf rather than 0: an absent modality must get exactly zero weight.
        scores = self.score(z).squeeze(-1) / self.temperature
        return scores.masked_fill(~present, -torch.inf).softmax(dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return (self.weights(z, present).unsqueeze(-1) * z).sum(dim=1)
''')

_DATASET = Template('''"""$title: say in a line what the data is."""

import numpy as np
import torch

from datamodules import DataModule, Split, register
from datamodules.spec import Modality, Task


@register("$name")
class $title(DataModule):
    """Two noisy views of a hidden class: replace `load` by your data."""

    version = "1"
    licence = "state the licence of the data"
    citation = "whom to cite"
    source = "generated"

    def __init__(self, *, rows: int = 1000) -> None:
        super().__init__()
        self.rows = rows

    def describe(self) -> Task:
        views = (Modality("left", "vector", (8,)), Modality("right", "vector", (8,)))
        return Task("$name", self.version, views, "multiclass", 4)

    def load(self) -> dict[str, Split]:
        # Splits are fixed by the version, never by the run's seed; statistics come from train only.
        sizes = {"train": self.rows, "val": self.rows // 4, "test": self.rows // 2}
        return {name: self.draw(np.random.default_rng([1, i]), n) for i, (name, n) in enumerate(sizes.items())}

    def draw(self, rng: np.random.Generator, n: int) -> Split:
        label = rng.integers(0, 4, n)
        centres = np.eye(4, 8) * 2
        views = {k: centres[label] + rng.standard_normal((n, 8)) for k in ("left", "right")}
        inputs = {k: torch.from_numpy(v.astype(np.float32)) for k, v in views.items()}
        return Split(inputs, torch.from_numpy(label))
''')

_TEST = Template('''"""The contract, for $name: `pytest test_$name.py`.

Where a folder `methods` or `benchmark` of your own is in the way: `polymodal python -m pytest test_$name.py`.
"""

from pathlib import Path

from benchmark.conformance import $check
from datamodules.registry import $imports

load_plugin(Path(__file__).with_name("$name.py"))


def test_contract() -> None:
    results = $call
    assert results
    assert not [str(r) for r in results if not r.passed]
''')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("method", "dataset"))
    parser.add_argument("name", help="in snake_case; also the name of the file")
    parser.add_argument("--folder", default=".", metavar="DIR", help="where to write (default: here)")


def run(arguments: argparse.Namespace) -> int:
    name, folder = arguments.name, Path(arguments.folder)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"the name must be in snake_case and no word of Python's own, got {name!r}")
    _refuse_known(arguments.what, name)
    plugin, test = folder / f"{name}.py", folder / f"test_{name}.py"
    for path in (plugin, test):
        if path.exists():
            raise FileExistsError(f"{path} exists: nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    is_method = arguments.what == "method"
    title = "".join(part.capitalize() for part in name.split("_"))
    plugin.write_text((_METHOD if is_method else _DATASET).substitute(name=name, title=title))
    test.write_text(
        _TEST.substitute(
            name=name,
            check="check_method" if is_method else "check_dataset",
            call=f'check_method("{name}")' if is_method else f'check_dataset("{name}", datasets.get("{name}"))',
            imports="load_plugin" if is_method else "datasets, load_plugin",
        )
    )
    option = "--methods" if is_method else "--datasets"
    rest = "--datasets interactions_xor" if is_method else "--methods concat,late"
    print(f"wrote {plugin} and {test}. Next:\n  polymodal check {name} --plugin {plugin}")
    print(f"  polymodal run --plugin {plugin} {option} {name}{',concat' if is_method else ''} {rest} --seeds 2")
    for path in shadows(folder):
        print(
            f"note: {path} has the name of a package of Polymodal: scripts and tests started in {folder.resolve()} "
            f"would import it instead. Start them by `polymodal python FILE` or `polymodal python -m pytest {test}`"
        )
    return 0


def _refuse_known(what: str, name: str) -> None:
    if what == "method":
        from methods.registry import methods as registry
    else:
        from datamodules.registry import datasets as registry
    if name in registry.names():
        raise ValueError(f"{what} {name!r} exists already: choose another name")
