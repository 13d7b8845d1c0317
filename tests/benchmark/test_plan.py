"""Cell ids: everything that decides a number is in them, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.build import build_method
from benchmark.cli import main
from benchmark.cost import trainable
from benchmark.matrix import parse
from benchmark.options import plain, resolve
from benchmark.plan import Entry, make_plan
from datamodules.base import DataModule, Split, SplitName
from datamodules.registry import datasets
from leaderboard.record import Cell
from methods import Base, Recipe, methods

SMALL = {
    "datasets": [{"name": "interactions_xor", "rows": 200}],
    "methods": ["concat"],
    "conditions": "none",
    "baselines": False,
}


def cell(**change: object) -> Cell:
    (found,) = make_plan(parse({**SMALL, **change}, "f")).cells
    return found


def test_ids_are_stable_and_complete() -> None:
    first = cell()
    assert first.id == cell().id
    assert first.id.startswith("concat-interactions_xor-0-")
    different = [
        cell(seeds=[1]),
        cell(recipe={"epochs": 7}),
        cell(methods={"concat": {"hidden": 16}}),
        cell(methods=["late"]),
        cell(datasets=[{"name": "interactions_xor", "rows": 300}]),
        cell(conditions="standard"),
        cell(trainer={"precision": "64-true"}),
    ]
    assert len({c.id for c in (first, *different)}) == 1 + len(different)


def test_defaults_written_out_and_devices_do_not_matter() -> None:
    assert cell().id == cell(methods={"concat": {"hidden": 128}}).id
    assert cell().id == cell(trainer={"devices": 2}).id
    assert cell(methods={"concat": {"hidden": 128}}).label == "concat"


def test_parameters_are_counted_without_memory() -> None:
    found = cell()
    width, hidden = 64, 128
    encoder = (6 * width + width) + (width * width + width) + 2 * width
    assert found.parameters == 2 * encoder + (2 * width * hidden + hidden) + (hidden * 2 + 2)


def test_a_base_is_resolved_with_its_defaults() -> None:
    class Around:
        def __init__(self, task: object, recipe: object, *, base: Base = Base("concat")) -> None: ...

    short = resolve("around", Around, {"base": "concat"}, "f")
    long = resolve("around", Around, {"base": {"name": "concat", "hidden": 128}}, "f")
    assert plain(short["base"]) == plain(long["base"]) == {"name": "concat", "hidden": 128}
    assert plain(resolve("around", Around, {}, "f")["base"]) == plain(short["base"])
    with pytest.raises(ValueError, match="base: no method named 'conact'"):
        resolve("around", Around, {"base": "conact"}, "f")
    with pytest.raises(ValueError, match="concat: no option `hiden`"):
        resolve("around", Around, {"base": {"name": "concat", "hiden": 1}}, "f")


@settings(max_examples=25, deadline=None)
@given(st.permutations(["concat", "late", "additive"]), st.integers(1, 3))
def test_the_order_of_a_matrix_does_not_change_its_cells(names: list[str], seeds: int) -> None:
    plan = make_plan(parse({**SMALL, "methods": names, "seeds": seeds}, "f"))
    again = make_plan(parse({**SMALL, "methods": sorted(names), "seeds": seeds}, "f"))
    assert {c.id for c in plan.cells} == {c.id for c in again.cells}
    assert len(plan.cells) == 3 * seeds


@pytest.mark.parametrize(
    ("rows", "epochs", "said"),
    [
        (100, 10, ["batches of 4 instead of 128", "at most 150 steps"]),
        (100, 30, ["batches of 4 instead of 128"]),
        (4000, 30, []),
    ],
)
def test_a_small_table_is_told_what_its_batches_and_steps_will_be(
    tmp_path: Path, rows: int, epochs: int, said: list[str]
) -> None:
    table = "\n".join(f"{i % 7},{i % 5},{i % 2}" for i in range(rows))
    (tmp_path / "table.csv").write_text(f"a,b,target\n{table}\n")
    dataset = {"name": "csv_views", "file": str(tmp_path / "table.csv"), "modalities": {"a": ["a"], "b": ["b"]}}
    wanted = {"methods": ["concat"], "datasets": [dataset], "recipe": {"epochs": epochs}, "baselines": False}
    notes = [note for note in make_plan(parse(wanted, "test")).notes if "steps" in note]
    assert len(notes) == len(said) and all(part in note for part, note in zip(said, notes, strict=True)), notes


def step_notes_of(**wanted: Any) -> list[str]:
    matrix = {"methods": ["concat"], "datasets": ["digit_halves"], "baselines": False, "conditions": "none", **wanted}
    return [note for note in make_plan(parse(matrix, "test")).notes if "steps" in note]


def test_few_steps_are_said_of_every_dataset() -> None:
    """1,197 training rows: 18 steps an epoch."""
    assert step_notes_of(recipe={"epochs": 11, "batch_size": 64}) == [
        "digit_halves: at most 198 steps of training, fewer than 200: every method that trains; raise recipe.epochs"
    ]
    assert step_notes_of(recipe={"epochs": 12, "batch_size": 64}) == []


def test_what_is_solved_takes_no_steps_and_stages_share_the_epochs() -> None:
    solved = ["linear", "boosting"]
    assert step_notes_of(methods=solved, recipe={"epochs": 1}) == []
    assert step_notes_of(methods=[*solved, "concat"], recipe={"epochs": 12, "batch_size": 64}) == []
    # Eleven epochs, of which its two stages get five each.
    (note,) = step_notes_of(methods=["distilled_missing"], recipe={"epochs": 11, "batch_size": 64})
    assert note.startswith("digit_halves: at most 180 steps")
    # A batch that DCCA keeps leaves it one step an epoch; the others get batches of 128 instead.
    (note,) = step_notes_of(methods=[*solved, "concat", "dcca"], recipe={"epochs": 24, "batch_size": 1024})
    assert note == "digit_halves: at most 24 steps of training, fewer than 200: dcca; raise recipe.epochs"


def test_rows_are_read_only_where_epochs_leave_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def load(self: DataModule) -> dict[SplitName, Split]:
        read.append(self.task.name)
        raise RuntimeError("damaged")  # for its cells to say

    monkeypatch.setattr(datasets.get("digit_halves"), "load", load)
    assert step_notes_of(recipe={"epochs": 25}) == [] and read == []
    assert step_notes_of(recipe={"epochs": 24}) == [] and read == ["digit_halves"]


def test_parameters_are_counted_as_boards_count_them() -> None:
    """Of CCA only the probe is trained: the rest is solved, or frozen."""
    matrix = {**SMALL, "methods": ["cca", "concat"]}
    plan = make_plan(parse(matrix, "test"))
    assert {cell.label for cell in plan.cells} == {"cca[raw]", "cca[encoded]", "concat"}
    for found in plan.cells:
        task = datasets.get("interactions_xor")(rows=200).task
        method = build_method(found.method, found.options, task, found.recipe)
        assert plan.trainable[found.label, found.dataset] == trainable(method.stages()), found.label
    sizes = {cell.label: cell.parameters for cell in plan.cells}
    assert plan.trainable["cca[encoded]", "interactions_xor"] < sizes["cca[encoded]"] / 2
    assert plan.trainable["concat", "interactions_xor"] == sizes["concat"]


def test_the_table_of_a_plan_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", "--methods", "cca", "--datasets", "interactions_xor", "--no-baselines", "--seeds", "1"]
    command += ["--results", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    (encoded,) = [c for c in json.loads(capsys.readouterr().out)["cells"] if c["method"] == "cca[encoded]"]
    assert encoded["trainable_parameters"] < encoded["parameters"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"{encoded['trainable_parameters']:,}" in shown and f"{encoded['parameters']:,}" not in shown


def test_a_method_is_sketched_once_for_tasks_of_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sets of two vectors are one shape, three are another; each dataset has its cells and counts all the same."""
    sketched: list[str] = []
    sketch = Entry.sketch
    monkeypatch.setattr(
        Entry, "sketch", lambda entry, task, recipe: (sketched.append(task.name), sketch(entry, task, recipe))[1]
    )
    names = ("interactions_xor", "interactions_enhancement", "interactions_parity3")
    found = make_plan(parse({"methods": ["concat"], "datasets": list(names), "seeds": 1, "baselines": False}, "t"))
    assert sketched == ["interactions_xor", "interactions_parity3"]
    assert {cell.dataset for cell in found.cells} == set(names)
    for name in names:
        task = datasets.get(name)().task
        alone = methods.get("concat")(task, Recipe())
        assert found.trainable["concat", name] == sum(p.numel() for p in alone.parameters())
