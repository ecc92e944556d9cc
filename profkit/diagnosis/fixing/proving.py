"""Which changes hold: the program before and after each runs by turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, geometric_mean, median, stdev

from profkit.core.errors import ProfkitError
from profkit.core.units import format_share
from profkit.diagnosis.fixing.comparison import Comparison
from profkit.diagnosis.fixing.patches import line_after
from profkit.diagnosis.fixing.results import compare_results, have_same_bits
from profkit.diagnosis.fixing.slices import can_take_slices, run_by_slices
from profkit.diagnosis.fixing.turns import Run, Stage, TooLong
from profkit.diagnosis.settings import UNCHOSEN
from profkit.diagnosis.verify import Share
from profkit.findings.values import Diagnosis, Finding, Kind, Severity
from profkit.rules.changes import AlreadyMade, AltersNumbers, Refused, changed_file, has_change

LEAST_PAIRS = 3
"""With two, Student's interval is thirteen times as wide as their difference."""
MOST_PAIRS = 10
"""From here on an interval narrows by a twentieth with each further pair."""
NARROW = 0.02
"""An interval as narrow as this ends the turns: a point to either side decides nothing any more."""
_HOPELESS_PAIRS = 6
"""After so many pairs a change that seems to win nothing is given up, and one that wins too little at best."""
_WORTHWHILE = 0.05
"""Of the time, at best: with less to be won, and noise, no more pairs are run. If at least as much is won even at
worst, or memory with less than that lost, none are needed either."""
_TOLD = 0.03
"""Of the time: what is priced below it, runs hardly tell from noise. A finding may be of little weight for other
reasons."""
_LEAST_MEMORY = 0.02
"""Of the peak, in the middle of all pairs: less is of no use to anybody."""
_GROWN = 2
"""Between the first look at the backward nodes that are alive and the last, at least twice as many steps later. What
does not grow with the steps stays where it is."""
_LEAST_SLICED = 2
"""Pairs by slices of time: two have an interval, and their noise is a tenth of that of others."""
_LOOKS = frozenset((3, 4, 6, 8, 10))
"""Numbers of pairs after which it is asked whether they are enough."""
_STUDENT = (0.0, 31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764)
"""Quantiles of Student's distribution for 98 %, by degrees of freedom. Who looks five times, and stops at the first
that tells something, is wrong more often than at a single look. With real noise (of three programs, signs turned and
drawn again) 3 to 5 % of changes that win nothing seemed to; 7 to 10 % with quantiles of 95 % and eight looks."""
_OF_THREADS = frozenset(("thread-oversubscription",))
"""Rules whose change is to the number of threads: it shows in no program that has one."""
_LAST_WORDS = 200
"""Characters of an error that are quoted."""

HELD = "held"
ALTERED = "faster with other results"
"""Only with ``--unsafe``, of a change that was expected to alter numbers."""
REFUSED = "refused"
CHANGED = "changed the result"
UNKNOWN = "not comparable"
UNDECIDED = "not enough time to tell"
"""Too few runs, or too noisy ones: the change may win much."""
NO_GAIN = "no gain shown"
FAILED = "failed"
_LITTLE_ALTERED = "its numbers are others, but within the tolerances of the comparison"
"""What is said of a change of numerics in place of "the same", which is said of changes that only compute otherwise."""
LINE_ALTERED = "a change that held has altered this line; run profkit again after it"
"""Why a change is refused that the next recording may offer again."""
DONE_TOO = "a change that held does this, too"
"""Why the change of a second finding at the same place is refused."""
TRIED = "its change was tried above, for another finding"
"""Why a change is not tried twice on the same files."""


_Files = tuple[Mapping[Path, bytes], Mapping[Path, bytes]]
"""Of two versions, in the order in which they begin."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Seconds before and after, of a step or of the whole run, the share that is won with its interval, and the peak
    memory in bytes. ``nodes_before`` and ``nodes_after`` are the backward nodes that are alive in the end."""

    before_s: float
    after_s: float
    share: Share
    pairs: int
    of_step: bool
    peak_before: float = 0.0
    peak_after: float = 0.0
    frees_memory: bool = False
    nodes_before: int = 0
    nodes_after: int = 0
    frees_graphs: bool = False
    waited: float = 0.0
    """Of all runs, how much was waiting for processors that others kept busy. It is left out of the seconds."""
    one_thread: bool = False
    """PyTorch computed in one thread, so that such waits can be told."""

    @property
    def is_faster(self) -> bool:
        return self.share.low > 0

    @property
    def is_slower(self) -> bool:
        return self.share.high < 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one finding's change: a verdict from above, and its reason where it did not hold, or what it
    altered."""

    finding: Finding
    verdict: str
    reason: str = ""
    gain: Gain | None = None
    comparison: Comparison | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the change stays: it held, or it won and may alter results."""
        return self.verdict in (HELD, ALTERED)


@dataclass(frozen=True, slots=True)
class Fixes:
    """All trials, the files before and after what held, and, if several held, what they win together. ``skipped`` are
    the rules with a change that could not look, with the reason."""

    root: Path
    trials: tuple[Trial, ...]
    before: Mapping[Path, bytes]
    after: Mapping[Path, bytes]
    together: Gain | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def held(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.is_kept)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long all runs of one change may take, and whether changes that alter numerics are tried, and those of
    findings that are too small to matter, or to be told from noise."""

    most_s: float
    unsafe: bool = False
    small: bool = True


def prove_fixes(
    stage: Stage, diagnosis: Diagnosis, limits: Limits, tell: Callable[[str], None], so_far: Fixes | None = None
) -> Fixes:
    """Try each finding's change on top of those that held. The diagnosis is of the program with what ``so_far`` says
    held; its trials come first in the result. Raises `ProfkitError` if the program itself fails."""
    prover = _Prover(stage, limits, tell)
    known = so_far or Fixes(stage.tree.root, (), {}, {})
    trials, before, after = [*known.trials], dict(known.before), dict(known.after)
    in_vain = set[tuple[Path, bytes]]()
    findings = sorted(diagnosis.findings, key=_alters) if limits.unsafe else diagnosis.findings
    for number, finding in enumerate(findings, 1):
        what = f"{finding.rule}, finding {number} of {len(diagnosis.findings)}"
        tell(what)
        try:
            if not limits.small and has_change(finding.rule):
                _refuse_small(finding)
            name, raw, changed, may_alter = _change(stage, finding, known.after, after, limits.unsafe)
        except Refused as reason:
            trials.append(Trial(finding, REFUSED, str(reason)))
            continue
        if (name, changed) in in_vain:
            trials.append(Trial(finding, REFUSED, TRIED))
            continue
        trials.append(prover.try_change(finding, after, {**after, name: changed}, name, may_alter, what))
        if trials[-1].is_kept:
            before.setdefault(name, raw)
            after, in_vain = {**after, name: changed}, set()
        else:
            in_vain.add((name, changed))
    together = known.together
    if len(trials) > len(known.trials) and sum(trial.is_kept for trial in trials) > 1:
        together = prover.measure_all(after, {trial.finding.rule for trial in trials if trial.is_kept})
    skipped = {rule: reason for rule, reason in diagnosis.skipped.items() if has_change(rule) and reason != UNCHOSEN}
    return Fixes(stage.tree.root, tuple(trials), before, after, together, skipped)


def _alters(finding: Finding) -> bool:
    """Whether a change is of numerics: it comes last, so that all others are compared with the numbers as they were."""
    return finding.kind is Kind.OPPORTUNITY


def _refuse_small(finding: Finding) -> None:
    """Raise `Refused` for what matters too little, or saves so little time, and nothing else, that runs by turns do not
    tell it from noise: a trial would take minutes and end without a verdict."""
    saving = finding.saving
    if finding.severity is Severity.INFO:
        raise Refused(f"it is too small to matter here; --select {finding.rule} tries it")
    if finding.severity is Severity.LOW and saving is not None and 0 < saving.fraction < _TOLD and not saving.bytes:
        won = format_share(saving.fraction)
        raise Refused(
            f"it saves {won} of the time, which runs do not tell from noise; --select {finding.rule} tries it"
        )


def _change(
    stage: Stage, finding: Finding, recorded: Mapping[Path, bytes], so_far: Mapping[Path, bytes], unsafe: bool
) -> tuple[Path, bytes, bytes, bool]:
    """The finding's file, its text as it is, the text with the change on top of those that held, and whether the change
    may alter numbers. ``recorded`` are the changed files of the program that the finding is about."""
    location = finding.location
    if location is None:
        raise Refused("no single line of the program is at fault")
    name = stage.tree.within(location.file)
    if name is None or not (stage.tree.root / name).is_file():
        raise Refused(f"{location.short} is not part of the program, and a patch to a library is nobody's fix")
    raw = (stage.tree.root / name).read_bytes()
    current = so_far.get(name, raw)
    seen = recorded.get(name, raw)
    line = line_after(seen, current, location.line)
    if line is None:
        raise Refused(DONE_TOO if _makes(seen, finding, current) else LINE_ALTERED)
    may_alter = finding.kind is Kind.OPPORTUNITY
    try:
        changed = changed_file(current, replace(finding, location=replace(location, line=line)))
    except AlreadyMade as reason:
        raise Refused(str(reason) if current == raw else DONE_TOO) from None
    except AltersNumbers as change:
        if not unsafe:
            raise
        changed, may_alter = change.after, True
    if may_alter and not unsafe:
        raise Refused("it may alter the numbers that the program computes; --unsafe tries it")
    return name, raw, changed, may_alter


def _makes(before: bytes, finding: Finding, after: bytes) -> bool:
    """Whether the finding's change alone makes that of a file."""
    with suppress(Refused):
        return changed_file(before, finding) == after
    return False


class _Prover:
    """Runs two versions of the program by turns."""

    def __init__(self, stage: Stage, limits: Limits, tell: Callable[[str], None]) -> None:
        self._stage, self._limits, self._tell = stage, limits, tell

    def try_change(  # two versions, and what is said of them
        self,
        finding: Finding,
        before: Mapping[Path, bytes],
        after: Mapping[Path, bytes],
        name: Path,
        may_alter: bool,
        what: str,
    ) -> Trial:
        """Whether the change holds, or if it ``may_alter`` results, what it wins and what it alters."""
        runs: tuple[list[Run], list[Run]] = ([], [])
        try:
            for pair in self._pairs(before, after, what, {finding.rule}):
                for side, run in zip(runs, pair, strict=True):
                    side.append(run)
                if reason := self._failure(*pair, name):
                    return Trial(finding, FAILED, reason)
                comparison = compare_results(*runs)
                if len(runs[0]) > 1 and not comparison.is_same and not may_alter:
                    break
                if _is_enough(runs):
                    break
        except TooLong as reason:
            return Trial(finding, UNDECIDED, f"{reason}; --most-seconds gives more, or give the program less to do")
        return _judge(finding, runs, compare_results(*runs), may_alter)

    def measure_all(self, after: Mapping[Path, bytes], rules: Set[str]) -> Gain | None:
        """What all changes that held win together; they are of these rules."""
        runs: tuple[list[Run], list[Run]] = ([], [])
        try:
            for pair in self._pairs({}, after, "all that held, together", rules):
                for side, run in zip(runs, pair, strict=True):
                    side.append(run)
                if _is_enough(runs):
                    break
        except TooLong:
            return None
        return gain_of(*runs)

    def _pairs(
        self, before: Mapping[Path, bytes], after: Mapping[Path, bytes], what: str, rules: Set[str]
    ) -> Iterator[tuple[Run, Run]]:
        """Runs of both, which take turns at being first, until the time is up. While others keep the processors busy,
        PyTorch gets one thread, if that shows how long a run waited for them. The first pair tells whether the next
        can be run by slices of time."""
        end, turns = time.monotonic() + self._limits.most_s, _Turns(self._stage, before, after)
        for number in range(MOST_PAIRS):
            begun = time.monotonic()
            still = f"at least {LEAST_PAIRS}, at most" if number < LEAST_PAIRS else "at most"
            self._tell(f"{what}: runs before and after by turns, pair {number + 1} ({still} {MOST_PAIRS})")
            try:
                pair = turns.run(number % 2 == 1, end, not rules & _OF_THREADS)
            except TooLong:
                if number < LEAST_PAIRS:
                    raise
                return  # what was run before is enough to judge by
            yield pair
            left_s, lasted_s = end - time.monotonic(), time.monotonic() - begun
            if left_s < lasted_s:
                if number + 1 < LEAST_PAIRS:
                    raise TooLong(f"{LEAST_PAIRS} pairs of runs do not fit into {self._limits.most_s:.0f} s")
                return

    def _failure(self, before: Run, after: Run, name: Path) -> str:
        """Why the changed program is not to be judged. Raises `ProgramFailed` if the other one fails too."""
        if before.status:
            raise ProgramFailed(before)
        if after.status:
            return f"the changed program ends with status {after.status}: {last_words(after.errors)}"
        copied = str((self._stage.copy / name).resolve())
        if after.seen.files and copied not in after.seen.files:
            return f"the program loads {name.name} from elsewhere, such as an installed copy: the change had no effect"
        return ""


class ProgramFailed(ProfkitError):
    """The program fails without any change."""

    def __init__(self, run: Run) -> None:
        said = last_words(run.errors)
        hint = "; it reads standard input, which --stdin FILE gives it" if said.startswith("EOFError") else ""
        super().__init__(f"the program itself ends with status {run.status}: {said}{hint}")
        self.errors = run.errors


class _Turns:
    """How two versions take turns: one after the other, or, if the first pair allows it, by slices of time."""

    def __init__(self, stage: Stage, before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> None:
        self._stage, self._files = stage, (before, after)
        self._first: tuple[Run, Run] | None = None
        self._by_slices = False

    def run(self, is_turned: bool, end: float, may_take_one_thread: bool) -> tuple[Run, Run]:
        """A run of each; if ``is_turned``, the changed one begins."""
        if self._first is None:
            self._first = self._run_first(end, may_take_one_thread)
            self._by_slices = can_take_slices(self._first)
            return self._first
        if self._by_slices:
            pair = self._in_order(is_turned, lambda files: self._by_turns(files, end))
            if all(_is_alike(*runs) for runs in zip(self._first, pair, strict=True)):
                return pair
            self._by_slices = False  # they got in each other's way
        return self._one_after_the_other(is_turned, end)

    def _run_first(self, end: float, may_take_one_thread: bool) -> tuple[Run, Run]:
        pair = self._one_after_the_other(False, end)
        if may_take_one_thread and any(run.is_crowded for run in pair):
            wide, self._stage = self._stage, replace(self._stage, one_thread=True)
            again = self._one_after_the_other(False, end)
            if all(run.is_alone for run in again):
                return again
            self._stage = wide
        return pair

    def _one_after_the_other(self, is_turned: bool, end: float) -> tuple[Run, Run]:
        def run_each(files: _Files) -> tuple[Run, Run]:
            first, second = (self._stage.run(one, _left_s(end)) for one in files)
            return first, second

        return self._in_order(is_turned, run_each)

    def _by_turns(self, files: _Files, end: float) -> tuple[Run, Run]:
        first, second = run_by_slices([(self._stage, one) for one in files], _left_s(end))
        return first, second

    def _in_order(self, is_turned: bool, run: Callable[[_Files], tuple[Run, Run]]) -> tuple[Run, Run]:
        before, after = self._files
        if not is_turned:
            return run((before, after))
        last, first = run((after, before))
        return first, last


def _left_s(end: float) -> float:
    return max(1.0, end - time.monotonic())


def _is_alike(alone: Run, beside: Run) -> bool:
    """Whether a run beside another one did what it did alone: both may have written the same file, or wanted the same
    port."""
    return alone.status == beside.status and compare_results([alone], [beside]).is_same


def last_words(errors: str) -> str:
    """The last line of standard error."""
    return next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "it said nothing")[
        :_LAST_WORDS
    ]


def _is_enough(runs: tuple[list[Run], list[Run]]) -> bool:
    if len(runs[0]) not in _LOOKS:
        return False
    gain = gain_of(*runs)
    share, frees = gain.share, gain.frees_memory or gain.frees_graphs
    is_decided = share.low > 0 or share.high < 0
    is_clear = share.low > (-_WORTHWHILE if frees else _WORTHWHILE)
    is_hopeless = share.fraction <= 0 or share.high < _WORTHWHILE
    return (
        is_clear
        or share.high - share.low <= NARROW
        or (is_decided and len(runs[0]) > LEAST_PAIRS)
        or (is_hopeless and len(runs[0]) >= _HOPELESS_PAIRS)
    )


def _judge(finding: Finding, runs: tuple[list[Run], list[Run]], comparison: Comparison, may_alter: bool) -> Trial:
    if comparison.differs and not may_alter:
        return Trial(finding, CHANGED, comparison.differs, comparison=comparison)
    if comparison.unknown:
        return Trial(finding, UNKNOWN, comparison.unknown, comparison=comparison)
    gain = gain_of(*runs)
    frees = gain.frees_memory or gain.frees_graphs
    if gain.is_faster or (frees and not gain.is_slower):
        altered = comparison.differs or (_LITTLE_ALTERED if may_alter and not have_same_bits(*runs) else "")
        return Trial(finding, ALTERED if altered else HELD, altered, gain, comparison)
    is_open = not gain.is_slower and gain.share.high >= _WORTHWHILE
    reason = "it is slower" if gain.is_slower else _noise(gain)
    return Trial(finding, UNDECIDED if is_open else NO_GAIN, reason, gain, comparison)


def _noise(gain: Gain) -> str:
    """What the interval leaves open: a program that is too short, or a busy machine, may hide much."""
    if gain.share.high < _WORTHWHILE:
        return "the difference lies inside the noise"
    most = format_share(gain.share.high)
    tells = "more steps" if gain.pairs >= _HOPELESS_PAIRS else "more steps, or more pairs by --most-seconds,"
    return f"the difference lies inside the noise, which could hide a gain of up to {most}; {tells} would tell"


def gain_of(before: Sequence[Run], after: Sequence[Run]) -> Gain:
    """What pairs of runs show: by their steps if these are most of the program's time, else by the whole run. Once two
    pairs took turns by slices, others are no measure of time."""
    peaks = [[run.seen.device_peak_bytes or run.seen.peak_bytes for run in runs] for runs in (before, after)]
    looks = [[run.seen.graph_nodes for run in runs] for runs in (before, after)]
    sliced = [pair for pair in zip(before, after, strict=True) if all(run.by_slices for run in pair)]
    if len(sliced) >= _LEAST_SLICED:
        before, after = zip(*sliced, strict=True)
    of_step = all(run.is_row_of_steps for run in before) and all(run.step_s() for run in after)
    alone = all(run.is_alone and _seconds(run, of_step, True) > 0 for run in (*before, *after))
    old, new = ([_seconds(run, of_step, alone) for run in runs] for runs in (before, after))
    share = _interval([math.log(max(b, 1e-9) / max(a, 1e-9)) for a, b in zip(old, new, strict=True)])
    frees = min(map(min, peaks)) > 0 and _is_lower(*peaks)
    means = [geometric_mean(side) if min(side) > 0 else 0.0 for side in (old, new)]  # their ratio is the share's
    waited = sum(run.seen.crowded_ns for run in (*before, *after)) if alone else 0
    total = sum(run.seen.run_ns for run in (*before, *after))
    gain = Gain(means[0], means[1], share, len(old), of_step, median(peaks[0]), median(peaks[1]), frees)
    one_thread = all(run.one_thread for run in (*before, *after))
    gain = replace(gain, waited=waited / total if total else 0.0, one_thread=one_thread)
    return _with_graphs(gain, *looks)


def _is_lower(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether peaks are lower by enough in the middle, and beyond doubt at all, as it is asked of seconds."""
    share = _interval([math.log(a / b) for b, a in zip(before, after, strict=True)])
    return share.fraction > _LEAST_MEMORY and share.low > 0


def _seconds(run: Run, of_step: bool, without_waits: bool) -> float:
    return (run.step_s(without_waits) if of_step else None) or run.run_s(without_waits)


def _with_graphs(gain: Gain, before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]) -> Gain:
    """With the backward nodes, if they were looked at twice in each run: the change frees them if they grow with the
    steps before it, and no longer after it."""
    if any(len(looks) < 2 for looks in (*before, *after)):
        return gain
    grew = all(looks[-1] >= _GROWN * max(looks[0], 1) for looks in before)
    grow = any(looks[-1] >= _GROWN * max(looks[0], 1) for looks in after)
    least, most = min(looks[-1] for looks in before), max(looks[-1] for looks in after)
    frees = grew and not grow and _GROWN * most <= least
    return replace(gain, nodes_before=least, nodes_after=most, frees_graphs=frees)


def _interval(logs: Sequence[float]) -> Share:
    """The share that is won, from the logarithms of after over before."""
    middle, number = fmean(logs), len(logs)
    half = _STUDENT[min(number - 1, len(_STUDENT) - 1)] * stdev(logs) / math.sqrt(number) if number > 1 else math.inf
    low, high = (1 - math.exp(min(middle + sign * half, 5.0)) for sign in (1, -1))
    return Share(1 - math.exp(middle), low, high)
