"""Targets: what a task asks of them, and one that a plugin brings."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torchmetrics.functional import mean_squared_error

from benchmark.matrix import parse
from benchmark.plan import make_plan
from benchmark.runner import run_cell
from datamodules.registry import datasets, load_plugin
from datamodules.spec import Modality, Task
from datamodules.targets import Target, targets
from leaderboard import scores
from leaderboard.store import Store
from methods.registry import methods

PAIR = (Modality("a", "vector", (4,)), Modality("b", "vector", (4,)))
OUTPUTS = {
    "multiclass": 3,
    "multilabel": 3,
    "regression": 1,
    "answers": 3,
    "retrieval": 3,
    "pairs": 0,
    "sentiment": 1,
    "zero_shot": 0,
}

ORDINAL = '''"""Levels in order, and ratings that have them."""
import torch
import torch.nn.functional as F

from datamodules.base import DataModule, Split
from datamodules.registry import register
from datamodules.spec import Modality, Task
from datamodules.targets import Target, register_target


@register_target("ordinal")
class Ordinal(Target):
    """A level: `[N]`; output k says whether the level is above k (Frank and Hall, 2001)."""

    metrics = ("mae", "accuracy")
    independent = True

    def loss(self, logits, target):
        return F.binary_cross_entropy_with_logits(logits, self._above(target).to(logits.dtype))

    def prediction(self, out):
        return (out.logits > 0).sum(dim=-1)

    def scores(self, kept, target):
        error = (kept - target).abs().double()
        return {"mae": float(error.mean()), "accuracy": float((error == 0).double().mean())}

    def trivial(self, train, test, gallery=None):
        return self.always(train.median(), test)

    def counts(self, target):
        return self._above(target).sum(dim=0)

    def _above(self, target):
        return target.unsqueeze(-1) > torch.arange(self.task.num_outputs, device=target.device)


@register("ratings")
class Ratings(DataModule):
    """Noisy views of a level from 0 to 4."""

    version = "1"
    licence = citation = source = "made up"

    def describe(self):
        views = (Modality("text", "vector", (4,)), Modality("stars", "vector", (3,)))
        return Task("ratings", self.version, views, "ordinal", 4)

    def load(self):
        return {name: self._rows(seed) for seed, name in enumerate(("train", "val", "test"))}

    def _rows(self, seed):
        noise = torch.Generator().manual_seed(seed)
        level = torch.randint(0, 5, (256,), generator=noise)
        views = {"text": 4, "stars": 3}
        return Split({n: level[:, None] / 2 - 1 + 0.3 * torch.randn(256, d, generator=noise)
                      for n, d in views.items()}, level)
'''


def make(name: str, outputs: int | None = None) -> Task:
    return Task("t", "1", PAIR, name, OUTPUTS[name] if outputs is None else outputs)


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """The plugin, loaded once a process: its names are registered from its first file."""
    if "ordinal" not in targets.names():
        path = tmp_path / "ordinal.py"
        path.write_text(ORDINAL)
        load_plugin(path)
    return tmp_path


def test_every_target_is_registered_under_the_stem_of_its_file() -> None:
    own = [entry for entry in targets.entries() if entry.origin.startswith("datamodules.")]
    assert {entry.name for entry in own} == set(OUTPUTS)
    for entry in own:
        assert entry.origin == f"datamodules.targets.{entry.name}" and entry.summary
        assert issubclass(targets.get(entry.name), Target)


def test_an_unknown_target_is_suggested() -> None:
    with pytest.raises(KeyError, match=r"no target named 'multi_class'\. Did you mean 'multiclass'\?"):
        Task("t", "1", PAIR, "multi_class", 3)


def test_a_metric_must_be_the_targets() -> None:
    with pytest.raises(
        ValueError, match="`metric` of a regression task to be one of r2, mse, mae, correlation, but got 'accuracy'"
    ):
        Task("t", "1", PAIR, "regression", 1, metric="accuracy")
    with pytest.raises(ValueError, match="one of accuracy, balanced_accuracy, macro_f1, but got 'f1'"):
        Task("t", "1", PAIR, "multiclass", 3, metric="f1")
    assert Task("t", "1", PAIR, "multiclass", 2, metric="f1").metric == "f1"


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_task_stays_plain_data(name: str) -> None:
    task = make(name)
    before = pickle.dumps(task)
    assert task.goal.task is task
    assert pickle.dumps(task) == before, "asking for the goal leaves nothing on the task"
    again = pickle.loads(before)
    assert again == task and hash(again) == hash(task) and type(again.goal) is type(task.goal)
    assert replace(task, version="2").goal.metrics == task.goal.metrics


def test_the_vocabulary_does_not_import_torch() -> None:
    code = "import sys, datamodules.spec, datamodules.targets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(set(OUTPUTS) - {"pairs", "retrieval", "zero_shot"}))
def test_a_row_alone_has_its_share_of_the_loss(name: str) -> None:
    """The loss is a mean over rows: so it may be averaged over devices."""
    goal, draw = make(name).goal, torch.Generator().manual_seed(0)
    logits = torch.randn(8, OUTPUTS[name], generator=draw)
    target = {
        "multiclass": torch.arange(8) % 3,
        "multilabel": (torch.rand(8, 3, generator=draw) < 0.5).float(),
        "regression": torch.randn(8, 1, generator=draw),
        "sentiment": torch.randn(8, 1, generator=draw),
        "answers": torch.stack([torch.arange(16).reshape(8, 2) % 3, torch.rand(8, 2, generator=draw)], dim=1),
    }[name]
    rows = [goal.loss(logits[i : i + 1], target[i : i + 1]) for i in range(8)]
    torch.testing.assert_close(goal.loss(logits, target), torch.stack(rows).mean())


def test_pairs_have_nothing_to_learn_from() -> None:
    with pytest.raises(ValueError, match="has no labels to learn from"):
        make("pairs").goal.loss(torch.zeros(2, 1), torch.arange(2))


def test_the_trivial_score_of_several_values() -> None:
    draw = torch.Generator().manual_seed(0)
    train, test = torch.randn(50, 3, generator=draw), torch.randn(20, 3, generator=draw)
    task = replace(make("regression", 3), metric="mse")
    expected = float(mean_squared_error(train.mean(0).repeat(20, 1), test))
    assert task.goal.trivial(train, test) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "target", "fault"),
    [
        ("multiclass", torch.tensor([0, 3]), "train: classes must be 0..2"),
        ("multiclass", torch.tensor([0.0, 1.0]), "train: classes must be 0..2"),
        ("multilabel", torch.zeros(4), "train: targets must be [N, 3]"),
        ("regression", torch.full((2, 1), torch.nan), "train: targets are not finite"),
        ("answers", torch.zeros(4, 3), "train: targets must be [N, 2, K], ids and scores of answers"),
        ("answers", torch.tensor([[[7.0], [1.0]]]), "train: answers must be 0..2"),
        ("answers", torch.tensor([[[1.0], [2.0]]]), "train: scores of answers must be 0 to 1"),
    ],
)
def test_a_wrong_target_is_named(name: str, target: torch.Tensor, fault: str) -> None:
    assert next(make(name).goal.faults({"train": target})) == fault


def test_retrieval_is_tested_on_unseen_classes() -> None:
    goal, seen = make("retrieval").goal, torch.tensor([0, 1, 2])
    assert list(goal.faults({"train": seen, "test": seen + 3})) == []
    assert "classes of the training split" in next(goal.faults({"train": seen, "test": seen + 2}))


@pytest.mark.parametrize(
    ("name", "target", "spelt"),
    [
        ("multiclass", torch.tensor(1), "dog"),
        ("retrieval", torch.tensor(7), "7"),
        ("pairs", torch.tensor(7), "7"),
        ("multilabel", torch.tensor([1.0, 0.0, 1.0]), "cat, emu"),
        ("answers", torch.tensor([[2.0, 1.0, 0.0], [1.0, 0.3, 0.0]]), "emu, dog"),
        ("regression", torch.tensor([0.256]), "0.26"),
    ],
)
def test_a_target_is_spelt(name: str, target: torch.Tensor, spelt: str) -> None:
    assert replace(make(name), class_names=("cat", "dog", "emu")).goal.spell(target) == spelt


def test_a_plugin_brings_a_target(ratings: Path) -> None:
    """Planned, trained, selected, swept, stored and scored again from what is stored, like any other."""
    options = {
        "methods": ["concat", "late"],
        "datasets": ["ratings"],
        "conditions": ["joint", "missing"],
        "baselines": False,
        "recipe": {"epochs": 20, "width": 16, "batch_size": 32, "lr": 1e-2},
    }
    cells = make_plan(parse(options, "test")).cells
    assert [(cell.target, cell.metric, cell.higher_is_better) for cell in cells] == [("ordinal", "mae", False)] * 2
    store = Store(ratings / "results")
    store.prepare()
    train, test = (datasets.get("ratings")().splits[split].target for split in ("train", "test"))
    for cell in cells:
        record = run_cell(cell, store)
        assert record.status == "ok", record.error
        assert record.trivial == pytest.approx(float((test - train.median()).abs().double().mean()))
        clean, stored = record.conditions[0], store.predictions(cell.id)
        assert record.trivial is not None and clean.score < 0.5 * record.trivial, "it learns"
        assert float(scores.score("mae", stored["target"], stored["pred:clean"])) == pytest.approx(clean.score)
        assert clean.calibration == {} and "prob:clean" not in stored
    why = methods.get("skewed_mean").applies_to(datasets.get("ratings")().task, {})
    assert why == "needs one class per row, and the target of ratings is ordinal"
