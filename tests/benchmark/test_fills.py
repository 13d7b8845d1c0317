"""What fills an absent encoding: both ways measured, one chosen on validation rows, masks left alone."""

from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from benchmark.conditions import resolve
from benchmark.conformance.probe import Probe
from benchmark.evaluate import Filling, sweep
from benchmark.executors.local import Settings, execute
from benchmark.fills import choose_filling, mean_encodings
from benchmark.runner import run_cell
from benchmark.tally import NotFinite, error_auroc
from benchmark.trainer import Encodings
from datamodules.registry import load_plugin
from leaderboard.record import InvalidRecord, is_missing
from leaderboard.store import Store
from methods import Method, Output, Recipe, methods
from tests.benchmark.conftest import planned

RECIPE = Recipe(width=8, epochs=1, batch_size=64)
CPU = torch.device("cpu")


def built(name: str, datamodule: Probe) -> Method:
    torch.manual_seed(0)
    return methods.get(name)(datamodule.task, RECIPE).train(False)


def test_means_are_those_of_the_training_rows_that_have_the_modality() -> None:
    datamodule = Probe(shape="three")
    split = datamodule.splits["train"]
    there = torch.ones(len(split.target), 3, dtype=torch.bool)
    there[::2, 1] = False
    datamodule.splits["train"] = split._replace(present=there)
    method = built("concat", datamodule)
    with torch.no_grad():
        z = method(dict(split.inputs), there).z  # pyright: ignore[reportArgumentType]
    expected = torch.stack([z[there[:, m], m].mean(dim=0) for m in range(3)])
    found = mean_encodings(Encodings(method, datamodule.ordered("train")))
    assert torch.allclose(found, expected, atol=1e-6) and expected.abs().sum() > 0


def test_both_fills_are_what_a_naive_evaluation_gives() -> None:
    datamodule = Probe(shape="three")
    method = built("concat", datamodule)
    means = mean_encodings(Encodings(method, datamodule.ordered("train")))
    conditions = resolve(("missing", "missing_rate"), datamodule.task)
    swept = sweep(method, datamodule, conditions, filling=Filling(means, "mean"))
    split = datamodule.splits["test"]
    for found in swept.conditions:
        if found.kind != "missing":
            assert set(found.fills) == ({"mean", "zero"} if is_missing(found) else set())
            continue
        gone = torch.tensor([name in found.absent for name in datamodule.task.names])
        with torch.no_grad():
            z = method(dict(split.inputs)).z  # pyright: ignore[reportArgumentType]
            for way, fill in (("zero", torch.zeros_like(means)), ("mean", means)):
                filled = torch.where(gone[:, None], fill, z)
                guess = method.predict(method.fuse(filled, ~gone.expand(len(z), 3))).argmax(dim=1)
                assert found.fills[way] == pytest.approx(float((guess == split.target).float().mean()))  # pyright: ignore[reportArgumentType]
        assert found.score == found.fills["mean"]
        assert (torch.from_numpy(swept.predictions[f"pred:{found.id}"]).long() == guess).all()  # pyright: ignore[reportPossiblyUnboundVariable]


class Told(Method):
    """Right where a modality's absent encoding is of the kind it wants, wrong elsewhere."""

    wants_zero: Tensor

    def __init__(self, task, recipe):
        super().__init__(task, recipe)
        self.answer = torch.nn.Parameter(torch.zeros(1))

    def fuse(self, z, present):
        zero = (z == 0).all(dim=2) & ~present
        right = torch.where((~present).any(dim=1), zero.any(dim=1) == self.wants_zero, True)
        return torch.nn.functional.one_hot(right.long(), self.task.num_outputs).float() + self.answer


@pytest.mark.parametrize("wants_zero", [True, False])
def test_the_choice_is_made_on_validation_rows_and_never_on_test_rows(wants_zero: bool) -> None:
    datamodule = Probe()
    method = Told(datamodule.task, RECIPE).train(False)
    method.wants_zero = torch.tensor(wants_zero)
    for name in ("val", "test"):  # all of class 1, which the method gives where it is filled as it wants
        split = datamodule.splits[name]
        datamodule.splits[name] = split._replace(target=torch.ones_like(split.target))
    conditions = resolve(("missing",), datamodule.task)
    del datamodule.splits["test"]  # a look at it would be a KeyError
    filling = choose_filling(method, datamodule, conditions, CPU)
    assert filling is not None and filling.chosen == ("zero" if wants_zero else "mean")
    # On rows where the other way is right, the choice stays what validation said.
    val = datamodule.splits["val"]
    datamodule.splits["test"] = val._replace(target=torch.zeros_like(val.target))
    swept = sweep(method, datamodule, conditions, filling=filling)
    for c in swept.conditions[1:]:
        assert c.score == c.fills[filling.chosen] == 0 and max(c.fills.values()) == 1


def test_a_method_that_masks_keeps_its_mask() -> None:
    datamodule = Probe(shape="three")
    conditions = resolve(("missing",), datamodule.task)
    chosen = {
        name: choose_filling(built(name, datamodule), datamodule, conditions, CPU)
        for name in ("late", "product_of_experts", "concat")
    }
    assert {name: f is not None and f.chosen == "mask" for name, f in chosen.items()} == {
        "late": True, "product_of_experts": True, "concat": False
    }  # fmt: skip
    swept = sweep(built("late", datamodule), datamodule, conditions, filling=chosen["late"])
    assert all(c.fills == {"mask": c.score} for c in swept.conditions[1:]) and swept.conditions[0].fills == {}


def test_without_missing_conditions_nothing_is_chosen() -> None:
    datamodule = Probe()
    conditions = resolve(("joint",), datamodule.task)
    assert choose_filling(built("concat", datamodule), datamodule, conditions, CPU) is None


class Fragile(methods.get("concat")):  # type: ignore[misc]
    """Gives NaN where a modality is absent."""

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        fused = super().fuse(z, present)
        return torch.where(present.all(dim=1, keepdim=True), fused, torch.nan)


def test_an_output_that_is_not_finite_names_condition_and_row() -> None:
    datamodule = Probe()
    method = Fragile(datamodule.task, RECIPE).train(False)
    with pytest.raises(NotFinite, match=r"Fragile: the output under condition missing:a is not finite at row 0 of the"):
        sweep(method, datamodule, resolve(("missing",), datamodule.task))
    with pytest.raises(NotFinite, match=r"missing:a \(zero for what is absent\) .* of the val split: \[nan"):
        choose_filling(method, datamodule, resolve(("missing",), datamodule.task), CPU)
    assert sweep(method, datamodule, resolve("none", datamodule.task)).conditions[0].score >= 0


class Doubts(methods.get("concat")):  # type: ignore[misc]
    def uncertainty(self, out: Output, present: Tensor) -> Tensor:
        return out.logits.softmax(dim=1).max(dim=1).values  # the surer, the more it doubts


def test_a_declared_uncertainty_is_audited_against_errors() -> None:
    datamodule = Probe()
    torch.manual_seed(0)
    swept = sweep(Doubts(datamodule.task, RECIPE), datamodule, resolve(("joint",), datamodule.task))
    for c in swept.conditions:
        assert c.diagnostics["error_auroc"] == pytest.approx(1 - c.calibration["error_auroc"], abs=1e-6)
    plain = sweep(built("concat", datamodule), datamodule, resolve("none", datamodule.task)).conditions[0]
    assert "error_auroc" not in plain.diagnostics and "error_auroc" in plain.calibration


def test_error_auroc_is_the_share_of_ordered_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    doubt, correct = torch.randint(0, 9, (60,), generator=generator).float(), torch.rand(60, generator=generator) < 0.6
    pairs = [(float(a > b) + 0.5 * float(a == b)) for a in doubt[~correct] for b in doubt[correct]]
    assert error_auroc(doubt, correct) == pytest.approx(sum(pairs) / len(pairs))
    assert torch.tensor(error_auroc(doubt, torch.ones(60, dtype=torch.bool))).isnan()


def test_the_record_says_what_was_chosen_and_a_score_of_another_fill_is_refused(tmp_path: Path) -> None:
    (cell,) = planned(conditions=["missing"]).cells
    record = run_cell(cell, Store(tmp_path))
    assert record.status == "ok" and record.fill in ("zero", "mean")
    assert [set(c.fills) for c in record.conditions] == [set(), {"zero", "mean"}, {"zero", "mean"}]
    other = {"zero": "mean", "mean": "zero"}[record.fill]
    lied = [
        msgspec.structs.replace(c, fills={**c.fills, record.fill: 0.123}) if c.fills else c for c in record.conditions
    ]
    with pytest.raises(InvalidRecord, match="not that of the chosen fill"):
        msgspec.structs.replace(record, conditions=tuple(lied)).check()
    assert record.from_json(record.to_json()).fill == record.fill != other


@pytest.mark.parametrize("dataset", ["interactions_xor", "interactions_modulation"])
def test_a_cell_whose_output_is_not_finite_fails_and_the_matrix_goes_on(tmp_path: Path, dataset: str) -> None:
    plugin = tmp_path / "fragile.py"
    plugin.write_text(FRAGILE)
    load_plugin(plugin)
    plan = planned(datasets=[{"name": dataset, "rows": 200}], methods=["fragile", "concat"], conditions=["missing"])
    records = {r.cell.method: r for r in execute(plan.cells, Settings(results=str(tmp_path / "r"), workers=0))}
    assert records["concat"].status == "ok" and records["fragile"].status == "failed"
    error = records["fragile"].error
    first = records["fragile"].cell.modalities[0]
    assert error is not None and error.type == "NotFinite"
    assert f"missing:{first}" in error.message and "at row 0" in error.message


FRAGILE = '''
"""Gives NaN when a modality is absent."""

import torch

from methods import Method, register


@register("fragile")
class FragilePlugin(Method):
    def __init__(self, task, recipe):
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z, present):
        return torch.where(present.all(dim=1, keepdim=True), z.sum(dim=1), torch.nan)
'''
