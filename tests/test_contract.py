"""One contract for everything that is registered: the kit `polymodal check` runs."""

import os

import pytest

from benchmark.conformance import check_corruption, check_dataset, check_method
from datamodules.corruptions.registry import corruptions
from datamodules.registry import datasets
from methods.registry import methods

FROM_FOLDERS = {"av_digits_speakers", "mosi", "pulsars", "utd_mhad"}
# Read a folder of the published layout, or a file of the user's: tested on a miniature.
NEED_ARGUMENTS = {"aircraft", "cub", "cars", "sop", "inshop"}
NEED_ARGUMENTS |= {"av_mnist", "crema_d", "food101_titles", "hateful_memes", "mm_imdb", "mmsa", "nyud2"}
NEED_ARGUMENTS |= {"csv_views", "npz_views", "hub_image_text", "retrieval_pairs", "vqa2"}


def findings(results: list) -> list[str]:
    assert results
    return [str(result) for result in results if not result.passed]


@pytest.mark.parametrize("name", methods.names())
def test_method(name: str) -> None:
    assert not findings(check_method(name))


@pytest.mark.parametrize("name", sorted(set(datasets.names()) - NEED_ARGUMENTS))
def test_dataset(name: str) -> None:
    if name in FROM_FOLDERS and not os.environ.get("POLYMODAL_DATA"):
        pytest.skip("POLYMODAL_DATA is not set: there is no folder to read from")
    assert not findings(check_dataset(name, datasets.get(name)))


@pytest.mark.parametrize("name", corruptions.names())
def test_corruption(name: str) -> None:
    assert not findings(check_corruption(name))


def test_discovery() -> None:
    assert {"concat", "late"} <= set(methods.names())
    assert {"digit_halves", "interactions_xor"} <= set(datasets.names())
    assert {"gaussian_noise", "misaligned"} <= set(corruptions.names())
