"""Functions that the program calls again with what they had before, for what they gave before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.calls import spent_per_step_ns
from profkit.patterns.loops.located import located_marks
from profkit.patterns.program import repeating_below
from profkit.patterns.time.line_prices import CallPrice, price_of_calls, price_of_lines
from profkit.run.directory import CallSite, RepeatedCall, unprofiled_steps

_EACH_TIME = 0.95
"""Of the calls that were looked at: one in twenty may be the first with new arguments."""
_MOSTLY, _LEAST_CALLS = 0.75, 20
"""A function of few different arguments is asked for each several times. Of fewer calls, so many repeat by chance."""
_LEAST_OF_WATCHED = 0.4
"""Of its time in a watched step, what a function takes in a plain one at least: line marks and profiles slow Python by
two to three times."""
_BY_OPERATORS = 0.25
"""Of the price: a function that calls a few operators between its own work is not one that computes with them."""


_ENDS = ("share", "low", "high")


class SameAgain(Struct, frozen=True):
    """A function with the lines (``sites``) that call it in vain. ``calls`` are made in a step (at least, if not
    ``is_whole``), of which a ``part`` repeats others; ``is_within`` says that most repeat one of the same step, else
    they repeat one of the step before. ``is_lookup`` says that it finds the same object each time. If not
    ``is_sampled``, the price is what the calls took in a step that recording slowed. With ``is_variable`` the lines
    make a variable, the ``callee``, of the function ``defined`` in each of its calls."""

    callee: str
    defined: CallSite
    sites: tuple[CallSite, ...]
    calls: int
    part: float
    is_within: bool
    is_lookup: bool
    price: CallPrice
    is_sampled: bool
    is_whole: bool
    is_variable: bool = False


@derived_once
def same_again(facts: Facts) -> tuple[SameAgain, ...]:
    """The outermost such functions: what they call repeats too. One that only repeats most of its calls is named if
    nothing inside it repeats all. Then variables of other functions that are the same in each call; what their lines
    call is part of them."""
    functions = _functions(facts)
    known = {(one.defined.file, one.defined.function) for one in functions}
    variables = [one for one in _variables(facts) if (one.defined.file, one.defined.function) not in known]
    making = {(site.file, site.line) for one in variables for site in one.sites}
    others = [one for one in functions if not making.issuperset((site.file, site.line) for site in one.sites)]
    return (*others, *variables)


def _variables(facts: Facts) -> Iterator[SameAgain]:
    """Their price is by samples alone: a profile does not see lines."""
    of_variable: defaultdict[tuple[str, int, str], list[RepeatedCall]] = defaultdict(list)
    for call in facts.run.repeated_calls or ():
        if call.is_variable and call.looked_at >= _LEAST_CALLS and _part(call) >= _EACH_TIME:
            of_variable[call.defined.file, call.defined.line, call.callee].append(call)
    for calls in of_variable.values():
        first, sites = calls[0], tuple(dict.fromkeys(call.site for call in calls))
        prices = price_of_lines(facts, {(site.file, site.line) for site in sites}).values()
        if prices:
            left = 1 - 1 / first.calls
            yield SameAgain(
                callee=first.callee,
                defined=first.defined,
                sites=tuple(sorted(sites, key=lambda site: -_share_of(facts, site))),
                calls=first.calls,
                part=1.0,
                is_within=True,
                is_lookup=False,
                price=CallPrice(*(left * sum(getattr(price, end) for price in prices) for end in _ENDS)),
                is_sampled=True,
                is_whole=first.is_whole,
                is_variable=True,
            )


def _share_of(facts: Facts, site: CallSite) -> float:
    prices = price_of_lines(facts, {(site.file, site.line)})
    return sum(price.share for price in prices.values())


def _functions(facts: Facts) -> tuple[SameAgain, ...]:
    calls = [call for call in facts.run.repeated_calls or () if not (call.differing or call.is_variable)]
    each = [call for call in calls if _part(call) >= _EACH_TIME]
    around = {(call.site.file, call.site.function) for call in each}
    most = [call for call in calls if _repeats_most(call) and (call.defined.file, call.defined.function) not in around]
    known = each + [call for call in most if call not in each]
    inside = {(call.defined.file, call.defined.function) for call in known}
    of_function: defaultdict[tuple[str, int, str], list[RepeatedCall]] = defaultdict(list)
    for call in known:
        if (call.site.file, call.site.function) not in inside:
            of_function[call.defined.file, call.defined.line, call.callee].append(call)
    return tuple(_together(facts, calls) for calls in of_function.values())


def _part(call: RepeatedCall) -> float:
    return min((call.again + call.across) / max(call.looked_at, 1), 1.0)


def _repeats_most(call: RepeatedCall) -> bool:
    return call.looked_at >= _LEAST_CALLS and call.again >= _MOSTLY * call.looked_at


def _together(facts: Facts, calls: list[RepeatedCall]) -> SameAgain:
    calls = sorted(calls, key=lambda call: -call.spent_ns)
    sites = tuple(dict.fromkeys(call.site for call in calls))
    first = calls[0]
    sampled = price_of_calls(facts, {(site.file, site.line) for site in sites}, first.defined)
    price, part = sampled or _watched_price(facts, calls), _part_of(calls)
    needless = part if sampled is None else part * _part_of_lines(calls)
    return SameAgain(
        callee=first.callee,
        defined=first.defined,
        sites=sites,
        calls=sum(call.calls for call in calls),
        is_within=sum(call.again for call in calls) > sum(call.across for call in calls),
        is_lookup=all(call.is_same_object for call in calls),
        part=part,
        price=CallPrice(price.share * needless, price.low * needless, price.high * needless),
        is_sampled=sampled is not None,
        is_whole=all(call.is_whole for call in calls),
    )


def _part_of(calls: list[RepeatedCall]) -> float:
    """The part of all calls that repeats others: nearly all is all."""
    parts = [1.0 if _part(call) >= _EACH_TIME else _part(call) for call in calls]
    return float(np.average(parts, weights=[max(call.calls, 1) for call in calls]))


def _part_of_lines(calls: list[RepeatedCall]) -> float:
    """Of the calls of the function that these lines make: samples do not tell two calls in one line apart."""
    made = {call.site: max(call.of_line, call.calls) for call in calls}
    return min(sum(call.calls for call in calls) / max(sum(made.values()), 1), 1.0)


def _watched_price(facts: Facts, calls: list[RepeatedCall]) -> CallPrice:
    """What calls of a watched step take of a plain one, if one was timed."""
    spent_ns = sum(call.spent_ns * call.calls / max(call.looked_at, 1) for call in calls)
    steps, (nearest_ns, later_ns) = facts.steps, unprofiled_steps(facts.run, "host")
    measured_ns = (steps.end_ns[steps.measured] - steps.start_ns[steps.measured]).tolist()
    most = min(spent_ns / max(float(np.median([*nearest_ns, *later_ns] or measured_ns or [1])), 1.0), 1.0)
    return CallPrice(most * (1 + _LEAST_OF_WATCHED) / 2, most * _LEAST_OF_WATCHED, most)


def computes_by_operators(facts: Facts, found: SameAgain) -> bool:
    """Whether PyTorch's operators take a good part of what runs below the function's lines or, if it is a library's,
    below the lines that call it."""
    events, function = facts.trace.events, (found.defined.file, found.defined.function)
    places = {(site.file, site.line) for site in found.sites}
    codes = [code for code, site in enumerate(facts.callsites) if (site.file, site.function) == function]
    codes = codes or [code for code, site in enumerate(facts.callsites) if (site.file, site.line) in places]
    lines = located_marks(facts)
    marks = facts.trace.mask_of(lines[np.isin(events.site[lines], codes)])
    if not found.is_sampled and (facts.tree.under(marks)[facts.operators.rows]).any():
        return True  # watching calls of PyTorch takes longer than they do
    rows, _ = repeating_below(facts, marks)
    step_ns = facts.steps.per_step_ns(facts.steps.measured_ns)
    return spent_per_step_ns(facts, rows) >= _BY_OPERATORS * found.price.share * step_ns
