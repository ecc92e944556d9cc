"""The rows as a table, and the three figures below it."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.core.units import format_share
from profkit.diagnosis.fixing.proving import HELD, REFUSED, UNDECIDED
from tests.fixes.judging import Row

HEAD = (
    "| program | findings | tried | held | of the | `fix --all` wins | its known fix wins | of the possible "
    "| left beside the known fix |\n" + "|---" * 9 + "|"
)


def render(row: Row) -> str:
    """One row, and below it why changes did not hold."""
    if row.failure:
        return f"| {row.name} | {row.failure} | | | | | | | |"
    shares = (format_share(share) if share is not None else "-" for share in (row.won, row.possible, row.reached))
    counts = f"{len(row.verdicts)} | {row.tried} | {row.held} | {row.measure}"
    return f"| {row.name} | {counts} | {' | '.join(shares)} | {_beside(row)} |"


def _beside(row: Row) -> str:
    """As a factor with its interval: 1.00 is as much as with the known fix."""
    if row.over is None:
        return "-"
    middle, low, high = (1 + one for one in row.over)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})" if low < high else f"{middle:.2f}"


def reasons(rows: Sequence[Row]) -> list[str]:
    """Each finding whose change did not hold."""
    return [
        f"{row.name}: {rule}: {verdict}{reason and f': {reason}'}"
        for row in rows
        for rule, verdict, reason in row.verdicts
        if verdict != HELD
    ]


def figures(rows: Sequence[Row]) -> str:
    """How many findings have a change, how many changes hold, and how much of the possible time is won."""
    verdicts = [verdict for row in rows for _, verdict, _ in row.verdicts]
    tried = [verdict for verdict in verdicts if verdict != REFUSED]
    open_ = tried.count(UNDECIDED)
    reached = [row.reached for row in rows if row.reached is not None]
    close = sum(row.is_close for row in rows)
    possible = sum(row.possible or 0.0 for row in rows if row.reached is not None)
    won = sum((row.reached or 0.0) * (row.possible or 0.0) for row in rows)
    return "\n".join(
        (
            f"findings with a change: {_of(len(tried), len(verdicts))}",
            f"programs with a change: {_of(sum(row.tried > 0 for row in rows), len(rows))}",
            f"changes that hold: {_of(tried.count(HELD), len(tried) - open_)}, not enough time to tell: {open_}",
            f"programs a change brings within a tenth of their known fix: {_of(close, len(rows))}",
            f"programs that reach nine tenths of the possible: {_of(sum(one >= 0.9 for one in reached), len(reached))}",
            f"of the possible time won: {format_share(won / possible) if possible else 'not measured'}",
        )
    )


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({format_share(part / whole)})" if whole else "")
