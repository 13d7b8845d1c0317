"""Registries: duplicates, suggestions, plugins and entry points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from datamodules.registry import Registry, load_plugin, scan
from methods.registry import methods

PLUGIN = '''"""A plugin."""
from methods import Method, register


@register("{name}")
class Mine(Method):
    """Mean of the encodings."""

    family = "plugin"

    def __init__(self, task, recipe):
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z, present):
        return z.mean(dim=1)
'''


def test_unknown_name_suggests() -> None:
    with pytest.raises(KeyError, match=r"no method named 'concta'\. Did you mean 'concat'"):
        methods.get("concta")


def test_discovery_includes_the_named_ones() -> None:
    assert {"concat", "late", "unimodal", "additive", "early", "transformer"} <= set(methods.names())


def test_every_listed_method_is_the_class_it_says() -> None:
    for entry in methods.entries():
        cls = methods.get(entry.name)
        assert entry.summary, f"{entry.name} has no docstring"
        assert cls.family == entry.family and entry.family, f"{entry.name}: state its family as a literal"


def test_duplicate_in_a_folder_is_an_error(tmp_path: Path) -> None:
    for stem in ("a", "b"):
        (tmp_path / f"{stem}.py").write_text(PLUGIN.format(name="same"))
    with pytest.raises(ValueError, match="'same' is registered twice"):
        scan(tmp_path, "package", "register")


def test_plugin_must_not_take_a_shipped_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(name="concat"))
    with pytest.raises(ImportError, match="'concat' is registered twice"):
        load_plugin(tmp_path / "mine.py")


def test_a_plugin_is_what_its_file_says_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "quickly.py"
    for value in (1, 2):  # the same size, and below the same second: what Python keeps of the first looks valid
        path.write_text(f"VALUE = {value}")
        os.utime(path, (1e9, 1e9))
        module = load_plugin(path)
        del sys.modules[module.__name__]
        assert vars(module)["VALUE"] == value


def test_plugin_that_raises_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import math\n\nraise RuntimeError('oops')")
    with pytest.raises(ImportError, match=r"broken\.py failed to import: RuntimeError: oops \(.*broken\.py, line 3\)"):
        load_plugin(tmp_path / "broken.py")
    (tmp_path / "unread.py").write_text("x = 1\ny = (\n")
    with pytest.raises(ImportError, match=r"unread\.py failed to import: SyntaxError: .*unread\.py, line 2\)"):
        load_plugin(tmp_path / "unread.py")
    with pytest.raises(FileNotFoundError, match="no plugin file"):
        load_plugin(tmp_path / "nowhere.py")


@pytest.mark.parametrize("name", ["Bad", "../up", "1st", "a-b", ""])
def test_names_are_snake_case(name: str) -> None:
    with pytest.raises(ValueError, match="snake_case"):
        Registry("method", "methods", "none").register(name)(int)


def test_entry_points_need_no_plugin_option(tmp_path: Path) -> None:
    """A small installed package: its metadata alone makes the method known."""
    (tmp_path / "mine_pkg.py").write_text(PLUGIN.format(name="from_a_package"))
    info = tmp_path / "mine_pkg-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine_pkg\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[polymodal.methods]\nfrom_a_package = mine_pkg:Mine\n")
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})\n"
        "from methods.registry import methods\n"
        "assert 'from_a_package' in methods.names()\n"
        "assert 'torch' not in sys.modules, 'listing imported torch'\n"
        "print(methods.get('from_a_package').__name__)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Mine"
