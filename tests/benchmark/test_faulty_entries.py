"""A method or dataset whose own code raises fails alone: it is named, with its place, and the others go on."""

import json
import sys
from pathlib import Path

import pytest

from benchmark.cli import main
from benchmark.errors import UsageError
from datamodules.registry import load_plugin
from leaderboard.store import Store
from tests.benchmark.conftest import planned
from tests.benchmark.test_conformance import PLUGIN, line

BROKEN = "cannot_be_built", "cannot_say", "no_annotation"
SMALL = ("--datasets", "interactions_xor", "--set", "interactions_xor.rows=200", "--set", "recipe.epochs=1")
FEW = ("--conditions", "none", "--seeds", "1", "--no-baselines")


def test_the_others_are_planned() -> None:
    load_plugin(PLUGIN)
    plan = planned(methods=["concat", *BROKEN])
    assert {cell.label for cell in plan.cells} == {"concat"}
    said = {fault.label: str(fault) for fault in plan.faulty}
    assert set(said) == set(BROKEN)
    assert f"negative dimension -16: [64, -16]; broken_methods.py:{line('cannot_be_built')} (test.toml" in said[
        "cannot_be_built"
    ].replace("[-16, 64]", "[64, -16]")
    assert said["cannot_say"].startswith("cannot_say on interactions_xor: RuntimeError: no idea about interactions_xor")
    assert f"; broken_methods.py:{line('cannot_say')} (" in said["cannot_say"]
    assert said["no_annotation"].startswith("no_annotation: no_annotation: option `rank` has no annotation")


def test_one_value_of_an_axis_may_fail() -> None:
    load_plugin(PLUGIN)
    plan = planned(methods={"cannot_be_built": {"hidden": [3, 30]}})
    assert [cell.label for cell in plan.cells] == ["cannot_be_built[hidden=30]"]
    assert [fault.label for fault in plan.faulty] == ["cannot_be_built[hidden=3]"]


def test_what_the_user_wrote_is_still_an_error() -> None:
    load_plugin(PLUGIN)
    with pytest.raises(UsageError, match="`hidden` must be an integer, got 'x'"):
        planned(methods={"concat": {}, "cannot_be_built": {"hidden": "x"}})
    with pytest.raises(UsageError, match="nothing is left to run\ncannot_be_built on interactions_xor: RuntimeError"):
        planned(methods=["cannot_be_built"])


def test_run_and_plan_go_on_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("--plugin", str(PLUGIN), "--methods", "concat,cannot_be_built", *SMALL, *FEW)
    assert main(["plan", *command]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("1 cells, 0 done, 1 to run.") and "failed to plan: cannot_be_built" in shown
    assert main(["run", *command, "--workers", "0", "--no-checkpoints"]) == 1
    said = capsys.readouterr()
    assert "failed to plan: cannot_be_built on interactions_xor: RuntimeError" in said.err
    assert "1 entries of the plan failed" in said.out and said.out.endswith("next: polymodal leaderboard\n")
    assert [record.cell.label for record in Store(tmp_path / "results").scan().records] == ["concat"]
    assert main(["plan", *command]) == 1
    assert "Nothing is left to do" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["raise RuntimeError('old torch')", "import sys\nsys.exit(0)", "x = ("])
def test_a_broken_package_is_named_and_stops_nobody(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_pkg.py").write_text(f'"""Broken."""\n{code}\n')
    info = tmp_path / "broken_pkg-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken_pkg\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[polymodal.methods]\nfrom_broken = broken_pkg:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    plan = planned(methods=["concat", "from_broken"])
    assert {cell.label for cell in plan.cells} == {"concat"}
    (fault,) = plan.faulty
    assert "of the package broken_pkg failed to import" in fault.reason
    assert f"({tmp_path / 'broken_pkg.py'}, line {len(code.splitlines()) + 1})" in fault.reason
    assert main(["doctor", "--json", "--results", str(tmp_path / "none")]) == 1
    (finding,) = [line for line in json.loads(capsys.readouterr().out) if not line["ok"]]
    assert finding["check"] == "plugins" and "broken_pkg" in finding["detail"]
    sys.modules.pop("broken_pkg", None)


def test_a_plugin_that_ends_the_process_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ends.py"
    file.write_text("import sys\n\nsys.exit(0)\n")
    assert main(["run", "--plugin", str(file)]) == 2
    assert f"SystemExit: 0 ({file}, line 3)" in capsys.readouterr().err
