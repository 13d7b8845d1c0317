"""Rows that lack modalities, in any dataset."""

import hashlib
import json
from typing import Any

import pytest
import torch

from benchmark.build import resolve_dataset
from benchmark.conformance.probe import Probe
from benchmark.errors import UsageError
from datamodules.base import Batches, DataModule
from datamodules.corruptions.noise import uniforms
from datamodules.encoders.features import Features
from datamodules.rows.incomplete import Incomplete


def present(data: DataModule, split: Any = "train") -> torch.Tensor:
    found = data.splits[split].present
    assert found is not None
    return found


@pytest.mark.parametrize("rates", [{"a": 0.3}, {"a": 0.8, "c": 0.6}, {"a": 0.9, "b": 0.2, "c": 1.0}])
@pytest.mark.parametrize("split", ["train", "val"])
def test_what_goes_is_recomputed_row_by_row(rates: dict[str, float], split: str) -> None:
    data = Incomplete(Probe(shape="three"), absent=rates)
    identity = json.dumps(["probe_three", "1", split, "absent"])
    key = int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest(), "big")
    for row, found in enumerate(present(data, split).tolist()):
        u = uniforms(key, torch.tensor([row]), (3,))[0].tolist()
        kept = [not x < rates.get(name, 0.0) for x, name in zip(u, "abc", strict=True)]
        if not any(kept):
            last = max(range(3), key=lambda m: u[m] / rates["abc"[m]])
            kept[last] = True
        assert found == kept


def test_test_rows_targets_and_inputs_are_as_they_were() -> None:
    base, data = Probe(shape="three"), Incomplete(Probe(shape="three"), absent={"a": 0.5, "b": 0.5, "c": 0.5})
    assert data.splits["test"].present is None
    assert data.task == base.task and data.raw == base.raw  # the noise of the conditions is that of the base
    for name, split in base.splits.items():
        assert split.target.equal(data.splits[name].target)
        assert all(x[:].equal(data.splits[name].inputs[m][:]) for m, x in split.inputs.items())
    assert data.content_hash != base.content_hash
    assert data.content_hash == Incomplete(Probe(shape="three"), absent={"c": 0.5, "b": 0.5, "a": 0.5}).content_hash


def test_rates_hold_are_nested_and_leave_a_modality() -> None:
    data = Incomplete(Probe(shape="three"), absent={"b": 0.4})
    assert (~present(data)).float().mean(0).tolist() == pytest.approx([0, 0.4, 0], abs=0.12)
    less, more = (present(Incomplete(Probe(shape="three"), absent=dict.fromkeys("abc", p))) for p in (0.3, 0.7))
    assert not (more & ~less).any() and more.any(1).all()
    single = present(Incomplete(Probe(shape="three"), absent=dict.fromkeys("abc", 1.0)))
    assert (single.sum(1) == 1).all() and single.any(0).all()


def test_what_was_absent_stays_absent() -> None:
    class Gappy(Probe):
        def load(self):
            splits = super().load()
            there = torch.ones(len(splits["train"].target), 2, dtype=torch.bool)
            there[::2, 0] = False
            return {**splits, "train": splits["train"]._replace(present=there)}

    found = present(Incomplete(Gappy(), absent={"b": 1.0}))
    assert found[::2].tolist() == [[False, True]] * 80  # b is all these rows have
    assert found[1::2].tolist() == [[True, False]] * 80


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_row_lacks_the_same_at_any_batch_size_and_order(size: int) -> None:
    data = Incomplete(Probe(), absent={"a": 0.5, "b": 0.3})
    for shuffle in (False, True):
        batches = Batches(data.splits["train"], data.task.names, size, shuffle=shuffle, seed=size)
        for batch in batches:
            assert batch.present.equal(present(data)[batch.row])


def test_encoders_are_put_before_what_is_there(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYMODAL_CACHE", str(tmp_path / "cache"))
    features, options = resolve_dataset("digit_halves", {"upper": "random:conv", "absent": {"upper": 0.4}}, "m.toml")
    assert isinstance(features, Features) and options == {"absent": {"upper": 0.4}, "upper": "random:conv"}
    assert features.suffix == "[absent=upper:0.4;upper=random:conv]"
    train = features.splits["train"]
    there = present(features)[:, 0]
    seen = train.inputs["upper"][:]
    # Standardised by the rows that have it, which all rows together then are not.
    assert seen[there].mean(0).abs().max() < 1e-3
    assert seen.mean(0).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ({"uper": 0.3}, "`absent`: no modality 'uper'. Did you mean 'upper'?"),
        ({"upper": 1.2}, "`absent` must be a table, each a number >= 0 and <= 1, got {'upper': 1.2}"),
        ({"upper": -0.1}, "each a number >= 0 and <= 1"),
        ({"upper": float("nan")}, "each a number >= 0 and <= 1"),
        (0.3, "`absent` must be a table"),
    ],
)
def test_a_wrong_rate_is_named(absent: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_dataset("digit_halves", {"absent": absent}, "m.toml")
    assert said in str(caught.value) and str(caught.value).endswith("(m.toml)")


def test_direct_construction_is_checked_too() -> None:
    with pytest.raises(ValueError, match="each a number >= 0 and <= 1"):
        Incomplete(Probe(), absent={"a": 2.0})
    with pytest.raises(ValueError, match="no modality 'z'"):
        Incomplete(Probe(), absent={"z": 0.2})
