"""The matrices for data that people have, end to end on miniatures of the published layouts."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch

from benchmark.build import build_dataset, build_method
from benchmark.matrix import read, with_arguments
from benchmark.options import UsageError
from benchmark.plan import make_plan
from datamodules.encoders.pretrained import EncoderName
from leaderboard.record import Record
from leaderboard.store import Store
from methods.parts.attention import RIDGE, ContinuousMethod, rbfs_of
from tests.benchmark.conftest import ROOT
from tests.datamodules.miniature_recordings import make_mosi, make_utd_mhad
from tests.datamodules.miniatures import COLOURS, look, make_image_folder, make_karpathy, make_vqa2

SMALL = ("recipe.width=16", "recipe.epochs=2", "recipe.batch_size=32")
TINY = {  # encoders that need no weights, in place of the pretrained ones
    "vqa2": ("vqa2.image=random:conv+tokens", "vqa2.image_size=28"),
    "retrieval": (
        "retrieval_pairs.image=random:conv",
        "retrieval_pairs.text=random:embedding",
        "retrieval_pairs.image_size=32",
    ),
    "robust_image_text": (
        "hub_image_text.image=random:conv",
        "hub_image_text.text=random:embedding",
        "hub_image_text.image_size=32",
    ),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYMODAL_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def run(folder: Path, matrix: str, *settings: str) -> list[Record]:
    """`polymodal run MATRIX` in a process of its own; every cell must succeed."""
    arguments = ["run", matrix, "--results", str(folder / "results"), "--workers", "0", "--seeds", "1", "--quiet"]
    for setting in settings:
        arguments += ["--set", setting]
    done = subprocess.run(
        [sys.executable, "-m", "benchmark.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    records = list(Store(folder / "results").scan().records)
    assert records and all(record.status == "ok" for record in records)
    return records


@pytest.mark.slow
def test_vqa2(data: Path, tmp_path: Path) -> None:
    make_vqa2(data)
    records = run(tmp_path, "vqa2", *SMALL, *TINY["vqa2"])
    methods = {record.cell.method for record in records}
    assert {"softmax_attention", "sparsemax_attention", "continuous_softmax", "continuous_sparsemax"} <= methods
    assert {"mixture_attention", "concat", "multiplicative", "unimodal"} <= methods
    for record in records:
        assert record.cell.metric == "vqa_accuracy" and record.trivial == pytest.approx(1 / 3)
        types = [record.conditions[0].metrics[f"vqa_accuracy/{name}"] for name in ("yes_no", "number", "other")]
        assert sum(types) / 3 == pytest.approx(record.clean)
        kept = Store(tmp_path / "results").predictions(record.cell.id)
        assert kept["target"].shape[:2] == (48, 2) and kept["pred:clean"].shape == (48,)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["flickr8k", "coco"])
def test_retrieval(data: Path, tmp_path: Path, corpus: str) -> None:
    sizes = {"train": 24, "restval": 8, "val": 8, "test": 8} if corpus == "coco" else {"train": 32, "val": 8, "test": 8}
    make_karpathy(data, corpus, sizes)
    settings = (*SMALL, *TINY["retrieval"], f"retrieval_pairs.corpus={corpus}")
    records = run(tmp_path, "retrieval", *settings)
    assert {r.cell.method for r in records} == {"cca", "dcca", "dccae", "contrastive", "contrastive_hinge"}
    for record in records:
        assert record.trivial == pytest.approx(1 / 8) and record.rows == 40
        both = [record.conditions[0].metrics[f"recall_at_1_{way}"] for way in ("image_to_text", "text_to_image")]
        assert sum(both) / 2 == pytest.approx(record.clean)
        assert record.summary["recall_at_1"] == pytest.approx(record.clean, abs=1e-6)
    best = max(record.clean for record in records)
    assert best > 0.5  # colour and side are in the pixels and in the words: four times chance


@pytest.mark.slow
def test_robust_image_text(data: Path, tmp_path: Path) -> None:
    make_image_folder(data / "image_text")
    records = run(tmp_path, "robust_image_text", *SMALL, *TINY["robust_image_text"])
    assert {"concat", "late", "gated", "low_rank", "modality_dropout", "augmented", "emma"} <= {
        r.cell.method for r in records
    }
    kinds = {condition.kind for record in records for condition in record.conditions}
    assert {"clean", "single", "joint", "missing", "misaligned"} <= kinds
    assert {record.cell.dataset for record in records} == {
        "hub_image_text[image_text;image=random:conv;text=random:embedding]"
    }


@pytest.mark.slow
def test_files_of_a_practitioner(data: Path, tmp_path: Path) -> None:
    """A table, an archive, an image folder without labels and Flickr30k, on raw inputs, from one matrix file."""
    rng, rows = np.random.default_rng(1), 80
    kind = np.arange(rows) % 4
    cells = np.column_stack([rng.normal(kind[:, None], 0.1, (rows, 4)), kind])
    np.savetxt(data / "pets.csv", cells, delimiter=",", header="a,b,c,d,kind", comments="", fmt="%.4f")
    photos = np.stack([np.full((3, 8, 8), 60 * k, dtype=np.uint8) for k in kind])
    np.savez(data / "pets.npz", photo=photos, sound=rng.normal(kind[:, None, None], 0.1, (rows, 8, 2)), target=kind)
    make_image_folder(data / "captioned")
    make_karpathy(data, "flickr30k", {"train": 32, "val": 8, "test": 8}, below="flickr30k-images")
    (tmp_path / "mine.toml").write_text("""
conditions = ["missing"]
methods = ["concat", "contrastive"]
baselines = false
datasets = [
  { name = "csv_views", file = "pets.csv", modalities = { one = ["a..b"], two = ["c", "d"] }, target = "kind" },
  { name = "npz_views", file = "pets.npz", modalities = ["photo", "sound"] },
  { name = "hub_image_text", path = "captioned", image_size = 16 },
  { name = "retrieval_pairs", corpus = "flickr30k", image_size = 16 },
]
[recipe]
width = 16
epochs = 6
batch_size = 16
lr = 1e-2
""")
    records = run(tmp_path, "mine.toml")
    scores = {(record.cell.dataset, record.cell.method): record.clean for record in records}
    pairs = ("hub_image_text[captioned]", "retrieval_pairs[flickr30k]")
    labelled = ("csv_views[pets]", "npz_views[pets]")
    assert set(scores) == {(d, m) for d in labelled for m in ("concat", "contrastive")} | {
        (d, "contrastive") for d in pairs
    }
    assert scores["csv_views[pets]", "concat"] > 0.8 and scores["npz_views[pets]", "concat"] > 0.8


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("vqa2", "vqa2: `folder` is 'vqa2', but there is nothing at"),
        ("retrieval", "retrieval_pairs: `folder` is 'flickr8k', but there is nothing at"),
        ("robust_image_text", "hub_image_text: `path` is 'image_text', but there is nothing at"),
    ],
)
def test_without_data_one_sentence_says_what_is_missing(data: Path, matrix: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(read(matrix))
    message = str(caught.value)
    assert message.startswith(said) and str(data) in message and "\n" not in message
    assert len(message.replace(str(data), "")) < 250  # however long the path is


def test_the_real_matrix_takes_what_is_found(data: Path) -> None:
    with pytest.raises(UsageError, match=r"real\.toml: none of its datasets is on this machine: set POLYMODAL_DATA"):
        make_plan(read("real"))
    folder = make_mosi(data)
    make_utd_mhad(data)
    matrix = with_arguments(read("real"), method_names=["concat"])
    plan = make_plan(matrix)
    assert {cell.dataset for cell in plan.cells} == {"utd_mhad", "mosi"}
    left_out = {note.partition(" ")[0] for note in plan.notes if "is left out: " in note}
    assert left_out == {choice.name for choice in matrix.datasets} - {"utd_mhad", "mosi"}
    (folder / "audio_train0.csv").write_text('"x"\n')
    with pytest.raises(UsageError, match=r"mosi: .*audio_train0\.csv, line 1: there must be 74 columns"):
        make_plan(matrix)  # damaged is not missing


def test_core_has_the_real_sets_where_their_folders_are(data: Path) -> None:
    real = {"utd_mhad", "mosi"}
    matrix = with_arguments(read("core"), method_names=["concat"])
    assert real <= {choice.name for choice in matrix.datasets}
    assert all(matrix.recipes[name] == read("real").recipes[name] for name in real)
    few = replace(matrix, datasets=tuple(c for c in matrix.datasets if c.name in {"interactions_xor", *real}))
    plan = make_plan(few)
    assert {cell.dataset for cell in plan.cells} == {"interactions_xor"}
    assert {note.partition(" ")[0] for note in plan.notes if "is left out: " in note} == real
    make_mosi(data)
    make_utd_mhad(data)
    assert {cell.dataset for cell in make_plan(few).cells} == {"interactions_xor", *real}


def test_the_vqa2_matrix_has_the_settings_of_the_thesis(data: Path) -> None:
    make_vqa2(data, train=12, test=4)
    plan = make_plan(with_arguments(read("vqa2"), settings=TINY["vqa2"]))
    cells = {cell.method: cell for cell in plan.cells}
    task = build_dataset(cells["concat"].dataset, cells["concat"].dataset_options).task
    assert task.modalities[0].shape[1:] == (14, 14)
    for name in ("continuous_softmax", "continuous_sparsemax", "mixture_attention"):
        method = build_method(name, cells[name].options, task, {**cells[name].recipe, "width": 16})
        assert isinstance(method, ContinuousMethod)
        rbfs = rbfs_of((14, 14), method.rbfs, method.rbf_width, method.device)
        assert rbfs.operator.shape == (196, 100) and rbfs.var == pytest.approx((0.001, 0.001), rel=1e-3)
    assert RIDGE == 0.01
    assert {"softmax_attention", "sparsemax_attention", "concat", "multiplicative"} <= set(cells)


def test_the_encoder_of_the_vqa2_matrix_has_the_grid_of_the_thesis() -> None:
    (dataset,) = read("vqa2").datasets
    encoder = EncoderName.parse(dataset.options["image"])
    assert encoder.library == "timm" and encoder.tokens
    with torch.device("meta"):
        model: Any = timm.create_model(encoder.model.partition(".")[0], pretrained=False)
        side = dataset.options["image_size"]
        grid = model.forward_features(torch.empty(1, 3, side, side)).shape[-2:]
    assert grid == (14, 14)


def test_the_miniatures_have_every_look() -> None:
    assert {look(number) for number in range(8)} == {(c, s) for c in COLOURS for s in ("left", "right")}
