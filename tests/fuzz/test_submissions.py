"""Submissions: whatever the manifest and the names of files say, it is one message or a list of what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.submission import MANIFEST, against_manifest, read_manifest
from tests.fuzz.harness import answered, damaged, fuzz, mutated, names

pytestmark = pytest.mark.slow
FILES = {"LICENCE.txt": "MIT", "records/x-0.json": "{}", "plugins/mine.py": "raise SystemExit('was run')"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("submission")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def manifest(folder: Path) -> dict[str, Any]:
    import hashlib

    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    return {
        "format": 1,
        "name": "mine",
        "licence": "MIT",
        "made": "2026-01-01T00:00:00+00:00",
        "polymodal": "0.2.0",
        "methods": ["mine"],
        "files": files,
    }


def checked(folder: Path) -> dict[str, str]:
    return against_manifest(folder, read_manifest(folder))


@fuzz
@given(choices=st.data())
def test_manifests(choices: st.DataObject, folder: Path) -> None:
    honest = manifest(folder)
    content = choices.draw(
        mutated(honest).map(lambda raw: json.dumps(raw).encode())
        | names.map(lambda name: json.dumps({**honest, "files": {**honest["files"], name: "0" * 64}}).encode())
        | damaged(json.dumps(honest).encode())
        | st.binary(max_size=60)
    )
    (folder / MANIFEST).write_bytes(content)
    answered(lambda: checked(folder))


@fuzz
@given(name=names.filter(lambda n: n and "/" not in n and "\x00" not in n and len(n.encode("utf-8", "replace")) < 200))
def test_files(name: str, folder: Path) -> None:
    """A file that the manifest does not name is said, whatever its name."""
    odd = folder / "records" / name.encode("utf-8", "replace").decode()
    (folder / MANIFEST).write_text(json.dumps(manifest(folder)))
    if odd.exists():
        return  # `..`
    odd.write_text("")
    try:
        found = answered(lambda: checked(folder))
        assert found == {} if odd.name.startswith(".") else len(found) == 1
    finally:
        odd.unlink()


def test_the_fuzzer_reaches_the_files(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest(folder)))
    assert checked(folder) == {}
    shutil.copy(folder / "LICENCE.txt", folder / "records" / "x-0.json")
    assert list(checked(folder)) == ["records/x-0.json"]
    (folder / "records" / "x-0.json").write_text("{}")
