"""The README tells the truth.

Its commands parse, its plugin passes, its names exist, and no registered name is left out.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.cli import parser
from benchmark.matrix import parse
from benchmark.options import parameters
from benchmark.plan import make_plan
from datamodules.corruptions.registry import corruptions
from datamodules.encoders.pretrained import EncoderName
from datamodules.registry import datasets
from methods.registry import methods

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.S)


def lines(language: str) -> list[str]:
    blocks = [block.replace("\\\n", "") for kind, block in BLOCKS if kind == language]  # a command may go on
    found = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in found if line]


def test_commands_parse() -> None:
    commands = [shlex.split(line)[1:] for line in lines("sh") if line.startswith("polymodal ")]
    assert len(commands) >= 10
    for command in commands:
        parser().parse_args(command)


def test_make_targets_exist() -> None:
    targets = {line.split()[1] for line in lines("sh") if line.startswith("make ")}
    assert {"leaderboard", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    for target in targets | set(re.findall(r"`make ([\w-]+)`", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_the_matrix_is_planned() -> None:
    import tomllib

    (block,) = [block for kind, block in BLOCKS if kind == "toml" and "seeds" in block]
    labels = {cell.label for cell in make_plan(parse(tomllib.loads(block), "README")).cells}
    assert {"concat", "low_rank[rank=4]", "low_rank[rank=16]"} <= labels


def test_a_table_of_ones_own_is_planned(tmp_path: Path) -> None:
    (command,) = [shlex.split(line)[1:] for line in lines("sh") if "csv_views" in line]
    rows = "\n".join(f"{i},{i % 7},{i % 5},{40 + i % 9},{20 + i % 4},{i % 2}" for i in range(60))
    (tmp_path / "patients.csv").write_text(f"hb,wbc,crp,age,bmi,outcome\n{rows}\n")
    shown = run(tmp_path, "plan", *command[1:], "--data", str(tmp_path), "--json")
    assert "csv_views[patients]" in shown


def test_the_features_are_toml_of_known_names() -> None:
    import tomllib

    (block,) = [block for kind, block in BLOCKS if kind == "toml" and "open_clip" in block]
    (dataset,) = tomllib.loads(block)["datasets"]
    assert {"path", "label_column"} <= set(parameters(datasets.get(dataset["name"])))
    assert EncoderName.parse(dataset["image"]).library == EncoderName.parse(dataset["text"]).library == "open_clip"


def test_incomplete_rows_are_planned() -> None:
    import tomllib

    (block,) = [block for kind, block in BLOCKS if kind == "toml" and "absent" in block]
    plan = make_plan(parse({**tomllib.loads(block), "methods": ["concat"], "conditions": "none"}, "README"))
    assert {cell.dataset for cell in plan.cells} == {"digit_halves", "digit_halves[absent=upper:0.3,lower:0.1]"}


def test_every_registered_name_is_in_a_table() -> None:
    rows = "\n".join(line for line in README.splitlines() if line.startswith("|"))
    for registry in (methods, datasets, corruptions):
        missing = [name for name in registry.names() if not re.search(rf"`{name}`", rows)]
        assert not missing, f"{registry.noun}s missing from the README's tables: {missing}"


def test_the_page_of_methods_is_that_of_the_classes() -> None:
    spec = importlib.util.spec_from_file_location("make_methods", ROOT / "docs" / "make_methods.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "stale: python docs/make_methods.py"


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target


def plugin(folder: Path) -> Path:
    (block,) = [block for kind, block in BLOCKS if kind == "python" and "@register" in block]
    code = [line for line in block.splitlines() if line.strip()]
    assert len(code) < 30, "a plugin takes under 30 lines"
    path = folder / "precision_weighted.py"
    path.write_text(block)
    return path


def run(folder: Path, *arguments: str) -> str:
    environment = {**__import__("os").environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmark.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_plugin_passes_its_check(tmp_path: Path) -> None:
    path = plugin(tmp_path)
    assert "0 fail" in run(tmp_path, "check", "precision_weighted", "--plugin", str(path))


@pytest.mark.slow
def test_the_plugin_reaches_a_board_that_exists(tmp_path: Path) -> None:
    """The commands of "Add a method", word by word, where results of the default matrix are there already."""
    plugin(tmp_path)
    run(tmp_path, "run", "--methods", "concat,late", "--datasets", "interactions_xor,digit_halves", "--quiet")
    (block,) = [block for kind, block in BLOCKS if kind == "sh" and "check precision_weighted" in block]
    said = [run(tmp_path, *shlex.split(line.split(" #")[0])[1:]) for line in block.replace("\\\n", "").splitlines()]
    assert any("2 run, 6 cached, 0 failed" in text for text in said), said
    assert "precision_weighted" in said[-1]
    assert "precision_weighted" in run(tmp_path, "leaderboard", "--format", "csv")
