"""`polymodal study probes`: the model that validation rows choose, scored once; real sets against their probes."""

import json
import os
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression

from benchmark.cli import main
from benchmark.studies.probes import STEPS, STRENGTHS, probe
from datamodules.registry import datasets
from tests.datamodules.miniature_recordings import make_mosi


def test_the_penalty_is_chosen_by_validation_loss_and_never_by_test_rows() -> None:
    data = datasets.get("digit_halves")()
    names = data.task.names[:1]
    found = probe(data, "digit_halves", names)
    x = {split: rows.inputs[names[0]].flatten(1).double().numpy() for split, rows in data.splits.items()}
    y = {split: rows.target.numpy() for split, rows in data.splits.items()}
    losses = {}
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=STEPS).fit(x["train"], y["train"])
        log = model.predict_log_proba(x["val"])
        losses[strength] = -sum(log[row, y["val"][row]] for row in range(len(log))) / len(log)
    best = min(losses, key=lambda strength: losses[strength])
    assert found.strength == best
    chosen = LogisticRegression(C=best, max_iter=STEPS).fit(x["train"], y["train"])
    assert found.validation == pytest.approx(chosen.score(x["val"], y["val"]))
    assert found.test == pytest.approx(chosen.score(x["test"], y["test"]))


def test_each_modality_and_all_together_are_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    make_mosi(tmp_path / "data")
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path / "data"))
    out = tmp_path / "out"
    assert main(["study", "probes", "mosi", "--set", "mosi.text=tokens", "--out", str(out)]) == 0
    assert "mosi[tokens]" in capsys.readouterr().out
    found = json.loads((out / "probes.json").read_text())
    assert [one["modalities"] for one in found] == [["text"], ["audio"], ["text", "audio"]]
    assert all(one["test"] > 0.9 for one in found)  # a word and every acoustic feature say the label


def test_what_has_no_classes_is_not_probed(tmp_path: Path, capsys) -> None:
    assert main(["study", "probes", "two_digits", "--out", str(tmp_path)]) == 2
    assert "two_digits is a retrieval task; a probe needs one class per row" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["utd_mhad", "mosi"])
def test_published_probes_are_those_of_the_files(name: str) -> None:
    if not os.environ.get("POLYMODAL_DATA"):
        pytest.skip("POLYMODAL_DATA is not set")
    cls = datasets.get(name)
    data = cls()
    for shown, score in cls.scores.items():
        if shown.startswith("probe["):
            names = shown.removeprefix("probe[").removesuffix("]").split(" + ")
            assert probe(data, name, names).test == pytest.approx(score, abs=0.003), shown
    assert any(shown.startswith("probe[") for shown in cls.scores)
