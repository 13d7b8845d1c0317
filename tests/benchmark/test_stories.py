"""What three practitioners did, word by word: raw tables, few images, few positives. Each ends with a right answer."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw

from benchmark.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["try", *arguments, "--workers", "0", "--quiet"]) == 0
    return capsys.readouterr().out


def score(said: str, label: str) -> float:
    """Of a line of the table that `try` prints."""
    found = re.search(rf"^{re.escape(label)}\s+(-?\d+\.\d+)", said, re.M)
    assert found, f"no line of {label} in\n{said}"
    return float(found[1])


def test_a_raw_csv_with_words_and_gaps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, rows = np.random.default_rng(1), 500
    frame = pd.DataFrame({"patient_id": [f"P{i:04}" for i in range(rows)]})
    frame["blood_hb"], frame["blood_crp"] = rng.normal(13, 2, rows), rng.exponential(5, rows)
    frame["life_smoker"] = rng.choice(["nie", "früher", "täglich"], rows)
    frame["life_bmi"] = rng.normal(26, 4, rows)
    ill = (frame.blood_hb - 13) / 2 + 1.5 * (frame.life_smoker == "täglich") - 0.5 > 0
    frame["outcome"] = np.where(ill, "ja", "nein")
    for column, share in (("blood_hb", 0.02), ("life_smoker", 0.1), ("life_bmi", 0.2)):
        frame.loc[rng.random(rows) < share, column] = np.nan
    frame.to_csv("patienten.csv", index=False, sep=";", encoding="latin-1")
    said = told(capsys, "patienten.csv", "--target", "outcome")
    assert "'patient_id' is 500 different texts" in said and "flagged: 'life_bmi'" in said
    assert score(said, "concat") > score(said, "unimodal[blood]") + 0.05
    assert re.search(r"^Use \w+: accuracy 0\.[89]", said, re.M)
    assert re.search(
        r"^Fusing adds \+0\.\d+ \[\+0\.\d+, \+0\.\d+\] over (blood|life), the best single group", said, re.M
    )
    for group in ("blood", "life"):
        assert re.search(rf"^Without {group}: 0\.\d+ -> 0\.\d+", said, re.M)
    assert "With noise of middle strength on one group: blood" in said
    assert "Not resolved: with 100 test rows and 3 seeds" in said
    (line,) = [line for line in said.splitlines() if line.strip().startswith("polymodal predict")]
    command = line.replace("NEW_ROWS.csv", "patienten.csv").split()[1:]  # what is printed is what is typed next
    assert main(command) == 0
    found = pd.read_csv("patienten_predictions.csv")
    assert np.mean(found["prediction"].to_numpy() == frame["outcome"].to_numpy()) > 0.8


def _photo(path: Path, shape: str, rng: np.random.Generator) -> None:
    image = Image.new("RGB", (48, 48), tuple(rng.integers(0, 60, 3).tolist()))
    pen, (x, y), colour = (
        ImageDraw.Draw(image),
        rng.integers(4, 14, 2).tolist(),
        tuple(rng.integers(150, 256, 3).tolist()),
    )
    box = (x, y, x + 30, y + 30)
    if shape == "disc":
        pen.ellipse(box, fill=colour)
    elif shape == "box":
        pen.rectangle(box, fill=colour)
    else:
        pen.line((x, y, x + 30, y + 30), fill=colour, width=5)
        pen.line((x + 30, y, x, y + 30), fill=colour, width=5)
    image.save(path)


def test_two_hundred_images_with_captions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The colour is in the caption, the shape in the image, and the label is both."""
    rng, rows = np.random.default_rng(2), []
    Path("photos").mkdir()
    for i in range(200):
        colour, shape = ("red", "blue")[i % 2], ("disc", "box", "cross")[i // 2 % 3]
        _photo(Path(f"photos/{i:03}.png"), shape, rng)
        caption = rng.choice(["a {} thing on a table", "something {} lies here", "look, it is {}"]).format(colour)
        rows.append({"image": f"{i:03}.png", "text": caption, "kind": f"{colour} {shape}"})
    pd.DataFrame(rows).to_json("photos/captions.jsonl", orient="records", lines=True)
    said = told(capsys, "photos", "--target", "kind")
    trivial = score(said, "(without looking)")
    assert trivial < 0.25
    assert score(said, "unimodal[image]") > trivial + 0.15
    assert score(said, "concat") > 0.9
    assert "HARDLY TRAINED" not in said and "NOTHING WAS LEARNT" not in said
    assert re.search(r"^Fusing adds \+0\.\d+", said, re.M)


def test_two_hundred_images_each_with_a_text_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No table at all: the folder says the label, which is the shape of the image and the colour of the text."""
    rng = np.random.default_rng(5)
    for i in range(200):
        colour, shape = ("red", "blue")[i % 2], ("disc", "box", "cross")[i // 2 % 3]
        folder = Path("photos") / f"{colour} {shape}"
        folder.mkdir(parents=True, exist_ok=True)
        _photo(folder / f"{i:03}.png", shape, rng)
        (folder / f"{i:03}.txt").write_text(rng.choice(["a {} thing", "it is {}\n", "look:\n{}"]).format(colour))
    before = sorted(Path("photos").rglob("*"))
    said = told(capsys, "photos/", "--target", "folder", "--seeds", "2")
    assert "200 images, each with a text file beside it, are a table now: photos_captions.csv" in said
    assert sorted(Path("photos").rglob("*")) == before, "the folder is the user's"
    assert score(said, "concat") > 0.8 > score(said, "unimodal[text]")
    assert re.search(r"^Use \w+: accuracy 0\.[89]", said, re.M) or "Use concat: accuracy 1.000" in said
    assert re.search(r"^Fusing adds \+0\.\d+", said, re.M)
    for group in ("image", "text"):
        assert re.search(rf"^Without {group}: \d\.\d+ -> 0\.\d+", said, re.M)


def test_a_csv_with_few_positives(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, rows = np.random.default_rng(3), 900
    frame = pd.DataFrame(rng.normal(size=(rows, 6)), columns=["lab_a", "lab_b", "lab_c", "walk_a", "walk_b", "walk_c"])
    risk = frame.lab_a + frame.lab_b + frame.walk_a + frame.walk_b + rng.normal(0, 0.7, rows)
    frame["fell"] = (risk > risk.quantile(0.85)).astype(int)
    frame.to_csv("falls.csv", index=False)
    said = told(capsys, "falls.csv", "--target", "fell")
    assert "scored by balanced accuracy, because 85% of the rows are '0' and 15% '1'" in said
    assert score(said, "(without looking)") == 0.5  # and not .85, which every method would be green at
    assert score(said, "concat") > 0.7
    assert score(said, "concat") > score(said, "unimodal[lab]") + 0.05
    asked = told(capsys, "falls.csv", "--target", "fell", "--metric", "average_precision", "--seeds", "1")
    assert "average_precision" in asked and score(asked, "concat") > 0.5 > score(asked, "(without looking)")
    assert "One seed cannot say how sure" in asked


def test_a_target_of_nine_hundred_numbers_is_regression(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, rows = np.random.default_rng(4), 900
    frame = pd.DataFrame(rng.normal(size=(rows, 4)), columns=["lab_a", "lab_b", "walk_a", "walk_b"])
    frame["days"] = 40 + 10 * (frame.lab_a + frame.walk_a * frame.lab_b) + rng.normal(0, 2, rows)
    frame.to_csv("days.csv", index=False)
    said = told(capsys, "days.csv", "--target", "days", "--seeds", "2")
    assert "task: regression, because 'days' has 900 different numbers" in said
    assert score(said, "concat") > 0.8 > score(said, "unimodal[lab]")
