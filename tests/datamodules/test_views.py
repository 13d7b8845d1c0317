"""Tables and arrays of the user's own: `csv_views` and `npz_views`."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmark.conformance import check_dataset
from benchmark.conformance.methods import RECIPE
from benchmark.evaluate import sweep
from benchmark.plan import make_plan
from benchmark.trainer import fit
from datamodules.base import DataModule, Gathered
from datamodules.csv_views import CsvViews
from datamodules.npz_views import NpzViews, channel_moments
from datamodules.pulsars import Pulsars
from datamodules.sources import array_file
from methods.registry import methods

HTRU2: dict[str, Any] = {
    "file": "htru2/HTRU_2.csv",
    "header": False,
    "modalities": {"profile": ["0..3"], "dm": ["4", "5", "6", "7"]},
    "target": "8",
    "metric": "f1",
    "title": "pulsars",
}
needs_data = pytest.mark.skipif(
    not os.environ.get("POLYMODAL_DATA"), reason="POLYMODAL_DATA is not set: there is no folder to read from"
)


def table(rows: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(3.0, 2.0, (rows, 5)), columns=["a1", "a2", "a3", "b1", "b2"])
    frame["kind"] = np.array(["cat", "dog"])[np.arange(rows) % 2]
    frame["weight"] = rng.normal(100.0, 30.0, rows)
    frame["tail"] = np.arange(rows) % 2
    frame["wings"] = np.arange(rows) % 3 == 0
    frame["part"] = np.array(["train", "train", "train", "val", "test"])[np.arange(rows) % 5]
    frame["owner"] = np.arange(rows) // 4
    return frame


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path))

    def save(frame: pd.DataFrame, name: str = "pets.csv") -> str:
        frame.to_csv(tmp_path / name, index=False)
        return name

    return save


def views(file: str, **options: Any) -> CsvViews:
    given: dict[str, Any] = {"modalities": {"a": ["a1..a3"], "b": ["b1", "b2"]}, "target": "kind"}
    return CsvViews(file=file, **{**given, **options})


def failure(data: DataModule) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        _ = data.task, data.splits
    return str(caught.value)


# ---- csv_views ----------------------------------------------------------------------------------------------------


@needs_data
def test_htru2_as_a_table_is_pulsars() -> None:
    ours, theirs = CsvViews(**HTRU2), Pulsars()
    assert ours.fingerprint() == theirs.fingerprint() == Pulsars.sha256  # rows, splits, statistics
    for name, split in theirs.splits.items():
        assert ours.splits[name].target.equal(split.target)
        for modality, x in split.inputs.items():
            assert ours.splits[name].inputs[modality][:].equal(x[:])
    assert (ours.task.metric, ours.task.num_outputs, ours.task.names) == ("f1", 2, theirs.task.names)


@needs_data
def test_a_method_scores_the_same_on_both() -> None:
    found = []
    for data in (CsvViews(**HTRU2), Pulsars()):
        torch.manual_seed(0)
        method = methods.get("concat")(data.task, RECIPE)
        fit(method, data, seed=0)
        found.append(sweep(method, data, _clean()).conditions[0])
    assert found[0].score == found[1].score > 0.5 and found[0].metrics == found[1].metrics


def _clean() -> Any:
    from benchmark.conditions import resolve

    return resolve("none", Pulsars().task)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"split": "part"},
        {"group": "owner"},
        {"target": "weight", "task": "regression"},
        {"target": ["tail", "wings"], "task": "multilabel", "metric": "micro_f1"},
    ],
)
def test_the_contract(write: Any, options: dict[str, Any]) -> None:
    file = write(table())

    class Mine(CsvViews):
        def __init__(self) -> None:
            super().__init__(
                **{"file": file, "modalities": {"a": ["a1..a3"], "b": ["b1", "b2"]}, "target": "kind"} | options
            )

    assert [r for r in check_dataset("csv_views", Mine) if not r.passed] == []


def test_features_are_standardised_by_training_rows(write: Any) -> None:
    data, frame = views(write(table()), split="part"), table()
    train = frame[frame.part == "train"][["b1", "b2"]]
    expected = (frame[frame.part == "test"][["b1", "b2"]] - train.mean()) / train.std(ddof=0)
    np.testing.assert_allclose(data.splits["test"].inputs["b"][:], expected, atol=1e-5)
    assert data.task.class_names == ("cat", "dog")
    assert data.splits["test"].target.tolist() == [int(kind == "dog") for kind in frame[frame.part == "test"].kind]


def test_shares_are_stratified_fixed_and_keep_groups(write: Any) -> None:
    file = write(table())
    data = views(file, split=[0.5, 0.25, 0.25])
    assert {n: s.target.bincount().tolist() for n, s in data.splits.items()} == {
        "train": [10, 10], "val": [5, 5], "test": [5, 5],
    }  # fmt: skip
    assert data.fingerprint() == views(file, split=[0.5, 0.25, 0.25]).fingerprint()
    assert data.fingerprint() != views(file, split=[0.5, 0.25, 0.25], title="other").fingerprint()
    groups = [set(s.group.tolist()) for s in views(file, group="owner").splits.values() if s.group is not None]
    assert len(groups) == 3 and not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])


def test_a_modality_may_be_missing_in_a_row(write: Any) -> None:
    frame = table()
    frame.loc[[2, 7], ["b1", "b2"]] = np.nan
    data = views(write(frame), split="part")
    present = data.splits["train"].present
    assert present is not None and present[:, 0].all() and (~present[:, 1]).nonzero().flatten().tolist() == [2, 5]
    assert data.splits["train"].inputs["b"][:][~present[:, 1]].eq(0).all()
    rest = frame[(frame.part == "train") & frame.b1.notna()].b1  # what is missing is in no statistics
    np.testing.assert_allclose(
        data.splits["train"].inputs["b"][:][present[:, 1], 0], (rest - rest.mean()) / rest.std(ddof=0), atol=1e-5
    )


@pytest.mark.parametrize(
    ("column", "row", "value", "said"),
    [
        ("b1", 6, "n/a?", "pets.csv, row 7, column 'b1': must be a finite number, got 'n/a?'"),
        ("a2", 3, np.inf, "row 4, column 'a2': must be a finite number, got inf"),
        ("kind", 11, np.nan, "row 12, column 'kind': must not be empty"),
        ("part", 2, "trian", "'part', row 3: must be train, val or test, got 'trian'"),
    ],
)
def test_a_bad_cell_is_named(write: Any, column: str, row: int, value: Any, said: str) -> None:
    frame = table().astype({column: object})
    frame.loc[row, column] = value
    assert said in failure(views(write(frame), split="part"))


def test_half_a_modality_is_absent_if_told_so(write: Any) -> None:
    frame = table()
    frame.loc[2, "b2"] = np.nan
    said = failure(views(write(frame), split="part", gaps="error"))
    assert "row 3, column 'b2': must not be empty, as other columns of 'b' are not" in said
    assert 'or say gaps = "absent"' in said
    told = views(write(frame), split="part", gaps="absent")
    frame.loc[2, "b1"] = np.nan  # as if nothing of it had been there
    whole = views(write(frame, "whole.csv"), split="part", title="pets")
    assert told.fingerprint() == whole.fingerprint()
    assert told.splits["train"].present is not None and told.splits["train"].present[2].tolist() == [True, False]
    frame.loc[2, ["a1", "a2"]] = np.nan
    assert "row 3: every modality is empty" in failure(views(write(frame), split="part", gaps="absent"))


def test_a_modality_no_training_row_has_is_named(write: Any) -> None:
    frame = table()
    frame.loc[frame.part == "train", ["b1", "b2"]] = np.nan
    assert "some training row must have the modality 'b'" in failure(views(write(frame), split="part"))


def test_a_row_without_any_modality_is_named(write: Any) -> None:
    frame = table()
    frame.loc[5, ["a1", "a2", "a3", "b1", "b2"]] = np.nan
    assert "row 6: every modality is empty" in failure(views(write(frame)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"modalities": {"a": ["a1..a9"], "b": ["b1"]}}, "no column 'a9', which `modalities` names. Known: a1, a2"),
        ({"modalities": {"a": ["a3..a1"], "b": ["b1"]}}, "a range must run forwards, got 'a3..a1'"),
        ({"modalities": {"a": ["a1"]}}, "two modalities or more"),
        ({"modalities": {"a": ["a1"], "b": ["a1", "b1"]}}, "column 'a1' is used twice"),
        ({"modalities": {"a": ["a1"], "b": ["kind"]}}, "column 'kind' is used twice"),
        ({"split": [0.5, 0.5]}, "three positive shares"),
        ({"metric": "f2"}, "one of accuracy, balanced_accuracy, macro_f1, f1"),
        ({"target": "weight", "task": "multilabel"}, "row 1, column 'weight': must be 0 or 1, got 83"),
        ({"split": "part", "group": "owner"}, "rows 3 and 4 share a group but are in two splits"),
        ({"file": ""}, "must name a file"),
        ({"file": "absent.csv"}, "there is nothing at"),
    ],
)
def test_a_wrong_option_says_what_is_right(write: Any, options: dict[str, Any], said: str) -> None:
    assert said in failure(views(**{"file": write(table())} | options))


def test_an_edited_file_is_another_version(write: Any) -> None:
    before = views(write(table())).task.version
    frame = table()
    frame.loc[0, "a1"] += 1
    assert views(write(frame)).task.version != before


def test_a_matrix_plans_it_and_shows_the_file(write: Any) -> None:
    from benchmark.matrix import parse

    raw = {"name": "csv_views", "file": write(table()), "modalities": {"a": ["a1..a3"], "b": ["b1"]}, "target": "kind"}
    plan = make_plan(parse({"methods": ["concat"], "datasets": [raw], "baselines": False}, "mine.toml"))
    assert [cell.dataset for cell in plan.cells] == ["csv_views[pets]"]


# ---- npz_views ----------------------------------------------------------------------------------------------------


def arrays(rows: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    return {
        "photo": rng.integers(0, 256, (rows, 3, 8, 8), dtype=np.uint8),
        "depth": rng.normal(4.0, 2.0, (rows, 1, 8, 8)).astype(np.float32),
        "sound": rng.normal(-3.0, 5.0, (rows, 12, 4)),
        "facts": rng.normal(10.0, 3.0, (rows, 6)).astype(">f4"),
        "words": rng.integers(1, 9, (rows, 5)),
        "target": np.array(["no", "yes"])[np.arange(rows) % 2],
        "part": np.array([0, 0, 0, 1, 2])[np.arange(rows) % 5],
        "height": rng.normal(0.0, 1.0, rows),
    }


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path))
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))

    def save(values: dict[str, Any], name: str = "mine.npz") -> str:
        if name.endswith(".npz"):
            np.savez_compressed(tmp_path / name, **values)
        else:
            (tmp_path / name).mkdir(exist_ok=True)
            for key, value in values.items():
                np.save(tmp_path / name / f"{key}.npy", value)
        return name

    return save


KINDS = {"photo": "image", "depth": "image", "sound": "sequence", "facts": "vector", "words": "text"}


@pytest.mark.parametrize("name", ["mine.npz", "folder"])
@pytest.mark.parametrize("options", [{}, {"target": "height", "task": "regression"}, {"split": "part"}])
def test_arrays_keep_the_contract(pack: Any, name: str, options: dict[str, Any]) -> None:
    file = pack(arrays(), name)

    class Mine(NpzViews):
        def __init__(self) -> None:
            super().__init__(**{"file": file, "modalities": KINDS, "split": "part"} | options)

    assert [r for r in check_dataset("npz_views", Mine) if not r.passed] == []


def test_kinds_go_by_shape_and_values_are_standardised(pack: Any) -> None:
    data = NpzViews(file=pack(arrays()), modalities=["photo", "sound", "facts"], split="part")
    assert [m.kind for m in data.task.modalities] == ["image", "sequence", "vector"]
    given = arrays()
    train, test = given["part"] == 0, given["part"] == 2
    inputs = data.splits["test"].inputs
    np.testing.assert_allclose(inputs["photo"][:], given["photo"][test] / 255, atol=1e-6)
    for name, axes in (("sound", (0, 1)), ("facts", (0,))):
        x = given[name].astype(np.float64)
        expected = (x[test] - x[train].mean(axis=axes)) / x[train].std(axis=axes)
        np.testing.assert_allclose(inputs[name][:], expected, atol=1e-4)


def test_moments_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, rows = arrays(300)["sound"] + 1e4, np.arange(0, 300, 2)
    whole = channel_moments(x, rows, "sequence")
    monkeypatch.setattr("datamodules.npz_views.BLOCK", 7)
    for ours, again, theirs in zip(
        whole, channel_moments(x, rows, "sequence"), (x[rows].mean(axis=(0, 1)), x[rows].std(axis=(0, 1))), strict=True
    ):
        np.testing.assert_allclose(ours, again, rtol=1e-12)
        np.testing.assert_allclose(np.squeeze(ours), theirs, rtol=1e-5)


def test_a_large_archive_is_read_from_disk(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_file, "LARGE", 1)
    options: dict[str, Any] = {"file": pack(arrays()), "modalities": ["sound", "facts"]}
    mapped = NpzViews(**options)
    print_ = mapped.fingerprint()
    assert isinstance(mapped._arrays.get("sound"), np.memmap)
    monkeypatch.setattr(array_file, "LARGE", 2**40)
    assert not isinstance(NpzViews(**options)._arrays.get("sound"), np.memmap)
    assert NpzViews(**options).fingerprint() == print_


@pytest.mark.parametrize("name", ["mine.npz", "folder"])
def test_a_row_of_nan_lacks_the_modality(pack: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datamodules.npz_views.BLOCK", 7)
    given = arrays()
    for modality, rows in {"depth": [0, 4], "sound": [1, 9], "facts": [2]}.items():
        given[modality][rows] = np.nan
    data = NpzViews(file=pack(given, name), modalities=KINDS, split="part")
    part = given["part"]
    for code, split in enumerate(data.splits.values()):
        assert split.present is not None
        for m, modality in enumerate(KINDS):
            raw = given[modality][part == code].astype(np.float64)
            there = ~np.isnan(raw.reshape(len(raw), -1)).any(axis=1)
            assert split.present[:, m].tolist() == there.tolist()
            x = split.inputs[modality][:]
            assert x[~there].eq(0).all() and torch.isfinite(x).all()
            axes = {"depth": (0, 2, 3), "sound": (0, 1), "facts": (0,)}.get(modality)
            if axes is None:
                continue
            train = given[modality][part == 0].astype(np.float64)  # what is missing is in no statistics
            mean, deviation = np.nanmean(train, axis=axes, keepdims=True), np.nanstd(train, axis=axes, keepdims=True)
            np.testing.assert_allclose(x[there], ((raw - mean) / deviation)[there], atol=1e-4)
            index = torch.tensor([3, 0, 1]) % len(raw)
            assert split.inputs[modality][index].equal(x[index])


def test_some_nan_in_a_row_of_an_array_is_an_error_unless_told_otherwise(pack: Any) -> None:
    given = arrays()
    given["sound"][7, 3] = np.nan
    options: dict[str, Any] = {"modalities": ["sound", "facts"], "split": "part"}
    said = failure(NpzViews(file=pack(given), **options))
    assert "'sound', row 8: values must be finite, and some are NaN" in said and 'gaps = "absent"' in said
    told = NpzViews(file=pack(given), **options, gaps="absent").splits["train"]
    given["sound"][7] = np.nan
    whole = NpzViews(file=pack(given), **options).splits["train"]
    assert told.present is not None and whole.present is not None and told.present.equal(whole.present)
    assert not told.present.all() and told.inputs["sound"][:].equal(whole.inputs["sound"][:])
    given["facts"][7] = np.nan
    assert "row 8: every modality is empty" in failure(NpzViews(file=pack(given), **options))
    given["facts"][7] = np.inf
    assert "row 8: values must be finite" in failure(NpzViews(file=pack(given), **options, gaps="absent"))


def test_a_target_that_is_no_float32_is_an_error(pack: Any) -> None:
    given = arrays() | {"target": np.where(np.arange(40) == 8, 1e40, 1.0)}
    said = failure(NpzViews(file=pack(given), modalities=["sound", "facts"], task="regression"))
    assert "the target 'target', row 9: must be a finite number of at most 1e+25, got 1e+40" in said


def test_arrays_without_a_gap_are_read_as_ever(pack: Any) -> None:
    given = arrays()
    data = NpzViews(file=pack(given), modalities=KINDS, split="part")
    assert all(split.present is None for split in data.splits.values())
    assert all(type(split.inputs["sound"]) is Gathered for split in data.splits.values())


class Explosive:
    """Unpickling it would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("name", ["mine.npz", "folder"])
def test_objects_are_refused_and_never_unpickled(pack: Any, tmp_path: Path, name: str) -> None:
    trace = tmp_path / "trace"
    objects = np.empty(40, dtype=object)
    objects[:] = [Explosive(trace)] * 40
    data = NpzViews(file=pack({**arrays(), "bad": objects}, name), modalities=["facts", "bad"])
    assert "'bad' is an array of Python objects" in failure(data)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("change", "modalities", "said"),
    [
        ({}, ["facts", "fatcs"], "no array 'fatcs'. Did you mean 'facts'?"),
        (
            {},
            ["facts", "height"],
            "the shape of 'height' must be [N, d], [N, T, C] or [N, C, H, W], got (40,)",
        ),
        ({}, {"facts": "vector", "sound": "image"}, "the shape of 'sound' must be that of a image, got (40, 12, 4)"),
        (
            {"short": np.zeros((39, 2))},
            ["facts", "short"],
            "'short' must have 40 rows as the target, got the",
        ),
        (
            {"facts": np.where(np.arange(40) == 8, np.inf, 1.0)[:, None]},
            ["facts", "sound"],
            "'facts', row 9: values must be finite",
        ),
        (
            {"facts": np.where(np.arange(40) == 8, -1e40, 1.0)[:, None]},  # finite, but not as float32
            ["facts", "sound"],
            "'facts', row 9: values must be finite and at most 1e+25",
        ),
        (
            {"facts": np.where(np.arange(40) == 8, np.inf, 1.0).astype(np.float16)[:, None]},  # as the bound would be
            ["facts", "sound"],
            "'facts', row 9: values must be finite",
        ),
        ({"target": np.zeros((40, 2))}, ["facts", "sound"], "must be [N] numbers or names of classes"),
        ({"names": np.array([["x"]] * 40)}, ["facts", "names"], "must hold numbers"),
        ({}, ["facts"], "two arrays or more"),
    ],
)
def test_a_wrong_shape_is_named(pack: Any, change: dict[str, Any], modalities: Any, said: str) -> None:
    assert said in failure(NpzViews(file=pack(arrays() | change), modalities=modalities))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"not a zip")
    assert "is not a .npz file" in failure(NpzViews(file=str(tmp_path / "bad.npz"), modalities=["a", "b"]))
