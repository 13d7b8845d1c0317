"""Own data in the commands: what `try` assumes, rows drawn and described, new rows predicted, models exported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch
from PIL import Image

from benchmark import predict, try_data
from benchmark.cli import main
from benchmark.own_data.guess_table import guess_table
from benchmark.own_data.small_board import recipe_for
from benchmark.own_data.text_files import as_table
from leaderboard.store import Store

PNG = b"\x89PNG\r\n\x1a\n"


def patients(rows: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"patient_no": np.arange(rows) + 1000})
    frame["blood_hb"] = rng.normal(13, 2, rows)
    frame["blood_crp"] = rng.exponential(5, rows)
    frame["life_smoker"] = rng.choice(["never", "former", "current"], rows)
    frame["life_bmi"] = rng.normal(26, 4, rows)
    score = (frame.blood_hb - 13) + 2 * (frame.life_smoker == "current")
    frame["outcome"] = np.where(score > score.quantile(0.8), "ill", "well")
    frame["days"] = (score * 10 + 200).round(1)
    frame.loc[rng.random(rows) < 0.1, "blood_hb"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "life_smoker"] = np.nan
    return frame


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    patients().to_csv("patients.csv", index=False)
    return tmp_path


# ---- what try assumes ----------------------------------------------------------------------------------------------


def test_try_says_what_it_assumes_and_writes_a_matrix(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = patients().drop(columns="days")
    frame["clinic"], frame["visited"] = "Bonn", [f"2020-01-{i}" for i in range(160)]
    frame["copy"], frame["code"] = frame.blood_crp, (frame.outcome == "ill") * 7
    frame.loc[4, "blood_crp"] = frame.loc[4, "copy"] = 1e30
    frame.to_csv("raw.csv", index=False, sep=";")
    assert main(["try", "raw.csv", "--target", "outcome", "--look"]) == 0
    said = capsys.readouterr().out
    for sentence in (
        "separated by ';'",
        "task: classes, because 'outcome' has 2 different values: 'well' 80%, 'ill' 20%",
        "'patient_no' is a number for each row (an id)",
        "'clinic' is always 'Bonn'",
        "'visited' is 160 different texts",
        "'copy' is the same as 'blood_crp'",
        "'code' is the target in other words",
        "blood: blood_hb (number,",
        "life: life_smoker (3 words,",
        "scored by balanced accuracy, because 80% of the rows are 'well'",
        "row 5 has 1e+30",
        "flagged: 'blood_hb'",
        "batches of 8",
        "matrix: raw.toml",
    ):
        assert sentence in said, sentence
    assert main(["plan", "raw.toml", "--results", "r"]) == 0


def test_try_guesses_the_task_and_the_source_of_rows(here: Path) -> None:
    frame = patients(300)
    frame["patient_id"] = np.arange(300) // 5
    frame["grade"] = np.arange(300) % 4
    frame.to_csv("raw.csv", index=False)
    by_days = guess_table(Path("raw.csv"), "days", None)
    assert by_days.options["task"] == "regression" and by_days.options["group"] == "patient_id"
    assert {"blood_crp", "life_bmi"} <= {c for own in by_days.options["modalities"].values() for c in own}
    assert any("regression, because 'days' has" in sentence for sentence in by_days.said)
    assert guess_table(Path("raw.csv"), "grade", None).options["task"] == "multiclass"
    given = guess_table(Path("raw.csv"), "grade", {"a": ["blood_hb"], "b": ["life_bmi"]})
    assert given.options["modalities"] == {"a": ["blood_hb"], "b": ["life_bmi"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["patients.csv"], "--target COLUMN must say what is to be predicted"),
        (["patients.csv", "--target", "outcom"], "no column 'outcom' to predict (--target). Did you mean 'outcome'?"),
        (["nothing.csv", "--target", "x"], "there is nothing at nothing.csv"),
        (["patients.csv", "--target", "outcome", "--groups", "a=blood_hb"], "two groups or more"),
        (["patients.csv", "--target", "life_smoker"], "rows have none: leave them out"),
        (["patients.csv", "--target", "outcome", "--groups", "a=blood_hx", "b=life_bmi"], "no column 'blood_hx'"),
        (["patients.doc", "--target", "outcome"], "a file that ends in"),
        (["names.csv", "--target", "outcome"], "names.csv has a line of names and no rows"),
    ],
)
def test_what_try_cannot_do_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    Path("patients.doc").touch()
    Path("names.csv").write_text("blood_hb,outcome\n")
    assert main(["try", *arguments, "--look"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_columns_of_one_name_are_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{i % 7},{i % 5},{i % 3},{i % 11},{i % 2}" for i in range(80))
    Path("twice.csv").write_text(f"a_x,a_x,b_y,b_z,outcome\n{rows}\n")
    assert main(["try", "twice.csv", "--target", "outcome", "--look"]) == 0
    said = capsys.readouterr().out
    for name in ("a_x", "a_x.1"):
        assert f"left out: '{name}' is one of several columns called 'a_x'" in said


@pytest.mark.parametrize("rows", [20, 100, 161, 1000, 100_000])
@pytest.mark.parametrize("heavy", [False, True])
def test_the_recipe_fits_the_rows(rows: int, heavy: bool) -> None:
    recipe = recipe_for(rows, heavy)
    steps = rows // recipe["batch_size"] * recipe["epochs"]
    assert rows // recipe["batch_size"] >= min(8, rows // 8)
    assert steps >= 200 and recipe["patience"] * (rows // recipe["batch_size"]) >= 20


# ---- a trained cell, used ------------------------------------------------------------------------------------------


def matrix(**options: Any) -> str:
    own = {"name": "csv_views", "file": "patients.csv", "target": "outcome",
           "modalities": {"blood": ["blood_hb", "blood_crp"], "life": ["life_smoker", "life_bmi"]}}  # fmt: skip
    raw = {"methods": ["concat"], "baselines": False, "conditions": "none", "datasets": [own | options]}
    Path("mine.toml").write_text(tomli_w.dumps(raw | {"recipe": {"epochs": 3, "batch_size": 16, "width": 8}}))
    return "mine.toml"


def trained(capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    assert main(["run", matrix(**options), "--results", "r", "--workers", "0", "--quiet"]) == 0
    capsys.readouterr()
    return next(Path("r").glob("concat*.json")).stem


def test_predictions_of_new_rows_are_those_of_the_cell(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmark.trained import trained_on_own_rows

    cell = trained(capsys)
    _, data = trained_on_own_rows("r", cell)
    rows = data._table.rows["test"]  # type: ignore[attr-defined]
    patients().drop(columns="outcome").iloc[rows].to_csv("new.csv", index=False, sep=";")
    assert main(["predict", cell[:20], "new.csv", "--results", "r"]) == 0
    found = pd.read_csv("new_predictions.csv")
    with np.load(Store("r").path(cell, ".npz")) as stored:
        assert stored["conditions"].tolist() == ["clean"]
        kept = stored["pred"][0].astype(int)
    names = np.array(data.task.class_names)
    assert found["prediction"].tolist() == names[kept].tolist()
    assert found["row"].tolist() == list(range(1, len(rows) + 1))
    total = found[[f"probability {name}" for name in names]].sum(axis=1)
    np.testing.assert_allclose(total, 1, atol=1e-5)


@pytest.mark.slow
def test_a_notebook_tries_data_and_predicts(here: Path) -> None:
    """What the commands do, as functions."""
    answer = try_data("patients.csv", "outcome", seeds=1, workers=0, quiet=True, results="t", no_checkpoints=False)
    assert any("task: classes" in said for said in answer.assumed) and Path("patients.toml").is_file()
    assert answer.sentences[0].startswith("Use ") and str(answer).endswith(answer.sentences[-1])
    assert "concat" in set(answer.results.frame()["method"]) and answer.results.board().control == "concat"
    found = predict(answer.cell, "patients.csv", results="t")
    assert len(found) == len(patients()) and set(found["prediction"]) <= set(patients()["outcome"])
    assert np.allclose(found.filter(like="probability").sum(axis=1), 1, atol=1e-4)
    with pytest.raises(TypeError, match=r"try\(\) has no argument 'sead'"):
        try_data("patients.csv", "outcome", sead=1)
    with pytest.raises(FileNotFoundError, match=r"nothing at absent\.csv"):
        try_data("absent.csv", "outcome")


def test_values_are_predicted_in_their_own_unit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = trained(capsys, target="days", task="regression")
    assert main(["predict", cell, "patients.csv", "--results", "r", "--output", "-"]) == 0
    lines = capsys.readouterr().out.split()
    values = [float(line.split(",")[1]) for line in lines[1:]]
    assert lines[0] == "row,prediction" and 150 < np.mean(values) < 250


def test_what_cannot_be_predicted_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = trained(capsys)
    for arguments, said in (
        (
            ["concat-nothing", "patients.csv"],
            "no cell that is done begins with 'concat-nothing' in r (--results); there are",
        ),
        ([cell, "absent.csv"], "there is nothing at absent.csv"),
        ([cell, "half.csv"], "half.csv has no column 'life_smoker', which patients.csv was trained with"),
    ):
        patients()[["blood_hb", "blood_crp"]].to_csv("half.csv", index=False)
        assert main(["predict", *arguments, "--results", "r"]) == 2
        assert said in capsys.readouterr().err
    patients().iloc[:-1].to_csv("patients.csv", index=False)
    assert main(["predict", cell, "patients.csv", "--results", "r"]) == 2
    assert "was trained on another version" in capsys.readouterr().err


def test_an_exported_model_says_what_the_cell_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmark.commands.predict import logits_of
    from benchmark.trained import trained_on_own_rows

    cell = trained(capsys)
    assert main(["export-model", cell, "--output", "model.pt2", "--results", "r"]) == 0
    kept = {"polymodal.json": ""}
    model = torch.export.load("model.pt2", extra_files=kept).module()
    method, data = trained_on_own_rows("r", cell)
    rows = data.new_rows(Path("patients.csv"))
    rows.present[3, 1] = False  # a row without a modality
    expected = torch.cat(list(logits_of(method, rows)))
    for size in (2, 7, 160):
        found = model({name: x[:size] for name, x in rows.inputs.items()}, rows.present[:size])
        torch.testing.assert_close(found, expected[:size])
    about = json.loads(kept["polymodal.json"])
    assert about["classes"] == ["ill", "well"] and about["cell"] == cell
    words = about["preparation"]["inputs"]["life"]["columns"][0]
    assert words["type"] == "Categories" and words["known"] == ["current", "former", "never"]


# ---- the other data commands ---------------------------------------------------------------------------------------


def test_every_data_command_takes_own_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--matrix", matrix()]
    settings = [
        *("--set", "csv_views.file=patients.csv", "--set", "csv_views.target=outcome"),
        *("--set", 'csv_views.modalities={ blood = ["blood_hb"], life = ["life_bmi"] }'),
    ]
    for options in (own, settings):
        assert main(["data", "info", "csv_views", *options, "--no-sheet", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["trivial"] == 0.5 and any("balanced accuracy" in note for note in facts["notes"])
        assert main(["check", "csv_views", *options]) == 0
        capsys.readouterr()
        for action, extra in (("show", ["--split", "test"]), ("corrupt", [])):
            assert main(["data", action, "csv_views", *options, *extra, "--output", "sheet.png"]) == 0
            assert capsys.readouterr().out.strip() == "sheet.png"
            assert Path("sheet.png").read_bytes().startswith(PNG)
            Path("sheet.png").unlink()
    assert main(["data", "info", "csv_views", "--set", "csv_views.file=patients.csv"]) == 2
    assert "`modalities` must group columns" in capsys.readouterr().err


def test_interactions_of_own_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "interactions", "csv_views", "--matrix", matrix(), "--raw", "--shuffles", "2"]) == 0
    assert "csv_views: blood and life, 64 held-out rows" in capsys.readouterr().out


def test_an_error_blames_no_setting_that_is_innocent(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "csv_views.file=patients.csv", "--set", "csv_views.target=outcom",
             "--set", 'csv_views.modalities={ blood = ["blood_hb"], life = ["life_bmi"] }']  # fmt: skip
    assert main(["plan", "--methods", "concat", "--datasets", "csv_views", *given, "--results", "r"]) == 2
    error = capsys.readouterr().err
    assert "no column 'outcom', which `target` names" in error and "(csv_views, by --set)" in error
    assert main(["plan", "--datasets", "csv_views", "--set", "csv_views.modalities={ blood: [hb] }"]) == 2
    assert "not a TOML value" in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_the_plan_says_how_rows_are_scored_and_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", matrix(), "--results", "r"]) == 0
    assert "scored by balanced accuracy, because 80% of the rows are" in " ".join(capsys.readouterr().out.split())


def photos(*names: str) -> Path:
    """Grey squares, each with a text file beside it."""
    for name in names:
        path = Path("photos") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 100).save(path)
        path.with_suffix(".txt").write_text(f"a square\ncalled {path.stem}")
    return Path("photos")


def test_a_text_file_beside_each_image_is_a_caption(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(*(f"{i}.png" for i in range(20)))
    assert main(["try", "photos", "--look"]) == 0
    said = capsys.readouterr().out
    assert "20 images, each with a text file beside it, are a table now: photos_captions.csv\n" in said
    assert "task: find the image of a text" in said
    written = pd.read_csv("photos_captions.csv")
    assert list(written) == ["image", "text"] and set(written["text"]) == {f"a square called {i}" for i in range(20)}


def test_folders_of_images_are_a_label_and_a_missing_text_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos(*(f"{kind}/{i}.png" for i in range(10) for kind in ("big", "small")))
    assert main(["try", "photos", "--target", "folder", "--look"]) == 0
    assert "their folders are a label: --target folder" in capsys.readouterr().out
    assert set(pd.read_csv("photos_captions.csv")["folder"]) == {"big", "small"}
    (folder / "big" / "3.txt").unlink()
    (folder / "small" / "5.txt").write_text("  ")
    assert main(["try", "photos", "--look"]) == 2
    assert "2 of the 20 images of photos have no text beside them, or an empty one" in (said := capsys.readouterr().err)
    assert "The first is big/3.png: 3.txt was expected" in said


def test_a_table_of_the_folder_comes_first(here: Path) -> None:
    folder = photos("a.png", "b.png")
    (folder / "captions.csv").write_text("image,text\na.png,one\n")
    assert as_table(folder, Path("made.csv")) == "" and not Path("made.csv").exists()
