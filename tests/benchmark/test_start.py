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


def test_what_is_spared_is_there_when_it_is_used() -> None:
    code = (
        "import sys; import benchmark.cli, benchmark.plan; from methods import methods; methods.get('skewed_mean')\n"
        "print('scipy.stats' in sys.modules, 'scipy.stats._morestats' in sys.modules)\n"
        "from scipy.stats import rankdata; print(*rankdata([3, 1, 2]), 'scipy.stats._morestats' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["True", "False", "3.0", "1.0", "2.0", "True"]


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


LEAVES = """
import atexit, sys, threading, time
import torch
from benchmark import start
atexit.register(lambda: print("registered", flush=True))
if sys.argv[1] == "thread":
    threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
print("written", end=" ")  # and not flushed
start.leave(3)
print("went on", end=" ")
"""


@pytest.mark.parametrize(
    ("what", "code", "said"), [("nothing", 3, "written registered"), ("thread", 0, "written went on thread registered")]
)
def test_a_process_leaves_with_its_code_and_all_it_wrote(what: str, code: int, said: str) -> None:
    """Only what Python would free, object by object, is left to the system; who has a thread to wait for, waits."""
    done = subprocess.run([sys.executable, "-c", LEAVES, what], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (code, said.split()), done.stderr
