"""Numbers of two digit images, and the other sets whose test classes are unseen."""

import numpy as np
import pytest
import torch

from datamodules.multi_digits_zero_shot import MultiDigitsZeroShot
from datamodules.two_digits import VALIDATION, TwoDigits, compose
from methods.functional.retrieval import recall_at_k


@pytest.fixture(scope="module")
def numbers() -> TwoDigits:
    return TwoDigits()


def rows_of(split, name: str) -> set[bytes]:
    return {image.numpy().tobytes() for image in split.inputs[name]}


def test_the_rows_are_the_published_ones(numbers):
    assert numbers.fingerprint() == TwoDigits.sha256


def test_classes_are_disjoint_and_fifty_are_unseen(numbers):
    classes = {name: set(split.target.tolist()) for name, split in numbers.splits.items()}
    assert classes["train"] == set(range(40))
    assert classes["val"] == set(range(40, 50))
    assert classes["test"] == set(range(50, 100))
    assert numbers.task.num_outputs == 40
    assert numbers.task.target == "retrieval"
    assert VALIDATION == (0, 1, 12, 13, 24, 25, 36, 37, 48, 49)
    assert numbers.task.class_names[:3] == ("02", "03", "04")
    assert numbers.task.class_names[-1] == "47"


def test_no_image_is_in_two_splits(numbers):
    images = {name: rows_of(split, "tens") | rows_of(split, "ones") for name, split in numbers.splits.items()}
    # One image of the source is there twice, pixel for pixel; it may be in two splits.
    assert len(images["train"] & images["test"]) <= 1
    assert len(images["val"] & images["test"]) <= 1
    groups = {name: set(split.group.tolist()) for name, split in numbers.splits.items()}
    assert not groups["train"] & groups["test"]
    assert not groups["val"] & groups["train"]


def test_within_a_class_no_image_occurs_twice():
    digit = np.arange(200) % 10
    tens, ones, number = compose(digit, np.arange(200), range(20, 40))
    assert set(number.tolist()) == set(range(20, 40))
    assert (digit[tens] == number // 10).all()
    assert (digit[ones] == number % 10).all()
    for label in np.unique(number):
        used = np.concatenate([tens[number == label], ones[number == label]])
        assert len(np.unique(used)) == len(used)
    assert (number == 22).sum() == 10  # both images of 22 come out of the same twenty
    assert (number == 23).sum() == 20


def test_the_raw_floor_is_the_specs(numbers):
    test = numbers.splits["test"]
    pixels = torch.cat([x.flatten(1) for x in test.inputs.values()], dim=1)
    recall = recall_at_k(pixels, pixels, test.target, test.target, (1, 2, 4, 8), exclude_self=True)
    # Spec section 6.1, E2, on other draws of the pairs: .710 / .850 / .939 / .972.
    assert [recall[k] for k in (1, 2, 4, 8)] == pytest.approx([0.710, 0.850, 0.939, 0.972], abs=0.02)


def test_unseen_digits_of_the_multiple_features(monkeypatch):
    generator = np.random.default_rng(0)
    digit = np.arange(60) % 10
    views = {"fou": generator.normal(3, 2, (60, 76)), "zer": generator.normal(-1, 5, (60, 47))}
    monkeypatch.setattr("datamodules.multi_digits_zero_shot.multiple_features", lambda name: (views, digit))
    data = MultiDigitsZeroShot(views=("fou", "zer"))
    classes = {name: sorted(set(split.target.tolist())) for name, split in data.splits.items()}
    assert classes == {"train": [0, 1, 2], "val": [3, 4], "test": [5, 6, 7, 8, 9]}
    assert data.task.num_outputs == 3
    train = data.splits["train"].inputs["zer"]
    assert train.mean().item() == pytest.approx(0, abs=1e-4)
    assert train.std(dim=0, correction=0).mean().item() == pytest.approx(1, abs=1e-4)
    assert data.splits["test"].inputs["zer"].mean().abs() > 1e-3  # its own mean was not used
