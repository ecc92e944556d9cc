"""When each stack was seen, in a bounded number of columns of equal length, which doubles as the run goes on."""

from __future__ import annotations

_FIRST_NS = 100_000_000
_MOST = 600
"""About as many as a page is wide in points, halved each time that they are used up."""
_MOST_IN_ONE = 24
"""Stacks kept of a column, those with most of its time: 600 columns of them take 300 kB in the file."""

_MOST_WHILE_RUNNING = 96
"""Four times as many while the run goes on, since what is short in one column may be long in the two together."""


class Columns:
    """``column_ns`` is the length of each; `taken` has the nanoseconds by stack of each."""

    def __init__(self) -> None:
        self.column_ns = _FIRST_NS
        self._columns: list[dict[int, int]] = []

    def add(self, from_ns: int, until_ns: int, stack: int) -> None:
        """That stack from one time to another, since the beginning."""
        while until_ns > self.column_ns * _MOST:
            self._halve()
        while from_ns < until_ns:
            at = from_ns // self.column_ns
            end_ns = min(until_ns, (at + 1) * self.column_ns)
            self._columns += [{} for _ in range(at + 1 - len(self._columns))]
            column = self._columns[at]
            column[stack] = column.get(stack, 0) + end_ns - from_ns
            from_ns = end_ns

    def taken(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Pairs of stack and time for each column, the longest first."""
        ranked = (sorted(column.items(), key=lambda item: -item[1]) for column in self._columns)
        return tuple(tuple(column[:_MOST_IN_ONE]) for column in ranked)

    def _halve(self) -> None:
        self.column_ns *= 2
        pairs = zip(self._columns[::2], [*self._columns[1::2], {}], strict=False)
        self._columns = [_longest(_sum(first, second)) for first, second in pairs]


def _longest(column: dict[int, int]) -> dict[int, int]:
    if len(column) <= _MOST_WHILE_RUNNING:
        return column
    return dict(sorted(column.items(), key=lambda item: -item[1])[:_MOST_WHILE_RUNNING])


def _sum(first: dict[int, int], second: dict[int, int]) -> dict[int, int]:
    return {stack: first.get(stack, 0) + second.get(stack, 0) for stack in {**first, **second}}
