"""What the pages say of the published board, if this copy has one."""

from leaderboard import load
from leaderboard.answer import answer
from leaderboard.board import Board, Row
from leaderboard.reference import REFERENCE

NONE = "This copy has no published results of it yet; `polymodal leaderboard --reference` shows those it has.\n"


def published() -> Board | None:
    """The board of the published results, methods at their defaults."""
    return load("reference", setting="default").board() if REFERENCE.exists() else None


def row_of(board: Board | None, method: str) -> list[Row]:
    """The rows of a method: one for each of its variants."""
    return [] if board is None else [row for row in board.rows if row.method == method]


def standing_table(rows: list[Row]) -> str:
    """Each pillar: the advantage over the control, its interval, and on how many datasets it wins, ties and loses."""
    lines = [
        "| entry | pillar | advantage over the control | 95 % interval | wins, ties, losses | may be the best |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        for pillar, s in row.standings.items():
            interval = "unknown" if s.low is None or s.high is None else f"{s.low:+.3f} to {s.high:+.3f}"
            counts = f"{s.wins}, {s.ties}, {s.losses} (on {s.on} of {s.of})"
            best = "yes" if s.best else "no"
            lines.append(f"| `{row.label}` | {pillar} | {s.advantage:+.3f} | {interval} | {counts} | {best} |")
    return "\n".join(lines) + "\n"


def where(rows: list[Row]) -> str:
    """Where it wins and loses against the control on clean rows, in a sentence an entry."""
    said = []
    for row in rows:
        clean = row.standings.get("clean")
        if clean is None:
            continue
        names = {v: [n for n, own in clean.by_dataset.items() if own == v] for v in ("win", "loss")}
        ahead = ", ".join(f"`{n}`" for n in names["win"]) or "no dataset"
        behind = ", ".join(f"`{n}`" for n in names["loss"]) or "none"
        said.append(f"`{row.label}` is ahead of the control on {ahead}, and behind on {behind}; the rest are ties.")
    return "\n\n".join(said) + "\n"


def dataset_table(board: Board | None, dataset: str) -> str:
    """The clean scores of a dataset, best first."""
    if board is None or dataset not in {d.name for d in board.datasets}:
        return NONE
    (facts,) = [d for d in board.datasets if d.name == dataset]
    scores = [
        (row.label, row.entries[dataset].measures["clean"])
        for row in board.rows
        if "clean" in row.entries[dataset].measures
    ]
    scores.sort(key=lambda one: one[1].mean, reverse=facts.higher_is_better)
    lines = [f"| method | {facts.metric}, clean | 95 % interval |", "|---|---|---|"]
    for label, e in scores:
        interval = "one seed" if e.low is None or e.high is None else f"{e.low:.3f} to {e.high:.3f}"
        lines.append(f"| `{label}` | {e.mean:.3f} | {interval} |")
    return "\n".join(lines) + "\n"


def headline(board: Board | None, most: int = 6) -> str:
    """What the README says of the published board: its first sentences, and who is ahead."""
    if board is None:
        return "This copy has no published results yet.\n"
    sentences = [s for s in answer(board) if not s.startswith("A smoke test")][:2]
    lines = ["| advantage over `concat` | on | clean | robust | missing |", "|---|---|---|---|---|"]
    by_label = {row.label: row.standings for row in board.rows}
    leading = [s.method for s in board.order("clean") if s.method not in board.references][:most]
    for label in leading:
        own = by_label[label]
        cells = (f"{own[p].advantage:+.3f}" if p in own else "" for p in ("clean", "robust", "missing"))
        first = own["clean"]
        lines.append(f"| `{label}` | {first.on} of {first.of} | {' | '.join(cells)} |")
    return "\n".join([" ".join(sentences), "", *lines]) + "\n"
