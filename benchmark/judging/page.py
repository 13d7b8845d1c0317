"""The page of the claims: sentence, source, rule, figure, verdict and the command that makes them again."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.judging.claim import Claim, Judged, Judgement, Rule
from datamodules.sources.files import write_whole

COLOURS = {"supported": "#2a7f3f", "refuted": "#b3261e", "open": "#6b6b6b"}
JUDGED = "claims.json"
_DEAD = 3600  # seconds
_INTRODUCTION = (
    "Every sentence has a rule that was fixed before the data: an estimate and a threshold, and nothing but the "
    "interval of the estimate decides. *supported*: the interval of every rule is wholly where the claim says; "
    "*refuted*: one is wholly on the other side; *open*: an interval reaches across its threshold, or what it needs is "
    "not there. Made by `polymodal claims run`; no verdict is written by hand."
)
_COMMANDS = """```sh
polymodal claims                                # every claim, and its verdict here
polymodal claims show low_rank_reaches_tensor   # the rule, the evidence, the command
polymodal claims run                            # run the cells that are missing, write this page with its figures
```"""


@dataclass(frozen=True)
class Section:
    """One claim with its verdict.

    Attributes:
        evidence: How much there is: cells, seeds, datasets.
        power: How many seeds the rules need, a line each.
    """

    name: str
    sentence: str
    claim: Claim
    judgement: Judgement
    evidence: str
    power: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What makes the figures again."""
        return f"polymodal claims run {self.name}"


def figure(judgement: Judgement) -> str:
    """The estimates with their intervals and thresholds, as SVG; empty if nothing was measured."""
    known = [one for one in judgement.rules if one.value is not None]
    if not known:
        return ""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "polymodal", "font.size": 9}):
        drawn = Figure(figsize=(7, 0.75 * len(known) + 0.35), layout="constrained")
        for axis, one in zip(drawn.subplots(len(known), 1, squeeze=False)[:, 0], known, strict=True):
            _draw(axis, one)
        buffer = io.StringIO()
        drawn.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _draw(axis: Axes, one: Judged) -> None:
    assert one.value is not None and one.low is not None and one.high is not None
    colour, rule = COLOURS[one.verdict], one.rule
    ends = [x for x in (one.low, one.high) if abs(x) < 1e6]
    for threshold in (rule.threshold, -rule.threshold) if rule.side == "within" else (rule.threshold,):
        axis.axvline(threshold, color="black", linewidth=0.8, linestyle="--")
    if len(ends) == 2:
        axis.plot(ends, [0, 0], color=colour, linewidth=2.5, solid_capstyle="butt")
    axis.plot([one.value], [0], "o", color=colour, markersize=6)
    shown = [*ends, one.value, rule.threshold, *([-rule.threshold] if rule.side == "within" else [])]
    room = 0.12 * (max(shown) - min(shown)) or 0.1
    axis.set_xlim(min(shown) - room, max(shown) + room)
    axis.set_yticks([])
    axis.set_title(rule.text, loc="left", fontsize=9)
    for side in ("left", "right", "top"):
        axis.spines[side].set_visible(False)


def earlier(folder: Path, claims: Mapping[str, tuple[str, Claim]]) -> Iterator[Section]:
    """What the page in a folder says of claims whose rules are still the same; their cells need not be at hand.

    Only estimates are taken from it: the verdicts follow from them, as they did.

    Args:
        claims: Name -> sentence and claim.

    Raises:
        ValueError: If the page was not written by `write`.
    """
    path = folder / JUDGED
    if not path.exists():
        return
    try:
        for one in json.loads(path.read_text(encoding="utf-8")):
            sentence, claim = claims.get(one["claim"], ("", None))
            if claim is not None and [o["rule"] for o in one["rules"]] == [rule.text for rule in claim.rules]:
                found = tuple(_read(rule, o) for rule, o in zip(claim.rules, one["rules"], strict=True))
                yield Section(
                    one["claim"], sentence, claim, claim.conclude(found), one["evidence"], tuple(one["power"])
                )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of `polymodal claims run`: {error}") from None


def _read(rule: Rule, plain: Mapping[str, Any]) -> Judged:
    if plain["value"] is None:
        return Judged(rule, "open", reason=plain["why"])
    low, high = float(plain["low"]), float(plain["high"])
    return Judged(rule, rule.verdict(low, high), float(plain["value"]), low, high)


def write(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Write `claims.md`, its figures, `claims.html` and `claims.json`, each whole or not at all."""
    pictures = folder / "claims"
    for stray in folder.rglob(".incoming-*"):  # of a writer who was killed, if it is old: another may be writing
        if stray.stat().st_mtime < time.time() - _DEAD:
            stray.unlink(missing_ok=True)
    for section in sections:
        if drawn := figure(section.judgement):
            write_whole(pictures / f"{section.name}.svg", drawn.encode())
    made = {
        "claims.md": markdown(sections),
        "claims.html": page(sections),
        JUDGED: json.dumps([_plain(s) for s in sections], indent=1) + "\n",
    }
    for name, text in made.items():
        write_whole(folder / name, text.encode())
    return [folder / name for name in made]


def markdown(sections: Sequence[Section]) -> str:
    """The page as Markdown, with its figures beside it."""
    lines = [
        "# Claims",
        "",
        _INTRODUCTION,
        "",
        _COMMANDS,
        "",
        _counts(sections),
        "",
        "| claim | verdict |",
        "|---|---|",
    ]
    lines += [f"| [{s.sentence}](#{s.name}) | **{s.judgement.verdict}** |" for s in sections]
    for s in sections:
        lines += ["", f'<a id="{s.name}"></a>', "", f"## {s.sentence}", ""]
        lines.append(f"**{s.judgement.verdict}** · {s.claim.source}")
        lines += ["", "| rule | estimate | interval | says |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(_row(one))} |" for one in s.judgement.rules]
        if any(one.value is not None for one in s.judgement.rules):
            lines += ["", f"![{s.sentence}](claims/{s.name}.svg)"]
        lines += ["", *_facts(s)]
    return "\n".join(lines) + "\n"


def page(sections: Sequence[Section]) -> str:
    """The same as one HTML file."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        "<title>Claims</title><style>",
        ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;",
        "padding:0 1rem}table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #8886;padding:.3rem;",
        "text-align:left}svg{max-width:100%;height:auto;background:#fff}",
        *(f".{verdict}{{color:{colour}}}" for verdict, colour in COLOURS.items()),
        "</style><h1>Claims</h1>",
        f"<p>{escape(_INTRODUCTION.replace('*', ''))}</p><p>{escape(_counts(sections))}</p>",
    ]
    for s in sections:
        verdict = s.judgement.verdict
        parts.append(f"<h2 id={escape(s.name)}>{escape(s.sentence)}</h2>")
        parts.append(f"<p><strong class={verdict}>{verdict}</strong> · {escape(s.claim.source)}</p><table>")
        parts.append("<tr><th>rule<th>estimate<th>interval<th>says")
        for one in s.judgement.rules:
            parts.append("<tr>" + "".join(f"<td>{escape(cell)}" for cell in _row(one)))
        drawn = figure(s.judgement)
        parts.append(f"</table>{drawn[drawn.find('<svg') :] if drawn else ''}")
        parts += [f"<p>{escape(fact)}</p>" for fact in _facts(s) if fact]
    return "\n".join(parts) + "\n"


def _facts(s: Section) -> list[str]:
    facts = [f"Evidence: {s.evidence}. Intervals at {s.judgement.level:.1%}."]
    facts += [f"Power: {line}." for line in s.power]
    facts += [s.claim.caveat] if s.claim.caveat else []
    facts += [f"Needs {s.claim.needs}."] if s.claim.needs else []
    return [*facts, f"Again: `{s.command}`"]


def _counts(sections: Sequence[Section]) -> str:
    verdicts = [s.judgement.verdict for s in sections]
    return f"{len(sections)} claims: " + ", ".join(f"{verdicts.count(v)} {v}" for v in COLOURS) + "."


def _row(one: Judged) -> tuple[str, str, str, str]:
    value = one.reason if one.value is None else f"{one.value:+.3f}"
    interval = "" if one.low is None or one.high is None else f"[{one.low:+.3f}, {one.high:+.3f}]"
    return one.rule.text, value, interval, one.verdict


def _plain(s: Section) -> dict[str, Any]:
    rules = [
        {"rule": o.rule.text, "value": o.value, "low": o.low, "high": o.high, "says": o.verdict, "why": o.reason}
        for o in s.judgement.rules
    ]
    return {
        "claim": s.name,
        "verdict": s.judgement.verdict,
        "evidence": s.evidence,
        "rules": rules,
        "power": list(s.power),
    }
