"""What a method's author types: list, show, why, try, python, completion, new; in this process where it can be."""

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.arguments import add_execution, plan_of
from benchmark.cli import main, parser
from benchmark.commands import try_method
from leaderboard.merge import gather
from leaderboard.reasons import differing
from leaderboard.store import Store
from tests.benchmark.conftest import ENVIRONMENT, ROOT

MATRIX = """seeds = 2
conditions = ["missing"]
methods = ["concat", "late"]
baselines = false
datasets = [{ name = "interactions_xor", rows = 600 }]
[recipe]
width = 16
epochs = 6
batch_size = 50
lr = 1e-2
"""
WIDE = """from methods import Method, register


@register("too_wide")
class TooWide(Method):
    def __init__(self, task, recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z, present):
        return z.flatten(1)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four small cells."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "small.toml").write_text(MATRIX)
    command = ["run", str(folder / "small.toml"), "--results", str(folder / "results"), "--workers", "0", "--quiet"]
    assert main([*command, "--no-checkpoints"]) == 0
    return folder / "results"


def test_list_tells_all_about_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "methods      polymodal list methods" in capsys.readouterr().out
    assert main(["list", "methods", "low_rank"]) == 0
    shown = capsys.readouterr().out
    assert "Liu et al., 2018" in shown and "rank  an integer >= 1" in shown
    assert "default 8  (tuned over 2, 4, 8, 16, 32)" in shown and "one of 'auto', 'unit', 'ones'" in shown
    assert main(["list", "datasets", "csv_views", "--json"]) == 0
    options = {option["name"]: option for option in json.loads(capsys.readouterr().out)["options"]}
    assert "'absent'" in options["gaps"]["is"] and options["target"]["default"] == "'target'"
    assert main(["list", "methods", "lowrank"]) == 2
    assert "Did you mean 'low_rank'?" in capsys.readouterr().err
    assert main(["list", "matrices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.endswith((".", "`")) for line in lines), "a text ends in the middle of a sentence"


def test_show_of_several_cells_is_a_table(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "concat", "--results", str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    ids = sorted(path.stem for path in results.glob("concat*.json"))
    assert [line.split()[-1] for line in lines[:-1]] == ids and lines[-1].startswith("2 cells")
    assert main(["show", ids[0], "--results", str(results)]) == 0
    assert "seed 0 (plain)" in capsys.readouterr().out
    assert main(["show", "conact", "--results", str(results)]) == 2


def test_every_command_takes_the_results_folder_alike(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["validate"], ["leaderboard", "--format", "csv"], ["compare", "concat", "late", "--json"]):
        assert main([*command, "--results", str(results)]) == 0, command
    assert main(["validate", str(results)]) == 0
    assert capsys.readouterr().out.count("4 valid") == 2


def test_why_says_where_two_differ_and_draws_the_rows(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "concat", "late", "--results", str(results), "--rows", "3", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "On clean interactions_xor (accuracy) concat has" in shown and "concat is better by" in shown
    assert "Cost on interactions_xor: concat" in shown
    page = (tmp_path / "concat_against_late.html").read_text()
    assert page.count("data:image/png;base64,") == len(list(tmp_path.glob("*.png"))) == 3
    evidence = gather([results])
    for_a, for_b = differing(evidence, "concat", "late", "interactions_xor", 3)
    assert len(for_a) == len(for_b) == 3
    stored = Store(results).predictions(next(r.cell.id for r in evidence.records if r.cell.label == "concat"))
    order = stored["row"].argsort()
    for answer in for_a:
        assert answer.a > answer.b and answer.said is not None
        assert answer.said[0] == stored["pred:clean"][order][answer.row]


def tried(path: Path, folder: Path) -> argparse.Namespace:
    """The arguments of `polymodal try FILE.py`."""
    top = argparse.ArgumentParser()
    add_execution(top)
    arguments = top.parse_args(["--workers", "0", "--quiet", "--no-checkpoints"])
    return argparse.Namespace(
        **vars(arguments), file=path, results=str(folder), seeds=1, plugin=[], command="try", data=None
    )


def test_try_refuses_what_breaks_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nothing.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="registers no method"):
        try_method.run(tried(tmp_path / "nothing.py", tmp_path / "results"))
    (tmp_path / "wide.py").write_text(WIDE)
    assert try_method.run(tried(tmp_path / "wide.py", tmp_path / "results")) == 1
    shown = capsys.readouterr().out
    assert "FAIL: shapes vectors: `fuse` must return [B, 8], got [6, 16]; wide.py:9" in shown and "Not run" in shown
    assert not (tmp_path / "results").exists()


def test_published_results_are_what_a_method_is_placed_among(results: Path, tmp_path: Path) -> None:
    """As where the package has them: none of the others is run."""
    export = tmp_path / "published.parquet"
    assert main(["export", str(results), "--output", str(export)]) == 0
    assert main(["new", "method", "my_fusion", "--folder", str(tmp_path)]) == 0
    small, plugin = results.parent / "small.toml", tmp_path / "my_fusion.py"
    own = [str(small), "--methods", "my_fusion", "--plugin", str(plugin), "--results", str(tmp_path / "own")]
    assert main(["run", *own, "--workers", "0", "--quiet", "--no-checkpoints"]) == 0
    plan = plan_of(parser().parse_args(["plan", *own]))
    scores, clean, *_, basis = try_method._sentences(plan, ["my_fusion"], str(tmp_path / "own"), [export])[1:]
    assert "interactions_xor: accuracy" in scores and "; concat 0." in scores
    assert "on 1 of 1 datasets" in clean and "of the 3 methods with results here" in clean
    assert basis == "  All this is of 2 seeds on one dataset."
    evidence = gather([tmp_path / "own"], beside=[export])
    fewer = tuple(r for r in evidence.records if (r.cell.label, r.cell.seed) != ("my_fusion", 1))
    basis = try_method._basis(replace(evidence, records=fewer), "my_fusion")
    assert basis == "  All this is of 1 seed on one dataset, beside 2 of concat."


def test_try_runs_the_others_only_where_nobody_has_published_them() -> None:
    some = try_method._planned(["gated"], 1, {"digit_halves", "multi_digits_hard"})
    assert {(cell.method, cell.dataset) for cell in some.cells} == {
        *(("gated", name) for name in try_method.DATASETS),
        ("concat", "interactions_xor"), ("unimodal", "interactions_xor"),
    }  # fmt: skip
    assert {cell.method for cell in try_method._planned(["gated"], 1, try_method.DATASETS).cells} == {"gated"}
    alone = try_method._planned(["gated"], 1, ())
    assert {cell.dataset for cell in alone.cells if cell.method == "concat"} == set(try_method.DATASETS)


def test_check_says_how_a_plugin_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").touch()
    for name in ("mine", "mine.py"):
        assert main(["check", name]) == 2
        assert "polymodal check mine --plugin mine.py" in capsys.readouterr().err


@pytest.mark.slow
def test_try_places_a_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "method", "my_fusion", "--folder", str(tmp_path)]) == 0
    assert try_method.run(tried(tmp_path / "my_fusion.py", tmp_path / "results")) == 0
    shown = capsys.readouterr().out
    assert "0 fail" in shown
    for dataset in try_method.DATASETS:
        assert f"{dataset}: accuracy" in shown
    assert int(re.findall(r"of the (\d+) methods with results here", shown)[0]) > 40, "beside the published ones"
    assert "On clean rows its advantage over concat is" in shown and "best single modality" in shown
    assert "All this is of 1 seed on each of 3 datasets, beside 5 of concat." in shown
    assert "polymodal run reference --methods my_fusion" in shown
    assert "Next: polymodal why my_fusion concat" in shown


def test_a_script_runs_with_our_packages_first(tmp_path: Path) -> None:
    for name in ("methods", "datamodules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    script.write_text("import sys\nimport beside\nfrom methods import Method\nprint(beside.value, sys.argv[1:])\n")
    command = [sys.executable, "-m", "benchmark.cli", "python", str(script), "--flag", "x"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "7 ['--flag', 'x']"


def test_new_says_what_is_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "method", "one", "--folder", str(tmp_path)]) == 0
    assert "note:" not in capsys.readouterr().out
    (tmp_path / "methods").mkdir()
    assert main(["new", "method", "two", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"note: {tmp_path / 'methods'} has the name of a package" in shown and "polymodal python -m pytest" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "leaderboard" in script and "skip-invalid" in script
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_page_of_commands_is_that_of_the_parser() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", ROOT / "docs" / "make_cli.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page()
    assert module.PAGE.read_text() == page, "stale: python docs/make_cli.py"
    (choose,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    for name, sub in choose.choices.items():
        for option in sub._option_string_actions:
            assert option in ("-h", "--help") or f"`{option}" in page, f"polymodal {name} {option}"
