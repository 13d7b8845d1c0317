"""What the pages say of the published board, if this copy has one."""

from leaderboard import load
from leaderboard.answer import answer
from leaderboard.board import Board, Row, build_all
from leaderboard.reference import REFERENCE

NONE = "This copy has no published results of it yet; `polymodal leaderboard --reference` shows those it has.\n"
WHERE = {"clean": "On clean rows", "robust": "Under corruption", "missing": "With modalities missing"}
Boards = tuple[Board, ...]


def published() -> Boards:
    """The boards of the published results, methods at their defaults: the plain track first; none without results."""
    if not REFERENCE.exists():
        return ()
    return build_all(load("reference", setting="default").evidence)


def row_of(boards: Boards, method: str) -> list[Row]:
    """The rows of a method: one for each of its variants, on the board of its own track."""
    own = [(board, row) for board in boards for row in board.rows if row.method == method]
    return [row for board, row in own if board.track == own[0][0].track]


def track_of(boards: Boards, method: str) -> str:
    """Which board its rows are of, in a sentence."""
    board = next(board for board in boards if any(row.method == method for row in board.rows))
    return f"The {board.track} track; the control is `{board.control}`.\n"


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
    """Where it wins and loses against the control, in a sentence an entry and pillar."""
    said = []
    for row in rows:
        for pillar, words in WHERE.items():
            if pillar not in row.standings:
                continue
            own = row.standings[pillar].by_dataset
            names = {v: ", ".join(f"`{n}`" for n, found in own.items() if found == v) for v in ("win", "loss")}
            parts = [f"{verb} {names[v]}" for v, verb in (("win", "wins on"), ("loss", "loses on")) if names[v]]
            said.append(f"{words}, `{row.label}` {' and '.join(parts) or 'ties with the control everywhere'}.")
    return "\n\n".join(said) + "\n"


def dataset_table(boards: Boards, dataset: str) -> str:
    """The clean scores of a dataset, best first, of the plain track."""
    if not boards or dataset not in {d.name for d in boards[0].datasets}:
        return NONE
    board = boards[0]
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


def headline(boards: Boards, most: int = 6) -> str:
    """What the README says of the published board: its first sentences, and who is ahead."""
    if not boards:
        return "This copy has no published results yet.\n"
    board = boards[0]
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
