"""The guides tell the truth: commands parse, matrices plan, code is code, notebooks run, no name is left out."""

import re
import tomllib
from pathlib import Path

import pytest

from benchmark.cli import parser
from benchmark.matrix import parse
from benchmark.plan import make_plan
from datamodules.corruptions.registry import corruptions
from datamodules.encoders.pretrained import EncoderName
from datamodules.options import parameters
from datamodules.registry import datasets
from tests.markdown import DOCS, Blocks, commands

PAGES = [*sorted((DOCS / "guides").glob("*.md")), DOCS / "index.md", DOCS / "scale.md"]
RUN = Blocks(DOCS / "guides" / "run.md")
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_parse_and_code_is_code(path: Path) -> None:
    page = Blocks(path)
    for command in commands(page):
        parser().parse_args(command)
    for kind, block in page.blocks:
        if kind == "python":
            compile(block, str(path), "exec")
        if kind == "toml":
            tomllib.loads(block)


def test_there_are_commands() -> None:
    assert sum(len(commands(Blocks(path))) for path in PAGES) > 60


def test_the_matrix_is_planned() -> None:
    (block,) = [block for kind, block in RUN.blocks if kind == "toml" and "seeds" in block]
    labels = {cell.label for cell in make_plan(parse(tomllib.loads(block), "run.md")).cells}
    assert {"concat", "low_rank[rank=4]", "low_rank[rank=16]"} <= labels


@pytest.mark.parametrize("name", ["run", "zero-shot"])
def test_the_features_are_toml_of_known_names(name: str) -> None:
    """Planned they cannot be: that takes weights and photographs."""
    page = Blocks(DOCS / "guides" / f"{name}.md")
    (block,) = [block for kind, block in page.blocks if kind == "toml" and "open_clip" in block]
    (dataset,) = tomllib.loads(block)["datasets"]
    known = set(parameters(datasets.get(dataset["name"])))
    assert dataset.keys() - {"name", "image", "text", "standardise"} <= known
    assert EncoderName.parse(dataset["image"]).library == EncoderName.parse(dataset["text"]).library == "open_clip"


def test_incomplete_rows_are_planned() -> None:
    (block,) = [block for kind, block in RUN.blocks if kind == "toml" and "absent" in block]
    plan = make_plan(parse({**tomllib.loads(block), "methods": ["concat"], "conditions": "none"}, "run.md"))
    assert {cell.dataset for cell in plan.cells} == {"digit_halves", "digit_halves[absent=upper:0.3,lower:0.1]"}


def test_every_corruption_is_in_the_table() -> None:
    text = (DOCS / "guides" / "robustness.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    missing = [name for name in corruptions.names() if not re.search(rf"`{name}`", rows)]
    assert not missing, f"corruptions missing from docs/guides/robustness.md: {missing}"


def test_there_are_three_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"quick_start", "own_method", "own_data"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises the error of the first cell that fails
    shown = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert shown, "a notebook that shows nothing teaches nothing"


def test_every_command_is_a_function_that_exists() -> None:
    """The guide names a function for each command that is no matter of the shell alone."""
    import pkgutil

    from benchmark.cli import commands

    text = (DOCS / "guides" / "python.md").read_text()
    for command in commands():
        assert re.search(rf"`(polymodal )?{command}\b", text), f"the guide says nothing of {command}"
    names = re.findall(r"`((?:benchmark|leaderboard|methods|datamodules)(?:\.\w+)+)", text)
    assert len(names) > 20
    for name in names:
        pkgutil.resolve_name(name)
