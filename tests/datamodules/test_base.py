"""Batches: order, shares of a distributed run, and what a standalone Trainer needs."""

from unittest.mock import patch

import pytest
import torch
from lightning import Trainer

from benchmark.conformance.probe import Probe
from datamodules.base import Batches, Gathered, Split
from methods import Recipe, methods


@pytest.fixture
def split() -> Split:
    return Split({"a": torch.arange(10.0)[:, None]}, torch.arange(10))


def test_ordered_batches_cover_every_row_once(split: Split) -> None:
    rows = torch.cat([b.row for b in Batches(split, ("a",), 4)])
    assert rows.tolist() == list(range(10))


def test_shuffle_depends_on_seed_and_epoch_alone(split: Split) -> None:
    def epochs(seed: int) -> list[list[int]]:
        loader = Batches(split, ("a",), 5, shuffle=True, seed=seed)
        return [torch.cat([b.row for b in loader]).tolist() for _ in range(2)]

    first, second = epochs(1)
    assert sorted(first) == list(range(10)) and first != second
    assert epochs(1) == [first, second] and epochs(2) != [first, second]


@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_share_the_global_batch(split: Split, shuffle: bool) -> None:
    """What two ranks see together is what one process sees, and no row is seen twice."""
    whole = [b.row.tolist() for b in Batches(split, ("a",), 4, shuffle=shuffle, seed=3)]
    parts = []
    for rank in range(2):
        with patch("datamodules.base._rank_and_world", return_value=(rank, 2)):
            batches = Batches(split, ("a",), 4, shuffle=shuffle, seed=3, share=True)
            parts.append([b.row.tolist() for b in batches])
            assert len(batches) == len(parts[-1]) and batches.shared
    if shuffle:
        assert [a + b for a, b in zip(*parts, strict=True)] == whole
    else:  # whole batches, so that a loss across rows is that of one device
        assert parts[0] + parts[1] == whole and all(parts)


@pytest.mark.parametrize(("share", "batch_size"), [(False, 4), (True, 8)])
def test_every_rank_sees_all_rows_in_order_unless_batches_can_be_shared(
    split: Split, share: bool, batch_size: int
) -> None:
    """Closed forms need the whole split; two batches among three ranks would leave one without."""
    for rank in range(3):
        with patch("datamodules.base._rank_and_world", return_value=(rank, 3)):
            batches = Batches(split, ("a",), batch_size, share=share)
            assert torch.cat([b.row for b in batches]).tolist() == list(range(10))
            assert not batches.shared


def test_uneven_share_is_refused(split: Split) -> None:
    with patch("datamodules.base._rank_and_world", return_value=(0, 3)), pytest.raises(ValueError, match="evenly"):
        next(iter(Batches(split, ("a",), 4, shuffle=True)))


def test_gathered_is_the_tensor_it_stands_for() -> None:
    values = torch.randint(0, 256, (3, 2, 2), dtype=torch.uint8)
    index = torch.tensor([2, 0, 0, 1])
    gathered = Gathered(values, index, 1 / 255)
    full = values[index].float() / 255
    assert gathered.shape == full.shape and len(gathered) == 4
    assert torch.allclose(gathered[torch.tensor([3, 0])], full[[3, 0]])
    assert torch.allclose(gathered[1:3], full[1:3])
    some = Gathered(values, index, 1 / 255, torch.ones(2)).select(torch.tensor([3, 0]))
    assert torch.allclose(some[:], full[[3, 0]] + 1)


def test_a_datamodule_works_with_a_plain_trainer() -> None:
    datamodule = Probe()
    method = methods.get("concat")(datamodule.task, Recipe(width=8))
    trainer = Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, accelerator="cpu")  # fmt: skip
    trainer.fit(method, datamodule)
    assert 0 <= float(trainer.callback_metrics["val/accuracy"]) <= 1


def test_fingerprint_sees_every_bit() -> None:
    first, second = Probe(), Probe()
    assert first.fingerprint() == second.fingerprint()
    inputs = second.splits["test"].inputs["a"]
    assert isinstance(inputs, torch.Tensor)
    inputs[3, 2] += 1e-6
    assert first.fingerprint() != second.fingerprint()


def test_fingerprint_sees_how_stored_values_become_rows() -> None:
    values, index = torch.arange(12, dtype=torch.uint8).view(4, 3), torch.tensor([0, 3, 3])
    seen = {
        Gathered(values, index).fingerprint(),
        Gathered(values, index, 1 / 255).fingerprint(),
        Gathered(values, index, 1.0, torch.ones(3)).fingerprint(),
        Gathered(values, index.flip(0)).fingerprint(),
        Gathered(values + 1, index).fingerprint(),
        Gathered(values, index, content="known").fingerprint(),
    }
    assert len(seen) == 6
    assert Gathered(values.clone(), index.clone()).fingerprint() in seen


def test_fingerprint_sees_groups_and_is_computed_once_a_load() -> None:
    first, second = Probe(), Probe()
    group = torch.arange(len(second.splits["test"].target))
    second.splits["test"] = second.splits["test"]._replace(group=group)
    assert first.content_hash != second.content_hash
    second.splits["test"] = first.splits["test"]
    assert second.content_hash != second.fingerprint() == first.content_hash
