"""Whether the rounds of a loop call modules of their own on inputs of their own, as far as the data flow tells."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.derive.families import MATRIX, operators_of
from profkit.patterns.flow.data_flow import calls_around, located_flow, longest_chain
from profkit.patterns.flow.equal_calls import EqualCalls
from profkit.patterns.flow.unbatched import binding
from profkit.trace.statistics import distinct

LOOKUPS = frozenset(("embedding",))


def may_have_own_modules(facts: Facts, calls: EqualCalls) -> bool:
    """False if a round takes what another one led to, or if two of them take one weight: a module is then called
    several times."""
    located = located_flow(facts)
    number = calls_around(facts, located, calls.operators.ravel()) if located is not None else None
    if located is None or number is None or (number < 0).any():
        return True
    rounds, takes = number.reshape(calls.operators.shape), located.flow.takes
    if not located.is_known(int(number.min()), int(number.max())):
        return True
    round_of = {call: turn for turn, mine in enumerate(list(rounds)) for call in mine.tolist()}
    binds = frozenset(distinct(rounds[:, binding(facts, calls)].ravel()).tolist())
    if longest_chain(located.flow, round_of, binds, may_follow_numbers=True) > 1:
        return False
    weighted = rounds[:, operators_of(facts.trace, MATRIX, LOOKUPS)[calls.operators[0]]]
    weights = [[takes[call][1] for call in column if len(takes[call]) > 1] for column in weighted.T.tolist()]
    return all(len(set(column)) == len(column) for column in weights if max(column, default=0) < 0)
