"""The contract's own behaviour: stations, stages, freezing, wrapping."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmark.conformance.probe import Probe
from benchmark.seeds import seed_all
from benchmark.trainer import TrainerOptions, fit
from datamodules.spec import Batch, Task
from methods import Base, Encoded, Method, Output, Recipe, Stage, Wrapper, methods
from methods.stage import share_epochs

RECIPE = Recipe(width=8, epochs=3, batch_size=64, lr=1e-2, patience=3)


class Mean(Method):
    """The smallest method there is."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        self.seen: list[str] = []

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.sum(dim=1) / present.sum(dim=1, keepdim=True)


class Staged(Mean):
    """Three stages: label-free, closed form, probe."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        super().__init__(task, recipe)
        self.offset = nn.Parameter(torch.zeros(recipe.width))
        self.register_buffer("mean", torch.zeros(recipe.width))

    def apart(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        return {"apart": (out.z + self.offset).square().mean()}

    def centre(self, train: Iterable[Encoded]) -> None:
        assert not torch.is_grad_enabled()
        totals = [batch.z.sum(dim=(0, 1)) for batch in train]
        again = [batch.z.sum(dim=(0, 1)) for batch in train]  # the stream can be read twice
        assert torch.equal(torch.stack(totals), torch.stack(again))
        self.mean.copy_(torch.stack(totals).sum(dim=0))

    def stages(self) -> tuple[Stage, ...]:
        return (
            Stage(self, "pull", learn=(self.encoders, self.offset), loss="terms", select="loss", terms=(self.apart,)),
            Stage(self, "centre", solve=self.centre),
            Stage(self, "probe", learn=(self.head,) if self.head is not None else ()),
        )


@pytest.mark.parametrize("name", ["forward", "training_step", "configure_optimizers", "objective"])
def test_final_methods_cannot_be_overridden(name: str) -> None:
    with pytest.raises(TypeError, match=f"overrides `{name}`, which is final"):
        type("Cheat", (Mean,), {name: lambda self: None, "__module__": "elsewhere"})


def test_stages_learn_what_they_say_and_nothing_else() -> None:
    datamodule = Probe()
    method = Staged(datamodule.task, RECIPE)
    before = {k: v.clone() for k, v in method.state_dict().items()}
    reports = fit(method, datamodule)
    after = method.state_dict()
    assert [r.name for r in reports] == ["pull", "centre", "probe"]
    assert reports[0].monitor == "val/loss" and reports[2].monitor == "val/task_loss"
    assert reports[1].steps == 0 and reports[0].steps > 0
    for name in ("offset", "mean", "head.weight"):
        assert not torch.equal(before[name], after[name]), f"{name} should have been fitted"
    assert all(p.requires_grad for p in method.parameters()), "freezing must end with the stage"


def test_frozen_parts_do_not_move_and_are_in_eval_mode() -> None:
    datamodule = Probe()
    method = Staged(datamodule.task, RECIPE)
    method.encoders["a"].layers.append(nn.Dropout(0.5))
    probe = method.stages()[2]
    with method.in_stage(probe):
        method.train()
        assert not method.encoders.training and method.head is not None and method.head.training
        assert not any(p.requires_grad for p in method.encoders.parameters())
        assert all(p.requires_grad for p in method.head.parameters())
    assert not method.training


def test_the_best_epoch_is_restored() -> None:
    datamodule = Probe()
    seed_all("best")
    method = methods.get("concat")(datamodule.task, Recipe(width=8, epochs=12, batch_size=64, lr=0.3, patience=12))
    (report,) = fit(method, datamodule)
    losses = [h["val/task_loss"] for h in report.history]
    assert report.monitor == "val/task_loss" and report.best_score == pytest.approx(min(losses))
    assert report.best_epoch == losses.index(min(losses))
    (batch,) = datamodule.ordered("val")
    logits = method(batch.inputs, batch.present).logits
    assert F.cross_entropy(logits, batch.target).item() == pytest.approx(min(losses), abs=1e-6)
    assert losses[-1] > min(losses), "the probe must be able to tell: choose a worse learning rate"
    assert report.score == pytest.approx(float((logits.argmax(dim=1) == batch.target).float().mean()))


def test_with_many_validation_rows_the_metric_chooses_and_of_equals_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.trainer.FEW_ROWS", 64)
    datamodule = Probe()
    seed_all("best")
    method = methods.get("concat")(datamodule.task, Recipe(width=8, epochs=12, batch_size=64, lr=0.3, patience=12))
    (report,) = fit(method, datamodule)
    scores = [h["val/accuracy"] for h in report.history]
    assert report.monitor == "val/accuracy" and report.best_score == report.score == pytest.approx(max(scores))
    assert report.best_epoch == scores.index(max(scores))


def test_patience_ends_a_stage() -> None:
    datamodule = Probe()
    seed_all("patience")
    method = methods.get("concat")(datamodule.task, Recipe(width=8, epochs=200, batch_size=64, lr=0.05, patience=2))
    (report,) = fit(method, datamodule)
    assert report.epochs == max(20, report.best_epoch + 1 + 2), "never before a tenth of the recipe's epochs"
    assert report.cap == 200 and report.converged


@pytest.mark.parametrize(
    ("stages", "epochs"),
    [
        (({},), (30,)),
        (({}, {"share": 0.5}), (20, 10)),
        (({"solve": list}, {}, {"epochs": 3}), (0, 27, 3)),
        (({"epochs": 3}, {"epochs": 100}), (3, 27)),
        (({"epochs": 3}, {"epochs": 5}), (3, 5)),
        (({}, {}, {}, {}), (7, 7, 7, 7)),
    ],
)
def test_the_stages_share_the_epochs_of_the_recipe(stages: tuple[dict[str, Any], ...], epochs: tuple[int, ...]) -> None:
    method = Mean(Probe().task, RECIPE)
    made = tuple(Stage(method, **given) for given in stages)
    assert share_epochs(made, 30) == epochs
    assert all(n == (s.solve is None) for n, s in zip(share_epochs(made, 1), made, strict=True)), "at least one"


def test_a_small_table_has_small_batches() -> None:
    datamodule = Probe()  # of 160 training rows
    (report,) = fit(Mean(datamodule.task, RECIPE), datamodule)
    assert report.batch_size == 16 and report.steps == 3 * 10
    one, three = TrainerOptions(), TrainerOptions(devices=3)
    assert [one.fitting(128, rows) for rows in (1024, 1023, 161, 40, 12)] == [128, 64, 16, 4, 4]
    assert one.fitting(2, 40) == 2 and three.fitting(96, 160) == 15


def test_a_loss_that_is_not_finite_names_method_and_step() -> None:
    class Explodes(Mean):
        def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
            return {"bad": out.z.sum() * (torch.nan if self.global_step == 1 else 0.0)}

    datamodule = Probe()
    with pytest.raises(FloatingPointError, match=r"Explodes: the loss of stage 'train' is not finite at step 1"):
        fit(Explodes(datamodule.task, RECIPE), datamodule)


def test_several_stages_need_our_runner() -> None:
    datamodule = Probe()
    method = Staged(datamodule.task, RECIPE)
    batch = next(iter(datamodule.train_dataloader()))
    with pytest.raises(RuntimeError, match="3 stages: use benchmark"):
        method.training_step(batch, 0)


@pytest.mark.parametrize("shape", ["vectors", "image_text"])
def test_a_wrapper_that_adds_nothing_is_its_base_bit_for_bit(shape: str) -> None:
    class Around(Wrapper):
        def __init__(self, task: Task, recipe: Recipe, *, base: Base = Base("concat")) -> None:
            super().__init__(task, recipe, base)
            self.extra = nn.Linear(3, 3)

    datamodule = Probe(shape=shape)
    trained = []
    for cls in (methods.get("concat"), Around):
        seed_all("wrap")
        method = cls(datamodule.task, RECIPE)
        fit(method, datamodule, seed=4)
        trained.append(method)
    batch = datamodule.ordered("test").take(slice(0, 16))
    alone, around = (m(batch.inputs, batch.present).logits for m in trained)
    assert torch.equal(alone, around)


def test_absent_inputs_reach_encode_as_zeros() -> None:
    seen = {}

    class Looks(Mean):
        def encode(self, inputs: dict[str, Tensor], present: Tensor):
            seen.update(inputs)
            return super().encode(inputs, present)

    datamodule = Probe()
    batch = datamodule.ordered("test").take(slice(0, 4))
    present = batch.present.clone()
    present[1, 0] = False
    out = Looks(datamodule.task, RECIPE)(batch.inputs, present)
    assert seen["a"][1].abs().sum() == 0 and torch.equal(seen["a"][0], batch.inputs["a"][0])
    assert out.tokens["a"].x[1].abs().sum() == 0 and out.z[1, 0].abs().sum() == 0


@pytest.mark.parametrize(
    ("field", "value"), [("width", 0), ("epochs", 1.5), ("lr", 0.0), ("weight_decay", -1), ("patience", True)]
)
def test_recipe_values_are_checked(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"`{field}` must be"):
        Recipe(**{field: value})  # pyright: ignore[reportArgumentType]


def test_rates_multiply_the_learning_rate_without_weight_decay() -> None:
    class Proxies(Mean):
        def stages(self) -> tuple[Stage, ...]:
            assert self.head is not None
            return (Stage(self, rates=((self.head, 100.0),)),)

    datamodule = Probe()
    method = Proxies(datamodule.task, RECIPE)
    (stage,) = method.stages()
    with method.in_stage(stage):
        groups = method.configure_optimizers().param_groups
    assert groups[1]["lr"] == pytest.approx(1.0) and groups[1]["weight_decay"] == 0
    assert groups[0]["lr"] == pytest.approx(0.01) and groups[0]["weight_decay"] == pytest.approx(1e-4)
    assert sum(len(g["params"]) for g in groups) == len(list(method.parameters()))
