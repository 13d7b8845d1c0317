"""Tables as people have them: words, gaps, odd dialects, damaged files; all of it is said, and by the plan."""

import gzip
import io
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from datamodules.csv_views import CsvViews
from datamodules.hub_image_text import HubImageText
from datamodules.npz_views import NpzViews
from datamodules.rows.columns import View
from datamodules.sources import table_file
from datamodules.sources.table_file import read_table
from datamodules.targets.multiclass import balanced_accuracy
from tests.datamodules.miniatures import captions, look, paint

PARTS = np.array(["train", "train", "train", "val", "test"])
VIEWS = {"blood": ["hb", "crp"], "person": ["sex", "city", "age"]}


def patients(rows: int = 100) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({"hb": rng.normal(13, 2, rows), "crp": rng.exponential(5, rows)})
    frame["sex"] = np.where(rng.random(rows) < 0.5, "f", "m")
    frame["city"] = rng.choice(["Bonn", "Köln", "Ulm"], rows)
    frame["age"] = rng.integers(20, 90, rows).astype(float)
    frame["ill"] = np.where(np.arange(rows) % 2 == 0, "yes", "no")
    frame["part"] = PARTS[np.arange(rows) % 5]
    return frame


def views(file: Path, **options: Any) -> CsvViews:
    return CsvViews(**{"file": str(file), "modalities": VIEWS, "target": "ill", "split": "part"} | options)


def save(frame: pd.DataFrame, path: Path, **options: Any) -> Path:
    frame.to_csv(path, index=False, **options)
    return path


def refusal(data: Any) -> str:
    """What is said when the plan asks for the task: one line."""
    with pytest.raises((ValueError, OSError)) as caught:
        _ = data.task
    message = str(caught.value)
    assert "\n" not in message and len(message) < 700
    return message


# ---- words and gaps ------------------------------------------------------------------------------------------------


def test_words_become_categories_of_the_training_rows(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[frame.part == "test", "city"] = "Trier"  # never in training
    data = views(save(frame, tmp_path / "p.csv"))
    assert data.views["person"].features == (
        "sex = f", "sex = m", "city = Bonn", "city = Köln", "city = Ulm", "age",
    )  # fmt: skip
    assert data.task.modalities[1].shape == (6,)
    view, train = data.views["person"], frame[frame.part == "train"]
    x = data.splits["train"].inputs["person"][:].numpy() * view.deviation + view.mean
    np.testing.assert_allclose(x[:, 0], train.sex == "f", atol=1e-5)
    unseen = data.splits["test"].inputs["person"][:].numpy() * view.deviation + view.mean
    np.testing.assert_allclose(unseen[:, 2:5], 0, atol=1e-5)
    assert any("'city' is words: 3 categories" in note for note in data.notes)


def test_empty_cells_are_filled_in_and_flagged_by_training_rows(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[[0, 3, 4], "hb"] = np.nan  # a training row, a validation row and a test row
    frame.loc[[1, 8], "city"] = np.nan
    frame.loc[frame.part != "train", "hb"] += 100.0  # must not be seen by the median
    data = views(save(frame, tmp_path / "p.csv"))
    train = frame[frame.part == "train"]
    view = data.views["blood"]
    assert view.features == ("hb", "hb is empty", "crp")
    for split, row in (("train", 0), ("val", 0), ("test", 0)):
        raw = data.splits[split].inputs["blood"][:][row].numpy() * view.deviation + view.mean
        np.testing.assert_allclose(raw[:2], [train.hb.median(), 1.0], rtol=1e-4)
    assert "city is empty" in data.views["person"].features
    assert data.splits["train"].present is None  # nobody lacks a modality
    assert any("'hb' 3.0%" in note and "flagged" in note for note in data.notes)


def test_a_number_far_beyond_all_others_does_not_flatten_its_column(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[5, "hb"] = 1e30
    data = views(save(frame, tmp_path / "p.csv"))
    assert data.splits["train"].inputs["blood"][:, 0].std() > 0.5
    usual = data.splits["train"].inputs["blood"][:, 0]
    assert usual[usual < usual.max()].std() > 0.1
    assert any("row 6 has 1e+30, which counts as" in note for note in data.notes)


def test_what_was_learnt_of_columns_is_plain_data_and_reads_new_rows_alike(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[[0, 4], ["hb", "sex"]] = np.nan
    data = views(save(frame, tmp_path / "p.csv"))
    test: Any = frame[frame.part == "test"].drop(columns=["ill", "part"])
    found = data.new_rows(save(test, tmp_path / "new.csv", sep=";"))
    for name in VIEWS:
        assert found.inputs[name].equal(data.splits["test"].inputs[name][:])
        kept = msgspec.json.encode(data.views[name])
        assert msgspec.json.decode(kept, type=View) == data.views[name]
    assert found.present.all()
    with pytest.raises(ValueError, match=r"has no column 'crp', which p\.csv was trained with"):
        data.new_rows(save(test.drop(columns="crp"), tmp_path / "new.csv"))


# ---- dialects ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", ","), ("|", ".")])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_separator_and_encoding_are_found_out(tmp_path: Path, separator: str, decimal: str, encoding: str) -> None:
    path = save(patients(), tmp_path / "p.csv", sep=separator, decimal=decimal, encoding=encoding)
    read = read_table(path, text=("ill",)).frame
    pd.testing.assert_frame_equal(read, patients(), check_dtype=False)


def test_packed_tables_and_parquet_are_the_same_table(tmp_path: Path) -> None:
    save(patients(), tmp_path / "p.csv")
    content = (tmp_path / "p.csv").read_bytes()
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(content))
    with zipfile.ZipFile(tmp_path / "p.csv.zip", "w") as archive:
        archive.writestr("p.csv", content)
    patients().to_parquet(tmp_path / "p.parquet")
    plain = views(tmp_path / "p.csv", title="t").fingerprint()
    for name in ("p.csv.gz", "p.csv.zip", "p.parquet"):
        assert views(tmp_path / name, title="t").fingerprint() == plain


# ---- what cannot be used is said by the plan ------------------------------------------------------------------------


def changed(column: str, row: int, value: Any) -> pd.DataFrame:
    frame = patients().astype({column: object})
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (changed("hb", 6, "12 mg"), {}, "row 7, column 'hb': must be a finite number, got '12 mg': mend it, or name"),
        (changed("hb", 6, "9" * 400), {}, "row 7, column 'hb': must be a finite number, got"),
        (changed("hb", 6, "1e308"), {}, "row 7, column 'hb': must be a finite number"),
        (patients().assign(ill="no"), {}, "`target` 'ill': every row is 'no': there must be two classes"),
        (patients(12), {}, "has 12 rows: at least 20 are needed"),
        (patients().assign(ill=np.linspace(0, 1, 100)), {}, "100 different values in 100 rows are hardly classes: say"),
        (patients().assign(city=[f"name {i}" for i in range(100)]), {}, "'city' has 60 different texts in 60"),
        (patients(), {"target": "il"}, "no column 'il', which `target` names. Did you mean 'ill'?"),
        (patients(), {"group": "who"}, "no column 'who', which `group` names"),
        (patients(), {"categorical": ["agee"]}, "no column 'agee', which `categorical` names. Did you mean 'age'?"),
        (patients(), {"separator": "@"}, "(one column, as the `separator` is '@')"),
        (patients(), {"encoding": "utf-9"}, "`encoding` must be one that Python knows, got 'utf-9'"),
        (patients(), {"encoding": "ascii"}, "is not in the `encoding` ascii"),
    ],
)  # fmt: skip
def test_one_line_names_what_is_wrong(tmp_path: Path, frame: pd.DataFrame, options: dict[str, Any], said: str) -> None:
    assert said in refusal(views(save(frame, tmp_path / "p.csv"), **options))


def test_columns_of_one_name_are_refused_only_if_they_are_used(tmp_path: Path) -> None:
    lines = save(patients(), tmp_path / "p.csv").read_text().splitlines()
    (tmp_path / "p.csv").write_text("\n".join([lines[0].replace("age", "hb"), *lines[1:]]))
    assert "several columns are called 'hb'" in refusal(
        views(tmp_path / "p.csv", modalities={"a": ["crp"], "b": ["hb"]})
    )
    assert views(tmp_path / "p.csv", modalities={"a": ["crp"], "b": ["sex"]}).task.num_outputs == 2


def test_damaged_and_overlarge_tables_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = save(patients(), tmp_path / "p.csv").read_bytes()
    for name in ("p.csv.gz", "p.csv.zip", "p.csv.xz", "p.csv.bz2", "p.parquet"):
        (tmp_path / name).write_bytes(content)
        said = refusal(views(tmp_path / name))
        assert "is damaged, or is no" in said or "cannot be read as parquet" in said
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(content)[:-20])
    assert "is damaged" in refusal(views(tmp_path / "p.csv.gz"))
    (tmp_path / "empty.csv").write_bytes(b"")
    assert "must be a table, and is empty" in refusal(views(tmp_path / "empty.csv"))
    (tmp_path / "wide.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    assert "more cells than its first line has names" in refusal(views(tmp_path / "wide.csv"))
    assert "is a folder" in refusal(views(tmp_path))
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(table_file, "LARGEST", 1000)
    assert "is a table of more than" in refusal(views(tmp_path / "p.csv.gz"))
    monkeypatch.undo()
    monkeypatch.setattr(table_file, "WIDEST", 3)
    patients().to_parquet(tmp_path / "p.parquet")
    for name in ("p.csv.gz", "p.parquet"):
        assert "columns, and of more than 3 none is read" in refusal(views(tmp_path / name))
    monkeypatch.setattr(table_file, "WIDEST", content.partition(b"\n")[0].count(b",") + 1)
    (tmp_path / "old.csv").write_bytes(content.replace(b"\n", b"\r"))  # as a Macintosh wrote lines
    assert views(tmp_path / "old.csv").task.num_outputs == 2


# ---- classes that are not equally frequent --------------------------------------------------------------------------


def test_the_metric_sees_the_minority_and_says_why(tmp_path: Path) -> None:
    frame = patients().assign(ill=np.where(np.arange(100) % 7 == 0, "yes", "no"))
    path = save(frame, tmp_path / "p.csv")
    data = views(path)
    assert data.task.metric == "balanced_accuracy"
    assert any("85% of the rows are 'no' and 15% 'yes'" in note for note in data.notes)
    assert data.task.goal.trivial(data.splits["train"].target, data.splits["test"].target) == 0.5
    assert views(path, metric="f1").task.metric == "f1"
    assert not any("balanced" in note for note in views(path, metric="f1").notes)
    assert views(save(patients(), path)).task.metric == "accuracy"


def test_balanced_accuracy_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for classes in (2, 3, 6):
        for _ in range(30):
            target, kept = rng.integers(0, classes, (2, 14))
            found = balanced_accuracy(torch.tensor(kept), torch.tensor(target), classes)
            with warnings.catch_warnings(action="ignore"):  # of classes that are predicted and never there
                assert found == pytest.approx(balanced_accuracy_score(target, kept), abs=1e-6)


# ---- arrays and images ----------------------------------------------------------------------------------------------


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(6)
    return {"a": rng.normal(size=(40, 3)), "b": rng.normal(size=(40, 4, 2)), "target": np.arange(40) % 2}


def npy(values: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": values.dtype.str, "fortran_order": False, "shape": shape or values.shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + values.tobytes()


def test_damaged_arrays_are_one_line_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    options: dict[str, Any] = {"file": str(path), "modalities": ["a", "b"]}
    np.savez(path, **arrays())
    whole = path.read_bytes()
    place = whole.index(arrays()["a"].tobytes()[:16])
    path.write_bytes(whole[:place] + b"\x00\x01\x02\x03" + whole[place + 4 :])
    assert "'a' cannot be read: Bad CRC-32" in refusal(NpzViews(**options))
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays().items():
            archive.writestr(f"{name}.npy", npy(values, (10**6, 10**9) if name == "b" else None))
    assert "its shape promises 8,000,000,000,000,000 bytes, and there are" in refusal(NpzViews(**options))
    bad = arrays()
    bad["a"][7, 1] = np.inf
    np.savez(path, **bad)
    assert "'a', row 8: values must be finite" in refusal(NpzViews(**options))
    np.savez(path, **arrays(), part=np.array(["train", "tset"] * 20))
    assert "row 2: must be train, val or test, got 'tset'" in refusal(NpzViews(**options, split="part"))


def test_new_arrays_are_prepared_as_the_training_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays())
    data = NpzViews(file=str(tmp_path / "mine.npz"), modalities=["a", "b"])
    given = arrays()
    given["a"][2] = np.nan
    np.savez(tmp_path / "new.npz", **given)
    found = data.new_rows(tmp_path / "new.npz")
    assert found.present[2].tolist() == [False, True] and found.inputs["a"][2].eq(0).all()
    rows = torch.tensor([r for r in range(40) if r != 2])
    scale, shift = data._moments["a"]
    assert shift is not None
    expected = torch.from_numpy(given["a"]).float()[rows] * scale + shift
    torch.testing.assert_close(found.inputs["a"][rows], expected)
    np.savez(tmp_path / "new.npz", a=given["a"], b=given["b"][:, :3])
    with pytest.raises(ValueError, match=r"'b' must be \[N, 4, 2\], N the same for all, got \(40, 3, 2\)"):
        data.new_rows(tmp_path / "new.npz")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    for number in range(24):
        paint(tmp_path / "photos" / f"{number}.bmp", number)
    return tmp_path / "photos"


def _embed(photos: Path, order: list[int]) -> None:
    rows = [
        {"image": {"bytes": (photos / f"{image}.bmp").read_bytes(), "path": None}, "text": captions(row)[0],
         "label": look(row)[0]}
        for row, image in enumerate(order)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(photos.parent / "embedded" / "all.parquet")


def test_other_images_of_the_same_size_are_another_dataset(photos: Path) -> None:
    (photos.parent / "embedded").mkdir()
    options: dict[str, Any] = {
        "path": str(photos.parent / "embedded"),
        "label_column": "label",
        "image_size": 16,
        "held_out": 0.25,
    }
    _embed(photos, list(range(24)))
    before = HubImageText(**options)
    assert before.task.version == HubImageText(**options).task.version
    pixels = before.splits["train"].inputs["image"][:]
    _embed(photos, list(reversed(range(24))))
    after = HubImageText(**options)
    assert after.task.version != before.task.version
    assert not after.splits["train"].inputs["image"][:].equal(pixels)


def test_a_damaged_image_is_an_error_of_the_plan(photos: Path) -> None:
    rows = [{"image": f"{n}.bmp", "text": captions(n)[0], "label": look(n)[0]} for n in range(24)]
    table = photos / "captions.jsonl"
    table.write_text("\n".join(msgspec.json.encode(row).decode() for row in rows))
    options: dict[str, Any] = {"path": str(table), "label_column": "label", "image_size": 16, "held_out": 0.25}
    assert HubImageText(**options).task.names == ("image", "text")
    whole = (photos / "5.bmp").read_bytes()
    (photos / "5.bmp").write_bytes(whole[: len(whole) // 2])
    assert "row 6, column 'image' is not an image that can be decoded" in refusal(HubImageText(**options))
    # A few bytes that claim to be ten thousand million pixels are not unpacked.
    parts = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 1, 0, 0, 0, 0), b"IDAT"
    chunks = [struct.pack(">I", len(p) - 4) + p + struct.pack(">I", zlib.crc32(p)) for p in parts]
    (photos / "5.bmp").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    assert "10000000000 pixels) exceeds limit" in refusal(HubImageText(**options))
    (photos / "5.bmp").unlink()
    assert refusal(HubImageText(**options)).endswith("row 6, column 'image': there is no image at '5.bmp'")
