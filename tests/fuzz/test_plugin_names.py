"""Names of plugins, their files and what they register; nothing is imported under a name that is not one."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.arguments import names as separated
from benchmark.cli import main
from datamodules.registry import load_plugin
from methods.registry import methods
from tests.fuzz.harness import answered, bounded, damaged, fuzz, names

pytestmark = pytest.mark.slow
PLUGIN = """from methods import Method, register


@register({name})
class Mine(Method):
    family = "fuzz"

    def fuse(self, z, present):
        return z.mean(dim=1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plugins")


@fuzz
@given(name=names | st.from_regex(r"\A[a-z][a-z0-9_]{0,8}\Z"), number=st.integers(0, 10**9))
def test_registered(name: str, number: int, folder: Path) -> None:
    """Registered once and found by its name, or refused."""
    path = folder / f"plugin{number}.py"
    path.write_text(PLUGIN.format(name=ascii(name)))
    before = set(methods._loaded)
    module = answered(lambda: load_plugin(path))
    added = set(methods._loaded) - before
    assert added <= {name} and (module is None) >= (not added and name not in methods.names())
    if module is not None:
        del sys.modules[module.__name__]
    for new in added:
        assert methods.get(new).__module__.startswith("polymodal_plugin_")
        del methods._loaded[new]
    path.unlink()


@fuzz
@given(content=damaged(PLUGIN.format(name="'mine'").encode()) | st.binary(max_size=50).map(lambda b: b"#" + b))
def test_files(content: bytes, folder: Path) -> None:
    path = folder / "damaged.py"
    path.write_bytes(content)
    before = set(methods._loaded)
    module = answered(lambda: load_plugin(path))
    if module is not None:
        del sys.modules[module.__name__]
    for new in set(methods._loaded) - before:
        del methods._loaded[new]


@fuzz
@given(name=names)
def test_asked_for(name: str) -> None:
    answered(lambda: methods.get(name))
    answered(lambda: load_plugin(name))


@fuzz
@given(name=names.filter(lambda n: not n.startswith("-")), kind=st.sampled_from(["method", "dataset"]))
def test_new(
    name: str, kind: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skeleton of this name in this folder, or one line."""
    monkeypatch.chdir(folder)
    before = set(folder.iterdir())
    with bounded():
        code = main(["new", kind, name])
    out, err = capsys.readouterr()
    made = set(folder.iterdir()) - before
    if code == 0:
        assert name.isidentifier() and not keyword.iskeyword(name) and all(name in path.name for path in made)
    else:
        assert code == 2 and not made and err.count("\n") == 1 and "Traceback" not in err + out
    for path in made:
        path.unlink()


def test_lists_of_names_are_separated() -> None:
    assert separated("a, b") == ["a", "b"]
