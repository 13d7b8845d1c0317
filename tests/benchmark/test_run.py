"""`polymodal run` as a user runs it: results, resume, failures, bad input."""

import io
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from benchmark.cli import commands, main, parser
from benchmark.runner import load_method, run_cell
from leaderboard import not_applicable
from leaderboard.record import SCHEMA, Fitted, Record
from leaderboard.store import Store
from methods.registry import methods
from tests.benchmark.conftest import FAULTY, numbers, planned
from tests.leaderboard.conftest import Planted, make_record
from tests.records import changed

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_run_writes_complete_records_and_resumes(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    done = polymodal("run", matrix, "--workers", 0, "--quiet")
    assert done.returncode == 0, done.stderr
    assert "4 cells: 4 run, 0 cached, 0 failed" in done.stdout
    records = Store(tmp_path / "results").scan().records
    assert {(r.cell.label, r.cell.seed) for r in records} == {("concat", 0), ("concat", 1), ("late", 0), ("late", 1)}
    for record in records:
        assert record.trivial == pytest.approx(0.5, abs=0.1) and record.cell.bayes == pytest.approx(0.8753, abs=1e-3)
        assert record.rows == 200 and record.cost["parameters"] > 100 and record.cost["train_seconds"] > 0
        assert record.provenance["versions"]["torch"] and record.provenance["dataset_hash"]
        assert {"clean", "missing:a", "single:a:gaussian_noise:5"} <= {c.id for c in record.conditions}
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "results").glob("*.json")}
    again = polymodal("run", matrix, "--workers", 0, "--quiet")
    assert "4 cells: 0 run, 4 cached" in again.stdout
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "results").glob("*.json")}


def test_what_is_not_applicable_is_remembered_beside_the_records(polymodal: Call, tmp_path: Path) -> None:
    file = tmp_path / "alone.toml"
    for modality in ("image", "sound"):
        file.write_text(
            f'''baselines = false
conditions = "none"
methods = [{{ name = "unimodal", modality = "{modality}" }}]
datasets = [{{ name = "interactions_xor", rows = 200 }}]
'''
        )
        done = polymodal("run", file, "--workers", 0, "--quiet")
        assert done.returncode == 0, done.stderr
    found = not_applicable.read(tmp_path / "results")
    assert set(found) == {(f"unimodal[{m}]", "interactions_xor") for m in ("image", "sound")}
    assert all("no modality" in reason for reason in found.values())
    assert not Store(tmp_path / "results").scan().invalid


def test_truncated_record_is_named_by_validate_and_run_again(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    polymodal("run", matrix, "--workers", 0, "--quiet", "--methods", "concat", "--seeds", 1)
    before = numbers(tmp_path / "results")
    (path,) = (tmp_path / "results").glob("*.json")
    path.write_text(path.read_text()[:200])
    verdict = polymodal("validate")
    assert verdict.returncode == 1 and path.name in verdict.stderr and "not JSON" in verdict.stderr
    again = polymodal("run", matrix, "--workers", 0, "--quiet", "--methods", "concat", "--seeds", 1)
    assert "1 run" in again.stdout
    assert polymodal("validate").returncode == 0
    assert numbers(tmp_path / "results") == before


def test_a_failed_cell_is_a_record_and_the_matrix_goes_on(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    names = "raises,not_finite,steady"
    done = polymodal("run", matrix, "--plugin", FAULTY, "--methods", names, "--seeds", 1, "--workers", 0, "--quiet")
    assert done.returncode == 1
    assert "3 cells: 1 run, 0 cached, 2 failed" in done.stdout
    by_name = {r.cell.method: r for r in Store(tmp_path / "results").scan().records}
    assert by_name["steady"].status == "ok"
    assert by_name["raises"].error and by_name["raises"].error.message == "on purpose"
    assert "auxiliary" in by_name["raises"].error.traceback
    assert by_name["not_finite"].error and "NotFinite: the loss of stage 'train' is not finite at step 2" in (
        by_name["not_finite"].error.message
    )
    assert "failed: raises on interactions_xor, seed 0: on purpose" in done.stderr
    shown = polymodal("show", by_name["raises"].cell.id)
    assert shown.returncode == 0 and "on purpose" in shown.stdout
    shown = polymodal("show", by_name["steady"].cell.id)
    for condition, seen in (("clean", 2), ("missing:a", 1)):
        assert re.search(rf"{condition} .* modalities_seen {seen} ", shown.stdout), shown.stdout


def test_bad_input_is_one_message_and_exit_code_two(polymodal: Call, matrix: Path, tmp_path: Path) -> None:
    cases = {
        ("run", matrix, "--methods", "concta"): "Did you mean 'concat'",
        ("run", matrix, "--set", "concat.hiden=3"): "no option `hiden`",
        ("run", "nothing.toml"): "neither a file nor a shipped one",
        ("run", matrix, "--plugin", "nowhere.py"): "no plugin file",
        ("run", matrix, "--seeds", "0"): "--seeds: must be a whole number >= 1, got '0'",
        ("show", "nothing"): "no cell in results begins with 'nothing'",
        ("check", "concta"): "Did you mean 'concat'",
        ("validate", "nowhere"): "no results folder nowhere",
    }
    for command, message in cases.items():
        done = polymodal(*command)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        assert message in done.stderr and "Traceback" not in done.stderr, (command, done.stderr)
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    done = polymodal("run", matrix, "--results", blocked / "results")
    assert done.returncode == 2 and "cannot write to the results folder" in done.stderr


def test_plan_and_json_are_for_scripts(polymodal: Call, matrix: Path) -> None:
    plan = json.loads(polymodal("plan", matrix, "--json").stdout)
    assert len(plan["cells"]) == 4 and not any(cell["done"] for cell in plan["cells"])
    lines = polymodal("run", matrix, "--workers", 0, "--json", "--seeds", 1).stdout.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["ok", "ok"]
    assert sum(cell["done"] for cell in json.loads(polymodal("plan", matrix, "--json").stdout)["cells"]) == 2


def test_new_method_and_dataset_pass_their_own_checks(polymodal: Call, tmp_path: Path) -> None:
    for what in ("method", "dataset"):
        name = f"my_{what}"
        assert polymodal("new", what, name).returncode == 0
        checked = polymodal("check", name, "--plugin", f"{name}.py")
        assert checked.returncode == 0, checked.stdout
        again = polymodal("new", what, name)
        assert again.returncode == 2 and "exists" in again.stderr


def test_check_fails_on_the_bug_it_is_there_for(polymodal: Call, tmp_path: Path) -> None:
    """MultiBench's: factors kept in a Python list are never trained."""
    (tmp_path / "peer.py").write_text(
        "import torch\nfrom methods import Method, register\n\n"
        '@register("peer")\nclass Peer(Method):\n    """Factors in a list."""\n'
        "    def __init__(self, task, recipe):\n"
        "        super().__init__(task, recipe, fused_dim=recipe.width)\n"
        "        self.factors = [torch.randn(recipe.width, requires_grad=True) for _ in task.names]\n"
        "    def fuse(self, z, present):\n"
        "        return sum(z[:, m] * f for m, f in enumerate(self.factors))\n"
    )
    done = polymodal("check", "peer", "--plugin", "peer.py")
    assert done.returncode == 1
    assert "not in `parameters()`" in done.stdout.replace("\n", " ")


def test_doctor(polymodal: Call) -> None:
    done = polymodal("doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert {line["check"] for line in json.loads(done.stdout)} >= {"python", "packages", "devices", "data", "results"}


@pytest.mark.parametrize("command", commands())
def test_every_example_of_every_command_parses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([command, "--help"])
    _, _, shown = capsys.readouterr().out.partition("\nexamples:\n")
    lines = [re.split(r"  +| && | > ", line.strip())[0] for line in shown.splitlines()]
    own = [shlex.split(line)[1:] for line in lines if line.startswith(f"polymodal {command}")]
    assert own, "no example"
    for arguments in own:
        parser().parse_args(arguments)


def test_commands_are_discovered() -> None:
    assert {"run", "plan", "leaderboard", "compare", "attend", "data", "study"} <= set(commands())


@pytest.mark.parametrize(
    "bad", ["--workers=-1", "--devices=0", "--methods=", "--methods=a,,b", "--cells=5:2", "--grace=x"]
)
def test_wrong_arguments_are_refused_by_name(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["run", bad])
    assert ended.value.code == 2 and f"argument {bad.partition('=')[0]}: must be" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["pickle", "truncated", "foreign", "empty"])
def test_a_checkpoint_that_is_none_is_one_sentence_and_runs_nothing(tmp_path: Path, fault: str) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "was-run",))

    (cell,) = planned(conditions="none").cells
    record, buffer = Record(cell=cell, status="ok", schema=SCHEMA), io.BytesIO()
    torch.save(Runs() if fault == "pickle" else {"other.weight": torch.ones(2)}, buffer)
    content = {"truncated": buffer.getvalue()[:-40], "empty": b""}.get(fault, buffer.getvalue())
    Store(tmp_path).path(record.cell.id, ".pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"is not the checkpoint of concat: .*run the cell again"):
        load_method(record, Store(tmp_path))
    assert not (tmp_path / "was-run").exists()


def test_attend_says_in_a_line_that_a_checkpoint_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = planned(conditions="none", recipe={"epochs": 1, "width": 8}).cells
    store = Store(tmp_path)
    run_cell(cell, store)
    store.path(cell.id, ".pt").write_bytes(store.path(cell.id, ".pt").read_bytes()[:-60])
    assert main(["attend", cell.id, "--results", str(tmp_path), "--output", str(tmp_path / "x.png")]) == 2
    said = capsys.readouterr().err
    assert "is not the checkpoint of concat" in said and said.count("\n") == 1


def test_what_no_record_can_hold_fails_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = planned(conditions="none", recipe={"epochs": 1, "width": 8}).cells
    monkeypatch.setattr(methods.get("concat"), "summary", lambda self, train, test: {"half \ud800": 1.0})
    assert run_cell(cell, Store(tmp_path)).status == "failed"
    (record,) = Store(tmp_path).scan().records
    assert record.error and "surrogates not allowed" in record.error.message


def test_markup_in_a_record_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    record, arrays = make_record("[/b]", Planted(), "csv_views[patients]", rows=40)
    record = store.write(changed(record, metric="accuracy", training=(Fitted("[red]", 1.0),)), arrays)
    assert main(["show", record.cell.id, "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "[/b] on csv_views[patients]" in shown and "stage [red]" in shown
    raw = json.loads(record.to_json())
    raw["conditions"][0]["calibration"]["nll"] = None
    store.path(record.cell.id).write_text(json.dumps(raw))
    assert main(["show", record.cell.id, "--results", str(tmp_path)]) == 2
    assert "Expected `float`, got `null`" in capsys.readouterr().err


def test_targets_that_are_not_the_datasets_are_named_where_it_is_at_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions, scores and hashes that agree with each other say nothing about the rows they are of."""
    (cell,) = planned(conditions="none").cells
    store = Store(tmp_path)
    record = run_cell(cell, store)
    assert main(["validate", str(tmp_path), "--against-data"]) == 0
    arrays = store.predictions(cell.id)
    easy = {**arrays, "target": arrays["pred:clean"]}
    trivial = float(np.bincount(easy["target"]).max() / record.rows)
    first = msgspec.structs.replace(record.conditions[0], score=1.0)
    bayes = msgspec.structs.replace(record.cell, bayes=None)
    store.write(msgspec.structs.replace(record, cell=bayes, conditions=(first,), trivial=trivial), easy)
    store.path(cell.id).unlink()
    capsys.readouterr()
    assert main(["validate", str(tmp_path)]) == 0
    assert main(["validate", str(tmp_path), "--against-data"]) == 1
    assert "the targets beside the predictions are not those of the dataset" in capsys.readouterr().err
