"""Matrices: what is read, and what bad input gets before anything runs."""

import math
from pathlib import Path

import pytest

from benchmark.errors import UsageError
from benchmark.matrix import DEFAULT, parse, read, shipped, with_arguments
from benchmark.plan import make_plan
from tests.benchmark.conftest import SMALL, planned


def test_shipped_matrices_are_read() -> None:
    assert {"quick", "core", "vqa2", "retrieval", "robust_image_text"} <= set(shipped())
    for name in shipped():
        matrix = read(name)
        assert matrix.methods and matrix.datasets and matrix.seeds, name


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("centers", 6 * 6),  # losses x regularisers
        ("centers_embedding", 5 * 3),  # widths x regularisers
        ("centers_margin", 6),
        ("zero_shot", 4 * 2),  # methods x candidates
        ("attention", 7 * 2),  # methods x datasets
    ],
)
def test_the_matrices_of_the_sources_are_planned_whole(name: str, cells: int) -> None:
    plan = make_plan(read(name))
    assert not plan.not_applicable and not plan.faulty
    assert len({cell.with_seed(0).id for cell in plan.cells}) == cells
    assert len(plan.cells) == cells * len(read(name).seeds)


def test_the_default_matrix_is_planned() -> None:
    matrix = read(DEFAULT)
    plan = make_plan(matrix)
    nowhere = {"zero_shot"}  # compares features of one space, which no dataset of the matrix has
    chosen = {choice.name for choice in matrix.methods} | set(plan.added)
    assert {cell.method for cell in plan.cells} == chosen - nowhere
    assert {cell.dataset for cell in plan.cells} == {choice.name for choice in matrix.datasets}
    assert {cell.seed for cell in plan.cells} == set(matrix.seeds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["concta"]}, "no method named 'concta'. Did you mean 'concat'"),
        ({"datasets": ["digit_halfs"]}, "no dataset named 'digit_halfs'. Did you mean 'digit_halves'"),
        ({"sedes": 3}, "no key `sedes` in a matrix. Did you mean 'seeds'"),
        ({"seeds": 0}, "`seeds` must be an integer >= 1"),
        ({"seeds": []}, "`seeds` must be an integer >= 1"),
        ({"seeds": [True]}, "`seeds` must be an integer >= 1"),
        ({"recipe": 3}, "`recipe` must be a table"),
        ({"baselines": "false"}, "`baselines` must be true or false"),
        ({"exclude": 5}, "`exclude` must be a list, each a string"),
        ({"datasets": [1]}, "`datasets` must be one of 'all' or a list, each a string or a table"),
        ({"methods": {"cca": False}}, "`methods` must be"),
        ({"conditions": [[1]]}, "`conditions` must be a string or a list, each a string"),
        ({"conditions": 1}, "`conditions` must be a string or a list, each a string"),
        ({"conditions": float("-inf")}, "`conditions` must be a string or a list, each a string"),
        ({"exclude": 1e-308}, "`exclude` must be a list, each a string"),
        ({"seeds": 10**29}, "`seeds` must be an integer >= 1"),
        ({"seeds": 10**9}, "`seeds` must be an integer >= 1 and <= 100000"),
        ({"recipes": {"digit_halves": 1}}, "`recipes` must be a table"),
        ({"recipe": {"lr": math.inf}}, "`recipe` must be finite"),
        ({"recipe": {"weight_decay": math.nan}}, "`recipe` must be finite"),
        ({"methods": {"skewed_mean": {"sigma": math.inf}}}, "`methods` must be finite"),
        ({"methods": {"skewed_mean": {"kappa": math.nan}}}, "`methods` must be finite"),
        ({"methods": [{"rank": 3}]}, "has no name"),
        ({"recipes": {"digits": {}}}, "no dataset named 'digits'"),
        ({"exclude": ["conat"]}, "no method named 'conat'"),
    ],
)
def test_unknown_names_are_named(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=r"file\.toml") as error:
        parse({**SMALL, **change}, "file.toml")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": {"concat": {"hiden": 3}}}, "concat: no option `hiden`. Did you mean 'hidden'"),
        ({"methods": {"concat": {"hidden": "big"}}}, "concat: `hidden` must be an integer >= 1, got 'big'"),
        ({"methods": {"late": {"combine": "vote"}}}, "late: `combine` must be one of 'bayes', 'mean', got 'vote'"),
        ({"methods": {"transformer": {"heads": 7}}}, "transformer: `heads` must divide the width 64, got 7"),
        ({"recipe": {"epochs": 0}}, "`epochs` must be an integer >= 1, got 0"),
        ({"recipe": {"epoch": 3}}, "no key `epoch`. Did you mean 'epochs'"),
        ({"trainer": {"device": 3}}, "no key `device`. Did you mean 'devices'"),
        ({"conditions": "standart"}, "no set of conditions named 'standart'. Did you mean 'standard'"),
        ({"conditions": ["gausian_noise"]}, "Did you mean 'gaussian_noise'"),
        ({"datasets": [{"name": "interactions_xor", "rows": 3}]}, "`rows` must be an integer >= 100"),
        ({"datasets": [{"name": "interactions_xor", "row": 300}]}, "no option `row`. Did you mean 'rows'"),
    ],
)
def test_bad_values_are_errors_of_the_plan(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=r"test\.toml") as error:
        planned(**change)
    assert message in str(error.value)


def test_truncated_toml(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text("methods = [")
    with pytest.raises(UsageError, match=r"half.toml is not valid TOML"):
        read(str(path))
    with pytest.raises(UsageError, match="neither a file nor a shipped one"):
        read("qick")


def test_lists_are_axes_and_seeds_count() -> None:
    plan = planned(methods={"concat": {"hidden": [16, 32]}}, seeds=3)
    assert len(plan.cells) == 6
    assert {c.label for c in plan.cells} == {"concat[hidden=16]", "concat[hidden=32]"}


def test_a_list_is_the_value_of_an_option_that_is_a_sequence() -> None:
    one = planned(datasets=[{"name": "interactions_xor", "rows": 200, "mu": [2.0, 2.0]}])
    assert one.cells[0].dataset_options["mu"] == [2.0, 2.0]
    axis = [{"name": "interactions_xor", "rows": 200, "mu": [[2.0, 2.0], [1.0, 1.0]]}]
    two = planned(datasets=axis)
    assert len({str(c.dataset_options) for c in two.cells}) == 2


def test_unimodal_expands_and_baselines_are_added() -> None:
    plan = planned(methods=["additive"], baselines=True)
    assert {c.label for c in plan.cells} == {"additive", "concat", "unimodal[a]", "unimodal[b]"}
    assert plan.added == ("concat", "unimodal")


def test_not_applicable_is_listed_with_its_reason() -> None:
    plan = planned(methods=[{"name": "unimodal", "modality": "image"}])
    (left,) = plan.not_applicable
    assert left.label == "unimodal[image]" and "no modality 'image'" in left.reason


def test_all_on_the_command_line_is_all_of_a_file() -> None:
    file = {**SMALL, "methods": [{"name": "concat", "hidden": 16}]}
    matrix = with_arguments(parse(file, "f"), method_names=["all"])
    assert [c.name for c in matrix.methods] == [c.name for c in parse({**SMALL, "methods": "all"}, "f").methods]
    # What the file says of a method still holds.
    assert {c.name: c.options for c in matrix.methods}["concat"] == {"hidden": 16}


def test_command_line_on_top() -> None:
    file = {**SMALL, "recipes": {"interactions_xor": {"epochs": 9, "lr": 0.5}}}
    matrix = with_arguments(
        parse(file, "f"),
        method_names=["concat", "late"],
        seeds=2,
        settings=["concat.hidden=16", "recipe.epochs=3", "late.combine=mean"],
    )
    plan = make_plan(matrix)
    assert {c.label for c in plan.cells} >= {"concat[hidden=16]", "late[combine=mean]"}
    assert all(c.recipe["epochs"] == 3 and c.recipe["lr"] == 0.5 for c in plan.cells)
    with pytest.raises(UsageError, match="Did you mean 'concat'"):
        with_arguments(parse(SMALL, "f"), settings=["conact.hidden=3"])
    with pytest.raises(UsageError, match=r"--set takes NAME.KEY=VALUE"):
        with_arguments(parse(SMALL, "f"), settings=["hidden"])
    with pytest.raises(UsageError, match=r"--seeds.* must be"):
        with_arguments(parse(SMALL, "f"), seeds=10**9)
