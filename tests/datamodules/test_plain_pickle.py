"""The reader of plain pickles reads plain data and runs nothing, whatever a file says."""

import builtins
import collections
import datetime
import os
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamodules.sources import plain_pickle
from datamodules.sources.plain_pickle import UnsafePickle, read_plain_pickle

MARKER = "polymodal_was_here"


class Runs:
    """A pickle of this calls `function(*arguments)` when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def plain(protocol: int = 4) -> bytes:
    part = {
        "text": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "columns": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        "big_endian": np.arange(3, dtype=">i4"),
        "flags": np.array([True, False]),
        "id": ["a$_$1", "b$_$2"],
        "raw_text": np.array(["hello", "wörld"]),
        "bytes": np.array([b"x", b"yz"]),
        "scalar": np.float64(0.5),
        "lengths": (3, 2**40, -1),
        "none": None,
        "empty": np.zeros((0, 3), dtype=np.int16),
    }
    return pickle.dumps({"train": part, "valid": {"same": part["text"]}, "test": [1.5, True, b"raw"]}, protocol)


def read(content: bytes, folder: Path) -> Any:
    path = folder / "file.pkl"
    path.write_bytes(content)
    return read_plain_pickle(path)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_is_read_as_pickle_reads_it(protocol: int, tmp_path: Path) -> None:
    content = plain(protocol)
    found, expected = read(content, tmp_path), pickle.loads(content)
    assert found.keys() == expected.keys() and found["test"] == expected["test"]
    for name, value in expected["train"].items():
        other = found["train"][name]
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(other, value)
            assert other.dtype == value.dtype.newbyteorder("=") and other.shape == value.shape
        else:
            assert other == (list(value) if isinstance(value, tuple) else value)
    assert found["valid"]["same"] is found["train"]["text"], "shared arrays stay shared"


HOSTILE: dict[str, Any] = {
    "os.system": Runs(os.system, f"touch {MARKER}"),
    "eval": Runs(builtins.eval, f"open({MARKER!r}, 'w')"),
    "exec": Runs(builtins.exec, f"open({MARKER!r}, 'w')"),
    "open": Runs(builtins.open, MARKER, "w"),
    "getattr": Runs(builtins.getattr, "x", "upper"),
    "popen": Runs(subprocess.Popen, ["touch", MARKER]),
    "import": Runs(__import__, "os"),
    "numpy.load": Runs(np.load, "x.npy", None, True),
    "numpy.save": Runs(np.save, MARKER, 1),
    "objects": np.array([1, "a", None], dtype=object),
    "records": np.zeros(3, dtype=[("a", "f4")]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "complex": np.zeros(2, dtype=np.complex64),
    "masked": np.ma.masked_array([1, 2], [True, False]),
    "matrix": np.zeros((2, 2)).view(np.matrix),
    "instance": collections.Counter("ab"),
    "ordered": collections.OrderedDict(a=1),
    "date": datetime.datetime(2020, 1, 1),
    "set": {1, 2},
    "function": os.system,
    "class": np.ndarray,
    "path": Path("/"),
}


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", HOSTILE)
def test_anything_else_is_refused_and_nothing_is_run(
    name: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in (HOSTILE[name], {"train": {"text": HOSTILE[name]}}, [np.zeros(2), HOSTILE[name]]):
        with pytest.raises(UnsafePickle, match="not a pickle of plain data, and nothing of it was run") as caught:
            read(pickle.dumps(value, protocol), tmp_path)
        assert str(tmp_path / "file.pkl") in str(caught.value) and "\n" not in str(caught.value)
    assert not list(tmp_path.glob(f"{MARKER}*"))


PROGRAMS: dict[str, bytes] = {
    "instance": b"(S'touch x'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'touch x'\no.",
    "persistent": b"Pid\n.",
    "extension": b"\x82\x01.",
    "attribute of a stand-in": b"cnumpy\nndarray\n(N}S'__doc__'\nS'x'\nstb.",
    "items of a stand-in": b"cnumpy\ndtype\nS'a'\nS'b'\ns.",
    "append to a name": b"cnumpy\ndtype\nI1\na.",
    "call of a string": b"S'os.system'\n(S'x'\ntR.",
    "call of ndarray": b"cnumpy\nndarray\n(I99999999999\ntR.",
    "dtype of objects": b"cnumpy\ndtype\n(S'O'\ntR.",
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0dos.sys.system\x93.",
    "name out of numbers": b"\x80\x04K\x01K\x02\x93.",
    "array never finished": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR.",
    "no stop": b"\x80\x04K\x01",
    "stack underflow": b"\x80\x040.",
    "no mark": b"\x80\x04K\x01t.",
    "unknown memo": b"\x80\x04h\x07.",
    "key that is a list": b"\x80\x04}]K\x01s.",
    "lone mark": b"(.",
    "claims a terabyte": b"\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00.",
    "claims everything": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "text": b"hello, I am no pickle\n",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_by_hand_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafePickle):
        read(PROGRAMS[name], tmp_path)


def test_a_stand_in_cannot_be_changed(tmp_path: Path) -> None:
    before = dict(plain_pickle._CALLS)
    with pytest.raises(UnsafePickle):
        read(PROGRAMS["attribute of a stand-in"], tmp_path)
    assert before == plain_pickle._CALLS and plain_pickle._Name.__doc__ != "x"


def test_arrays_must_have_the_bytes_they_claim(tmp_path: Path) -> None:
    content = pickle.dumps(np.zeros(4, dtype=np.float32), 4)
    for wrong in (content.replace(b"K\x04\x85", b"K\x05\x85"), content.replace(b"K\x04\x85", b"J\xff\xff\xff\xff\x85")):
        assert wrong != content
        with pytest.raises(UnsafePickle, match=r"has 16 bytes|such a shape"):
            read(wrong, tmp_path)


def test_nesting_and_size_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: list[Any] = []
    for _ in range(plain_pickle.MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(UnsafePickle, match="nesting deeper than 16"):
        read(pickle.dumps(deep), tmp_path)
    with pytest.raises(UnsafePickle, match="nesting"):  # far beyond what Python's own recursion bears
        read(nested(100_000), tmp_path)
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(UnsafePickle, match="nesting"):
        read(pickle.dumps(circle), tmp_path)
    monkeypatch.setattr(plain_pickle, "MAX_VALUES", 10_000)
    laughs: Any = ["ha"] * 10
    for _ in range(8):
        laughs = [laughs] * 10  # a hundred million words in a few hundred bytes
    with pytest.raises(UnsafePickle, match="more than 10,000 values"):
        read(pickle.dumps(laughs), tmp_path)
    as_tuples: Any = ("ha",) * 10
    for _ in range(8):
        as_tuples = (as_tuples,) * 10
    with pytest.raises(UnsafePickle, match="more than 10,000 values"):
        read(pickle.dumps(as_tuples), tmp_path)


def nested(depth: int) -> bytes:
    """A list in a list in a list."""
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize("files", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutated_files_are_refused_or_read_and_never_run(files: int, tmp_path: Path) -> None:
    """In a process that ends at the first attempt to run, open, import or connect: an audit hook sees them all."""
    script = tmp_path / "mutate.py"
    script.write_text(
        "import pickle, sys, warnings\nfrom pathlib import Path\nimport numpy as np\n"
        "warnings.simplefilter('ignore')\n"
        "from datamodules.sources.plain_pickle import UnsafePickle, read_plain_pickle\n"
        "from tests.datamodules.test_plain_pickle import HOSTILE, PROGRAMS, nested, plain\n"
        "path = Path(sys.argv[1])\n"
        "seeds = [plain(p) for p in range(6)] * 8 + [pickle.dumps(v, p) for v in HOSTILE.values() for p in (0, 4)]\n"
        "seeds += [*PROGRAMS.values(), *map(nested, (12, 17, 3000))]\n"
        "draw = np.random.default_rng(0)\n"
        "for content in seeds[:6]:  # codecs of the standard library are imported when first used\n"
        "    path.write_bytes(content); read_plain_pickle(path)\n"
        "armed, kinds = [False], ('os.', 'subprocess.', 'exec', 'compile', 'socket.', 'import', 'ctypes.', 'pickle.')\n"
        "def hook(event, arguments):\n"
        "    if armed[0] and event.startswith(kinds) and not event.startswith('os.listdir'):\n"
        "        print('RAN', event, arguments); sys.stdout.flush(); import os; os._exit(3)\n"
        "sys.addaudithook(hook)\n"
        "read = refused = 0\n"
        "for number in range(int(sys.argv[2])):\n"
        "    content = bytearray(seeds[number % len(seeds)])\n"
        "    for _ in range(1 + number % 7):\n"
        "        place, kind = int(draw.integers(len(content))), draw.integers(4)\n"
        "        if kind == 0: content[place] = int(draw.integers(256))\n"
        "        elif kind == 1: del content[place : place + int(draw.integers(1, 9))]\n"
        "        elif kind == 2: content[place:place] = content[: int(draw.integers(1, 9))]\n"
        "        else: content[place] = draw.choice(bytearray(b'Rbcio.()tla}s0' + bytes([0x93, 0x81, 0x92, 0x85])))\n"
        "        if not content: content = bytearray(b'.')\n"
        "    path.write_bytes(bytes(content))\n"
        "    armed[0] = True\n"
        "    try:\n        read_plain_pickle(path); read += 1\n"
        "    except UnsafePickle: refused += 1\n"
        "    armed[0] = False\n"
        "print(read, refused)\n"
    )
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(script), str(tmp_path / "x.pkl"), str(files)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    read_, refused = map(int, done.stdout.split())
    assert read_ + refused == files and refused > files / 2 and read_ > files / 100
    assert not (tmp_path / MARKER).exists()


def test_every_instruction_is_known_or_refused(tmp_path: Path) -> None:
    handled = {*plain_pickle._PUSHED, *plain_pickle._CONSTANTS, *plain_pickle._GET, *plain_pickle._PUT}
    handled |= {*plain_pickle._ACTIONS, *plain_pickle._IGNORED, "STOP"}
    others = {opcode.name for opcode in pickletools.opcodes} - handled
    assert {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "PERSID", "BINPERSID", "NEXT_BUFFER"} <= others
    assert handled <= {opcode.name for opcode in pickletools.opcodes}


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_plain_pickle(tmp_path / "none.pkl")
    with pytest.raises(UnsafePickle, match="is empty"):
        read(b"", tmp_path)
