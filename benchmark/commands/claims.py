"""`polymodal claims`: what the sources say, and whether it is so."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.arguments import add_data, add_execution, add_results, check_execution, console_of, use_data

if TYPE_CHECKING:
    from benchmark.judging.cells import Published
    from benchmark.judging.claim import Claim
    from benchmark.judging.page import Section
    from benchmark.judging.results import Results
    from leaderboard.store import Store

NAME = "claims"
HELP = "What the source papers claim, each with a rule fixed before the data and a verdict from intervals."
EXAMPLE = """examples:
  polymodal claims                              every claim and its state
  polymodal claims show low_rank_reaches_tensor the rule, the evidence, the command
  polymodal claims plan low_rank_reaches_tensor how many seeds its rule needs
  polymodal claims run                          run the cells that are missing, write claims.md, figures and a page
  polymodal claims run low_rank_reaches_tensor --workers 2

Runs resume, and the page keeps what it says of claims that are not named. A claim of your own is a function with
@claim("name") in a --plugin file.
"""
FOLDER = "claims"  # below the results
PAGE = "page"  # below that: what is beside records and ends in `.json` is taken for one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "show", "plan", "run"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these claims (default: all)")
    parser.add_argument("--output", metavar="DIR", help="where the page goes (default: RESULTS/claims/page)")
    parser.add_argument("--own", action="store_true", help="do not use the published results, run everything here")
    parser.add_argument("--no-run", action="store_true", help="run: judge by the cells that are there, train nothing")
    add_data(parser)
    add_results(parser)
    add_execution(parser)


def run(arguments: argparse.Namespace) -> int:
    from benchmark.judging import claims

    use_data(arguments)
    names = arguments.names or claims.names()
    for name in names:
        claims.get(name)  # an unknown name is an error before anything is done
    if arguments.action == "list":
        return _list(names, Path(arguments.results) / FOLDER / PAGE)
    actions = {"show": _show, "plan": _plan, "run": _run}
    return actions[arguments.action](names, arguments)


def _list(names: tuple[str, ...] | list[str], folder: Path) -> int:
    from rich.table import Table
    from rich.text import Text

    from benchmark.judging import claims
    from leaderboard.reference import VERDICTS

    published = {name: f"{verdict} (published)" for name, verdict in _states(VERDICTS).items()}
    states = published | _states(folder / VERDICTS.name)
    sentences = {entry.name: entry.summary for entry in claims.entries()}
    table = Table("claim", "what it says", "verdict")
    for name in names:
        table.add_row(Text(name), Text(sentences[name]), states.get(name, "not judged yet"))
    console_of(140).print(table)
    return 0


def _states(path: Path) -> dict[str, str]:
    """The verdicts of a run."""
    try:
        judged = json.loads(path.read_text(encoding="utf-8"))
        return {one["claim"]: one["verdict"] for one in judged}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of `polymodal claims run`: {error}") from None


def _show(names: Sequence[str], arguments: argparse.Namespace) -> int:
    for name in names:
        section = _judged(name, arguments)[0]
        if not section.judgement.measured and not arguments.own:
            section = _published_section(name) or section
        print(f"{name}: {section.sentence}\n  source    {section.claim.source}")
        for one in section.judgement.rules:
            found = one.reason if one.value is None else f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
            print(f"  rule      {one.rule.text}\n            {found}: {one.verdict}")
        print(f"  evidence  {section.evidence}")
        for line in section.power:
            print(f"  power     {line}")
        for what, text in (("caveat", section.claim.caveat), ("needs", section.claim.needs)):
            if text:
                print(f"  {what:9} {text}")
        print(f"  verdict   {section.judgement.verdict}\n  again     {section.command}")
    return 0


def _published_section(name: str) -> Section | None:
    """What was judged before publishing, from cells that did not all come with the package."""
    from leaderboard.reference import VERDICTS

    found = _earlier(VERDICTS.parent).get(name)
    if found is None or not found.judgement.measured:
        return None
    return replace(found, evidence=f"{found.evidence} (published; not all of these cells are here)")


def _plan(names: Sequence[str], arguments: argparse.Namespace) -> int:
    from benchmark.judging.cells import needed, plan_of

    for name in names:
        claim = _claim(name)
        plan = plan_of(name, claim, claim.seeds)
        results = _results(name, claim, claim.seeds, arguments)
        done = sum(len(own) for own in results.records.values())
        print(f"{name}: {len(plan.cells)} cells with {claim.seeds} seeds, {done} of them done")
        try:
            need = needed(claim, results)
        except LookupError as reason:
            print(f"  the spread over seeds is not known yet: {reason}; {claim.seeds} seeds first")
            continue
        print("\n".join(f"  {line}" for line in need.reasons))
        print(f"  so {need.seeds} seeds (cap {claim.cap})")
    return 0


def _run(names: Sequence[str], arguments: argparse.Namespace) -> int:
    from benchmark.judging.page import write

    check_execution(arguments)
    store = _store(arguments)
    store.prepare()
    folder = Path(arguments.output) if arguments.output else store.folder / PAGE
    known = _earlier(folder)
    code, sections = 0, []
    for name in names:
        section, own = _judged(name, arguments, train=not arguments.no_run)
        print(f"{section.judgement.verdict:9}  {name}: {section.sentence}")
        sections.append(section)
        code = max(code, own)
        if own >= 128:  # stopped: what is known so far is written
            break
    known.update((section.name, section) for section in sections)
    for path in write([known[name] for name in sorted(known)], folder):
        print(path)
    return code


def _earlier(folder: Path) -> dict[str, Section]:
    """What the page says already, by claim: those that are not judged now stay as they are."""
    from benchmark.judging import claims
    from benchmark.judging.page import earlier

    return {s.name: s for s in earlier(folder, {e.name: (e.summary, _claim(e.name)) for e in claims.entries()})}


def _judged(name: str, arguments: argparse.Namespace, train: bool = False) -> tuple[Section, int]:
    """A claim with its verdict; trains what is missing if asked to, first few seeds, then as many as the rules need."""
    from benchmark.judging import claims
    from benchmark.judging.cells import needed
    from benchmark.judging.page import Section

    claim = _claim(name)
    code = _train(name, claim, claim.seeds, arguments) if train else 0
    results = _results(name, claim, claim.seeds, arguments)
    power: tuple[str, ...] = ()
    try:
        wanted = needed(claim, results)
        power = wanted.reasons
        if wanted.seeds > claim.seeds:
            if train and code < 128:  # who stopped the first training wants no second
                code = max(code, _train(name, claim, wanted.seeds, arguments))
            results = _results(name, claim, wanted.seeds, arguments)
    except LookupError as reason:
        power = (f"not known yet: {reason}",)
    sentence = next(entry.summary for entry in claims.entries() if entry.name == name)
    return Section(name, sentence, claim, claim.judge(results), _evidence(results), power), code


def _train(name: str, claim: Claim, seeds: int, arguments: argparse.Namespace) -> int:
    from benchmark.executors.foreground import execute, exit_code
    from benchmark.judging.cells import experiment, missing, plan_of

    store = _store(arguments)
    todo = missing(plan_of(name, claim, seeds).cells, store, _published(arguments))
    code = exit_code(execute(todo, store, arguments)) if todo else 0
    if code < 128:
        experiment(name, claim, seeds, store.folder)
    return code


def _results(name: str, claim: Claim, seeds: int, arguments: argparse.Namespace) -> Results:
    from benchmark.judging.cells import collect, measured, plan_of

    store = _store(arguments)
    numbers = measured(name, claim, seeds, store.folder)
    return collect(plan_of(name, claim, seeds).cells, store, _published(arguments), numbers)


def _store(arguments: argparse.Namespace) -> Store:
    from leaderboard.store import Store

    return Store(Path(arguments.results) / FOLDER)


@lru_cache(maxsize=1)
def _read_published() -> Published | None:
    from benchmark.judging.cells import Published
    from leaderboard.reference import REFERENCE

    return Published(REFERENCE) if REFERENCE.exists() else None


def _published(arguments: argparse.Namespace) -> Published | None:
    return None if arguments.own else _read_published()


def _claim(name: str) -> Claim:
    from benchmark.judging import claims

    return claims.get(name)()  # pyright: ignore[reportReturnType] - the registry is typed for classes


def _evidence(results: Results) -> str:
    cells = sum(len(own) for own in results.records.values())
    if not cells and not results.experiment:
        return "none yet"
    parts = []
    if cells:
        seeds = {len(own) for own in results.records.values()}
        shown = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        parts.append(f"{cells} cells, {shown} seeds, on {', '.join(results.datasets)}")
    if results.experiment:
        parts.append(f"an experiment of its own, {len(results.experiment)} seeds")
    return "; ".join(parts)
