"""What each line of the program costs, by samples of its stacks in steps that nothing else watched."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from math import sqrt

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.places.events import call_site
from profkit.patterns.time.list_reading import lists_read
from profkit.run.directory import CallSite, SampledStack

MAIN, WORKER, THREAD = "main", "worker", "thread"
"""The kinds of threads: the recorded one, those that make batches in a DataLoader's workers, and any other."""
_LEAST_SAMPLES = 30
"""Of fewer, a half may be a quarter."""
_FEWEST_SAMPLES, _SURELY = 10, 0.25
"""Of so few, only a line that takes at least this share, chance allowed for, has a price: its interval says how sure it
is. A program that ends soon after its recording, or is recorded twice, gets no more."""
_PER_SAMPLE = 2.0
"""The intervals between samples vary like those of random events, and each counts with its length: that doubles the
variance of a share."""
_QUANTILE = 1.96
"""Of the normal distribution: 95 % of shares lie within so many standard deviations."""
_LEAST_SHARE = 0.005
"""A line with less is no place to begin."""
_MUCH = 0.2
"""As of other time outside of PyTorch (`profkit.rules.unattributed_time`)."""
_OF_LOOP = 0.9
"""Of the time: the function that trains is on the stack all the time, but for a callback."""
_SAME = 0.8
"""Of a line's own time: a callee with this share is what the line spends its time on."""


class LinePrice(Struct, frozen=True):
    """``share`` of the time of its ``thread`` is what the line takes with all that it calls, with 95 % between ``low``
    and ``high``. ``own_share`` is without what it calls of the program's own lines. ``callee`` is what it calls outside
    of the program, empty if several things or if unknown."""

    site: CallSite
    share: float
    low: float
    high: float
    own_share: float
    callee: str
    thread: str


class FunctionPrice(Struct, frozen=True):
    """A function of the program, the share that its lines take with all that they call, the line of it that takes most
    itself, and its other lines that take much themselves."""

    name: str
    share: float
    line: LinePrice
    others: tuple[LinePrice, ...] = ()

    @property
    def two_lines_share(self) -> float:
        """What the line and the next one take themselves."""
        return self.line.own_share + sum(one.own_share for one in self.others[:1])


@derived_once
def line_prices(facts: Facts) -> tuple[LinePrice, ...]:
    """The lines of the recorded thread, the one that takes most itself first. Shares are of a step. Empty if there are
    too few samples; of few, only lines that surely take much."""
    return _price(_Sampled.of(facts, MAIN))


class OutsideLine(Struct, frozen=True):
    """A line, and the share of a step that passes in it outside of all that PyTorch records, without what it calls of
    the program's own lines. It ``may_compute`` instead if operators that no line is known of take as long."""

    price: LinePrice
    outside: float
    may_compute: bool = False


@derived_once
def lines_outside(facts: Facts) -> tuple[OutsideLine, ...]:
    """The lines of the recorded thread that take most time outside of PyTorch, the first one most. Time in which a
    DataLoader makes a batch does not count, nor that in which PyTorch reads a list."""
    sampled = _Sampled.of(facts, MAIN)
    inside = Counter[CallSite]()
    for stack in sampled.stacks:
        if stack.batch_from >= 0 or stack.in_torch:
            inside[sampled.sites[stack.lines[-1]]] += stack.time_ns
    by_operators, unplaced = _operators_by_line(facts), _unplaced_operators(facts)
    found = []
    for price in line_prices(facts):
        own = price.own_share - inside[price.site] / max(sampled.total_ns, 1)
        outside = own - max(0.0, by_operators.get((price.site.file, price.site.line), 0.0) - (price.own_share - own))
        if outside > 0:
            found.append(OutsideLine(price, outside, unplaced >= outside))
    return tuple(sorted(found, key=lambda line: -line.outside))


def outside_in_function(facts: Facts, site: CallSite) -> CallPrice:
    """What all lines of this line's function take outside of all that PyTorch records, together. Nothing, if nearly all
    time passes in the function and what it calls: the steps are its own."""
    function, sampled = (site.file, site.function), _Sampled.of(facts, MAIN)
    numbers = {number for number, one in enumerate(sampled.sites) if (one.file, one.function) == function}
    within_ns = sum(stack.time_ns for stack in sampled.stacks if numbers.intersection(stack.lines))
    if within_ns >= _OF_LOOP * sampled.total_ns:
        return CallPrice(0.0, 0.0, 0.0)
    mine = (one for one in lines_outside(facts) if (one.price.site.file, one.price.site.function) == function)
    share = min(sum(line.outside for line in mine), 1.0)
    return CallPrice(share, *_interval(share, max(sampled.total_ns / sampled.period_ns, 1.0) / _PER_SAMPLE))


def _unplaced_operators(facts: Facts) -> float:
    """The share of the measured steps that operators take at no known line, as those of steps that are unlike the one
    in which lines were marked."""
    events, steps = facts.trace.events, facts.steps
    rows = np.flatnonzero(facts.tree.outermost(facts.trace.mask_of(facts.operators.rows)))
    rows = rows[facts.measured[rows] & (events.lane[rows] == steps.main_lane) & (facts.lines.site[rows] < 0)]
    total_ns = max(int((steps.end_ns[steps.measured] - steps.start_ns[steps.measured]).sum()), 1)
    return float(events.duration_ns[rows].sum()) / total_ns


def _operators_by_line(facts: Facts) -> dict[tuple[str, int], float]:
    """The share of the measured steps that operators take, and lists that PyTorch reads, by the line that calls
    them."""
    events, steps = facts.trace.events, facts.steps
    rows, read = np.flatnonzero(facts.tree.outermost(facts.trace.mask_of(facts.operators.rows))), lists_read(facts)
    reading_ns = events.start_ns[read.rows] - read.start_ns
    taken_ns = np.concatenate([events.duration_ns[rows], reading_ns])
    rows = np.concatenate([rows, read.rows])
    mine = facts.measured[rows] & (events.lane[rows] == steps.main_lane) & (facts.lines.site[rows] >= 0)
    total_ns = max(int((steps.end_ns[steps.measured] - steps.start_ns[steps.measured]).sum()), 1)
    sites, number = np.unique(facts.lines.site[rows[mine]], return_inverse=True)
    ns = np.bincount(number, taken_ns[mine], len(sites))
    shares: dict[tuple[str, int], float] = {}
    for site, taken in zip(sites.tolist(), (ns / total_ns).tolist(), strict=True):
        if (known := call_site(facts, site)) is not None:
            shares[known.file, known.line] = shares.get((known.file, known.line), 0.0) + taken
    return shares


class CallPrice(Struct, frozen=True):
    """The share of the recorded thread's time that calls of one function take, with 95 % between ``low`` and
    ``high``."""

    share: float
    low: float
    high: float


def price_of_calls(facts: Facts, lines: Collection[tuple[str, int]], function: CallSite) -> CallPrice | None:
    """What the function takes where these ``lines``, by file and number, call it. None if there are too few samples."""
    sampled = _Sampled.of(facts, MAIN)
    count = sampled.total_ns / sampled.period_ns
    if count < _FEWEST_SAMPLES:
        return None
    ns = sum(stack.time_ns for stack in sampled.stacks if _calls(stack, sampled.sites, lines, function))
    share = min(ns / sampled.total_ns, 1.0)
    low, high = _interval(share, count / _PER_SAMPLE)
    return CallPrice(share, low, high) if count >= _LEAST_SAMPLES or low >= _SURELY else None


def price_of_lines(facts: Facts, lines: Collection[tuple[str, int]]) -> dict[CallSite, CallPrice]:
    """What each of these ``lines``, by file and number, takes with all that it calls, where none of the others calls
    it. Empty if there are too few samples."""
    sampled = _Sampled.of(facts, MAIN)
    count = sampled.total_ns / sampled.period_ns
    spent = Counter[CallSite]()
    for stack in sampled.stacks if count >= _FEWEST_SAMPLES else ():
        sites = (sampled.sites[number] for number in stack.lines)
        outermost = next((site for site in sites if (site.file, site.line) in lines), None)
        if outermost is not None:
            spent[outermost] += stack.time_ns
    shares = {site: min(ns / sampled.total_ns, 1.0) for site, ns in spent.items()}
    prices = {site: CallPrice(share, *_interval(share, count / _PER_SAMPLE)) for site, share in shares.items()}
    return {site: price for site, price in prices.items() if count >= _LEAST_SAMPLES or price.low >= _SURELY}


def share_called_by(facts: Facts, site: CallSite, lines: frozenset[tuple[str, int]]) -> float:
    """Of what the line of this ``site`` takes itself, the share that it takes where one of these ``lines`` calls it or
    is the line."""
    sampled, whole_ns, ns = _Sampled.of(facts, MAIN), 0, 0
    for stack in sampled.stacks:
        if sampled.sites[stack.lines[-1]] == site:
            whole_ns += stack.time_ns
            above = ((known.file, known.line) for known in (sampled.sites[number] for number in stack.lines))
            ns += stack.time_ns * (not lines.isdisjoint(above))
    return ns / max(whole_ns, 1)


def _calls(
    stack: SampledStack, sites: tuple[CallSite, ...], lines: Collection[tuple[str, int]], function: CallSite
) -> bool:
    """Whether one of the lines calls the function in this stack: the next line of the program lies in the function or,
    behind a library's, the line calls a function of this name."""
    names = [*[sites[number].function for number in stack.lines[1:]], stack.callee]
    files = [*[sites[number].file for number in stack.lines[1:]], function.file]
    wanted = function.function.rpartition(".")[2]
    return any(
        (sites[number].file, sites[number].line) in lines
        and file == function.file
        and name.rpartition(".")[2].removesuffix("[…]") == wanted
        for number, file, name in zip(stack.lines, files, names, strict=True)
    )


@derived_once
def batch_prices(facts: Facts) -> tuple[LinePrice, ...]:
    """The lines that make batches in the recorded thread: shares are of the time that making batches takes."""
    return _price(_Sampled.of(facts, MAIN).in_batches())


@derived_once
def worker_prices(facts: Facts) -> tuple[LinePrice, ...]:
    """The same in a DataLoader's workers."""
    return _price(_Sampled.of(facts, WORKER))


@derived_once
def thread_prices(facts: Facts) -> tuple[LinePrice, ...]:
    """The lines of the program's other threads, one thread after the other, each with its share of its thread's time,
    waits included. `LinePrice.thread` is the thread's name."""
    numbers = [number for number, thread in enumerate(facts.stacks.threads) if thread.kind == THREAD]
    return tuple(price for number in numbers for price in _price(_Sampled.of(facts, THREAD, number)))


@derived_once
def batch_function(facts: Facts) -> FunctionPrice | None:
    """The function of the line that takes most of a batch's time in the recorded thread."""
    return _function_of(batch_prices(facts), _Sampled.of(facts, MAIN).in_batches())


@derived_once
def worker_function(facts: Facts) -> FunctionPrice | None:
    """The same in a DataLoader's workers."""
    return _function_of(worker_prices(facts), _Sampled.of(facts, WORKER))


def _function_of(prices: tuple[LinePrice, ...], sampled: _Sampled) -> FunctionPrice | None:
    if not prices:
        return None
    line = prices[0]
    function = line.site.file, line.site.function
    mine = {number for number, site in enumerate(sampled.sites) if (site.file, site.function) == function}
    whole_ns = sum(stack.time_ns for stack in sampled.stacks if mine.intersection(stack.lines))
    others = (one for one in prices[1:] if (one.site.file, one.site.function) == function)
    much = tuple(one for one in others if one.own_share >= _MUCH)
    return FunctionPrice(line.site.function, min(whole_ns / max(sampled.total_ns, 1), 1.0), line, much)


class _Sampled(Struct, frozen=True):
    """Stacks of one kind of thread, or of a single one, and the time that they are compared with."""

    name: str
    sites: tuple[CallSite, ...]
    stacks: tuple[SampledStack, ...]
    total_ns: int
    period_ns: int

    @classmethod
    def of(cls, facts: Facts, kind: str, only: int | None = None) -> _Sampled:
        found = facts.stacks
        numbers = {number for number, thread in enumerate(found.threads) if thread.kind == kind}
        numbers = numbers if only is None else {only}
        stacks = tuple(
            stack
            for stack in found.stacks
            if stack.thread in numbers and stack.lines and all(0 <= line < len(found.sites) for line in stack.lines)
        )
        total_ns = sum(found.threads[number].time_ns for number in numbers)
        name = kind if only is None else found.threads[only].name
        return cls(name, found.sites, stacks, total_ns, max(found.period_ns, 1))

    def in_batches(self) -> _Sampled:
        """Only what makes batches, and of these stacks only the lines that do."""
        making = [stack for stack in self.stacks if stack.batch_from >= 0]
        total_ns = sum(stack.time_ns for stack in making)
        inside = tuple(
            SampledStack(stack.thread, stack.lines[stack.batch_from :], stack.callee, stack.time_ns)
            for stack in making
            if stack.lines[stack.batch_from :]
        )
        return _Sampled(self.name, self.sites, inside, total_ns, self.period_ns)


def _price(sampled: _Sampled) -> tuple[LinePrice, ...]:
    count = sampled.total_ns / sampled.period_ns
    if count < _FEWEST_SAMPLES:
        return ()
    whole, own = Counter[int](), Counter[int]()
    called: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for stack in sampled.stacks:
        own[stack.lines[-1]] += stack.time_ns
        called[stack.lines[-1]][stack.callee] += stack.time_ns
        for line in set(stack.lines):
            whole[line] += stack.time_ns
    prices = []
    for line, ns in whole.items():
        share = min(ns / sampled.total_ns, 1.0)
        if share < _LEAST_SHARE:
            continue
        low, high = _interval(share, count / _PER_SAMPLE)
        if count < _LEAST_SAMPLES and low < _SURELY:
            continue
        callee = next((name for name, ns in called[line].most_common(1) if ns >= _SAME * own[line]), "")
        own_share = min(own[line] / sampled.total_ns, 1.0)
        prices.append(LinePrice(sampled.sites[line], share, low, high, own_share, callee, sampled.name))
    return tuple(sorted(prices, key=lambda price: (-price.own_share, price.site.file, price.site.line)))


def _interval(share: float, count: float) -> tuple[float, float]:
    """Wilson's interval of a share of so many independent samples."""
    square = _QUANTILE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _QUANTILE / (1 + square / count) * sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)
