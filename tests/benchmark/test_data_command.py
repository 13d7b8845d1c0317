"""`polymodal data`: facts and pictures of datasets."""

import json
import zipfile
from pathlib import Path

import pytest
import torch

from benchmark.cli import main
from benchmark.commands.data import _facts, _readable
from benchmark.pictures.contact_sheet import draw
from benchmark.quoted_scores import quoted
from datamodules.base import DataModule, Split
from datamodules.registry import datasets
from datamodules.spec import Modality, Task
from leaderboard.export import read
from leaderboard.reference import REFERENCE

PNG = b"\x89PNG\r\n\x1a\n"


class Toy(DataModule):
    """A toy of every kind of modality."""

    licence, citation, source = "CC0", "Nobody, Toys (2026).", "generated"

    def describe(self) -> Task:
        modalities = (
            Modality("photo", "image", (3, 5, 6)),
            Modality("depth", "image", (1, 4, 4), range=None),
            Modality("sound", "sequence", (7, 2)),
            Modality("table", "vector", (3,)),
            Modality("words", "text", (4,), vocabulary=9),
        )
        return Task("toy", "3", modalities, "multiclass", 3, class_names=("$a_b$", "<b>", "c"))

    def load(self):
        generator = torch.Generator().manual_seed(0)
        splits = {}
        for name, rows in (("train", 12), ("val", 5), ("test", 4)):
            inputs = {
                m.name: torch.randint(0, 9, (rows, 4), generator=generator)
                if m.kind == "text"
                else torch.rand(rows, *m.shape, generator=generator)
                for m in self.task.modalities
            }
            splits[name] = Split(inputs, torch.arange(rows) % 3)
        return splits

    def spell(self, modality, value):
        asked.append(value.tolist())
        return "a question with $unbalanced mathematics_?"


asked: list[list[int]] = []


def test_contact_sheet_draws_every_kind_of_modality(tmp_path: Path):
    asked.clear()
    toy = Toy()
    path = draw(toy, tmp_path / "new" / "toy.png")
    assert path.read_bytes().startswith(PNG)
    # One column per sample, one of each class first.
    assert len(asked) == 10
    assert asked[:3] == toy.splits["train"].inputs["words"][:3].tolist()


def test_facts_count_rows_and_classes():
    facts = _facts(Toy())
    assert facts["splits"] == {"train": 12, "val": 5, "test": 4}
    assert facts["classes"]["test"] == {"$a_b$": 2, "<b>": 1, "c": 1}
    assert facts["trivial"] == 0.5  # class 0 is as common as any in training, and has two of the four test rows
    assert facts["scores"] == {} and facts["as_published"] is None
    bytes_of_rows = 21 * (4 * (3 * 5 * 6 + 16 + 14 + 3) + 8 * 4 + 8)
    assert facts["megabytes"] == round(bytes_of_rows / 1e6, 1)
    text = _readable(facts)
    for part in ("toy (version 3)", "CC0", "train 12, val 5, test 4", "photo: image 3x5x6", "0.500", "9 tokens"):
        assert part in text


def test_a_subclass_does_not_inherit_scores():
    class Scored(Toy):
        scores = {"late": 0.9}  # noqa: RUF012
        measured = "by hand"

    class Other(Scored):
        pass

    assert _facts(Scored())["scores"] == {"late": 0.9}
    assert _facts(Other())["scores"] == {} and _facts(Other())["measured"] == ""


def test_published_scores_are_quoted_for_the_very_rows_they_were_measured_on():
    digits = datasets.get("digit_halves")()
    facts = _facts(digits)
    own = [r for r in read(REFERENCE).records if (r.cell.label, r.cell.dataset) == ("concat", "digit_halves")]
    own = [r.conditions[0].score for r in own if r.cell.tuning is None]
    assert facts["scores"]["concat"] == pytest.approx(sum(own) / len(own)) and len(own) == 5
    assert "mean test accuracy of 5 seeds" in facts["measured"]
    assert quoted("0" * 64).scores == {}


def test_changed_rows_are_reported():
    class Pinned(Toy):
        sha256 = Toy().fingerprint()

    class Changed(Toy):
        sha256 = "0" * 64

    assert "as published" in _readable(_facts(Pinned()))
    assert "NOT the published rows" in _readable(_facts(Changed()))


def test_info_of_a_shipped_dataset_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sheet = tmp_path / "digits.png"
    assert main(["data", "info", "digit_halves", "--json", "--sheet", str(sheet)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["name"] == "digit_halves" and facts["samples"] == str(sheet)
    assert sheet.read_bytes().startswith(PNG)


def test_get_offline_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert main(["data", "get", "easy_vqa"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "run `polymodal data get easy_vqa` while online" in error


def test_get_refuses_a_wheel_that_is_not_the_pinned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "mine.whl", "w") as archive:
        archive.writestr("easy_vqa/data/answers.txt", "yes")
    assert main(["data", "get", "easy_vqa", "--wheel", str(tmp_path / "mine.whl")]) == 2
    assert "mine.whl must be easy_vqa-1.0" in capsys.readouterr().err
    assert main(["data", "get", "digit_halves", "--wheel", str(tmp_path / "mine.whl")]) == 2
    assert "none of digit_halves comes from a wheel" in capsys.readouterr().err


def test_unknown_name_has_a_suggestion(capsys: pytest.CaptureFixture[str]):
    assert main(["data", "info", "easy_vqua"]) == 2
    assert "Did you mean 'easy_vqa'" in capsys.readouterr().err
