"""Features of frozen encoders: what they are, that they are computed once, and where weights come from."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from datamodules.base import DataModule, Gathered, Split, SplitName
from datamodules.corruptions import corrupt, corruption_key
from datamodules.encoders import feature_cache
from datamodules.encoders.features import Features
from datamodules.encoders.pretrained import EncoderName, build
from datamodules.encoders.weights import WeightsError
from datamodules.spec import Batch, Modality, Task
from methods.parts.encoders import build_encoder

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("", "red", "green", "blue", "square", "disc", "what", "is")
SIZES: dict[SplitName, int] = {"train": 40, "val": 12, "test": 20}
IMAGE = Modality("image", "image", (3, 16, 16), range=(-1.0, 1.0))


class Pictures(DataModule):
    """Few pictures, each asked about several times."""

    version = "3"

    def __init__(self, brightness: int = 0) -> None:
        super().__init__()
        self.brightness = brightness

    def describe(self) -> Task:
        text = Modality("question", "text", (5,), vocabulary=len(WORDS))
        sound = Modality("sound", "sequence", (12, 3))
        return Task("pictures", self.version, (IMAGE, text, sound), "multiclass", 3)

    def words(self, modality: str) -> tuple[str, ...]:
        return WORDS if modality == "question" else ()

    def load(self) -> dict[SplitName, Split]:
        generator = torch.Generator().manual_seed(5)

        def split(rows: int) -> Split:
            pixels = torch.randint(-100, 100, (8, 3, 16, 16), generator=generator, dtype=torch.int8) + self.brightness
            index = torch.randint(8, (rows,), generator=generator)
            tokens = torch.randint(1, len(WORDS), (rows, 5), generator=generator)
            tokens[:, 3:] = 0
            sound = torch.randn(rows, 12, 3, generator=generator)
            inputs = {"image": Gathered(pixels.to(torch.int8), index, 1 / 128), "question": tokens, "sound": sound}
            return Split(inputs, torch.randint(3, (rows,), generator=generator))

        return {name: split(rows) for name, rows in SIZES.items()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no weights, no network."""
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("POLYMODAL_WEIGHTS", raising=False)
    monkeypatch.delenv("POLYMODAL_CACHE_GB", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every call of an encoder: modality and rows."""
    calls: list[tuple[str, int]] = []
    encode = Features.encode

    def counted(self: Features, modality: str, x: Tensor) -> Tensor:
        calls.append((modality, len(x)))
        return encode(self, modality, x)

    monkeypatch.setattr(Features, "encode", counted)
    return calls


def whole(features: Features, split: SplitName) -> Batch:
    return features.ordered(split).take(torch.arange(SIZES[split]))


# ---- what features are ----------------------------------------------------------------------------------------------


def test_clean_features_are_the_encoded_inputs_standardised_by_training_rows() -> None:
    base = Pictures()
    features = Features(base, {"image": "random:conv", "question": "random:embedding"})
    assert [(m.kind, m.shape) for m in features.task.modalities] == [
        ("vector", (128,)),
        ("vector", (128,)),
        ("sequence", (12, 3)),
    ]
    for name in ("image", "question"):
        direct = {s: features.encode(name, base.splits[s].inputs[name][:]) for s in SIZES}
        index = base.splits["train"].inputs["image"]
        rows = direct["train"]
        if name == "image":  # each picture once, however often it is asked about
            assert isinstance(index, Gathered)
            rows = rows[torch.from_numpy(np.unique(index.index.numpy(), return_index=True)[1])]
        else:
            rows = rows[torch.from_numpy(np.unique(base.splits["train"].inputs[name][:].numpy(), axis=0,
                                                   return_index=True)[1])]  # fmt: skip
        mean, std = rows.double().mean(0), rows.double().std(0, correction=0)
        std[std < 1e-5] = 1
        for split in SIZES:
            got = features.splits[split].inputs[name][:]
            torch.testing.assert_close(got, ((direct[split] - mean) / std).float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(features.splits["test"].inputs["sound"][:], base.splits["test"].inputs["sound"][:])
    assert torch.equal(features.splits["test"].target, base.splits["test"].target)


@pytest.mark.parametrize(("name", "corruption"), [("image", "gaussian_noise"), ("question", "token_replace"),
                                                  ("sound", "time_mask")])  # fmt: skip
def test_corrupted_features_are_those_of_the_corrupted_input(name: str, corruption: str) -> None:
    encoders = {"image": "random:conv", "question": "random:embedding", "sound": "random:conv"}
    base, features = Pictures(), Features(Pictures(), encoders)
    batch = whole(features, "test")
    got = features.corrupted(batch, "test", name, corruption, 4)
    raw = base.task.modalities[base.task.names.index(name)]
    key = corruption_key("pictures", "3", "test", name, corruption)
    x = base.splits["test"].inputs[name][:]
    noisy = corrupt(x, torch.arange(len(x)), name=corruption, severity=4, key=key, modality=raw)
    mean, deviation = features._rows("test", name).mean, features._rows("test", name).deviation
    expected = (features.encode(name, noisy) - mean) / deviation
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, batch.inputs[name], atol=1e-2)
    # Some rows, in another order: the same features.
    some = torch.tensor([7, 2, 11])
    part = features.corrupted(features.ordered("test").take(some), "test", name, corruption, 4)
    assert torch.equal(part, got[some])


def test_misaligned_takes_the_features_of_the_row_whose_input_it_would_take() -> None:
    base, features = Pictures(), Features(Pictures(), {"sound": "random:conv"})
    for modality in ("sound", "image"):
        got = features.corrupted(whole(features, "test"), "test", modality, "misaligned", 3)
        rows = base.splits["test"].inputs[modality][:]
        batch = Batch({modality: rows}, base.splits["test"].target, torch.ones(20, 3).bool(), torch.arange(20))
        swapped = base.corrupted(batch, "test", modality, "misaligned", 3)
        donor = [(rows == x).flatten(1).all(dim=1).nonzero()[0, 0] for x in swapped]
        assert any(i != d for i, d in enumerate(donor))
        expected = features.splits["test"].inputs[modality][torch.stack(donor)]
        assert torch.equal(got, expected)


def test_tokens_keep_their_grid_and_padding_stays_zero() -> None:
    encoders = {"image": "random:conv+tokens", "question": "random:embedding+tokens", "sound": "random:conv+tokens"}
    features = Features(Pictures(), encoders)
    assert [(m.kind, m.shape, m.encoder) for m in features.task.modalities] == [
        ("image", (128, 8, 8), "tokens"),
        ("sequence", (5, 128), "tokens"),
        ("sequence", (6, 128), "tokens"),
    ]
    batch = whole(features, "train")
    words = batch.inputs["question"]
    assert (words[:, 3:] == 0).all() and (words[:, :3] != 0).any(dim=-1).all()
    seen = words[:, :3].flatten(0, 1)
    assert seen.mean().abs() < 0.05 and abs(float(seen.std()) - 1) < 0.1
    # Attention methods work on them, with the right grid.
    from methods import Recipe
    from methods.registry import methods

    method = methods.get("continuous_softmax")(features.task, Recipe(width=16))
    tokens = method.tokenize(batch.inputs, batch.present)
    assert {name: t.grid for name, t in tokens.items()} == {"image": (8, 8), "question": (5,), "sound": (6,)}
    assert torch.equal(tokens["question"].mask, Pictures().splits["train"].inputs["question"][:] != 0)
    assert torch.isfinite(method(batch.inputs, batch.present).logits).all()


def test_a_board_can_tell_variants_apart() -> None:
    plain, pooled = Pictures(), Features(Pictures(), {"image": "random:conv"})
    tokens, linear = (Features(Pictures(), {"image": f"random:{kind}"}) for kind in ("conv+tokens", "linear"))
    names = {d.task.name for d in (pooled, tokens, linear)}
    assert pooled.task.name == "pictures[image=random:conv]" and len(names) == 3
    assert len({d.task.version for d in (plain, pooled, tokens, linear)}) == 4
    assert len({d.fingerprint() for d in (plain, pooled, tokens, linear)}) == 4
    assert pooled.raw == plain.task and pooled.task.version.startswith("3+")


# ---- computed once --------------------------------------------------------------------------------------------------


def test_each_different_input_is_encoded_once_and_never_again(encoded: list[tuple[str, int]]) -> None:
    encoders = {"image": "random:conv", "question": "random:embedding"}
    features = Features(Pictures(), encoders)
    features.splits  # noqa: B018 - loads
    images = features.base.splits["train"].inputs["image"]
    assert isinstance(images, Gathered)
    assert sum(n for m, n in encoded if m == "image") <= 3 * 8 < sum(SIZES.values())
    features.corrupted(whole(features, "test"), "test", "image", "gaussian_noise", 2)
    assert encoded[-1] == ("image", SIZES["test"])  # noise differs by row
    before = list(encoded)
    # Another method's datamodule, in this process or another one: nothing is encoded.
    again = Features(Pictures(), encoders)
    assert torch.equal(again.splits["test"].inputs["image"][:], features.splits["test"].inputs["image"][:])
    again.corrupted(whole(again, "test"), "test", "image", "gaussian_noise", 2)
    assert encoded == before
    # Another encoder with features of the same shape, or other data, is not mistaken for it.
    linear = Features(Pictures(), {"image": "random:linear"}).splits["test"].inputs["image"]
    assert linear.shape == features.splits["test"].inputs["image"].shape
    assert not torch.equal(linear[:], features.splits["test"].inputs["image"][:])
    before = list(encoded)
    Features(Pictures(brightness=3), {"image": "random:conv"}).splits  # noqa: B018
    assert len(encoded) > len(before)


class OnDisk(Gathered):
    """Pictures that are read when asked for; rows share them."""

    def __init__(self, gathered: Gathered) -> None:
        super().__init__(gathered.values, gathered.index, gathered.scale, content="read only once")
        self.read: list[int] = []

    def prepare(self, x: Tensor) -> Tensor:
        self.read.append(len(x))
        return super().prepare(x)


def test_inputs_larger_than_memory_are_read_once_and_in_parts() -> None:
    class Large(Pictures):
        def load(self) -> dict[SplitName, Split]:
            splits = super().load()
            return {s: v._replace(inputs={**v.inputs, "image": OnDisk(v.inputs["image"])}) for s, v in splits.items()}  # pyright: ignore

    large, small = (Features(base, {"image": "random:conv"}) for base in (Large(), Pictures()))
    assert torch.equal(large.splits["test"].inputs["image"][:], small.splits["test"].inputs["image"][:])
    images = large.base.splits["test"].inputs["image"]
    assert isinstance(images, OnDisk) and sum(images.read) <= 8
    assert len(large.fingerprint()) == 64


def test_what_a_run_needs_is_made_ahead(encoded: list[tuple[str, int]]) -> None:
    features = Features(Pictures(), {"image": "random:conv"})
    tables = features.tables({"image": (("gaussian_noise", 1), ("misaligned", 2)), "sound": (("frame_gain", 1),)})
    assert [(t.about["split"], t.about["modality"], t.about["condition"]) for t in tables] == [
        *((split, "image", "clean") for split in SIZES),
        ("test", "image", "gaussian_noise:1"),
    ]
    told: list[int] = []
    assert not any(map(feature_cache.exists, tables))
    for spec in tables:
        feature_cache.table(spec, told.append)
    assert sum(told) == sum(spec.items for spec in tables) and all(map(feature_cache.exists, tables))
    count = len(encoded)
    other = Features(Pictures(), {"image": "random:conv"})
    other.corrupted(whole(other, "test"), "test", "image", "gaussian_noise", 1)
    assert len(encoded) == count


# ---- encoders and their weights -------------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setenv("POLYMODAL_WEIGHTS", str(folder))
    return folder


def test_timm_loads_the_users_safetensors(weights: Path) -> None:
    import timm

    torch.manual_seed(1)
    net = timm.create_model("test_vit", pretrained=False).eval()
    save_file(net.state_dict(), weights / "test_vit.safetensors")
    encoder = build(EncoderName.parse("timm:test_vit"), IMAGE).train(False)
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    with torch.no_grad():
        seen = torch.nn.functional.interpolate((x + 1) / 2, (160, 160), mode="bicubic", antialias=True).clamp(0, 1)
        expected = net.forward_head(net.forward_features((seen - 0.5) / 0.5), pre_logits=True)
        torch.testing.assert_close(encoder(x), expected, rtol=1e-4, atol=1e-4)
        tokens = build(EncoderName.parse("timm:test_vit+tokens"), IMAGE).train(False)
        patches = net.forward_features((seen - 0.5) / 0.5)[:, 1:].transpose(1, 2).unflatten(2, (10, 10))
        torch.testing.assert_close(tokens(x), patches, rtol=1e-4, atol=1e-4)
        grey = Modality("grey", "image", (1, 16, 16), range=(-1.0, 1.0))
        once = build(EncoderName.parse("timm:test_vit"), grey).train(False)
        torch.testing.assert_close(once(x[:, :1]), encoder(x[:, :1].repeat(1, 3, 1, 1)))
    # Other weights are other features: another version of the dataset, another table.
    before = Features(Pictures(), {"image": "timm:test_vit"})
    version, key = before.task.version, before._spec("test", "image", None).key
    save_file({k: v + 0.01 for k, v in net.state_dict().items()}, weights / "test_vit.safetensors")
    after = Features(Pictures(), {"image": "timm:test_vit"})
    assert after.task.version != version and after._spec("test", "image", None).key != key


def test_a_file_that_is_not_the_models_is_refused(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    save_file(timm.create_model("test_vit2").state_dict(), weights / "test_vit.safetensors")
    with pytest.raises(ValueError, match=r"test_vit.safetensors does not hold the weights of timm:test_vit"):
        build(EncoderName.parse("timm:test_vit"), IMAGE)
    save_file({"x": torch.zeros(1)}, weights / "other.safetensors")
    monkeypatch.setenv("POLYMODAL_WEIGHTS", str(weights / "other.safetensors"))
    with pytest.raises(ValueError, match=r"other.safetensors does not hold the weights of timm:test_resnet"):
        build(EncoderName.parse("timm:test_resnet"), IMAGE)
    (weights / "model.bin").write_bytes(b"\x80\x04.")
    monkeypatch.setenv("POLYMODAL_WEIGHTS", str(weights / "model.bin"))
    with pytest.raises(WeightsError, match=r"only \.safetensors files are read"):
        build(EncoderName.parse("timm:test_vit"), IMAGE)


CLIP = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


def test_open_clip_both_towers_from_a_folder_of_the_user(weights: Path) -> None:
    import open_clip

    folder = weights / "tiny-mine"
    folder.mkdir()
    look = {"size": 32, "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "interpolation": "bilinear"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CLIP, "preprocess_cfg": look}))
    torch.manual_seed(2)
    model = open_clip.CLIP(**CLIP).eval()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    question = Pictures().task.modalities[1]
    x, ids = torch.rand(2, 3, 16, 16) * 2 - 1, torch.tensor([[6, 7, 1, 0, 0], [2, 4, 0, 0, 0]])
    with torch.no_grad():
        image = build(EncoderName.parse("open_clip:tiny/mine"), IMAGE).train(False)(x)
        seen = torch.nn.functional.interpolate((x + 1) / 2, (32, 32), mode="bilinear", antialias=True)
        seen = (seen - torch.tensor(look["mean"]).view(3, 1, 1)) / torch.tensor(look["std"]).view(3, 1, 1)
        torch.testing.assert_close(image, model.encode_image(seen), rtol=1e-4, atol=1e-4)
        text = build(EncoderName.parse("open_clip:tiny/mine"), question, WORDS).train(False)(ids)
        strings = open_clip.SimpleTokenizer(context_length=16)(["what is red", "green square"])
        torch.testing.assert_close(text, model.encode_text(strings), rtol=1e-4, atol=1e-4)
        patches = build(EncoderName.parse("open_clip:tiny/mine+tokens"), IMAGE).train(False)(x)
        assert patches.shape == (2, 32, 4, 4)
        tokens = build(EncoderName.parse("open_clip:tiny/mine+tokens"), question, WORDS).train(False)(ids)
        assert tokens.shape == (2, 12, 16)
        # Start and end of text are tokens too.
        assert [(row != 0).any(dim=-1).sum().item() for row in tokens] == [5, 4]
    tuned = Features(Pictures(), {"image": "open_clip:tiny/mine"}, freeze=False)
    encoded = build_encoder(tuned.task.modalities[0], 8)(x)
    assert encoded.grid == (4, 4) and encoded.x.shape == (2, 16, 8)
    features = Features(Pictures(), {"image": "open_clip:tiny/mine", "question": "open_clip:tiny/mine"})
    assert features.task.name == "pictures[image=open_clip:tiny/mine;question=open_clip:tiny/mine]"
    assert [m.shape for m in features.task.modalities][:2] == [(24,), (24,)]
    assert torch.isfinite(features.splits["val"].inputs["question"][:]).all()


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path / "tiny_bert"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS[1:]]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, **sizes)).save_pretrained(folder)
    return folder


def test_a_sentence_encoder_reads_words(bert: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    question = Pictures().task.modalities[1]
    encoder = build(EncoderName.parse(f"sentence:{bert}"), question, WORDS).train(False)
    ids = torch.tensor([[6, 7, 1, 0, 0], [2, 4, 0, 0, 0]])
    model, tokenizer = AutoModel.from_pretrained(bert).eval(), AutoTokenizer.from_pretrained(bert)
    with torch.no_grad():
        for row, words in zip(encoder(ids), ("what is red", "green square"), strict=True):
            alone = tokenizer([words], return_tensors="pt")
            assert alone["input_ids"].shape[1] == len(words.split()) + 2
            torch.testing.assert_close(row, model(**alone).last_hidden_state[0].mean(dim=0), rtol=1e-4, atol=1e-4)
        tokens = build(EncoderName.parse(f"sentence:{bert}+tokens"), question, WORDS).train(False)(ids)
    assert tokens.shape == (2, 12, 16) and [(t != 0).any(dim=-1).sum().item() for t in tokens] == [5, 4]
    features = Features(Pictures(), {"question": f"sentence:{bert}"})
    assert features.task.name == "pictures[question=sentence:tiny_bert]"
    assert features.splits["train"].inputs["question"][:].shape == (40, 16)


def test_errors_say_what_to_do(weights: Path) -> None:
    def message(encoders: dict[str, str], error: type[Exception] = ValueError, freeze: bool = True) -> str:
        with pytest.raises(error) as caught:
            Features(Pictures(), encoders, freeze=freeze).task  # noqa: B018
        return str(caught.value)

    assert "no modality 'picture', it has image, question, sound" in message({"picture": "timm:resnet18"})
    assert "LIBRARY:MODEL" in message({"image": "resnet18"})
    assert "Did you mean 'timm'" in message({"image": "tim:resnet18"})
    assert "Did you mean resnet18" in message({"image": "timm:resnet18x"})
    assert "MODEL/PRETRAINED" in message({"image": "open_clip:ViT-B-32"})
    assert "open_clip has no model 'ViT-B-33'" in message({"image": "open_clip:ViT-B-33/openai"})
    assert "timm:resnet18 encodes image, and `sound` is a sequence" in message({"sound": "timm:resnet18"})
    assert "Known: conv, linear" in message({"sound": "random:embedding"})
    assert "no tokens to keep" in message({"sound": "random:linear+tokens"})
    assert "fine-tunes encoders of images" in message({"question": "random:embedding"}, freeze=False)
    for encoder, file in (("timm:resnet18", "resnet18"), ("open_clip:ViT-B-32/openai", "ViT-B-32-openai")):
        said = message({"image": encoder}, WeightsError)
        assert f"put {file}.safetensors into a folder and give it by --weights DIR" in said and "\n" not in said
    said = message({"question": "sentence:nowhere/at_all"}, WeightsError)
    assert "neither a folder nowhere/at_all with config.json" in said

    class Silent(Pictures):
        def words(self, modality: str) -> tuple[str, ...]:
            return ()

    with pytest.raises(ValueError, match=r"reads words, and the dataset has none for `question`"):
        Features(Silent(), {"question": "sentence:x"}).task  # noqa: B018


def test_fine_tuning_makes_the_encoder_the_methods_own(weights: Path) -> None:
    import timm

    from methods import Recipe
    from methods.registry import methods

    torch.manual_seed(4)
    net = timm.create_model("test_resnet", pretrained=False)
    save_file(net.state_dict(), weights / "test_resnet.safetensors")
    features = Features(Pictures(), {"image": "timm:test_resnet"}, freeze=False)
    assert features.task.name == "pictures[image=timm:test_resnet;freeze=false]"
    assert features.task.modalities[0].shape == (3, 16, 16)
    with torch.device("meta"):
        sketch = methods.get("softmax_attention")(features.task, Recipe(width=8))
    method = methods.get("softmax_attention")(features.task, Recipe(width=8))
    assert [p.shape for p in sketch.parameters()] == [p.shape for p in method.parameters()]
    loaded = method.encoders["image"].encoder.net.state_dict()
    assert all(torch.equal(loaded[k], v) for k, v in net.state_dict().items() if k in loaded)
    batch = whole(features, "test")
    method.train()
    out = method(batch.inputs, batch.present)
    assert out.tokens["image"].grid == (5, 5)
    # Running statistics are frozen: a row's tokens are its own, in training too.
    alone = method.tokenize({k: x[:1] for k, x in batch.inputs.items()}, batch.present[:1])
    torch.testing.assert_close(alone["image"].x, out.tokens["image"].x[:1], rtol=1e-3, atol=1e-3)
    out.logits.sum().backward()
    assert all(p.grad is not None for p in method.encoders["image"].parameters())


# ---- the cache ------------------------------------------------------------------------------------------------------


def spec(name: str = "a", rows: int = 1000, produce: Callable[[slice], Any] | None = None) -> feature_cache.TableSpec:
    values = np.random.default_rng(len(name)).normal(size=(rows, 4)).astype(np.float32)
    return feature_cache.TableSpec(
        {"name": name}, {"dataset": name}, (4,), "float32", rows, None, produce or (lambda part: values[part])
    )


def test_an_interrupted_table_goes_on_where_it_was() -> None:
    asked: list[int] = []

    def produce(part: slice, dies_at: int) -> Any:
        if part.start >= dies_at:
            raise RuntimeError("killed")
        asked.append(part.start)
        return spec().produce(part)

    for dies_at in (0, 512, 1 << 30):
        if dies_at < 1000:
            with pytest.raises(RuntimeError, match="killed"):
                feature_cache.table(spec(produce=lambda part, d=dies_at: produce(part, d)))
            (unfinished,) = feature_cache.kept()
            assert not unfinished.whole and not feature_cache.exists(spec())
    table = feature_cache.table(spec(produce=lambda part: produce(part, 1 << 30)))
    assert asked == [0, 256, 512, 768]  # every chunk once
    assert np.array_equal(table.values, spec().produce(slice(None)))


def test_what_a_crash_may_leave_is_never_read_as_features(cache: Path) -> None:
    folder = cache / "features" / spec().key
    right = np.array(feature_cache.table(spec()).values)
    final = (folder / "features.npy").read_bytes()

    def made() -> bool:
        return np.array_equal(feature_cache.table(spec()).values, right)

    (folder / "features.npy").write_bytes(final[:-100])  # a truncated file
    assert made()
    (folder / "features.npy").rename(folder / "features.partial")
    for note in ('{"rows": 5000, "offset": 128}', "", '{"rows": 512}', '{"rows": 1000, "offset": 4000}'):
        (folder / "features.npy").unlink(missing_ok=True)
        (folder / "features.partial").write_bytes(b"junk" * 300)
        (folder / "features.progress").write_text(note)
        assert made(), note
    # More rows in the file than in the note: the last chunk may be half written.
    (folder / "features.npy").unlink()
    (folder / "features.partial").write_bytes(final[: 128 + 256 * 16] + b"\x01" * 999)
    (folder / "features.progress").write_text('{"rows": 256, "offset": 128}')
    assert made()


def test_the_least_recently_used_go_first_and_none_in_use(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {name: feature_cache.table(spec(name)) for name in ("a", "bb", "ccc")}
    for age, name in enumerate(tables):
        os.utime(cache / "features" / spec(name).key / "about.json", (1000 + age, 1000 + age))
    assert [k.about["dataset"] for k in feature_cache.kept()] == ["a", "bb", "ccc"]
    del tables["bb"]
    assert [k.about["dataset"] for k in feature_cache.prune(0)] == ["bb"]
    del tables["ccc"], tables["a"]
    size = feature_cache.kept()[0].bytes
    monkeypatch.setenv("POLYMODAL_CACHE_GB", str(2.5 * size / 1e9))
    kept_open = feature_cache.table(spec("dddd"))  # pushes out the longest unused
    assert {k.about["dataset"] for k in feature_cache.kept()} == {"ccc", "dddd"}
    monkeypatch.setenv("POLYMODAL_CACHE_GB", str(1.5 * size / 1e9))
    with pytest.raises(feature_cache.CacheError, match="raise POLYMODAL_CACHE_GB"):
        feature_cache.table(spec("eeeee"))
    assert len(kept_open) == 1000
    monkeypatch.setenv("POLYMODAL_CACHE_GB", "much")
    with pytest.raises(feature_cache.CacheError, match="number of gigabytes"):
        feature_cache.bound()


JOB = """
import sys, time
import numpy as np
from datamodules.encoders import feature_cache
log, rows, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
def produce(part):
    time.sleep(pause)
    with open(log, "a") as file:
        file.write(f"{part.start}\\n")
    return np.arange(part.start, part.stop, dtype=np.float32)[:, None] * [1, 2]
spec = feature_cache.TableSpec({"job": rows}, {"dataset": "job"}, (2,), "float32", rows, None, produce)
table = feature_cache.table(spec)
assert np.array_equal(table.values[:, 1], 2 * np.arange(rows)), "wrong features"
assert "torch" not in sys.modules
"""


def start(cache: Path, log: Path, rows: int, pause: float) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLYMODAL_CACHE": str(cache)}
    command = [sys.executable, "-c", JOB, str(log), str(rows), str(pause)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_two_processes_that_ask_at_once_compute_once(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [start(cache, log, 1200, 0.1) for _ in range(2)]
    for job in jobs:
        _, said = job.communicate(timeout=300)
        assert job.returncode == 0, said
    assert log.read_text().split() == ["0", "256", "512", "768", "1024"]


@pytest.mark.slow
def test_kills_at_random_moments_never_leave_a_wrong_file(cache: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    killed = 0
    for rows, pause in ((60_000, 0.0), (12_000, 0.01), (50_000, 0.0)):
        log = tmp_path / f"log{rows}"
        log.touch()
        for _ in range(200):
            job = start(cache, log, rows, pause)
            enough = log.stat().st_size + int(generator.integers(1, 200))
            while job.poll() is None and log.stat().st_size < enough:
                time.sleep(0.001)
            time.sleep(float(generator.uniform(0, 0.02)))
            job.kill()
            _, said = job.communicate()
            for final in (cache / "features").glob("*/features.npy"):
                values = np.load(final, allow_pickle=False)
                assert np.array_equal(values[:, 1], 2 * np.arange(len(values)))
            if job.returncode != -signal.SIGKILL:
                assert job.returncode == 0, said
                break
            killed += 1
        else:
            pytest.fail("never done")
    assert killed >= 3
    chunks = [line.split() for line in (tmp_path / "log60000").read_text().splitlines()]
    assert len(chunks) < 2 * len({*map(tuple, chunks)})  # it went on, and did not begin again
