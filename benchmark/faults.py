"""What raises while a plan is made, in code that is not ours to mend: an entry that fails, and the others go on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmark.errors import UsageError, printable
from benchmark.matrix import Choice
from datamodules.registry import raised_at


@dataclass(frozen=True)
class Faulty:
    """An entry whose own code raised before there was a cell of it, and what it raised, where.

    Attributes:
        label: Of a method; empty for a dataset.
        dataset: Empty if the method fails on any.
    """

    label: str
    dataset: str
    reason: str

    def __str__(self) -> str:
        return f"{' on '.join(filter(None, (self.label, self.dataset)))}: {self.reason}"


class Faults:
    """Collects what is faulty, each thing once."""

    def __init__(self) -> None:
        self._found: dict[Faulty, None] = {}

    @property
    def found(self) -> tuple[Faulty, ...]:
        """What has been caught so far."""
        return tuple(self._found)

    @contextmanager
    def of(self, label: str, dataset: str, choice: Choice, cls: type | None = None) -> Iterator[None]:
        """Catch what the code of a method or dataset raises, but not what is wrong with the user's options of it."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, UsageError) and (choice.options or not label):
                raise
            self._found[Faulty(label, dataset, printable(f"{_said(error, cls)} ({choice.where})"))] = None


def own_files(cls: type) -> set[str]:
    """The files of a class and of the bases that are not the contract's or a library's."""
    named = [c for c in cls.__mro__ if not _is_foreign(c)]
    return {inspect.getfile(c) for c in named}


def _is_foreign(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("abc", "builtins", "lightning", "torch") or cls.__module__ in (
        "datamodules.base", "methods.base", "methods.wrapper"
    )  # fmt: skip


def _said(error: BaseException, cls: type | None) -> str:
    """The message, with the kind of an error whose message does not say what it is, and its place."""
    said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if not isinstance(error, ValueError | ImportError):
        said = f"{type(error).__name__}: {said}"
    found = raised_at(error, own_files(cls).__contains__) if cls else None
    return said + (f"; {Path(found[0]).name}:{found[1]}" if found else "")
