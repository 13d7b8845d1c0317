"""Several optimisation steps in one call of Lightning's are the steps of as many calls, bit for bit."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from lightning import Callback, Trainer
from torch import Tensor

from benchmark import trainer
from benchmark.conformance.probe import PROBES, Probe
from benchmark.loggers import Log
from benchmark.seeds import seed_all
from benchmark.trainer import Chunks, TrainerOptions, fit
from datamodules.spec import Batch
from leaderboard.record import Fitted
from methods import Method, Output, Recipe, methods
from methods.concat import Concat

RECIPE = Recipe(width=8, epochs=3, batch_size=16, lr=1e-2, patience=3)
STEPS = 160 // 16  # of an epoch
NAMES = sorted(methods.names())
ONE_BY_ONE = {"gradient_modulation"}  # adds noise to the gradients of every step


class Calls(Callback):
    """How many calls Lightning made, and how many of them optimised by themselves."""

    def __init__(self) -> None:
        self.epochs: list[int | float] = []
        self.automatic: set[bool] = set()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.epochs.append(trainer.num_training_batches)
        self.automatic.add(pl_module.automatic_optimization)


def per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Lightning make every step by itself."""
    monkeypatch.setattr(trainer, "_watches_steps", lambda method, callbacks: True)


def probe_of(name: str) -> Probe:
    """The first shape of data that a method can be trained on."""
    return next(
        probe for shape in PROBES if methods.get(name).applies_to((probe := Probe(shape=shape)).task, {}) is None
    )


def trained(name: str, **arguments: Any) -> tuple[dict[str, Tensor], list[Fitted], Calls]:
    datamodule, calls = probe_of(name), Calls()
    seed_all("chunks")
    method = methods.get(name)(datamodule.task, RECIPE)
    reports = fit(method, datamodule, seed=3, callbacks=(calls,), **arguments)
    assert method.automatic_optimization, "our way of training must end with the stage"
    return method.state_dict(), [msgspec.structs.replace(report, seconds=0.0) for report in reports], calls


@pytest.mark.filterwarnings("ignore:.*correlations of 16 rows")
@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state, reports, calls = trained(name)
    if name in ONE_BY_ONE:
        assert True in calls.automatic
    elif calls.epochs:  # all stages may be closed forms
        assert calls.automatic == {False} and set(calls.epochs) == {1}, "an epoch fits into one chunk here"
    with monkeypatch.context() as patch:
        per_step(patch)
        expected, expected_reports, expected_calls = trained(name)
    if expected_calls.epochs:
        assert expected_calls.automatic == {True} and set(expected_calls.epochs) == {STEPS}
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(value, state[key]), key
    # NaN is not itself; steps, epochs, history and best scores are written alike.
    assert repr(reports) == repr(expected_reports)


@pytest.mark.parametrize("size", [1, 3, 32])
def test_the_size_of_a_chunk_does_not_matter(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    state, reports, _ = trained("concat")
    monkeypatch.setattr(trainer, "Chunks", lambda batches: Chunks(batches, size))
    again, repeated, calls = trained("concat")
    assert calls.epochs == [-(-STEPS // size)] * RECIPE.epochs
    assert all(torch.equal(state[key], again[key]) for key in state) and reports == repeated
    assert reports[0].steps == RECIPE.epochs * STEPS


def test_chunks_hold_the_batches_in_their_order() -> None:
    loaders = [Probe().train_dataloader() for _ in range(2)]
    for loader in loaders:
        loader.batch_size = 16
    for _ in range(2):  # each epoch has its own order
        rows = [batch.row for chunk in Chunks(loaders[0], 3) for batch in chunk]
        assert len(rows) == STEPS and torch.equal(torch.cat(rows), torch.cat([batch.row for batch in loaders[1]]))


def test_loggers_write_the_same_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def curves(name: str) -> str:
        log = Log("csv", tmp_path / name)
        trained("concat", log=log)
        return (log.folder / "0-train" / "metrics.csv").read_text()

    chunked = curves("chunked")
    per_step(monkeypatch)
    assert chunked == curves("single") and "step" in chunked.splitlines()[0]


def test_the_step_of_a_loss_that_is_not_finite_is_named() -> None:
    class Explodes(Concat):
        def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
            return {"bad": out.z.sum() * (torch.nan if self.global_step == STEPS + 3 else 0.0)}

    datamodule = Probe()
    with pytest.raises(FloatingPointError, match=rf"not finite at step {STEPS + 3} \(epoch 1\)"):
        fit(Explodes(datamodule.task, RECIPE), datamodule)


@pytest.mark.parametrize("by", ["method", "callback"])
def test_who_has_a_hook_in_every_step_is_called_in_every_step(by: str) -> None:
    class Counts(Concat if by == "method" else Callback):  # pyright: ignore[reportGeneralTypeIssues]
        batches = 0

        def on_train_batch_end(self, *arguments: Any) -> None:
            assert isinstance(arguments[-2], Batch)
            type(self).batches += 1

    datamodule = Probe()
    if by == "method":
        fit(Counts(datamodule.task, RECIPE), datamodule)
    else:
        fit(Concat(datamodule.task, RECIPE), datamodule, callbacks=(Counts(),))
    assert Counts.batches == RECIPE.epochs * STEPS


def test_mixed_precision_makes_one_step_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast would go on with the weights it cast before the first step of the chunk."""
    seen = []
    monkeypatch.setattr(Trainer, "fit", lambda self, method, train, val: seen.append((method, train)))
    monkeypatch.setattr(trainer.BestEpoch, "sign", 1, raising=False)
    datamodule = Probe()
    for precision in ("32-true", "64-true", "bf16-mixed"):
        fit(Concat(datamodule.task, RECIPE), datamodule, options=TrainerOptions("cpu", precision=precision))
    assert [isinstance(train, Chunks) for _, train in seen] == [True, False, False]


def test_a_plain_trainer_makes_its_own_steps() -> None:
    datamodule = Probe()
    datamodule.batch_size = RECIPE.batch_size
    method: Method = Concat(datamodule.task, RECIPE)
    fit(method, datamodule)  # leaves nothing behind
    plain = Trainer(accelerator="cpu", max_epochs=1, gradient_clip_val=0.5, logger=False, barebones=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    plain.fit(method, datamodule)
    assert plain.global_step == STEPS and "train/task" in plain.callback_metrics
