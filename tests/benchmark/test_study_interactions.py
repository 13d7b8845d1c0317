"""`polymodal study interactions` and `study exchange`: estimates where the truth is known, controls, figures."""

import argparse
import json
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from benchmark.cli import main
from benchmark.studies import exchange
from benchmark.studies import interactions as study
from benchmark.studies._interaction_truth import exact_joint
from benchmark.studies._modality_features import raw
from datamodules.base import DataModule, Split
from datamodules.interactions import Enhancement, Equivalence, Independence, Modulation, Mux, Xor
from datamodules.registry import datasets
from datamodules.spec import Modality, Task
from leaderboard.record import Fitted, Record
from leaderboard.store import Store
from methods.functional.information import pid
from tests.records import make_record, measured

RECIPE = {"width": 16, "epochs": 5, "batch_size": 125, "lr": 4e-3}


def parse(module: Any, *argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(argv)


def decompose(data: DataModule, **options: Any) -> study.Findings:
    return study.study(data, data.task.name, ("a", "b"), RECIPE, clusters=6, shuffles=3, **options)


def record(label: str, seed: int, score: float, **fields: Any) -> Record:
    cell = {"method": label.partition("[")[0], "label": label, "options": {"label": label}, "seed": seed}
    dataset = {"dataset": "interactions_xor", "dataset_options": {"rows": 4000}}
    fields = {"cost": {"train_seconds": 1.0 + seed + len(label)}, **fields}  # no two cells take the same time
    return make_record(**cell, **dataset, conditions=(measured("clean", score),), trivial=0.5, rows=100, **fields)


def predictions(record: Record) -> dict[str, np.ndarray]:
    """Rows that give the record its score: those of one class are told apart from the other."""
    target = np.arange(100) % 2
    right = np.arange(100) < round(100 * record.clean)
    return {"target": target, "row": np.arange(100), "pred:clean": np.where(right, target, 1 - target)}


def write(store: Store, record: Record) -> None:
    store.write(record, predictions(record))


# ---- the truth ----------------------------------------------------------------------------------------------------


def channel_information(mu: float) -> float:
    """I(s; t) in bits of a sign through the Gaussian channel, by quadrature."""

    def surprise(t: float) -> float:
        return float(stats.norm.pdf(t - mu)) * math.log2(1 + math.exp(-2 * mu * t))

    return 1 - integrate.quad(surprise, mu - 9, mu + 9)[0]


def test_exact_values_are_those_of_the_gaussian_channel() -> None:
    one, two = channel_information(1.0), channel_information(0.7)
    found = {cls: pid(exact_joint(cls(), ("a", "b"), 32), 1e-5) for cls in (Independence, Enhancement, Equivalence)}  # pyright: ignore
    assert float(found[Independence]["U1"]) == pytest.approx(one, abs=2e-3)
    assert float(found[Independence]["U2"]) == pytest.approx(two, abs=2e-3)
    assert float(found[Independence]["I12"]) == pytest.approx(one + two, abs=4e-3)
    assert float(found[Equivalence]["R"]) == pytest.approx(one, abs=5e-3)
    # Evidence adds up: t_a mu_a + t_b mu_b is a channel with the root of the sum of squares.
    assert float(found[Enhancement]["I12"]) == pytest.approx(channel_information(math.hypot(1.0, 0.7)), abs=3e-3)


@pytest.mark.parametrize("cls", [Xor, Equivalence, Independence, Enhancement, Mux])
def test_exact_joint_is_that_of_the_rows(cls: type) -> None:
    """Signs of the signals and the label, counted in drawn rows, against the sum over bins."""
    data = cls(label_noise=0.1)
    signal, label = data.signals(np.random.default_rng(0), 40_000)
    noisy = np.random.default_rng(1)
    other = (label + noisy.integers(1, data.classes, len(label))) % data.classes
    label = np.where(noisy.random(len(label)) < 0.1, other, label)
    counted = np.zeros((2, 2, data.classes))
    np.add.at(counted, ((signal[:, 0] > 0).astype(int), (signal[:, 1] > 0).astype(int), label), 1 / len(label))
    joint = exact_joint(data, ("a", "b"), 8)
    assert joint is not None
    summed = joint.reshape(2, 4, 2, 4, -1).sum(dim=(1, 3))
    assert summed.numpy() == pytest.approx(counted, abs=0.012)


def test_only_labels_made_of_signs_are_known_exactly() -> None:
    assert exact_joint(Modulation(), ("a", "b")) is None
    context = exact_joint(Mux(), ("a", "context"), 8)
    assert context is not None
    assert float(pid(context, 1e-5)["U2"]) == pytest.approx(0, abs=1e-3)
    assert float(pid(context, 1e-5)["S"]) > 0.2


# ---- the estimate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "atoms"), [(Xor, "S"), (Equivalence, "R"), (Independence, "U1 U2")])
def test_information_is_found_where_it_is(cls: type, atoms: str) -> None:
    found = decompose(cls(rows=4000))
    assert found.exact is not None
    assert found.agreement is not None
    assert found.agreement > 0.8
    assert sum(found.estimate[a] for a in atoms.split()) > 0.8 * found.estimate["I12"]
    assert 0.7 * found.exact["I12"] < found.estimate["I12"] < 1.15 * found.exact["I12"]
    assert found.estimate["I12"] > 10 * found.chance
    assert found.source == ("raw" if cls is Xor else "unimodal")


def test_features_learnt_jointly_know_what_neither_knows_alone() -> None:
    data = Xor(rows=4000)
    alone, joint = decompose(data, features="unimodal"), decompose(data, features="joint")
    assert joint.estimate["S"] > 0.35
    assert joint.estimate["S"] > 1.4 * alone.estimate["S"]
    assert joint.agreement is not None
    assert joint.agreement > 0.8


def test_agreement_is_the_overlap_of_shares() -> None:
    truth = {"R": 0.0, "U1": 0.5, "U2": 0.5, "S": 0.0}
    assert study.agreement({"R": 0.0, "U1": 3.0, "U2": 3.0, "S": 0.0}, truth) == pytest.approx(1)
    assert study.agreement({"R": 1.0, "U1": 1.0, "U2": 0.0, "S": 0.0}, truth) == pytest.approx(0.5)
    assert study.agreement({"R": 1.0, "U1": 0.0, "U2": 0.0, "S": 0.0}, truth) == 0
    assert study.agreement(dict.fromkeys(study.ATOMS, 0.0), truth) is None


def test_product_terms() -> None:
    xor = decompose(Xor(rows=2000), features="raw").terms
    assert [t.interacts for t in xor] == [True, True]
    assert xor[0].weight == pytest.approx(-xor[1].weight)
    alike = raw(Xor(rows=2000), "a")
    terms, why_not = study._terms(Xor(rows=2000), [alike, alike], ("a", "b"))
    assert terms == ()
    assert "same number" in why_not
    # A number is its own response: the effect of a grows with b.
    (modulated,) = study.study(
        Modulation(mu=3.0, rows=4000), "interactions_modulation", ("a", "b"), {**RECIPE, "epochs": 12}, shuffles=1
    ).terms
    assert modulated.response == "target"
    assert modulated.interacts


class Words(DataModule):
    """A text and a vector, both of which tell the class."""

    def describe(self) -> Task:
        pair = (Modality("text", "text", (4,), vocabulary=9), Modality("vector", "vector", (5,)))
        return Task("words", "1", pair, "multiclass", 3)

    def load(self) -> dict[Any, Split]:
        generator = torch.Generator().manual_seed(0)

        def split(rows: int) -> Split:
            y = torch.randint(3, (rows,), generator=generator)
            text = torch.stack([y + 1, torch.randint(4, 9, (rows,), generator=generator), y + 1, y * 0], dim=1)
            x = 0.3 * torch.randn(rows, 5, generator=generator)
            x[:, 0] += 3.0 * y
            return Split({"text": text, "vector": x}, y)

        return {"train": split(300), "val": split(150), "test": split(150)}


def test_text_is_counted_and_images_are_reduced() -> None:
    found = study.study(Words(), "words", ("text", "vector"), RECIPE, features="raw", shuffles=2)
    assert found.exact is None
    assert found.agreement is None
    assert found.estimate["R"] > 1.2  # of log2 3 = 1.58


# ---- the command --------------------------------------------------------------------------------------------------


def test_run_writes_figure_numbers_and_the_scores_of_the_records(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(study, "chosen_dataset", lambda *given: Xor(rows=1000))
    store = Store(tmp_path / "results")
    store.prepare()
    for seed, score in enumerate((0.81, 0.83)):
        write(store, record("concat", seed, score))
        write(store, record("unimodal[a]", seed, 0.5))
    options = ("interactions_xor", "--raw", "--clusters", "4", "--shuffles", "2", "--out", str(tmp_path / "out"))
    assert study.run(parse(study, *options, "--results", str(tmp_path / "results"))) == 0
    printed = capsys.readouterr().out
    assert "synergy" in printed
    assert re.search(r"concat +0\.8200 +2\n", printed)
    assert re.search(r"unique of a .* no more than chance\n", printed)
    assert not re.search(r"synergy .* no more than chance\n", printed)
    assert "rows of other options: rows = 4000" in printed
    written = json.loads((tmp_path / "out" / "interactions_xor.json").read_text())
    assert written["scores"] == {"concat": [0.81, 0.83], "unimodal[a]": [0.5, 0.5]}
    assert (tmp_path / "out" / "interactions_xor.png").read_bytes().startswith(b"\x89PNG")
    assert study.run(parse(study, *options, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] == written["estimate"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("interactions_xr",), "interactions_xor"),
        (("interactions_mux",), "--modalities"),
        (("interactions_mux", "--modalities", "a,contxt"), "context"),
        (("two_digits",), "retrieval"),
        (("interactions_xor", "--clusters", "1"), "--clusters"),
        (("interactions_xor", "--results", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_studied_is_refused_before_training(argv, message, capsys, monkeypatch) -> None:
    monkeypatch.setattr(study, "study", lambda *a, **k: pytest.fail("trained"))
    assert main(["study", "interactions", *argv]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xor", "equivalence", "independence"])
def test_acceptance_at_full_size(kind, tmp_path) -> None:
    assert study.run(parse(study, f"interactions_{kind}", "--out", str(tmp_path))) == 0
    found = json.loads((tmp_path / f"interactions_{kind}.json").read_text())
    assert found["agreement"] >= 0.8
    assert found["estimate"]["I12"] >= 10 * np.mean([s["I12"] for s in found["shuffled"]])
    assert found["rows"] == datasets.get(f"interactions_{kind}")().rows * 7 // 10


# ---- study exchange -----------------------------------------------------------------------------------------------


def test_exchange_draws_the_shares_of_the_history(tmp_path, capsys) -> None:
    history = [{"val/accuracy": 0.5, "exchanged_0": 0.0, "exchanged_1": 0.25}, {"exchanged_0": 0.5, "exchanged_1": 0.5}]
    stages = (Fitted("train", 1.0, history=tuple(history)),)
    store = Store(tmp_path)
    store.prepare()
    write(store, record("channel_exchange", 0, 0.9, training=stages))
    write(store, record("channel_exchange[exchange=none]", 0, 0.8, training=stages))
    plain = (Fitted("train", 1.0, history=({"val/accuracy": 1.0},)),)
    write(store, record("concat", 0, 0.8, training=plain))
    assert exchange.run(parse(exchange, "--results", str(tmp_path), "--out", str(tmp_path / "out"))) == 0
    assert "0.50 0.50" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "exchange.json").read_text())["interactions_xor"]
    assert found["channel_exchange"] == [{"0": [0.0, 0.5], "1": [0.25, 0.5]}]
    assert "concat" not in found
    assert (tmp_path / "out" / "exchange.png").read_bytes().startswith(b"\x89PNG")


def test_exchange_without_shares(tmp_path, capsys) -> None:
    assert main(["study", "exchange", "--results", str(tmp_path / "none")]) == 2
    write(Store(tmp_path), record("concat", 0, 0.8))
    assert main(["study", "exchange", "--results", str(tmp_path)]) == 2
    assert "polymodal run exchange" in capsys.readouterr().err
