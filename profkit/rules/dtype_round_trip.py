"""A tensor is converted to another type and straight back, with nothing computed in between.

What it detects
Casts of a large tensor from one type to another followed by the cast back, where only views stand between the two:
`x.double()` at the end of one function, `x.float()` at the start of the next. Both types are floating-point, or both
integers. A cast around a computation (a norm in float32 of a bfloat16 model) is there for its precision and is not
reported, and neither is one in an optimizer's step. Where the type on the way is narrower, the round trip rounds the
numbers, so leaving it out changes them a little: that is an opportunity.

Why is this bad?
Each cast reads the whole tensor and writes another one, and so does its backward. Two casts in a row move the data
twice and leave what was there before.

Example
    for block in blocks:
        x = block(x.float()).double()

Use instead
    x = x.float()
    for block in blocks:
        x = block(x)
    x = x.double()

How the saving is estimated
Both casts and their backward nodes vanish. In a longer row of casts to and fro one stays if their number is odd.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.operators.operators import item_bytes, parse_types
from profkit.evidence.attribution import sites_by_time
from profkit.evidence.frequency import in_most_steps
from profkit.evidence.program import named_operators, program_elementwise, program_operators
from profkit.findings import Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.places import name_lines
from profkit.ruling.pricing import scale_with_backward
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.values import distinct_rows
from profkit.units import format_bytes, format_count

_MIN_ELEMENTS = 4096
"""On fewer a cast's time is that of its dispatch: counters, losses and metrics change their type for good reasons."""
_UNCERTAINTY = 0.15
"""Nothing is modelled; what follows may find less of its input in the cache."""
_CASTS = ("aten::_to_copy", "aten::to", "aten::type_as")
_TYPES = {
    "0": "unsigned char", "1": "signed char", "2": "short", "3": "int", "4": "long int",
    "5": "c10::Half", "6": "float", "7": "double", "15": "c10::BFloat16",
}  # fmt: skip
"""Types as the profiler writes them in arguments (their number in ``c10/core/ScalarType.h``) and for inputs."""
_FLOATING = ("c10::BFloat16", "c10::Half", "float", "double")
_SHORT = {"signed char": "int8", "unsigned char": "uint8", "short": "int16", "int": "int32", "long int": "int64",
          "c10::Half": "float16", "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16"}  # fmt: skip


class _Casts(Struct, frozen=True):
    """Columns over the casts of the program in time order: type before and after as indices into `names`, and whether
    the next operator that is no view is the cast back."""

    rows: Rows
    source: Int64s
    target: Int64s
    returns: Bools
    names: tuple[str, ...]


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def dtype_round_trip(facts: Facts) -> Iterator[Suspicion]:
    """Group the round trips by the line that begins them and by the types."""
    casts = _find_casts(facts)
    first = _first_of_each_trip(casts)
    kinds = np.stack([facts.lines.site[casts.rows[first]], casts.source[first], casts.target[first]])
    for kind in kinds[:, distinct_rows(*kinds)[0]].T:
        mine = first[(kinds == kind[:, None]).all(axis=0)]
        rows = np.concatenate([casts.rows[mine], casts.rows[mine + 1]])
        if not in_most_steps(facts, rows):
            continue
        source, target = casts.names[kind[1]], casts.names[kind[2]]
        steps = facts.steps.measured_count
        trips = max(1, round(len(mine) / steps))
        moved = int(facts.operators.elements[rows].sum()) * (item_bytes(source) + item_bytes(target)) // steps
        places = name_lines(facts, [int(kind[0]), *sites_by_time(facts, casts.rows[mine + 1])])
        exact = item_bytes(target) > item_bytes(source)
        yield Suspicion(
            message=f"{format_count(trips, 'tensor')} a step cast from {_SHORT[source]} to {_SHORT[target]} and "
            f"straight back, which moves {format_bytes(moved)}.",
            fix=f"Let what computes in {_SHORT[source]} hand on {_SHORT[source]}, and cast once at the end where "
            f"{_SHORT[target]} is asked for.",
            rows=rows,
            edit=scale_with_backward(facts, rows, 0.0, _UNCERTAINTY, launch_kept=0.0),
            confidence=0.9 if exact else 0.7,
            count=trips,
            kind=Kind.FAULT if exact else Kind.OPPORTUNITY,
            places=places,
            evidence={"round_trips_per_step": trips, "moved_bytes_per_step": moved},
        )


def _find_casts(facts: Facts) -> _Casts:
    """The casts that change the type of a large tensor, and which of them the next operator takes back."""
    called = program_operators(facts)
    source, target, names = _types_of(facts, called)
    casts = (source != target) & (facts.operators.elements[called] >= _MIN_ELEMENTS)
    at = np.flatnonzero(casts | ~program_elementwise(facts)[1])
    here, after = at[:-1], at[1:]
    step = facts.step_of(called)
    elements = facts.operators.elements[called]
    back = casts[here] & casts[after] & (source[here] == target[after]) & (target[here] == source[after])
    back &= (elements[here] == elements[after]) & (step[here] == step[after])
    back &= ~_launched_between(facts, called[here], called[after])
    chosen = casts[at]
    returns = np.append(back, False)[chosen] if at.size else np.zeros(0, dtype=bool)
    return _Casts(called[at[chosen]], source[at[chosen]], target[at[chosen]], returns, names)


def _types_of(facts: Facts, called: Rows) -> tuple[Int64s, Int64s, tuple[str, ...]]:
    """For each operator the type of its input and of its result, `NONE` both where it is no cast within one family.

    `to` takes its type in many ways; the `_to_copy` inside always has it as its second argument.
    """
    events, names = facts.trace.events, tuple(_TYPES.values())
    copies = np.flatnonzero(named_operators(facts, "aten::_to_copy"))
    wanted = facts.trace.mask_of(called[named_operators(facts, *_CASTS)[called]])
    owner = facts.tree.nearest_ancestor(wanted, include_self=True, of=copies)
    copies, owner = copies[owner >= 0], owner[owner >= 0]
    types_code, concrete_code, text_of = events.types_code[copies], events.concrete_code[copies], facts.trace.text_of
    first, inverse = distinct_rows(types_code, concrete_code)
    told = np.array([_cast(text_of(types_code[i]), text_of(concrete_code[i])) for i in first]).reshape(-1, 2)
    types = np.full((2, len(events)), NONE, dtype=np.int64)
    types[:, owner] = told[inverse].T
    return types[0, called], types[1, called], names


def _cast(types: str, arguments: str) -> tuple[int, int]:
    """The types before and after as indices into `_TYPES`; `NONE` both where they are of different families."""
    before = next(iter(parse_types(types)), "")
    after = _TYPES.get(next(iter(parse_types(arguments)[1:2]), ""), "")
    names = list(_TYPES.values())
    if before not in names or after not in names or (before in _FLOATING) != (after in _FLOATING):
        return NONE, NONE
    return names.index(before), names.index(after)


def _launched_between(facts: Facts, here: Rows, after: Rows) -> Bools:
    """Whether the program itself launched work on the device between the operators, as a hand-written kernel does."""
    launches = facts.launches
    own = np.sort(facts.trace.events.start_ns[launches.call[(launches.call >= 0) & (launches.operator < 0)]])
    end, start = facts.tree.end_ns[here], facts.trace.events.start_ns[after]
    between: Bools = np.searchsorted(own, start) > np.searchsorted(own, end)
    return between


def _first_of_each_trip(casts: _Casts) -> Rows:
    """The casts that begin a round trip: in a row of casts every second one, of an odd number those that widen."""
    returns, index = casts.returns, np.arange(len(casts.rows))
    size = np.array([item_bytes(name) for name in casts.names])
    begins = returns & ~np.append(False, returns)[:-1]
    start = np.maximum.accumulate(np.where(begins, index, 0))
    end = np.minimum.accumulate(np.where(~returns, index, len(index))[::-1])[::-1]
    skipped = ((end - start) % 2 == 0) & (size[casts.target[start]] < size[casts.source[start]])
    return np.flatnonzero(returns & ((index - start - skipped) % 2 == 0))
