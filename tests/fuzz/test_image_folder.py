"""Folders of images: a damaged image or table of captions is one message that names it, and what loads is finite.

An example reads a whole folder, so there are a tenth as many as elsewhere.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datamodules.miniatures import make_image_folder
from tests.fuzz.harness import answered, damaged, fuzz_slowly, names
from tests.fuzz.test_user_views import loaded

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("data")
    make_image_folder(folder / "whole", {"train": 12, "validation": 4, "test": 4})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYMODAL_DATA", str(folder))
        patch.setenv("POLYMODAL_CACHE", str(folder / "cache"))
        patch.setenv("HF_HOME", str(folder / "hub"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield folder


@fuzz_slowly
@given(choices=st.data())
def test_folders(choices: st.DataObject, data: Path) -> None:
    shutil.rmtree(data / "odd", ignore_errors=True)
    shutil.copytree(data / "whole", data / "odd")
    files = sorted(path for path in (data / "odd").rglob("*") if path.is_file())
    for path in choices.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2)):
        content = path.read_bytes() if path.exists() else b""
        path.write_bytes(choices.draw(damaged(content) | st.binary(max_size=50)))
    if choices.draw(st.booleans()):
        strange = choices.draw(
            names.filter(lambda n: n and "/" not in n and "\x00" not in n and len(n) < 50 and n != "..")
        )
        (data / "odd" / "train" / strange.encode("utf-8", "replace").decode()).write_bytes(b"?")
    label = choices.draw(st.sampled_from(["", "label", "text", "nobody"]))
    answered(lambda: loaded("hub_image_text", {"path": "odd", "image_size": 8, "label_column": label, "min_count": 1}))


def test_the_fuzzer_reaches_the_images(data: Path) -> None:
    module = loaded("hub_image_text", {"path": "whole", "image_size": 8, "label_column": "label", "min_count": 1})
    assert len(module.splits["test"].target) == 4
