"""Severities of a dataset: what its file says is what its rows meet, and decides the cell's identity."""

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from benchmark.conditions import notes, resolve, versions
from benchmark.conformance.probe import Probe
from benchmark.studies import severities as study
from datamodules import datasets
from datamodules.corruptions import applicable, calibration, catalogue, corrupt, joint, levels, severities
from datamodules.spec import Modality, Task
from methods import Recipe

IMAGE = Modality("a", "image", (1, 8, 8))
VECTOR = Modality("b", "vector", (6,))
TASK = Task("mine", "1", (IMAGE, VECTOR), "multiclass", 3)
FILE = """
[a]
kind = "image"
shape = [1, 8, 8]
[a.severities]
gaussian_blur = [0.1, 0.2, 0.3, 0.4, 0.5]
[a.left_out]
gaussian_noise = "keeps all"
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.toml").write_text(FILE)
    monkeypatch.setattr(calibration, "FOLDER", tmp_path)
    calibration.tables.cache_clear()
    return tmp_path / "mine.toml"


@pytest.mark.usefixtures("mine")
def test_a_dataset_has_its_own_values_and_the_rest_those_of_the_kind() -> None:
    assert levels("gaussian_blur", IMAGE, "mine") == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert levels("contrast", IMAGE, "mine") == severities("contrast", "image")
    assert (
        levels("gaussian_blur", IMAGE, "other")
        == levels("gaussian_blur", IMAGE)
        == severities("gaussian_blur", "image")
    )
    # Features under the name of the image they stand for are other inputs.
    assert levels("gaussian_noise", Modality("a", "vector", (6,)), "mine") == severities("gaussian_noise", "vector")
    assert applicable(Modality("a", "image", (1, 4, 4)), "mine") == catalogue("image")


@pytest.mark.usefixtures("mine")
def test_the_rows_meet_the_values_of_their_dataset() -> None:
    x, row = torch.rand(4, 1, 8, 8), torch.arange(4)
    own, kind = (
        corrupt(x, row, name="gaussian_blur", severity=5, key=1, modality=IMAGE, dataset=name) for name in ("mine", "")
    )
    assert not torch.equal(own, kind)


@pytest.mark.usefixtures("mine")
def test_what_is_left_out_is_not_tested_and_the_reader_is_told() -> None:
    conditions = resolve("standard", TASK)
    met = {c.corruption for c in conditions if c.kind == "single" and c.modality == "a"}
    assert met == {"gaussian_blur", "occlusion"}
    assert joint(IMAGE, "mine") == "shot_noise" and joint(VECTOR, "mine") == "gaussian_noise"
    said = notes(conditions, TASK)
    assert said == [
        "mine: severities of b are those of the kind, calibrated on other datasets",
        "mine: not tested: a gaussian_noise (keeps all)",
    ]
    assert notes(resolve("none", TASK), TASK) == []


def test_an_edited_value_is_another_cell(mine: Path) -> None:
    conditions = resolve("standard", TASK)
    before = versions(conditions, TASK)
    mine.write_text(FILE.replace("0.5]", "0.6]"))
    calibration.tables.cache_clear()
    after = versions(conditions, TASK)
    assert {name for name in before if before[name] != after[name]} == {"gaussian_blur"}


def test_with_nothing_left_the_joint_condition_spares_the_modality(mine: Path) -> None:
    gone = "\n".join(f'{name} = "no"' for name in catalogue("image")[:-1])
    mine.write_text(FILE.partition("[a.left_out]")[0] + "[a.left_out]\n" + gone)
    calibration.tables.cache_clear()
    assert joint(IMAGE, "mine") is None
    assert any(c.kind == "joint" for c in resolve("standard", TASK))
    alone = Task("mine", "1", (IMAGE, Modality("c", "vector", (6,))), "multiclass", 3)
    vector = "\n".join(f'{name} = "no"' for name in catalogue("vector")[:-1])
    head = '\n[c]\nkind = "vector"\nshape = [6]\n[c.left_out]\n'
    mine.write_text(mine.read_text() + head + vector)
    calibration.tables.cache_clear()
    assert {c.kind for c in resolve("standard", alone)} == {"clean", "missing", "misaligned"}


@pytest.mark.parametrize("dataset", sorted(p.stem for p in calibration.FOLDER.glob("*.toml")))
def test_every_shipped_table_fits_its_dataset(dataset: str) -> None:
    assert dataset in datasets.names()
    for name, entry in calibration.tables(calibration.FOLDER)[dataset].items():
        every = {**entry["severities"], **entry["left_out"]}
        limits = study.LIMITS[entry["kind"]] | study.LIMITS[entry.get("medium", entry["kind"])]
        assert set(limits) == set(every), (dataset, name)
        for corruption, values in entry["severities"].items():
            weak, strong, _ = limits[corruption]
            rising = [(b - a) * (strong - weak) > 0 for a, b in pairwise(values)]
            assert len(values) == 5 and all(rising), (dataset, name, corruption, values)


def test_there_are_tables() -> None:
    assert {"digit_halves", "interactions_xor"} <= set(calibration.tables(calibration.FOLDER))


class Curve:
    """A reference whose kept share is a function of the parameter."""

    clean, floor, told = 0.8, 0.0, "unimodal"

    def __init__(self, kept) -> None:
        self.kept = lambda name, p: kept(p)


def test_severities_leave_even_shares_and_what_cannot_is_left_out() -> None:
    found = study.find(Curve(lambda p: 1 - p), "gaussian_noise", 0.02, 1.0, False)  # type: ignore[arg-type]
    assert found.severities == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5), abs=0.02) and not found.why
    blunt = study.find(Curve(lambda p: 1 - 0.1 * p), "gaussian_blur", 0.02, 1.0, True)  # type: ignore[arg-type]
    assert not blunt.severities and "0.90 of the score is left at its strongest" in blunt.why
    cliff = study.find(Curve(lambda p: 1.0 if p < 0.5 else 0.1), "pixelate", 0.02, 1.0, False)  # type: ignore[arg-type]
    assert not cliff.severities and "falls off a cliff" in cliff.why
    falling = study.find(Curve(lambda p: p), "contrast", 0.98, 0.05, True)  # type: ignore[arg-type]
    assert falling.severities == pytest.approx((0.9, 0.8, 0.7, 0.6, 0.5), abs=0.02)


def test_a_reference_that_learnt_nothing_calibrates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "build_dataset", lambda name, options: Probe())
    monkeypatch.setattr(study, "RECIPE", Recipe(width=8, epochs=1, batch_size=64, lr=1e-9))
    monkeypatch.setattr(study, "CHANCE", 2.0)
    lines = list(study.calibrate("probe", 1))
    assert not tomllib.loads("\n".join(lines))
    assert sum("is not calibrated: concat can lose" in line for line in lines) == 2
