"""What each line of the program took in the steps that were only timed, by the looks at the main thread.

Of steps after the recorded ones no more than their length is known. But the whole run was watched, and it is known when
the last of these steps ended: so each look belongs to one of them. That tells which lines make a few steps long, and
which lines take more in the last steps than in the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.whole_run.phases import IMPORTS, MOST_COLUMNS, PROFKIT, STEPS, phase_labels
from profkit.run.directory import CallSite
from profkit.run.whole_run import RunAccount, StackActivity
from profkit.trace.events import Bools, Float64s
from profkit.trace.statistics import median

_BACKWARD = StackActivity.BACKWARD.value
LONG = 2.0
"""Times the median: such a step holds more than a step."""
_LEAST_STEPS = 16
"""With fewer, a look or two decide."""
_MOSTLY, _NOTABLE = 0.5, 0.15
"""Of what long steps take beyond the usual, or of what steps got longer by: as a whole, and for a line to be named."""
_LESS = 1 / 3
_TIMES = 2.0
"""How many times its share of usual steps a line's share of what long ones take beyond them must be."""
_LEAST_REST = 0.1
"""Of a step: if lines that got longer are nearly all of it, there is nothing to compare them with."""
_SURE = 3.0
"""Standard deviations: one line in several hundred grows so much by chance."""
_BETWEEN_MIDDLES = 3 / 4
"""Of the steps, from the middle of the first quarter to that of the last."""
_FEWEST_COLUMNS, _LEAST_SPREAD = 2, 0.1
"""Columns of the account that tell what is usual; and the standard deviation of the share of long steps in them, if
each holds a part of one."""
_MOST_STACKS = 10_000
"""More than a watch keeps: a file from anybody may claim any number, and each takes a row of columns."""
MOST_LINES = 3
"""More places are no answer."""


class TimedLine(Struct, frozen=True):
    """A line of the program in the timed steps. ``callers`` are the lines that lead to it, the innermost first.
    ``label`` is the phase of the run that most of its time belongs to.

    ``timed_ns`` is its time in all timed steps, ``excess_ns`` what of that is beyond its time in usual ones, and
    ``run_ns`` the same share of its time in the whole run. ``first_ns`` and ``last_ns`` are per step in the first and
    in the last quarter of the steps. If an earlier recording was replaced because the steps got longer, the first are
    those after that. ``is_apart`` says that the training runs no line of its function, and
    ``is_backward`` that most of its time passes in a backward pass."""

    site: CallSite
    callers: tuple[CallSite, ...]
    label: str
    is_apart: bool
    is_backward: bool
    timed_ns: float
    excess_ns: float
    run_ns: int
    first_ns: float
    last_ns: float

    @property
    def growth_ns(self) -> float:
        """How much longer it takes per step in the last quarter than in the first."""
        return self.last_ns - self.first_ns

    def grown_ns(self, steps: int, before: int, earlier: int = 0, between: int = 0) -> float:
        """What it takes in so many timed steps beyond its time in the program's first step, if it grows by the same in
        each, and did so ``before`` them. What it takes beyond that in ``earlier`` steps, with so many ``between`` them
        and the others, counts as well."""
        middle = earlier / 2 if earlier else steps * (1 - _BETWEEN_MIDDLES) / 2
        last = earlier + between + steps * (1 + _BETWEEN_MIDDLES) / 2
        at_first = max(0.0, self.first_ns - self.growth_ns / (last - middle) * (before + middle))
        return max(0.0, self.timed_ns - at_first * steps) + max(0.0, self.first_ns - at_first) * earlier


class TimedPhase(Struct, frozen=True):
    """A phase of the run in the timed steps, and its line with most of the time. Times are those of `TimedLine`."""

    label: str
    site: CallSite | None
    timed_ns: float
    excess_ns: float


class TimedLines(Struct, frozen=True):
    """``long`` are the lines of long steps, those with the most time beyond the usual first: of each stack the
    innermost line that the training does not run. ``inner`` are innermost lines, those that grew most first. ``every``
    are lines with all that they call, and ``phases`` those of the run but for the steps' own.

    ``excess_ns`` is what long steps take beyond the median one, in all, and ``usual_ns`` is the rest. ``growth_ns`` is
    how much longer a step of the last quarter takes than one of the first. There are ``steps``, ``long_steps`` of them
    long; ``first_steps`` are those of ``first_ns``, and a look stands for ``look_ns``.
    ``knows_usual`` says whether looks tell what lines take in usual steps."""

    long: tuple[TimedLine, ...]
    inner: tuple[TimedLine, ...]
    every: tuple[TimedLine, ...]
    phases: tuple[TimedPhase, ...]
    excess_ns: float
    usual_ns: float
    first_ns: float
    last_ns: float
    steps: int
    long_steps: int
    first_steps: int
    look_ns: float
    knows_usual: bool

    @property
    def growth_ns(self) -> float:
        """In nanoseconds per step."""
        return self.last_ns - self.first_ns

    def explaining(self) -> tuple[TimedLine, ...]:
        """The lines that make the long steps long: mostly seen in these, and together half of what they take beyond
        the usual. Other programs stretch whatever runs: usual lines take the same share of that as of usual steps."""
        special = [line for line in self.long if self._is_special(line)]
        told = tuple(line for line in special[:MOST_LINES] if line.excess_ns >= _NOTABLE * self.excess_ns)
        return told if sum(line.excess_ns for line in told) >= _MOSTLY * self.excess_ns > 0 else ()

    def happening(self) -> tuple[TimedPhase, ...]:
        """The same of phases, which many lines may share: what happened in the long steps."""
        special = [phase for phase in self.phases if self._is_special(phase)]
        told = tuple(phase for phase in special[:MOST_LINES] if phase.excess_ns >= _NOTABLE * self.excess_ns)
        return told if sum(phase.excess_ns for phase in told) >= _MOSTLY * self.excess_ns > 0 else ()

    def _is_special(self, line: TimedLine | TimedPhase) -> bool:
        usual = (line.timed_ns - line.excess_ns) / max(self.usual_ns, 1.0)
        share = line.excess_ns / max(self.excess_ns, 1.0)
        return line.excess_ns >= _MOSTLY * line.timed_ns and share >= _TIMES * usual

    def grown(self) -> tuple[TimedLine, ...]:
        """The lines that the steps' growth comes from: half of it or more, while all else grew by a third of what they
        did at most, each as a share. Other programs make all lines longer."""
        if self.growth_ns <= 0:
            return ()
        surely = [line for line in self.inner[:MOST_LINES] if self._grew_surely(line)]
        told = tuple(line for line in surely if line.growth_ns >= _NOTABLE * self.growth_ns)
        grown_ns, first_ns = sum(line.growth_ns for line in told), sum(line.first_ns for line in told)
        rest_ns = self.first_ns - first_ns
        if rest_ns < _LEAST_REST * self.first_ns:
            return ()
        rest = max(0.0, self.growth_ns - grown_ns) / rest_ns
        is_alone = rest <= _LESS * grown_ns / max(first_ns, 1.0)
        if grown_ns < _MOSTLY * self.growth_ns or not is_alone:
            return ()
        return tuple(sorted(told, key=lambda line: line.is_backward))  # which only follows what was computed before

    def _grew_surely(self, line: TimedLine) -> bool:
        """Whether the looks at the line became more by more than chance does, as counts of random events."""
        per_look = (self.look_ns / self.first_steps, self.look_ns / (self.steps // 4))
        variance = line.first_ns * per_look[0] + line.last_ns * per_look[1]
        return line.growth_ns >= _SURE * float(max(variance, per_look[1] ** 2) ** 0.5)

    def at(self, site: CallSite) -> TimedLine | None:
        """The line with all that it calls."""
        return next((line for line in self.every if (line.site.file, line.site.line) == (site.file, site.line)), None)


@derived_once
def timed_lines(facts: Facts) -> TimedLines | None:
    """None if the run was not watched, if it is not known when the timed steps ended, or if these are few."""
    account, took_ns = facts.account, np.asarray(facts.run.later_step_ns, dtype=np.float64)
    if len(account.columns) > MOST_COLUMNS or len(account.stacks) > _MOST_STACKS:
        return None
    if account.column_ns <= 0 or not facts.run.timed_until_ns or len(took_ns) < _LEAST_STEPS:
        return None
    begun_ns = facts.run.timed_until_ns - account.begun_ns - took_ns.sum()
    if begun_ns < 0:
        return None
    spans = _Spans.of(begun_ns + np.concatenate([[0], np.cumsum(took_ns)]), took_ns, account)
    labels = phase_labels(facts)
    stacks = [number for number, label in enumerate(labels) if label not in (PROFKIT, IMPORTS)]
    same = _same_lines(account)
    ways = {number: _places(account, number, same) for number in stacks}
    trained = {at for number in stacks if labels[number] == STEPS for at in ways[number]}
    taught = {_function(account, at) for at in trained}
    early = _Early.of(facts)
    spans = structs.replace(spans, first=early.inside, first_steps=early.steps) if early is not None else spans
    add_up = _Sums(account, labels, ways, taught, spans, spans.by_stack(account))
    long = add_up.of({number: _beside(way, trained) for number, way in ways.items()})
    inner = add_up.of({number: way[-1:] for number, way in ways.items()})
    quarter = len(took_ns) // 4
    return TimedLines(
        long=tuple(sorted(long, key=lambda line: -line.excess_ns)),
        inner=tuple(sorted(inner, key=lambda line: -line.growth_ns)),
        every=tuple(add_up.of(ways)),
        phases=tuple(sorted(add_up.of_phases(), key=lambda phase: -phase.excess_ns)),
        excess_ns=float((took_ns[spans.long] - median(took_ns)).sum()),
        usual_ns=spans.usual_ns,
        first_ns=float(took_ns[:quarter].mean()) if early is None else early.step_ns,
        last_ns=float(took_ns[-quarter:].mean()),
        steps=len(took_ns),
        long_steps=int(spans.long.sum()),
        first_steps=spans.first_steps,
        knows_usual=not spans.long.any() or spans.usual_of(spans.inside) is not None,
        look_ns=_look_ns(account),
    )


def lines_in_run(facts: Facts, since: int = 0) -> TimedLines | None:
    """The same over all steps of the run whose ends were seen: of these no more is known than how long they took, a few
    together. So no step of them is long. If the steps got longer ``since`` a later span, only those from there on
    count, and all before are the first ones. None if too few are known."""
    account = facts.account
    took_ns = np.array([span.took_ns for span in account.steps], dtype=np.float64)
    count = np.array([span.steps for span in account.steps], dtype=np.int64)
    if len(account.columns) > MOST_COLUMNS or len(account.stacks) > _MOST_STACKS or account.column_ns <= 0:
        return None
    if not _LEAST_STEPS <= len(count) <= MOST_COLUMNS or (count <= 0).any():
        return None
    counts, before = np.arange(len(count)) >= since, np.cumsum(count) - count
    quarter = int(count[counts].sum()) // 4
    in_first, in_last = ~counts if since else before < quarter, before + count > count.sum() - quarter
    spans = _spans_in_run(account, (counts, in_first, in_last))
    labels, same = phase_labels(facts), _same_lines(account)
    ways = {
        number: _places(account, number, same) for number, label in enumerate(labels) if label not in (PROFKIT, IMPORTS)
    }
    add_up = _Sums(account, labels, ways, set(), spans, spans.by_stack(account))
    inner = add_up.of({number: way[-1:] for number, way in ways.items()})
    return TimedLines(
        long=(),
        inner=tuple(sorted(inner, key=lambda line: -line.growth_ns)),
        every=(),
        phases=(),
        excess_ns=0.0,
        usual_ns=spans.usual_ns,
        first_ns=float(took_ns[in_first].sum() / count[in_first].sum()),
        last_ns=float(took_ns[in_last].sum() / count[in_last].sum()),
        steps=int(count[counts].sum()),
        long_steps=0,
        first_steps=spans.first_steps,
        knows_usual=True,
        look_ns=_look_ns(account),
    )


def _spans_in_run(account: RunAccount, parts: tuple[Bools, Bools, Bools]) -> _Spans:
    """The columns with the account's steps that count, the first of them and the last."""
    counts, in_first, in_last = parts
    columns = account.column_ns, len(account.columns)
    shares = [_overlap(span.until_ns - span.took_ns, span.until_ns, *columns) for span in account.steps]
    inside, first, last = (
        np.sum([share for share, is_in in zip(shares, chosen, strict=True) if is_in], axis=0).clip(max=1)
        for chosen in parts
    )
    count = np.array([span.steps for span in account.steps])
    return _Spans(
        inside=inside,
        first=first,
        last=last,
        in_long=np.zeros(len(account.columns)),
        long=np.zeros(1, dtype=np.bool_),
        quarter=int(count[in_last].sum()),
        first_steps=int(count[in_first].sum()),
        usual_ns=float(sum(span.took_ns for span, is_in in zip(account.steps, counts, strict=True) if is_in)),
        column_ns=account.column_ns,
    )


def _look_ns(account: RunAccount) -> float:
    time_ns, looks = sum(stack.time_ns for stack in account.stacks), sum(stack.looks for stack in account.stacks)
    return max(time_ns / max(looks, 1), 1.0)


class LineBeside(Struct, frozen=True):
    """A line that the training does not run, its phase of the run, the line that calls it, and its time in the run."""

    site: CallSite
    caller: CallSite | None
    label: str
    time_ns: int


def line_beside_steps(facts: Facts, labels: Collection[str]) -> LineBeside | None:
    """The line that takes most of the run in these phases, whether steps were timed or not; None if there is none."""
    account, found = facts.account, phase_labels(facts)
    same = _same_lines(account)
    ways = {number: _places(account, number, same) for number in range(len(found))}
    trained = {at for number, way in ways.items() if found[number] == STEPS for at in way}
    times: Counter[tuple[int, str]] = Counter()
    way_of: dict[tuple[int, str], tuple[int, ...]] = {}
    for number, way in ways.items():
        if found[number] in labels and way:
            line = _beside(way, trained)[0], found[number]
            times[line] += account.stacks[number].time_ns
            way_of.setdefault(line, way)
    if not times:
        return None
    (at, label), time_ns = times.most_common(1)[0]
    before = way_of[at, label][: way_of[at, label].index(at)]
    return LineBeside(account.places[at].site, account.places[before[-1]].site if before else None, label, time_ns)


class PhaseLine(Struct, frozen=True):
    """The innermost line under which most of a phase of the run passes, its time there, and that of the phase."""

    site: CallSite
    time_ns: int
    phase_ns: int


def line_of_phase(facts: Facts, label: str) -> PhaseLine | None:
    """The line of a phase, of those that the training does not run; None if no line has half of it."""
    account, found = facts.account, phase_labels(facts)
    same = _same_lines(account)
    ways = [_places(account, number, same) for number in range(len(found))]
    trained = {at for way, one in zip(ways, found, strict=True) if one == STEPS for at in way}
    mine = [number for number in range(len(found)) if found[number] == label]
    times, depths = Counter[int](), Counter[int]()
    for number in mine:
        for depth, at in enumerate(ways[number]):
            times[at] += account.stacks[number].time_ns
            depths[at] = max(depths[at], depth)
    phase_ns = sum(account.stacks[number].time_ns for number in mine)
    most = [at for at, ns in times.items() if at not in trained and ns * 2 >= phase_ns]
    if not most:
        return None
    at = max(most, key=lambda at: (depths[at], times[at]))
    return PhaseLine(account.places[at].site, times[at], phase_ns)


def _places(account: RunAccount, number: int, same: list[int]) -> tuple[int, ...]:
    """The stack's lines, the caller first, each once. The file may come from anybody: it may name places that it
    lacks."""
    return tuple(dict.fromkeys(same[at] for at in account.stacks[number].places if 0 <= at < len(account.places)))


def _same_lines(account: RunAccount) -> list[int]:
    """For each place the one that stands for its line: a comprehension is a function of its own, on the same line."""
    first: dict[tuple[str, int], int] = {}
    by_name = sorted(range(len(account.places)), key=lambda at: len(account.places[at].site.function))
    for at in by_name:
        first.setdefault((account.places[at].site.file, account.places[at].site.line), at)
    return [first[place.site.file, place.site.line] for place in account.places]


def _function(account: RunAccount, at: int) -> tuple[str, str]:
    site = account.places[at].site
    return site.file, site.function


def _beside(way: tuple[int, ...], trained: set[int]) -> tuple[int, ...]:
    """The innermost of these lines that the training does not run, else the innermost one."""
    return next(((at,) for at in reversed(way) if at not in trained), way[-1:])


class _Spans(Struct, frozen=True):
    """The share of each column of the account that lies in the timed steps, in their long ones, and in their first and
    last quarter. ``usual_ns`` is the time of the timed steps if none were long, and
    ``quarter`` the number of steps in a quarter."""

    inside: Float64s
    first: Float64s
    last: Float64s
    in_long: Float64s
    long: Bools
    quarter: int
    first_steps: int
    usual_ns: float
    column_ns: int

    @classmethod
    def of(cls, edges: Float64s, took_ns: Float64s, account: RunAccount) -> _Spans:
        usual, quarter, columns = median(took_ns), len(took_ns) // 4, (account.column_ns, len(account.columns))
        long = took_ns >= LONG * usual
        in_long = np.zeros(len(account.columns))
        for at in np.flatnonzero(long).tolist():
            in_long += _overlap(edges[at], edges[at + 1], *columns)
        inside = _overlap(edges[0], edges[-1], *columns)
        return cls(
            inside=inside,
            first=_overlap(edges[0], edges[quarter], *columns),
            last=_overlap(edges[len(took_ns) - quarter], edges[-1], *columns),
            in_long=in_long,
            long=long,
            quarter=quarter,
            first_steps=quarter,
            usual_ns=float(np.where(long, usual, took_ns).sum()),
            column_ns=account.column_ns,
        )

    def usual_of(self, column_ns: Float64s) -> float | None:
        """What a line with these times takes in all timed steps at its pace in usual ones. That is seen in columns
        without a part of a long step, or else where columns have different parts. None if neither is so, or no step is
        long."""
        within = self.inside >= 1
        clean = within & (self.in_long <= 0)
        if not self.long.any() or within.sum() < _FEWEST_COLUMNS:
            return None
        if clean.sum() >= _FEWEST_COLUMNS:
            return float(column_ns[clean].mean()) / self.column_ns * self.usual_ns
        long = self.in_long[within]
        if float(np.std(long)) < _LEAST_SPREAD:
            return None
        pace, *_ = np.linalg.lstsq(np.stack([1 - long, long], axis=1), column_ns[within], rcond=None)
        return max(0.0, float(pace[0])) / self.column_ns * self.usual_ns

    def by_stack(self, account: RunAccount) -> Float64s:
        """The time of each stack in each column."""
        times = np.zeros((len(account.stacks), len(account.columns)))
        for at, column in enumerate(account.columns):
            for stack, ns in column:
                if 0 <= stack < len(times):
                    times[stack, at] = ns
        return times


def _overlap(from_ns: float, until_ns: float, column_ns: int, columns: int) -> Float64s:
    """The share of each column that lies between these times."""
    start = np.arange(columns, dtype=np.float64) * column_ns
    shared: Float64s = (np.minimum(until_ns, start + column_ns) - np.maximum(from_ns, start)).clip(min=0) / column_ns
    return shared


class _Early(Struct, frozen=True):
    """The steps before an earlier recording was replaced, as they had got longer: the share of each column that lies in
    them, how many they are, and how long they took on average."""

    inside: Float64s
    steps: int
    step_ns: float

    @classmethod
    def of(cls, facts: Facts) -> _Early | None:
        account, took_ns = facts.account, facts.run.earlier_step_ns
        until_ns = facts.run.earlier_until_ns - account.begun_ns
        if len(took_ns) < _LEAST_STEPS or until_ns < sum(took_ns):
            return None
        inside = _overlap(until_ns - sum(took_ns), until_ns, account.column_ns, len(account.columns))
        return cls(inside, len(took_ns), sum(took_ns) / len(took_ns))


class _Sums(Struct, frozen=True):
    """Adds the times of stacks up by line. ``times`` are those of each stack in each column, ``trained`` the functions
    on the ways to the training."""

    account: RunAccount
    labels: list[str]
    ways: dict[int, tuple[int, ...]]
    trained: set[tuple[str, str]]
    spans: _Spans
    times: Float64s

    def of(self, told_at: dict[int, tuple[int, ...]]) -> list[TimedLine]:
        """A line for each place at which a stack is told; ``told_at`` are those of each stack."""
        stacks_of: defaultdict[int, list[int]] = defaultdict(list)
        for number, places in told_at.items():
            for at in set(places):
                stacks_of[at].append(number)
        return [self._line(at, numbers) for at, numbers in stacks_of.items()]

    def of_phases(self) -> Iterator[TimedPhase]:
        """Each but the steps' own, with the line of the stack that has most of it there."""
        for label in sorted({self.labels[number] for number in self.ways} - {STEPS}):
            numbers = [number for number in self.ways if self.labels[number] == label]
            way = self.ways[numbers[int((self.times[numbers] @ self.spans.inside).argmax())]]
            site = self.account.places[way[-1]].site if way else None
            yield TimedPhase(label, site, *self._beyond_usual(self.times[numbers].sum(axis=0)))

    def _beyond_usual(self, column: Float64s) -> tuple[float, float]:
        """The time in the timed steps, and what of it is beyond that in usual ones."""
        timed_ns, usual_ns = float(column @ self.spans.inside), self.spans.usual_of(column)
        return timed_ns, 0.0 if usual_ns is None else max(0.0, timed_ns - usual_ns)

    def _line(self, at: int, numbers: list[int]) -> TimedLine:
        spans, column = self.spans, self.times[numbers].sum(axis=0)
        timed_ns, excess_ns = self._beyond_usual(column)
        known = Counter[str]()
        for number in numbers:
            known[self.labels[number]] += self.account.stacks[number].time_ns
        in_backward = (number for number in numbers if self.account.stacks[number].activity == _BACKWARD)
        backward_ns = sum(self.account.stacks[number].time_ns for number in in_backward)
        whole_ns = sum(self.account.stacks[number].time_ns for number in numbers)
        way = self.ways[max(numbers, key=lambda number: self.account.stacks[number].time_ns)]
        before = way[: way.index(at)] if at in way else ()
        return TimedLine(
            site=self.account.places[at].site,
            callers=tuple(self.account.places[number].site for number in reversed(before)),
            label=known.most_common(1)[0][0],
            is_backward=backward_ns > _MOSTLY * whole_ns,
            is_apart=_function(self.account, at) not in self.trained,
            timed_ns=timed_ns,
            excess_ns=excess_ns,
            run_ns=int(whole_ns * excess_ns / timed_ns) if timed_ns else 0,
            first_ns=float(column @ spans.first) / spans.first_steps,
            last_ns=float(column @ spans.last) / spans.quarter,
        )
