"""The command line.

`polymodal COMMAND`. Each command is a file in `benchmark/commands`; none imports torch to print its help.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from benchmark import start
from benchmark.errors import printable

# Here and not in `main`, because a worker imports this file before it imports anything else of ours.
start.quick()

_ORDER = ("try", "run", "plan", "list", "leaderboard", "compare", "why", "show")
_ORDER += ("check", "new", "tune", "validate", "doctor")
_ROOM = " (there is too little address space: `ulimit -v unlimited`, or a smaller cell)"
_EPILOG = """examples:
  polymodal run                                   the default matrix, then
  polymodal leaderboard                           what wins, by how much, how it breaks
  polymodal run --methods concat,late --datasets interactions_xor --seeds 2
  polymodal new method my_fusion && polymodal check my_fusion --plugin my_fusion.py
"""


def commands() -> dict[str, ModuleType]:
    """Every command, the everyday ones first."""
    folder = Path(__file__).parent / "commands"
    modules = {}
    for info in pkgutil.iter_modules([str(folder)]):
        module = importlib.import_module(f"benchmark.commands.{info.name}")
        if hasattr(module, "NAME"):  # what a command is too long for is beside it
            modules[module.NAME] = module
    rank = {name: i for i, name in enumerate(_ORDER)}
    return dict(sorted(modules.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0])))


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="polymodal",
        description="Benchmark multimodal representation methods: clean, corrupted and with modalities missing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    choose = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in commands().items():
        sub = choose.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=getattr(module, "EXAMPLE", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Exit codes: 0 done, 1 something failed, 2 wrong usage.

    Args:
        argv: None for those of the process, which then is ours and ends with the command.
    """
    code = _run(argv)
    if argv is None and "torch" in sys.modules:
        start.leave(code)
    return code


def _run(argv: Sequence[str] | None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.version:
        from importlib.metadata import version

        print(f"polymodal {version('polymodal')}")
        return 0
    if arguments.command is None:
        top.print_help()
        return 2
    try:
        return arguments.run(arguments)
    except (ValueError, KeyError, OSError, ImportError) as error:
        # What the user can mend is one message; anything else is a bug and keeps its traceback.
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        room = _ROOM if "failed to map segment" in str(error) else ""  # which is all that the loader says of a library
        print(f"polymodal {arguments.command}: {printable(message)}{room}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"polymodal {arguments.command}: not enough memory{_ROOM}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
