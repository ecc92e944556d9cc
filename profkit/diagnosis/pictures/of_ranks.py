"""Who waits for whom in which step, as a picture of bounded size for any number of ranks and steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.findings.pictures import LEVELS, RankPicture, RankRow
from profkit.trace.events import Int64s

MOST_ROWS = 64
MOST_COLUMNS = 64
MOST_SINGLED_OUT = 8
"""A row must stay high enough to be seen, and a page must show all rows at once. Beyond that, a row stands for several
ranks, a column for several steps."""


def draw_ranks(ranks: Sequence[int], steps: Sequence[int], caused_ns: Int64s, waited_ns: Int64s) -> RankPicture:
    """The picture of how long others waited for each rank (``caused_ns``) and how long it waited for others
    (``waited_ns``). A row of these matrices is a rank, a column a step."""
    per_column = -(-len(steps) // MOST_COLUMNS) or 1
    per_row = -(-len(ranks) // MOST_ROWS) or 1
    caused, waited = (_longest_of(matrix, per_column) for matrix in (caused_ns, waited_ns))
    groups = [slice(first, first + per_row) for first in range(0, len(ranks), per_row)]
    rows = [(ranks[own][0], ranks[own][-1], caused[own].max(axis=0), np.median(waited[own], axis=0)) for own in groups]
    alone = _waited_for_longest(caused_ns) if per_row > 1 else []
    singles = [(ranks[at], ranks[at], caused[at], waited[at]) for at in alone]
    most_ns = max((float((above + below).max()) for *_, above, below in (*rows, *singles) if len(steps)), default=0.0)
    return RankPicture(
        steps=tuple(steps[::per_column]),
        steps_per_column=per_column,
        most_ns=int(most_ns),
        rows=tuple(_row(most_ns, *row) for row in rows),
        singled_out=tuple(_row(most_ns, *row) for row in singles),
    )


def _longest_of(matrix: Int64s, per_column: int) -> Int64s:
    """The matrix with the maximum of each ``per_column`` steps."""
    if not matrix.shape[1]:
        return matrix
    return np.maximum.reduceat(matrix, np.arange(0, matrix.shape[1], per_column), axis=1)


def _waited_for_longest(caused_ns: Int64s) -> list[int]:
    total_ns = caused_ns.sum(axis=1)
    worst = np.argsort(-total_ns, kind="stable")[:MOST_SINGLED_OUT]
    return [int(at) for at in worst if total_ns[at] > 0]


def _row(most_ns: float, first: int, last: int, caused_ns: Int64s, waited_ns: Int64s) -> RankRow:
    most = (int(values.max(initial=0)) for values in (caused_ns, waited_ns))
    return RankRow(first, last, _levels(caused_ns, most_ns), _levels(waited_ns, most_ns), *most)


def _levels(values_ns: Int64s, most_ns: float) -> str:
    share = np.clip(values_ns / max(most_ns, 1.0), 0.0, 1.0)
    return "".join(LEVELS[level] for level in np.rint(share * (len(LEVELS) - 1)).astype(int).tolist())
