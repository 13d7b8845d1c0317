"""`polymodal study centers`: its parts on small problems; the trained figures are those of the functional tests."""

import argparse
import json
import math

import pytest
import torch
import torch.nn.functional as F

from benchmark.cli import main
from benchmark.studies import centers as study
from datamodules.base import DataModule, Split
from datamodules.spec import Modality, Task


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    study.add_arguments(parser)
    return parser.parse_args(argv)


class Blobs(DataModule):
    """Classes that are as many directions: raw features retrieve them all."""

    def describe(self) -> Task:
        pair = (Modality("a", "vector", (6,)), Modality("b", "vector", (6,)))
        return Task("blobs", "1", pair, "retrieval", 3)

    def load(self):
        generator = torch.Generator().manual_seed(0)

        def split(classes: range) -> Split:
            y = torch.tensor(list(classes)).repeat(6)
            x = [F.one_hot(y, 6) + 0.05 * torch.randn(len(y), 6, generator=generator) for _ in range(2)]
            return Split({"a": x[0], "b": x[1]}, y)

        return {"train": split(range(3)), "val": split(range(1, 3)), "test": split(range(3, 6))}


def test_the_two_readings_part():
    spread = study.spread_study("A: r1, gamma 16", 12, 3, steps=60, seeds=1)
    control = study.spread_study("B: farthest, lam 4", 12, 3, steps=60, seeds=1)
    start = study.spread_study("none (random)", 12, 3, steps=60, seeds=1)
    assert spread.min_distance[0] == control.min_distance[0] == start.min_distance[0]
    assert spread.min_distance[-1] > start.min_distance[-1] + 0.1
    assert control.nearest_distance[-1] < 0.1
    assert not spread.collapsed
    assert spread.steps[0] == 0
    assert spread.steps[-1] == 60
    assert len(spread.steps) == len(spread.nearest_distance)


def test_run_writes_table_plot_and_numbers(tmp_path, capsys):
    options = ("--out", str(tmp_path), "--centers", "6", "--width", "3", "--steps", "4", "--seeds", "1")
    assert study.run(parse(*options)) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in study.OBJECTIVES)
    curves = json.loads((tmp_path / "centers.json").read_text())
    assert [curve["objective"] for curve in curves] == list(study.OBJECTIVES)
    assert (tmp_path / "spread.png").read_bytes().startswith(b"\x89PNG")


def test_floors(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(study.datasets, "get", lambda name: Blobs)
    assert study.run(parse("--floors", "blobs", "--seeds", "2", "--out", str(tmp_path))) == 0
    random, raw, untrained = json.loads((tmp_path / "floors-blobs.json").read_text())
    assert raw["recall"]["1"] == 1.0
    assert raw["nmi"] == pytest.approx(1)
    assert random["recall"]["1"] == pytest.approx(5 / 17)
    assert 0 <= untrained["recall"]["1"] <= untrained["recall"]["8"] <= 1
    assert math.isfinite(untrained["nmi"])
    assert "raw features" in capsys.readouterr().out


def test_floors_need_a_retrieval_task(tmp_path, capsys):
    assert main(["study", "centers", "--floors", "digit_halves", "--out", str(tmp_path)]) == 2
    assert "multiclass" in capsys.readouterr().err


def test_sampling_study_shows_what_the_naive_form_loses(tmp_path, capsys):
    code = main(["study", "sampling", "--out", str(tmp_path), "--centers", "48", "--width", "4", "--steps", "400",
                 "--seeds", "1"])  # fmt: skip
    assert code == 0
    found = json.loads((tmp_path / "sampling.json").read_text())
    assert (tmp_path / "sampling.png").stat().st_size > 5000
    spread = {(one["form"], one["sample"]): one["nearest_distance"] for one in found}
    assert [one["form"] for one in found] == ["all", *["naive"] * 5, *["ratio"] * 5]
    assert spread["ratio", 6] > spread["naive", 6] + 0.05  # an eighth of the centres
    assert spread["all", 48] > spread["ratio", 6]
    assert "ms/step" in capsys.readouterr().out
