"""Matrices that train on incomplete rows, from the plan to the record."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmark.build import build_dataset
from benchmark.executors.local import Settings, execute
from benchmark.plan import Plan
from benchmark.runner import load_method
from datamodules.rows.incomplete import Incomplete
from leaderboard.record import Record
from leaderboard.store import Store
from tests.benchmark.conftest import planned

XOR = {"name": "interactions_xor", "rows": 200}
RECIPE = {"width": 8, "epochs": 2, "batch_size": 40}


def plan_of(*datasets: Any, **change: Any) -> Plan:
    return planned(datasets=list(datasets), recipe=RECIPE, **change)


def run(plan: Plan, folder: Path) -> list[Record]:
    records = list(execute(plan.cells, Settings(results=str(folder), workers=0)))
    assert all(r.status == "ok" for r in records), [r.error for r in records]
    return records


def test_rates_make_another_dataset_of_the_same_version_and_rates_of_nothing_do_not() -> None:
    first, second = (m.name for m in build_dataset("interactions_xor", {}).task.modalities)
    plain, some, other = plan_of(
        XOR, {**XOR, "absent": {first: 0.3}}, {**XOR, "absent": {second: 0.5, first: 0.3}}
    ).cells
    assert some.dataset == f"interactions_xor[absent={first}:0.3]"
    assert other.dataset == f"interactions_xor[absent={first}:0.3,{second}:0.5]"
    assert some.dataset_version == plain.dataset_version and some.dataset_options["absent"] == {first: 0.3}
    assert len({plain.id, some.id, other.id}) == 3
    assert plain.protocol != some.protocol == other.protocol  # the code that drops is part of what they are
    rebuilt = build_dataset(some.dataset, some.dataset_options)
    assert isinstance(rebuilt, Incomplete) and rebuilt.absent == {first: 0.3}
    for nothing in ({}, {first: 0.0}):
        assert plan_of({**XOR, "absent": nothing}).cells == (plain,)
    axis = plan_of({**XOR, "absent": [{first: 0.0}, {first: 0.3}, {first: 0.6}]}).cells
    assert [c.id for c in axis[:2]] == [plain.id, some.id] and len(axis) == 3


def test_methods_learn_from_incomplete_rows_and_are_tested_on_both(tmp_path: Path) -> None:
    names = build_dataset("interactions_xor", {}).task.names
    absent = {names[0]: 0.4, names[1]: 0.4}
    methods = ["concat", "late", "gated"]
    plan = plan_of(XOR, {**XOR, "absent": absent}, methods=methods, conditions=["missing", "missing_rate"])
    records = run(plan, tmp_path / "results")
    assert len(records) == 6
    store = Store(tmp_path / "results")
    for complete, incomplete in zip(records[:3], records[3:], strict=True):
        assert [c.id for c in complete.conditions] == [c.id for c in incomplete.conditions]
        assert f"missing_rate:{names[0]}:0.5" in {c.id for c in incomplete.conditions}
        assert complete.rows == incomplete.rows
        assert complete.provenance["dataset_hash"] != incomplete.provenance["dataset_hash"]
        ours, theirs = (store.predictions(r.cell.id) for r in (incomplete, complete))
        assert np.array_equal(ours["target"], theirs["target"])
        assert not np.array_equal(ours["prob:clean"], theirs["prob:clean"])
        method, data = load_method(incomplete, store)
        train = data.splits["train"].present
        assert train is not None and not train.all() and data.splits["test"].present is None
        assert next(method.parameters()).isfinite().all()
    again = run(plan, tmp_path / "again")
    for record in again:
        kept, found = (Store(tmp_path / f).predictions(record.cell.id) for f in ("results", "again"))
        assert all(np.array_equal(kept[name], found[name]) for name in found)


@pytest.mark.parametrize("method", ["concat", "late", "gated"])
def test_what_is_absent_in_training_is_not_looked_at(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other content in the absent places, the same model."""
    name = build_dataset("interactions_xor", {}).task.names[0]
    plan = plan_of({**XOR, "absent": {name: 0.5}}, methods=[method])
    (first,) = run(plan, tmp_path / "first")
    load = Incomplete.load

    def other(self: Incomplete) -> Any:
        splits = load(self)
        for part in ("train", "val"):
            split = splits[part]
            assert split.present is not None
            x = split.inputs[name][:].clone()
            x[~split.present[:, 0]] = 100.0
            splits[part] = split._replace(inputs={**split.inputs, name: x})
        return splits

    monkeypatch.setattr(Incomplete, "load", other)
    monkeypatch.setattr("benchmark.runner._loaded", OrderedDict())  # a dataset is kept between cells
    (second,) = run(plan, tmp_path / "second")
    assert first.provenance["dataset_hash"] != second.provenance["dataset_hash"]
    a, b = (Store(tmp_path / f).predictions(first.cell.id) for f in ("first", "second"))
    assert np.array_equal(a["prob:clean"], b["prob:clean"])


CORRELATE = {"cca[raw]", "cca[encoded]", "dcca", "dccae"}


def table(folder: Path, complete: int, rows: int = 160) -> dict[str, Any]:
    """A user's table of which so many training rows have both modalities, the others one of them."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, rows)
    frame = pd.DataFrame(rng.standard_normal((rows, 10)) + label[:, None], columns=[f"c{i}" for i in range(10)])
    first = rng.random(rows) < 0.5
    first[:10] = np.arange(10) % 2 == 0  # both are there
    lacking = np.arange(rows) >= complete
    frame.loc[lacking & first, [f"c{i}" for i in range(5)]] = np.nan
    frame.loc[lacking & ~first, [f"c{i}" for i in range(5, 10)]] = np.nan
    split = ["train"] * 100 + ["val"] * 30 + ["test"] * 30
    frame.assign(target=label, split=split).to_csv(folder / "table.csv", index=False)
    views = {"a": ["c0..c4"], "b": ["c5..c9"]}
    return {"name": "csv_views", "file": str(folder / "table.csv"), "modalities": views, "split": "split"}


@pytest.mark.parametrize("complete", [0, 1])
def test_without_rows_that_have_all_modalities_nothing_is_correlated(tmp_path: Path, complete: int) -> None:
    """Each was a failed cell: a covariance needs two rows."""
    methods = ["cca", "dcca", "dccae", "concat", {"name": "emma", "base": "cca"}]
    plan = plan_of(table(tmp_path, complete), methods=methods)
    assert {cell.label for cell in plan.cells} == {"concat"}
    assert {left.label for left in plan.not_applicable} == CORRELATE | {"emma[base=cca]"}
    assert all(f"{complete} of 100 training rows have them all" in left.reason for left in plan.not_applicable)


def test_two_such_rows_are_fitted_and_the_plan_says_how_narrowly(tmp_path: Path) -> None:
    plan = plan_of(table(tmp_path, 2), methods=["cca", "dcca"])
    assert {cell.label for cell in plan.cells} == {"cca[raw]", "cca[encoded]", "dcca"} and not plan.not_applicable
    (note,) = [note for note in plan.notes if "have both" in note]
    assert note.startswith("dcca on csv_views[table]: 0 rows of a batch have both modalities, which train 0 of 6")
    run(plan, tmp_path / "results")


def test_modalities_of_any_dataset_that_never_meet_are_not_correlated() -> None:
    first, second = build_dataset("interactions_xor", {}).task.names
    alone = plan_of({**XOR, "absent": {first: 1.0, second: 1.0}}, methods=["cca", "concat"])
    assert {left.label for left in alone.not_applicable} == {"cca[raw]", "cca[encoded]"}
    assert not plan_of({**XOR, "absent": {first: 0.5}}, methods=["cca", "concat"]).not_applicable


def test_rows_of_other_datasets_are_not_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(type(build_dataset("interactions_xor", {})), "load", lambda self: read.append(self.task.name))
    long = {**RECIPE, "epochs": 100}  # so that nobody asks how many steps there will be
    assert len(planned(datasets=[XOR], recipe=long, methods=["cca", "dcca"]).cells) == 3
    assert not read
