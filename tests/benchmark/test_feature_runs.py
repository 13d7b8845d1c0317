"""Runs on features of frozen encoders, from the matrix to the board."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmark.build import build_dataset
from benchmark.cli import main
from benchmark.evaluate import sweep
from benchmark.executors.features_ahead import make_ahead
from benchmark.executors.local import Settings, execute
from benchmark.fills import choose_filling
from benchmark.matrix import parse
from benchmark.options import UsageError
from benchmark.plan import Plan, make_plan
from benchmark.runner import load_method
from datamodules.base import DataModule, Split, SplitName
from datamodules.corruptions import corrupt, corruption_key
from datamodules.encoders import feature_cache
from datamodules.encoders.features import Features
from datamodules.spec import Batch
from leaderboard.record import Record
from leaderboard.store import Store
from tests.benchmark.conftest import ENVIRONMENT, numbers

HALVES = {"name": "digit_halves", "upper": "random:conv", "lower": "random:linear"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("POLYMODAL_WEIGHTS", raising=False)
    monkeypatch.delenv("POLYMODAL_CACHE_GB", raising=False)
    return tmp_path / "cache"


def plan_of(*datasets: Any, methods: tuple[str, ...] = ("concat",), conditions: Any = "none") -> Plan:
    recipe = {"width": 8, "epochs": 2, "batch_size": 128}
    raw = {"methods": list(methods), "datasets": list(datasets), "conditions": conditions, "recipe": recipe}
    return make_plan(parse({**raw, "baselines": False}, "test.toml"))


def run(plan: Plan, folder: Path) -> list[Record]:
    make_ahead(plan.cells)
    records = list(execute(plan.cells, Settings(results=str(folder), workers=0)))
    assert all(r.status == "ok" for r in records), [r.error for r in records]
    return records


# ---- the plan -------------------------------------------------------------------------------------------------------


def test_a_modality_with_an_encoder_makes_another_dataset_with_the_conditions_of_the_raw_kind() -> None:
    pooled, tokens, plain = (plan_of(d, conditions="standard").cells[0]
                             for d in (HALVES, {**HALVES, "upper": "random:conv+tokens"}, "digit_halves"))  # fmt: skip
    assert pooled.dataset == "digit_halves[upper=random:conv;lower=random:linear]"
    assert len({c.id for c in (pooled, tokens, plain)}) == 3 and len({c.dataset_version for c in (pooled, tokens)}) == 2
    assert pooled.id.startswith("concat-digit_halves-0-")
    assert [c.id for c in pooled.conditions] == [c.id for c in plain.conditions]
    assert pooled.dataset_options == {"upper": "random:conv", "lower": "random:linear"}
    rebuilt = build_dataset(pooled.dataset, pooled.dataset_options)
    assert isinstance(rebuilt, Features) and rebuilt.task.version == pooled.dataset_version
    both = plan_of({**HALVES, "upper": ["random:conv", "random:linear"]})  # a list is an axis
    assert len({c.dataset for c in both.cells}) == 2


def test_attention_applies_to_tokens_and_not_to_pooled_features() -> None:
    tokens = {"name": "digit_halves", "upper": "random:conv+tokens", "lower": "random:conv"}
    assert len(plan_of(tokens, methods=("softmax_attention",)).cells) == 1
    plan = plan_of(HALVES, methods=("softmax_attention",))
    assert not plan.cells and plan.not_applicable[0].dataset.startswith("digit_halves[upper=")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uper": "random:conv"}, "no option `uper`. Did you mean 'upper'"),
        ({"upper": "random:cnv"}, "Did you mean 'conv'"),
        ({"upper": "resnet18"}, "an encoder must be LIBRARY:MODEL"),
        ({"upper": 3}, "`upper` must be a string, got 3"),
        ({"upper": "random:conv", "freeze": "no"}, "`freeze` must be true or false"),
        ({"freeze": False}, "`freeze` needs an encoder for upper or lower"),
        ({"upper": "sentence:here"}, "sentence:here encodes text, and `upper` is a image"),
    ],
)
def test_what_is_wrong_is_said_before_the_first_epoch(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of({"name": "digit_halves", **options})
    assert message in str(caught.value) and "test.toml, [datasets.digit_halves]" in str(caught.value)


# ---- results --------------------------------------------------------------------------------------------------------


class Uncached(DataModule):
    """The same features, computed whenever they are asked for."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.features = features

    @property
    def raw(self) -> Any:
        return self.features.raw

    def describe(self) -> Any:
        return self.features.task

    def seen(self, name: str, x: Tensor) -> Tensor:
        rows = self.features._rows("train", name)
        return (self.features.encode(name, x) - rows.mean) / rows.deviation

    def load(self) -> dict[SplitName, Split]:
        splits = self.features.base.splits
        return {s: v._replace(inputs={n: self.seen(n, x[:]) for n, x in v.inputs.items()}) for s, v in splits.items()}

    def corrupted(self, batch: Batch, split: SplitName, modality: str, corruption: str, severity: int) -> Tensor:
        if corruption == "misaligned":
            return super().corrupted(batch, split, modality, corruption, severity)
        raw = self.raw
        x = self.features.base.splits[split].inputs[modality][batch.row]
        key = corruption_key(raw.name, raw.version, split, modality, corruption)
        kind = raw.modalities[raw.names.index(modality)]
        noisy = corrupt(x, batch.row, name=corruption, severity=severity, key=key, modality=kind, dataset=raw.name)
        return self.seen(modality, noisy)


def test_cached_features_give_the_predictions_of_uncached_ones_and_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    encode = Features.encode

    def counted(self: Features, modality: str, x: Tensor) -> Tensor:
        calls.append(modality)
        return encode(self, modality, x)

    monkeypatch.setattr(Features, "encode", counted)
    conditions = ["gaussian_noise", "joint", "missing", "missing_rate", "misaligned"]
    (record,) = run(plan_of(HALVES, conditions=conditions), tmp_path / "results")
    assert record.clean > 0.25 and {c.kind for c in record.conditions} >= {"single", "joint", "misaligned"}
    assert len(calls) > 10
    # A second method and a second seed compute no feature; nor did the cell itself after `make_ahead`.
    calls.clear()
    more = plan_of(HALVES, methods=("late", "additive"), conditions=conditions)
    assert make_ahead(more.cells) is not None
    run(more, tmp_path / "results")
    assert calls == []
    store = Store(tmp_path / "results")
    method, features = load_method(record, store)
    assert isinstance(features, Features)
    planned_conditions = record.cell.conditions
    filling = choose_filling(method, features, planned_conditions, torch.device("cpu"))
    assert filling is not None and filling.chosen == record.fill
    swept = sweep(method, Uncached(features), planned_conditions, filling=filling)
    kept = store.predictions(record.cell.id)
    for name, values in swept.predictions.items():
        if name.startswith("pred:"):
            assert np.array_equal(values, kept[name]), name
        else:
            np.testing.assert_allclose(values, kept[name], rtol=1e-4, atol=1e-5)
    assert calls  # the uncached ones were


def test_a_noisy_input_is_noisier_with_severity_and_pairs_with_the_raw_run(tmp_path: Path) -> None:
    plan = plan_of(HALVES, "digit_halves", conditions=["gaussian_noise", "missing_rate"])
    features, plain = run(plan, tmp_path / "results")
    scores = {c.id: c.score for c in features.conditions}
    assert scores["single:lower:gaussian_noise:5"] < scores["clean"]
    assert [c.id for c in features.conditions] == [c.id for c in plain.conditions]


def test_the_cache_is_listed_and_pruned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    build_dataset("digit_halves", {"upper": "random:conv"}).splits  # noqa: B018 - makes the clean tables
    assert main(["data", "cache"]) == 0
    said = capsys.readouterr().out
    assert "3 tables, " in said and " of 50 GB" in said and "random:conv" in said and "clean" in said
    assert main(["data", "cache", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {(k["dataset"], k["split"], k["whole"]) for k in listed} == {
        ("digit_halves", split, True) for split in ("train", "val", "test")
    }
    assert sum(k["bytes"] for k in listed) > 1797 * 128 * 4
    assert main(["data", "cache", "--keep-gb", "1"]) == 2
    assert main(["data", "cache", "--prune", "--keep-gb", "0"]) == 0
    assert "deleted 3 tables" in capsys.readouterr().err and not feature_cache.kept()


def test_what_is_left_out_is_said_with_its_encoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "m.toml").write_text(
        'methods = ["concat", "softmax_attention"]\nbaselines = false\n'
        '[datasets.digit_halves]\nupper = "random:conv"\nlower = "random:linear"\n'
    )
    assert main(["plan", str(tmp_path / "m.toml"), "--results", str(tmp_path / "results")]) == 0
    said = capsys.readouterr().out
    assert "softmax_attention on digit_halves[upper=random:conv;lower=random:linear]: needs a modality" in said


# ---- as a user runs it ----------------------------------------------------------------------------------------------

PLUGIN = '''"""Few pictures and questions."""
import torch

from datamodules.base import DataModule, Split
from datamodules.registry import register
from datamodules.spec import Modality, Task

WORDS = ("", "red", "green", "blue", "what", "is")


@register("few_pictures")
class FewPictures(DataModule):
    """Few pictures."""

    def describe(self):
        modalities = (Modality("image", "image", (3, 16, 16)), Modality("question", "text", (4,), vocabulary=6))
        return Task("few_pictures", self.version, modalities, "multiclass", 3)

    def words(self, modality):
        return WORDS

    def load(self):
        def split(rows, seed):
            generator = torch.Generator().manual_seed(seed)
            target = torch.arange(rows) % 3
            image = torch.rand(rows, 3, 16, 16, generator=generator) * 0.3
            image[torch.arange(rows), target] += 0.5
            words = torch.randint(1, 6, (rows, 4), generator=generator)
            return Split({"image": image, "question": words}, target)

        return {"train": split(48, 0), "val": split(12, 1), "test": split(16, 2)}
'''


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    path = tmp_path / "few_pictures.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    import timm

    folder = tmp_path / "weights"
    folder.mkdir()
    torch.manual_seed(6)
    save_file(timm.create_model("test_resnet").state_dict(), folder / "test_resnet.safetensors")
    return folder


@pytest.mark.slow
def test_run_with_a_timm_encoder_end_to_end(cache: Path, pictures: Path, weights: Path, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(
        'conditions = ["gaussian_noise", "token_drop", "joint"]\nmethods = ["concat", "softmax_attention"]\n'
        "baselines = false\n[recipe]\nwidth = 8\nepochs = 6\nbatch_size = 12\n"
        '[datasets.few_pictures]\nimage = "timm:test_resnet+tokens"\nquestion = "random:embedding"\n'
    )
    environment = {**ENVIRONMENT, "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "POLYMODAL_CACHE": str(cache)}

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmark.cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    # Without weights and network: one sentence that says what to put where.
    lost = call("run", "m.toml", "--plugin", pictures, "--workers", 0)
    assert lost.returncode == 2 and "put test_resnet.safetensors into a folder and give it by --weights" in lost.stderr
    assert "Traceback" not in lost.stderr
    done = call("run", "m.toml", "--plugin", pictures, "--workers", 1, "--weights", weights)
    assert done.returncode == 0, done.stderr
    assert "2 cells: 2 run" in done.stdout and "16 tables, 16 computed now" in done.stderr
    records = Store(tmp_path / "results").scan().records
    assert {r.cell.dataset for r in records} == {
        "few_pictures[image=timm:test_resnet+tokens;question=random:embedding]"
    }
    for record in records:
        assert {"single:image:gaussian_noise:5", "single:question:token_drop:1", "joint:3"} <= {
            c.id for c in record.conditions
        }
        assert record.clean > 0.6  # the colour is the class
    board = call("leaderboard", "results", "--format", "markdown")
    assert "timm:test_resnet" in board.stdout.replace("\\", ""), board.stderr


@pytest.mark.slow
def test_fine_tuning_runs(cache: Path, pictures: Path, weights: Path, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "POLYMODAL_CACHE": str(cache)}
    command = [sys.executable, "-m", "benchmark.cli", "run", "--plugin", pictures, "--workers", 0, "--weights", weights,
               "--methods", "concat", "--datasets", "few_pictures", "--seeds", 1, "--no-baselines",
               "--conditions", "gaussian_noise", "--set", "few_pictures.image=timm:test_resnet",
               "--set", "few_pictures.freeze=false",
               "--set", "recipe.epochs=2", "--set", "recipe.width=8", "--set", "recipe.batch_size=12"]  # fmt: skip
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    (record,) = Store(tmp_path / "results").scan().records
    assert record.cell.dataset == "few_pictures[image=timm:test_resnet;freeze=false]"
    assert record.cost["trainable_parameters"] > 300_000 and not feature_cache.kept()


@pytest.mark.slow
def test_a_run_killed_while_it_computes_features_ends_with_the_same_numbers(tmp_path: Path) -> None:
    """Kills of the real job: whatever moment they hit, the next run goes on and no number changes."""
    arguments = ["run", "--methods", "concat", "--datasets", "digit_halves", "--no-baselines", "--workers", "0",
                 "--quiet", "--set", "digit_halves.upper=random:conv+tokens", "--set", "digit_halves.lower=random:conv",
                 "--set", "recipe.epochs=1", "--conditions", "gaussian_noise,contrast"]  # fmt: skip

    def begin(name: str) -> "subprocess.Popen[str]":
        environment = {**ENVIRONMENT, "POLYMODAL_CACHE": str(tmp_path / f"cache_{name}")}
        command = [sys.executable, "-m", "benchmark.cli", *arguments, "--results", str(tmp_path / name)]
        return subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    def files() -> int:
        return sum(1 for _ in (tmp_path / "cache_killed").rglob("*.npy"))

    whole = begin("whole")
    assert whole.wait(timeout=300) == 0, whole.stderr
    generator = np.random.default_rng(3)
    killed = 0
    for _ in range(6):
        job = begin("killed")
        before = files()
        wanted = before + int(generator.integers(1, 8))
        while job.poll() is None and files() < wanted:
            time.sleep(0.001)
        job.kill()
        killed += job.wait() == -signal.SIGKILL
    last = begin("killed")
    assert last.wait(timeout=300) == 0, last.stderr
    assert killed >= 2
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "whole")
