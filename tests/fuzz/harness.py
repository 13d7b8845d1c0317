"""What every fuzzer shares: hostile values, bounded time and memory, and what counts as a decent answer.

A surface is a function that takes what a user could hand us. It may return, or raise what the command line turns into
one message and exit code 2; everything else is a bug. `POLYMODAL_FUZZ=20000` (`make fuzz N=20000`) tries as many
examples of each surface, other ones each time; without it there are 500, the same ones each time.
"""

from __future__ import annotations

import copy
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from benchmark.errors import printable

NIGHT = "POLYMODAL_FUZZ" in os.environ
EXAMPLES = int(os.environ.get("POLYMODAL_FUZZ", "500"))
SECONDS = 20  # of one example
MEMORY = 2**30  # bytes that one example may add
DECENT = (ValueError, KeyError, OSError, ImportError)  # what benchmark/cli.py answers with one message


def fuzz(test: Callable[..., Any], examples: int = EXAMPLES) -> Callable[..., Any]:
    """Many examples; a night's differ from the last night's."""
    quiet = [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
    ]
    quiet.append(HealthCheck.function_scoped_fixture)
    return settings(max_examples=examples, derandomize=not NIGHT, deadline=None, suppress_health_check=quiet)(test)


def fuzz_slowly(test: Callable[..., Any]) -> Callable[..., Any]:
    """A tenth as many, where an example takes a tenth of a second and more."""
    return fuzz(test, max(EXAMPLES // 10, 20))


class TooSlow(BaseException):
    """Not an Exception, so that nothing that catches those hides it."""


@contextmanager
def bounded() -> Iterator[None]:
    """An example that takes too long or too much memory fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def late(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def answered(surface: Callable[[], Any]) -> Any:
    """What the surface returns, or None if it answers as the command line may: with a message that can be shown."""
    with bounded():
        try:
            return surface()
        except DECENT as error:
            message = error
    text = printable(message.args[0] if isinstance(message, KeyError) and message.args else message)
    assert " " in text.strip(), f"{type(message).__name__}: {text!r} is no sentence"
    text.encode()  # what cannot be encoded cannot be printed
    return None


# Names that are paths, markup, formulas, escape sequences, half characters, or very long.
names = st.sampled_from(
    ["", "concat", "../x", "/etc/passwd", "[/b]", "[patients]", "=HYPERLINK(1)", "\x1b[2J", "a\nb", "\u202ex", "%s{0}",
     "constructor", "é", "\x00", "<script>", "nan", "..", "a b", "-1", "\ud800"]
) | st.text(max_size=12) | st.integers(100, 5000).map(lambda n: "x" * n)  # fmt: skip
numbers = st.sampled_from(
    [0, 1, -1, 2, 10, 2**31, 2**63, -(2**63) - 1, 10**29, 0.0, -0.0, 0.5, 1e-308, 1e308, float("inf"),
     float("-inf"), float("nan"), True, False]
) | st.integers() | st.floats()  # fmt: skip
deep = st.sampled_from([2, 25, 200]).map(lambda n: _nested(n))
values = st.recursive(
    names | numbers | deep,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def mutated(draw: st.DrawFn, valid: Any, others: st.SearchStrategy[Any] = values) -> Any:
    """Plain data of which one to three places were replaced, removed, renamed or added."""
    whole = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        whole = _mutated_once(draw, whole, others)
    return whole


def _mutated_once(draw: st.DrawFn, part: Any, others: st.SearchStrategy[Any]) -> Any:
    if isinstance(part, dict) and part and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(part, key=str)))
        match draw(st.integers(0, 9)):
            case 0:
                return {k: v for k, v in part.items() if k != key}
            case 1:
                return {**part, draw(names): draw(others)}
        return {**part, key: _mutated_once(draw, part[key], others)}
    if isinstance(part, list) and part and draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(part) - 1))
        return [*part[:place], _mutated_once(draw, part[place], others), *part[place + 1 :]]
    return draw(others)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some were flipped, cut out, doubled or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.integers(1, 40))
        match draw(st.integers(0, 4)):
            case 0:
                content = content[:at]
            case 1:
                content = content[:at] + content[at + length :]
            case 2:
                content = content[:at] + content[at : at + length] * 2 + content[at + length :]
            case 3:
                content = content[:at] + draw(st.binary(max_size=40)) + content[at + length :]
            case _:
                content = content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
    return content
