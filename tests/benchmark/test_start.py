"""Processes of our own start without what no task needs; those of others are left alone."""

import gc
import subprocess
import sys

import pytest

from benchmark import start

SPARED = "('matplotlib', 'scipy.signal', 'torchvision', 'transformers')"


@pytest.mark.parametrize(("first", "spared"), [("benchmark.cli, ", True), ("", False)])
def test_the_command_line_imports_less(first: str, spared: bool) -> None:
    code = f"import sys; import {first}benchmark.plan; print(*(name for name in {SPARED} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert (not found) is spared, found


def test_what_stays_is_no_garbage() -> None:
    """A collection before a cell's memory is measured looks at what the cell left, not at all of torch."""
    with start.importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()


@pytest.mark.parametrize(("first", "frozen"), [("import benchmark.cli; ", True), ("", False)])
def test_the_objects_of_a_notebook_are_left_alone(first: str, frozen: bool) -> None:
    code = f"{first}import gc; from benchmark import plan; plan(methods=['concat'], datasets=['digit_halves'], seeds=1)"
    code += "; print(gc.get_freeze_count() > 0)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == [str(frozen)]
