"""The contract of every corruption, and what each is said to do."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from datamodules.base import Gathered
from datamodules.corruptions import (
    apply,
    capped,
    catalogue,
    corrupt,
    corruption,
    corruption_key,
    corruptions,
    drop_modalities,
    facts,
    missing_rates,
    noise,
    severities,
    standard,
    table,
    version,
)
from datamodules.corruptions.contract import check, distance, smooth, violations
from datamodules.corruptions.registry import KINDS
from datamodules.spec import Kind, Modality

PAIRS = [(kind, name) for kind in KINDS for name in catalogue(kind)]
IMAGE = Modality("x", "image", (3, 32, 32))
SEQUENCE = Modality("x", "sequence", (40, 6))
VECTOR = Modality("x", "vector", (24,))
TEXT = Modality("x", "text", (16,), vocabulary=40)


def at(severity: int, x: Tensor, name: str, modality: Modality, key: int = 3) -> Tensor:
    row = torch.arange(len(x))
    return corrupt(x, row, name=name, severity=severity, key=key, modality=modality, split=x)


@pytest.fixture
def plugin() -> Iterator[None]:
    """Forget the corruptions a test registers."""
    from datamodules.corruptions import registry

    before = dict(registry._facts)
    loaded = dict(corruptions._loaded)
    yield
    registry._facts.clear()
    registry._facts.update(before)
    corruptions._loaded.clear()
    corruptions._loaded.update(loaded)


# The catalogue ------------------------------------------------------------------------------------------------------


def test_the_catalogue_is_the_one_promised() -> None:
    assert catalogue("image") == (
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "gaussian_blur",
        "motion_blur",
        "contrast",
        "brightness",
        "occlusion",
        "jpeg",
        "pixelate",
        "misaligned",
    )
    sequence = ("frame_noise", "time_mask", "frame_drop", "time_shift", "frame_gain", "missing_segment", "misaligned")
    assert catalogue("sequence") == sequence
    assert catalogue("vector") == ("gaussian_noise", "feature_dropout", "quantize", "scale_drift", "misaligned")
    assert catalogue("text") == ("token_drop", "token_swap", "typo", "token_replace", "misaligned")
    assert missing_rates() == (0.1, 0.3, 0.5, 0.7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_names_five_ordered_severities_of_registered_corruptions(kind: Kind) -> None:
    for name in catalogue(kind):
        values = severities(name, kind)
        assert len(values) == 5
        assert list(values) in (sorted(values), sorted(values, reverse=True))
        assert len(set(values)) == 5
        assert kind in facts(name).kinds
    assert standard(kind)[0] == catalogue(kind)[0]
    assert len(set(standard(kind))) == 3
    assert set(standard(kind)) | set(capped(kind)) <= set(catalogue(kind))


def test_a_changed_number_needs_a_new_version() -> None:
    """If this fails, bump `version` in severities.toml, and pin the new table beside it."""
    # What came later changed nothing that was there: the others keep their noise.
    numbers = {key: value for key, value in table().items() if key not in ("version", "standard", "capped", "sound")}
    added, sequence = {"missing_segment": [0.1, 0.3, 0.5, 0.7, 0.9]}, numbers["sequence"]
    assert added.items() <= sequence.items()
    numbers["sequence"] = {name: values for name, values in sequence.items() if name not in added}
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()
    assert (table()["version"], digest[:16]) == (2, "1f93a7251e9748cb")


def test_every_registered_corruption_is_in_a_catalogue_but_missing() -> None:
    assert set(corruptions.names()) - {name for _, name in PAIRS} - set(catalogue("sound")) == {"missing"}


def test_listing_does_not_import_torch() -> None:
    code = (
        "import sys; from datamodules.corruptions import catalogue, severities;"
        "from datamodules.corruptions.registry import corruptions;"
        "assert 'jpeg' in corruptions.names() and catalogue('image') and severities('jpeg', 'image');"
        "assert all(entry.summary for entry in corruptions.entries());"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_wrong_name_gets_a_suggestion() -> None:
    with pytest.raises(KeyError, match="Did you mean 'gaussian_noise'"):
        severities("gausian_noise", "image")
    with pytest.raises(KeyError, match="no corruption 'jpeg' for vector"):
        corrupt(torch.zeros(1, 24), torch.zeros(1), name="jpeg", severity=1, key=0, modality=VECTOR)
    with pytest.raises(ValueError, match="from 0 to 5"):
        at(6, torch.zeros(1, 24), "gaussian_noise", VECTOR)
    with pytest.raises(ValueError, match="whole modality"):
        corrupt(torch.zeros(1, 24), torch.zeros(1), name="misaligned", severity=1, key=0, modality=VECTOR)


def test_the_key_holds_everything_but_the_severity(monkeypatch: pytest.MonkeyPatch) -> None:
    base = ("digits", "1", "test", "image", "jpeg")
    keys = {corruption_key(*base)}
    for place, other in enumerate(("shapes", "2", "val", "sound", "occlusion")):
        keys.add(corruption_key(*base[:place], other, *base[place + 1 :]))
    assert len(keys) == 6
    assert all(0 <= key < 1 << 64 for key in keys)
    assert corruption_key("a", "bc", "", "", "jpeg") != corruption_key("ab", "c", "", "", "jpeg")
    before = version("jpeg")
    monkeypatch.setitem(table(), "version", table()["version"] + 1)
    assert version("jpeg") == before + 1
    assert corruption_key(*base) not in keys


# The contract -------------------------------------------------------------------------------------------------------


def modalities(kind: Kind) -> st.SearchStrategy[Modality]:
    size = st.integers(1, 9)
    if kind == "image":
        shape, span = st.tuples(st.integers(1, 4), size, size), st.sampled_from([(0.0, 1.0), (-1.0, 3.0), None])
        return st.builds(Modality, st.just("x"), st.just(kind), shape, range=span)
    if kind == "text":
        return st.builds(Modality, st.just("x"), st.just(kind), st.tuples(size), vocabulary=st.integers(2, 30))
    shape = st.tuples(size, size) if kind == "sequence" else st.tuples(size)
    return st.builds(Modality, st.just("x"), st.just(kind), shape)


@pytest.mark.parametrize(("kind", "name"), PAIRS)
@given(data=st.data())
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_contract(kind: Kind, name: str, data: st.DataObject) -> None:
    modality = data.draw(modalities(kind))
    x = smooth(modality, data.draw(st.integers(2, 12)), seed=data.draw(st.integers(0, 99)))
    if kind != "text":
        x = x.to(data.draw(st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])))
    assert list(violations(name, modality, x, key=data.draw(st.integers(0, 2**64 - 1)))) == []


@pytest.mark.parametrize("name", corruptions.names())
def test_reference_inputs_hold_the_contract_and_distance_grows(name: str) -> None:
    assert check(name) == []


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, n in PAIRS if k != "text"])
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_no_finite_input_becomes_non_finite(kind: Kind, name: str, data: st.DataObject) -> None:
    modality = Modality("x", kind, {"image": (1, 2, 3), "sequence": (2, 3), "vector": (6,)}[kind], range=None)
    value = st.floats(allow_nan=False, allow_infinity=False, width=32)
    x = torch.tensor(data.draw(st.lists(value, min_size=12, max_size=12))).view(2, *modality.shape)
    for severity in (1, 5):
        assert at(severity, x, name, modality).isfinite().all()


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_threads_do_not_change_a_bit(kind: Kind, name: str) -> None:
    large = Modality("x", "image", (3, 48, 48))  # six rows of it are more values than PyTorch leaves to one thread
    modality = {"image": large, "sequence": SEQUENCE, "vector": VECTOR, "text": TEXT}[kind]
    x = smooth(modality, 6, seed=1)
    before, outputs = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        outputs.append(at(4, x, name, modality))
        for i in range(6):
            one = corrupt(x[i : i + 1], torch.tensor([i]), name=name, severity=4, key=3, modality=modality, split=x)
            assert torch.equal(one, outputs[0][i : i + 1])
    torch.set_num_threads(before)
    assert torch.equal(*outputs)


def test_an_empty_batch_stays_empty() -> None:
    for kind, name in PAIRS:
        modality = {"image": IMAGE, "sequence": SEQUENCE, "vector": VECTOR, "text": TEXT}[kind]
        assert at(3, smooth(modality, 2, 0)[:0], name, modality).shape == (0, *modality.shape)


def broken(x: Tensor, parameter: float, draw: object) -> Tensor:
    x += parameter
    return x + torch.rand(len(x), 1) / x.abs().amin()


@pytest.mark.usefixtures("plugin")
def test_the_contract_catches_a_bad_plugin() -> None:
    corruption("bad_plugin", kinds=("vector",), severities=(3, 2, 2, 1, 1))(broken)
    assert catalogue("vector")[-2:] == ("bad_plugin", "misaligned")
    faults = " ".join(check("bad_plugin"))
    for fault in ("in place", "not deterministic", "order of rows", "batch size", "falls with severity"):
        assert fault in faults
    with pytest.raises(ValueError, match="expected 5 severities"):
        corruption("worse", kinds=("vector",), severities=(1, 2))(broken)
    with pytest.raises(ValueError, match="registered twice"):
        corruption("jpeg", kinds=("image",))(broken)


def test_the_sheet_shows_every_corruption_of_a_dataset(tmp_path: Path) -> None:
    from matplotlib.image import imread

    from benchmark.pictures.corruption_sheet import draw
    from datamodules.registry import datasets

    path = draw(datasets.get("interactions_xor")(), tmp_path / "new" / "sheet.png")
    picture = imread(path)
    assert picture.shape[0] > 400
    assert picture.shape[1] > 900
    assert picture[..., :3].std() > 0.05  # not an empty page


# What each does -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "modality"), [("gaussian_noise", VECTOR), ("frame_noise", SEQUENCE)])
def test_severity_scales_the_same_draw(name: str, modality: Modality) -> None:
    x = smooth(modality, 8, 0).double()
    low, high = (at(s, x, name, modality) - x for s in (2, 5))
    ratio = (high / low).flatten()
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "modality"),
    [
        ("impulse_noise", IMAGE),
        ("occlusion", IMAGE),
        ("time_mask", SEQUENCE),
        ("frame_drop", SEQUENCE),
        ("feature_dropout", VECTOR),
        ("typo", TEXT),
        ("token_replace", TEXT),
        ("misaligned", VECTOR),
    ],
)
def test_what_a_severity_changes_the_next_one_changes_too(name: str, modality: Modality) -> None:
    x = smooth(modality, 50, 0)
    previous = x
    for severity in range(1, 6):
        y = at(severity, x, name, modality)
        assert (y == previous)[previous != x].all()
        previous = y
    assert not torch.equal(previous, x)


def test_joint_noise_of_two_modalities_is_independent() -> None:
    x = torch.zeros(200, 24)
    a, b = (
        at(3, x, "gaussian_noise", VECTOR, corruption_key("d", "1", "test", name, "gaussian_noise")) for name in "ab"
    )
    assert abs(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1]) < 4 / 4800**0.5


def test_noise_has_the_size_the_table_says() -> None:
    x = torch.full((64, 3, 32, 32), 0.5)
    wide = Modality("x", "image", (3, 32, 32), range=(-50.0, 50.0))
    sigma, photons = severities("gaussian_noise", "image")[0], severities("shot_noise", "image")[0]
    assert isinstance(sigma, float)
    assert isinstance(photons, float)
    assert (at(1, x, "gaussian_noise", IMAGE) - x).std().item() == pytest.approx(sigma, rel=0.02)
    assert (at(1, x, "gaussian_noise", wide) - x).std().item() == pytest.approx(100 * sigma, rel=0.02)
    # Nothing is clamped where there is no range; half of the light is at zero of a window from -2 to 2.
    free, dark = Modality("x", "image", (3, 32, 32), range=None), torch.zeros(64, 3, 32, 32)
    assert at(1, dark, "shot_noise", free).std().item() == pytest.approx(4 * (0.5 / photons) ** 0.5, rel=0.02)
    signal = 7 * smooth(SEQUENCE, 64, 0)
    added = at(5, signal, "frame_noise", SEQUENCE) - signal
    power = (signal.square().mean((1, 2)) / added.square().mean((1, 2))).log10().mean() * 10
    assert power.item() == pytest.approx(severities("frame_noise", "sequence")[4], abs=0.2)


def test_gaussian_blur_is_torchvision_inside_the_edges() -> None:
    from torchvision.transforms.v2.functional import gaussian_blur

    x = smooth(IMAGE, 4, 0)
    share = severities("gaussian_blur", "image")[1]
    assert isinstance(share, float)
    radius = int(-(-3 * share * 32 // 1))
    ours = at(2, x, "gaussian_blur", IMAGE)
    theirs = gaussian_blur(x, [2 * radius + 1] * 2, [share * 32] * 2)
    inside = slice(radius, 32 - radius)
    assert torch.allclose(ours[..., inside, inside], theirs[..., inside, inside], atol=1e-5)


def test_contrast_is_torchvision_where_that_applies() -> None:
    from torchvision.transforms.v2.functional import adjust_contrast

    grey = Modality("x", "image", (1, 32, 32))
    x, factor = smooth(grey, 4, 0), severities("contrast", "image")[2]
    assert isinstance(factor, float)
    assert torch.allclose(at(3, x, "contrast", grey), adjust_contrast(x, factor), atol=1e-6)


def test_pixelate_takes_the_mean_of_blocks() -> None:
    x = smooth(IMAGE, 4, 0)
    share = severities("pixelate", "image")[4]
    assert isinstance(share, float)
    half = apply(x, torch.arange(4), name="pixelate", parameter=0.5, key=0, modality=IMAGE)
    pooled = torch.nn.functional.avg_pool2d(x, 2)
    assert torch.allclose(half, pooled.repeat_interleave(2, 2).repeat_interleave(2, 3), atol=1e-6)
    # Any resolution: as many different columns as pixels are left.
    columns = at(5, x, "pixelate", IMAGE)[0, 0].T
    assert len(columns.unique(dim=0)) == round(32 * share)


@pytest.mark.parametrize("name", ["gaussian_blur", "motion_blur", "pixelate"])
def test_a_constant_image_cannot_be_blurred(name: str) -> None:
    x = torch.full((16, 3, 32, 32), 0.3)
    assert torch.allclose(at(5, x, name, IMAGE), x, atol=1e-6)


def test_motion_blur_draws_a_line() -> None:
    modality = Modality("x", "image", (1, 33, 33))
    x = torch.zeros(64, 1, 33, 33)
    x[:, :, 16, 16] = 1
    y = at(5, x, "motion_blur", modality)
    assert torch.allclose(y.sum((1, 2, 3)), torch.ones(64), atol=1e-5)
    horizontal = (y[:, 0, 16] > 0).sum(1).max().item()
    length = severities("motion_blur", "image")[4]
    assert isinstance(length, float)
    assert length * 33 <= horizontal <= length * 33 + 3
    assert len({tuple(map(tuple, (row > 0).nonzero().tolist())) for row in y}) == 8


def test_occlusion_covers_the_share_it_says() -> None:
    x = torch.zeros(32, 3, 32, 32)
    for severity, share in enumerate(severities("occlusion", "image"), start=1):
        assert isinstance(share, float)
        covered = (at(severity, x, "occlusion", IMAGE) == 0.5).float().mean((1, 2, 3))
        assert torch.allclose(covered, torch.tensor((round(share * 32) / 32) ** 2))


def test_jpeg_takes_any_number_of_channels() -> None:
    for channels in (1, 2, 3, 4):
        modality = Modality("x", "image", (channels, 16, 16))
        x = smooth(modality, 3, 0)
        assert distance(at(1, x, "jpeg", modality), x) < 0.12


def test_dropped_tokens_leave_no_gap_and_some_token() -> None:
    x = smooth(TEXT, 200, 0)
    for severity in range(1, 6):
        y = at(severity, x, "token_drop", TEXT)
        length = (y != 0).sum(1)
        assert (length >= 1).all()
        assert torch.equal((y != 0), torch.arange(16) < length[:, None])
        assert all(_is_subsequence(b.tolist(), a.tolist()) for a, b in zip(x, y, strict=True))
    assert at(5, x.flip(1), "token_drop", TEXT)[:, 0].eq(0).any()  # padding on the left stays there


def _is_subsequence(short: list[int], long: list[int]) -> bool:
    rest = iter(long)
    return all(token in rest for token in short if token)


def test_replaced_tokens_are_other_tokens() -> None:
    x = torch.randint(1, 40, (300, 16), generator=torch.Generator().manual_seed(0))
    replaced, slipped = at(5, x, "token_replace", TEXT), at(5, x, "typo", TEXT)
    share = severities("token_replace", "text")[4]
    assert (replaced != x).float().mean().item() == pytest.approx(share, abs=0.03)
    step = (slipped - x)[slipped != x].abs()
    assert set(step.tolist()) <= {1, 38}  # a neighbour, or round the end of the alphabet
    assert len(replaced.unique()) == 39


def test_misaligned_takes_the_input_of_another_row() -> None:
    x = torch.arange(500.0)[:, None].expand(-1, 24).contiguous()
    y = at(5, x, "misaligned", VECTOR)
    changed = (y != x).any(1)
    assert changed.float().mean().item() == pytest.approx(severities("misaligned", "vector")[4], abs=0.08)
    assert (y == y[:, :1]).all()
    assert len(y[changed, 0].unique()) > 0.6 * changed.sum()
    pair = at(5, x[:2], "misaligned", VECTOR)
    assert set(pair.flatten().tolist()) <= {0.0, 1.0}


def test_misaligned_takes_rows_that_are_gathered_when_asked_for() -> None:
    images = torch.randint(0, 256, (7, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    rows = Gathered(images, torch.arange(40) % 7, scale=1 / 255)
    x, row = rows[torch.arange(40)], torch.arange(40)
    expected = at(5, x, "misaligned", IMAGE)
    found = corrupt(x, row, name="misaligned", severity=5, key=3, modality=IMAGE, split=rows)
    assert torch.equal(found, expected)
    assert not torch.equal(found, x)


def test_missing_keeps_one_and_is_nested_in_the_rate() -> None:
    present = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0)) < 0.8
    present[~present.any(1), 0] = True
    row, previous = torch.arange(2000), present
    for rate in missing_rates():
        kept = drop_modalities(present, row, rate, key=5)
        assert kept.any(1).all()
        assert not (kept & ~previous).any()
        previous = kept
    full = drop_modalities(torch.ones(20000, 3, dtype=torch.bool), torch.arange(20000), 0.5, key=5)
    # Each is dropped with probability 1/2, less the eighth of rows where all three were and one came back.
    assert (~full).float().mean(0).tolist() == pytest.approx([0.5 - 0.125 / 3] * 3, abs=0.015)
    assert torch.equal(drop_modalities(present, row, 0.0, key=5), present)


def test_one_rate_for_all_is_the_draw_it_always_was() -> None:
    """Rates of single modalities came later: with one rate nothing may differ from the formula before them."""
    present = torch.rand(50_000, 3, generator=torch.Generator().manual_seed(0)) < 0.8
    present[~present.any(1), 0] = True
    row = torch.arange(50_000)
    u = noise.uniforms(5, row, (3,))
    for rate in (0.0, *missing_rates(), 1.0):
        kept = present & (u >= rate)
        survivor = torch.where(present, u, -1.0).argmax(dim=1)
        kept[~kept.any(1), survivor[~kept.any(1)]] = True
        assert torch.equal(drop_modalities(present, row, rate, key=5), kept), rate
        assert torch.equal(drop_modalities(present, row, torch.full((3,), rate), key=5), kept), rate


def test_rates_of_each_modality_are_kept_apart() -> None:
    present, rates = torch.ones(20_000, 3, dtype=torch.bool), torch.tensor([0.9, 0.1, 0.5])
    kept = drop_modalities(present, torch.arange(20_000), rates, key=5)
    # All three go in 0.9 * 0.1 * 0.5 of the rows, and each is as likely to stay.
    expected = [float(rate) - 0.045 / 3 for rate in rates]
    assert (~kept).float().mean(0).tolist() == pytest.approx(expected, abs=0.01)
    assert kept.any(1).all()
    alone = drop_modalities(present, torch.arange(20_000), torch.tensor([0.0, 1.0, 0.0]), key=5)
    assert alone.float().mean(0).tolist() == [1, 0, 1]


def test_a_missing_segment_is_one_gap_of_its_share() -> None:
    modality = Modality("x", "sequence", (40, 3))
    x, before = 1 + smooth(modality, 50, 0).abs(), torch.zeros(50, 40, dtype=torch.bool)
    for severity, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), start=1):
        gone = (at(severity, x, "missing_segment", modality) == 0).all(2)
        assert gone.sum(1).tolist() == [round(share * 40)] * 50
        assert (gone.int().diff(dim=1) == 1).sum(1).max() <= 1  # in one piece
        assert (gone | ~before).all()  # a longer one covers the shorter
        before = gone
    assert len({tuple(row) for row in gone.tolist()}) > 1


# The mistakes of others --------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_level_zero_is_the_signal_not_silence(kind: Kind, name: str) -> None:
    modality = {"image": IMAGE, "sequence": SEQUENCE, "vector": VECTOR, "text": TEXT}[kind]
    x = smooth(modality, 4, 0)
    assert torch.equal(at(0, x, name, modality), x)


@pytest.mark.parametrize("name", ["frame_drop", "time_mask", "missing_segment"])
def test_dropping_audio_runs_at_every_severity_and_length(name: str) -> None:
    for steps in (1, 2, 7, 100):
        modality = Modality("x", "sequence", (steps, 3))
        x = smooth(modality, 5, 0)
        for severity in range(1, 6):
            y = at(severity, x, name, modality)
            assert ((y == x) | (y == 0)).all()


def test_swapping_permutes_and_does_not_copy() -> None:
    modality = Modality("x", "text", (4,), vocabulary=5)
    x = torch.tensor([[1, 2, 3, 4]]).expand(100, 4).contiguous()
    for severity in range(1, 6):
        y = at(severity, x, "token_swap", modality)
        assert all(Counter(row) == Counter([1, 2, 3, 4]) for row in y.tolist())
    assert not torch.equal(y, x)


def test_noise_does_not_depend_on_the_seed_of_the_run() -> None:
    x = smooth(VECTOR, 6, 0)
    torch.manual_seed(0)
    first = at(4, x, "gaussian_noise", VECTOR)
    torch.manual_seed(1)
    assert torch.equal(at(4, x, "gaussian_noise", VECTOR), first)
