"""Do calls of the located step need each other? Answered by the memory that PyTorch's calls take and make.

The rounds of a loop, or calls of a recursion, that do not need each other could be one. Of those that form chains, as
the nodes of a tree do, all of one level could be one: as many calls are left as the longest chain is long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.loops.located import call_marks
from profkit.patterns.program import located_operators
from profkit.run.directory import DataFlow
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.statistics import among


class LocatedFlow(Struct, frozen=True):
    """The data flow of the located step's calls, and the mark in the trace of each call: `NONE` if it has none."""

    flow: DataFlow
    marks: Rows

    def is_known(self, first: int, last: int) -> bool:
        """Whether everything between two calls was followed."""
        return not any(first <= gap <= last for gap in self.flow.gaps)


@derived_once
def located_flow(facts: Facts) -> LocatedFlow | None:
    """None if it was not recorded."""
    flow = facts.run.flow
    if flow is None:
        return None
    marked = np.ones(len(flow.takes), dtype=bool)
    unmarked = [number for number in flow.unmarked if 0 <= number < len(marked)]
    marked[unmarked] = False
    known = call_marks(facts)
    places = np.flatnonzero(marked)[: len(known)]
    marks = np.full(len(marked), NONE, dtype=np.int64)
    marks[places] = known[: len(places)]
    return LocatedFlow(flow, marks)


def calls_around(facts: Facts, located: LocatedFlow, rows: Rows) -> Int64s:
    """For each operator the number of the call that made it; `NONE` if it is not known."""
    called = np.flatnonzero(located.marks >= 0)
    if not called.size or not rows.size:
        return np.full(len(rows), NONE, dtype=np.int64)
    marks = located.marks[called]
    order = np.argsort(marks, kind="stable")
    around = facts.tree.nearest_ancestor(facts.trace.mask_of(marks), of=rows)
    place = np.searchsorted(marks[order], around).clip(max=len(marks) - 1)
    found = among(around, marks)
    return np.where(found, called[order][place], NONE)


def longest_chain(
    flow: DataFlow,
    round_of: Mapping[int, int],
    working: frozenset[int],
    binding: frozenset[int] = frozenset(),
    may_follow_numbers: bool = False,
) -> int:
    """How many rounds lie one behind the other on the longest way through what calls take of each other.

    ``round_of`` says of each call in which round it is. The way goes through the rounds' ``working`` calls: what only
    adds up results or keeps them needs no other round. Calls that are ``binding`` count where they take what another
    round led to, as a division by the mean of earlier results. Once Python has read a number of a round's result, what
    follows may need that round, unless it ``may_follow_numbers``: then the program's text shows that it does not.
    """
    if not round_of:
        return 0
    first, last = min(round_of), min(max(round_of), len(flow.takes) - 1)
    before, after, tied = dict[int, int](), dict[int, int](), binding - working
    reads, read = frozenset(() if may_follow_numbers else flow.reads), 0
    for number in range(first, last + 1):
        mine, others, own = round_of.get(number), read, 0
        for maker in flow.takes[number]:
            if first <= maker < number:
                is_own = mine is not None and round_of.get(maker) == mine
                others = max(others, before[maker] if is_own else after[maker])
                own = max(own, after[maker])
        before[number], after[number] = (
            others,
            max(others + (number in working or (number in tied and others > 0)), own),
        )
        if number in reads:
            read = max(read, after[number])
    return max((after[number] for number in (working | tied) & after.keys()), default=0)


def shared_inputs(flow: DataFlow, calls: Sequence[int]) -> tuple[bool, ...]:
    """Of calls that correspond to each other in several rounds: which of their tensors are the same in all of them, and
    were there before the first."""
    given = [flow.takes[number] for number in calls]
    if len(set(map(len, given))) != 1:
        return ()
    return tuple(len(set(makers)) == 1 and makers[0] < calls[0] for makers in zip(*given, strict=True))


def is_written_on_the_way(facts: Facts, makers: Rows, takers: Rows, passing: Bools) -> Bools:
    """For pairs of the located step's operators: whether the taker surely does not take what the maker made, as it is
    or after ``passing`` operators. Something wrote to it in between, or NumPy has its memory. False where the data flow
    does not tell."""
    located, found = located_flow(facts), np.zeros(len(makers), dtype=bool)
    if located is None or not len(makers):
        return found
    rows = located_operators(facts)
    number = calls_around(facts, located, rows)
    passes = frozenset(number[passing[rows]].tolist()) - frozenset(number[~passing[rows]].tolist())
    given, taken = (calls_around(facts, located, one).tolist() for one in (makers, takers))
    for at, (maker, taker) in enumerate(zip(given, taken, strict=True)):
        if 0 <= maker < taker and located.is_known(maker, taker):
            found[at] = not _leads_to(located.flow, maker, taker, passes)
    return found


def _leads_to(flow: DataFlow, maker: int, taker: int, passes: frozenset[int]) -> bool:
    waiting, seen = [taker], {taker}
    if any(maker in flow.takes[read] for read in flow.reads if maker < read < taker):
        return False
    while waiting:
        for one in flow.takes[waiting.pop()]:
            if one == maker:
                return True
            if maker < one < taker and one in passes and one not in seen:
                seen.add(one)
                waiting.append(one)
    return False
