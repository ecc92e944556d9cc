"""Which changes hold, judged on runs that are written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import profkit.rules.changes as room
from profkit.diagnosis.fixing import proving
from profkit.diagnosis.fixing.proving import (
    ALTERED,
    CHANGED,
    DONE_TOO,
    FAILED,
    HELD,
    NO_GAIN,
    REFUSED,
    TRIED,
    UNDECIDED,
    UNKNOWN,
    Gain,
    Limits,
    ProgramFailed,
    Trial,
    _Prover,
    gain_of,
    prove_fixes,
)
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Run, Seen, Stage, TooLong
from profkit.diagnosis.verify import Share
from profkit.findings.values import Diagnosis, Finding, Kind, Location, RunSummary, Saving, Severity, Timing

BEFORE, AFTER = b"losses.append(loss)\n", b"losses.append(loss.detach())\n"


def run(
    run_s: float, output: str = "loss 0.5", status: int = 0, steps: int = 0, peak: int = 0, end: float = 1.0
) -> Run:
    ends = tuple(int(run_s * 1e9 * number / steps) for number in range(1, steps + 1))
    seen = Seen(run_ns=int(run_s * 1e9), step_ns=ends, peak_bytes=peak)
    return Run(
        status, output, "Traceback\nValueError: bad\n", seen, {}, {"end.0.0": np.array([end]), "start.0.0": np.zeros(1)}
    )


class HandWritten(Stage):
    """A stage whose runs are given: the first for the files as they are, the second for changed ones."""

    def run(self, changed: Mapping[Path, bytes], timeout_s: float) -> Run:
        before, after = RUNS[self.folder.name]
        chosen = after if changed else before
        return chosen.pop(0) if isinstance(chosen, list) else chosen


RUNS: dict[str, tuple] = {}


def finding(rule: str = "retained-graph", file: str = "train.py", line: int = 1, kind: Kind = Kind.FAULT) -> Finding:
    return Finding(rule, kind, Severity.HIGH, "", 1, 0.9, "", Location(file, line, "main"))


def prove(
    tmp_path: Path, before, after, *findings: Finding, unsafe: bool = False, small: bool = True, text: bytes = BEFORE
):
    (tmp_path / "train.py").write_bytes(text)
    RUNS["runs"] = before, after
    stage = HandWritten(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
    at_home = [
        Finding(
            one.rule,
            one.kind,
            one.severity,
            "",
            1,
            0.9,
            one.fix,
            one.location and Location(str(tmp_path / one.location.file), one.location.line, "main"),
            saving=one.saving,
        )
        for one in findings or (finding(),)
    ]
    diagnosis = Diagnosis(RunSummary((), None, None, None, None), Timing(0, 0, "optimizer"), tuple(at_home), {}, ())
    return prove_fixes(stage, diagnosis, Limits(1000.0, unsafe, small), lambda _: None)


def test_a_faster_program_with_the_same_results_holds(tmp_path):
    found = prove(tmp_path, run(2.0), run(1.0))
    (trial,) = found.trials
    assert (trial.verdict, trial.reason) == (HELD, "")
    assert (trial.gain.before_s, trial.gain.after_s, trial.gain.pairs) == pytest.approx((2.0, 1.0, 3))
    assert (trial.gain.share.low, trial.gain.share.high) == pytest.approx((0.5, 0.5))
    assert (found.before, found.after) == ({Path("train.py"): BEFORE}, {Path("train.py"): AFTER})


@pytest.mark.parametrize(
    ("after", "verdict", "reason"),
    [
        (run(1.0, "loss 0.6"), CHANGED, "standard output says 0.6 instead of 0.5"),
        (run(1.0, end=1.1), CHANGED, "the trained parameters differ by 10 % of how far training moved them"),
        (run(1.0, status=1), FAILED, "the changed program ends with status 1: ValueError: bad"),
        (run(2.0), NO_GAIN, "the difference lies inside the noise"),
        (run(3.0), NO_GAIN, "it is slower"),
    ],
)
def test_any_other_does_not(tmp_path, after, verdict, reason):
    found = prove(tmp_path, run(2.0), after)
    assert [(trial.verdict, trial.reason) for trial in found.trials] == [(verdict, reason)]
    assert found.after == {}


def test_the_same_change_is_not_tried_twice(tmp_path):
    """Two findings may name one line, and one change be that of both."""
    found = prove(tmp_path, run(2.0), run(3.0), finding(), finding())
    assert [(one.verdict, one.reason) for one in found.trials] == [(NO_GAIN, "it is slower"), (REFUSED, TRIED)]


def test_a_change_that_another_has_made_is_told_so(tmp_path):
    sparse = replace(finding("dense-embedding-gradient", line=2), fix="`nn.Embedding(…)`, and SGD updates these")
    text = b"table = nn.Embedding(n, 2)\nx = table(i)\n"
    (tmp_path / "train.py").write_bytes(text)
    found = prove(tmp_path, run(2.0), run(1.0), sparse, sparse, text=text)
    assert [(one.verdict, one.reason) for one in found.trials] == [(HELD, ""), (REFUSED, DONE_TOO)]
    assert found.after == {Path("train.py"): text.replace(b", 2)", b", 2, sparse=True)")}


def test_a_lower_peak_holds_unless_it_costs_time(tmp_path):
    assert prove(tmp_path, run(2.0, peak=1000), run(2.0, peak=970)).trials[0].verdict == HELD
    assert prove(tmp_path, run(2.0, peak=1000), run(2.0, peak=990)).trials[0].verdict == NO_GAIN
    assert prove(tmp_path, run(2.0, peak=1000), run(3.0, peak=500)).trials[0].verdict == NO_GAIN


@pytest.mark.parametrize(
    ("after", "verdict", "pairs"),
    [
        ((335, 339, 328, 327, 341, 337), HELD, 6),
        ((341, 346, 352, 349, 320, 300), NO_GAIN, 6),
        ((338, 343, 349) * 2, NO_GAIN, 6),
    ],
)
def test_a_peak_is_lower_beyond_doubt_or_not_at_all(tmp_path, after, verdict, pairs):
    before = [run(2.0, peak=peak) for peak in (341, 346, 352, 349, 354, 352)]
    found = prove(tmp_path, before, [run(seconds, peak=peak) for seconds, peak in zip(UNEVEN, after, strict=True)])
    assert (found.trials[0].verdict, found.trials[0].gain.pairs) == (verdict, pairs)


UNEVEN = (1.95, 2.05, 1.96, 2.06, 1.94, 2.07)
"""Seconds with noise, and nothing won."""


def test_a_program_that_computes_something_else_each_time_is_not_comparable(tmp_path):
    before = [run(2.0, end=end) for end in (1.0, 2.0, 3.0)]
    found = prove(tmp_path, before, run(1.0))
    assert found.trials[0].verdict == UNKNOWN
    assert found.trials[0].reason.startswith("the trained parameters differ from run to run")


NOISY = (2.1, 2.2, 2.9, 2.0, 3.0, 2.5)


def test_noise_is_no_gain(tmp_path):
    before = [run(seconds) for seconds in NOISY]
    found = prove(tmp_path, before, [run(seconds) for seconds in (2.0, 3.0, 2.2, 2.9, 2.1, 3.1)])
    assert (found.trials[0].verdict, found.trials[0].gain.pairs) == (UNDECIDED, 6)


def test_a_gain_that_noise_hides_after_six_pairs_gets_more(tmp_path):
    before = [run(seconds) for seconds in (2.2, 3.2, 2.4, 3.0, 2.3, 3.1, 3.0, 3.0, 3.0, 3.0)]
    found = prove(tmp_path, before, [run(seconds) for seconds in (*NOISY, 1.5, 1.5, 1.5, 1.5)])
    assert (found.trials[0].verdict, found.trials[0].gain.pairs) == (HELD, 10)


def test_what_is_beyond_doubt_after_three_pairs_gets_no_more(tmp_path):
    after = [run(seconds) for seconds in (1.0, 1.1, 1.0, 1.0)]
    found = prove(tmp_path, run(2.0), after)
    assert (found.trials[0].verdict, found.trials[0].gain.pairs) == (HELD, 3)
    little = [run(seconds) for seconds in (1.9, 1.94, 1.9, 1.92)]  # a sure gain, but perhaps of less than 5 %
    assert prove(tmp_path, run(2.0), little).trials[0].gain.pairs == 4


def test_freed_memory_needs_no_more_pairs_once_no_loss_of_time_is_likely(tmp_path):
    def freed(*seconds: float) -> int:
        after = [run(one, peak=500) for one in seconds]
        return prove(tmp_path, run(2.0, peak=1000), after).trials[0].gain.pairs

    assert freed(1.99, 2.0, 2.02, 2.0) == 3
    assert freed(1.9, 2.1, 2.0, *[2.0] * 7) > 3


def test_a_failing_program_ends_it(tmp_path):
    with pytest.raises(ProgramFailed, match="the program itself ends with status 1: ValueError: bad"):
        prove(tmp_path, run(2.0, status=1), run(1.0))
    asks = replace(run(2.0, status=1), errors="Traceback\nEOFError: EOF when reading a line\n")
    with pytest.raises(ProgramFailed, match="a line; it reads standard input, which --stdin FILE gives it"):
        prove(tmp_path, asks, run(1.0))


def test_runs_that_take_too_long_are_told(tmp_path):
    class Endless(HandWritten):
        def run(self, changed, timeout_s):
            raise TooLong("a run did not end within 5 s")

    (tmp_path / "train.py").write_bytes(BEFORE)
    stage = Endless(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
    one = Finding(
        "retained-graph", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", Location(str(tmp_path / "train.py"), 1, "f")
    )
    diagnosis = Diagnosis(RunSummary((), None, None, None, None), Timing(0, 0, "optimizer"), (one,), {}, ())
    (trial,) = prove_fixes(stage, diagnosis, Limits(5.0), lambda _: None).trials
    assert trial.verdict == UNDECIDED
    assert trial.reason.startswith("a run did not end within 5 s; --most-seconds gives more")


def test_a_run_that_takes_too_long_leaves_what_was_seen_before(tmp_path):
    class Slower(HandWritten):
        def run(self, changed, timeout_s):
            if not changed and not RUNS["runs"][0]:
                raise TooLong("a run did not end within 5 s")
            return super().run(changed, timeout_s)

    (tmp_path / "train.py").write_bytes(BEFORE)
    stage = Slower(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
    place = Location(str(tmp_path / "train.py"), 1, "f")
    one = Finding("retained-graph", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", place)
    diagnosis = Diagnosis(RunSummary((), None, None, None, None), Timing(0, 0, "optimizer"), (one,), {}, ())
    for seconds, verdict in (((2.0, 2.5, 3.0), HELD), ((2.0, 2.5), UNDECIDED)):
        RUNS["runs"] = [run(one) for one in seconds], [run(one) for one in (1.0, 1.4, 1.6, 1.0)]
        (trial,) = prove_fixes(stage, diagnosis, Limits(1000.0), lambda _: None).trials
        assert trial.verdict == verdict


def crowded(run_s: float, waited_s: float, elsewhere_s: float = 0.0, steps: int = 0) -> Run:
    one = run(run_s + waited_s, steps=steps)
    waits = tuple(int(waited_s * 1e9 * number / steps) for number in range(1, steps + 1))
    seen = Seen(
        run_ns=one.seen.run_ns,
        crowded_ns=int(waited_s * 1e9),
        step_ns=one.seen.step_ns,
        step_crowded_ns=waits,
        computes_elsewhere_s=elsewhere_s,
    )
    return replace(one, seen=seen)


WAITS = (0.0, 2.0, 0.5, 3.0)


@pytest.mark.parametrize("steps", [0, 20])
def test_waits_for_processors_that_others_use_are_left_out(tmp_path, steps):
    before = [crowded(2.0, wait, steps=steps) for wait in WAITS]
    found = prove(tmp_path, before, [crowded(1.8, wait, steps=steps) for wait in reversed(WAITS)])
    (trial,) = found.trials
    assert trial.verdict == HELD
    assert trial.gain.share.fraction == pytest.approx(0.1)
    assert trial.gain.waited == pytest.approx(8.0 / 19.4)


@pytest.mark.parametrize("steps", [0, 20])
def test_waits_longer_than_the_run_are_not_left_out(tmp_path, steps):
    after = [crowded(1.8, 0.0, steps=steps), crowded(-0.2, 2.0, steps=steps), *[crowded(1.8, 0.0, steps=steps)] * 3]
    (trial,) = prove(tmp_path, [crowded(2.0, 0.0, steps=steps)] * 5, after).trials
    assert trial.gain.waited == 0
    assert trial.gain.share.fraction == pytest.approx(0.1)


def test_a_program_with_workers_may_keep_the_processors_busy_itself(tmp_path):
    waits = [*WAITS, *WAITS]
    before, after = ([crowded(s, one, 1.0) for one in row] for s, row in ((2.0, waits), (1.8, waits[::-1])))
    for runs in (before, after):
        runs.insert(1, runs[0])  # in one thread, which tells no more
    found = prove(tmp_path, before, after)
    (trial,) = found.trials
    assert (trial.verdict, trial.gain.waited) == (UNDECIDED, 0.0)
    assert (
        trial.reason
        == "the difference lies inside the noise, which could hide a gain of up to 67 %; more steps would tell"
    )


@pytest.mark.parametrize(
    ("pairs", "what"), [(5, "more steps, or more pairs by --most-seconds, would tell"), (6, "more steps would tell")]
)
def test_few_pairs_are_a_matter_of_time(pairs, what):
    gain = Gain(1.0, 1.0, Share(0.0, -0.2, 0.2), pairs, True)
    assert (
        proving._noise(gain) == f"the difference lies inside the noise, which could hide a gain of up to 20 %; {what}"
    )


BUSY = Seen(run_ns=2 * 10**9, idle_ns=0, peak_bytes=1)
"""What lets later pairs run by slices."""


class Sliced(HandWritten):
    """A stage whose runs are busy, and whose runs by slices are given."""

    def run(self, changed: Mapping[Path, bytes], timeout_s: float) -> Run:
        return replace(super().run(changed, timeout_s), seen=BUSY)


@pytest.mark.parametrize(
    ("after", "verdict", "pairs", "given"),
    [
        ((1.8, 1.81, 1.8), HELD, 3, 3),
        ((1.0, 1.001), HELD, 2, 2),
        ((2.0, 2.01, 1.99, 2.0, 2.0), NO_GAIN, 5, 5),
    ],
)
def test_busy_programs_run_by_slices_after_the_first_pair_which_is_no_measure_of_time(
    tmp_path, monkeypatch, after, verdict, pairs, given
):
    left = list(after)

    def by_slices(versions, _timeout_s):
        runs = [run(left.pop(0) if files else 2.0) for _, files in versions]
        return [replace(one, by_slices=True) for one in runs]

    monkeypatch.setattr(proving, "run_by_slices", by_slices)
    trial = try_sliced(tmp_path)
    assert (trial.verdict, trial.gain.pairs, len(after) - len(left)) == (verdict, pairs, given)


@pytest.mark.parametrize("change", [{"status": 1}, {"output": "loss 0.7"}])
def test_runs_that_get_in_each_others_way_are_run_alone_and_do_not_count(tmp_path, monkeypatch, change):
    calls = []

    def by_slices(versions, _timeout_s):
        calls.append(versions)
        return [replace(run(1.0), by_slices=True, **change) for _ in versions]

    monkeypatch.setattr(proving, "run_by_slices", by_slices)
    trial = try_sliced(tmp_path)
    assert (trial.verdict, trial.gain.pairs, len(calls)) == (NO_GAIN, 3, 1)


def try_sliced(tmp_path: Path) -> Trial:
    (tmp_path / "train.py").write_bytes(BEFORE)
    RUNS["runs"] = run(2.0), run(2.0)
    stage = Sliced(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
    return try_change(stage, replace(finding(), location=Location(str(tmp_path / "train.py"), 1, "f")))


class Threaded(HandWritten):
    """Runs that lose time to others, in which two threads hide how much; one shows it, if ``tells``."""

    def run(self, changed: Mapping[Path, bytes], timeout_s: float) -> Run:
        one = super().run(changed, timeout_s)
        hides = not self.one_thread or self.folder.name == "untold"
        return replace(
            one, seen=Seen(**{**_fields(one.seen), "computes_elsewhere_s": float(hides)}), one_thread=self.one_thread
        )


def _fields(seen: Seen) -> dict[str, object]:
    return {name: getattr(seen, name) for name in ("run_ns", "crowded_ns", "step_ns", "step_crowded_ns")}


def try_change(stage: Stage, one: Finding) -> Trial:
    name = Path("train.py")
    return _Prover(stage, Limits(1000.0), lambda _: None).try_change(one, {}, {name: AFTER}, name, False, one.rule)


@pytest.mark.parametrize(
    ("folder", "rule", "verdict", "one_thread"),
    [
        ("runs", "retained-graph", HELD, True),
        ("untold", "retained-graph", UNDECIDED, False),
        ("runs", "thread-oversubscription", UNDECIDED, False),
    ],
)
def test_while_others_keep_the_processors_busy_one_thread_tells_their_share(
    tmp_path, folder, rule, verdict, one_thread
):
    (tmp_path / "train.py").write_bytes(BEFORE)
    waits = (1.0, *WAITS, *WAITS)
    RUNS[folder] = [crowded(2.0, wait) for wait in waits], [crowded(1.8, wait) for wait in reversed(waits)]
    stage = Threaded(Tree(tmp_path, tmp_path), Program("train.py"), Path(folder))
    one = replace(finding(), location=Location(str(tmp_path / "train.py"), 1, "f"))
    trial = try_change(stage, replace(one, rule=rule))
    assert (trial.verdict, trial.gain.one_thread) == (verdict, one_thread)


def test_all_changes_together_keep_the_threads_if_one_of_them_is_to_threads(tmp_path):
    for rules, one_thread in (({"retained-graph"}, True), ({"retained-graph", "thread-oversubscription"}, False)):
        waits = (1.0, *WAITS, *WAITS)
        RUNS["runs"] = [crowded(2.0, wait) for wait in waits], [crowded(1.8, wait) for wait in reversed(waits)]
        stage = Threaded(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
        gain = _Prover(stage, Limits(1000.0), lambda _: None).measure_all({Path("train.py"): AFTER}, rules)
        assert gain.one_thread is one_thread


def test_runs_that_nobody_disturbs_keep_their_threads(tmp_path):
    (tmp_path / "train.py").write_bytes(BEFORE)
    RUNS["runs"] = crowded(2.0, 0.1, 1.0), crowded(1.0, 0.1, 1.0)
    stage = Threaded(Tree(tmp_path, tmp_path), Program("train.py"), Path("runs"))
    trial = try_change(stage, finding())
    assert (trial.verdict, trial.gain.one_thread) == (HELD, False)


def test_what_is_no_part_of_the_program_or_may_alter_numbers_is_refused(tmp_path):
    library = finding(file="../lib/module.py")
    risky = finding(kind=Kind.OPPORTUNITY)
    found = prove(tmp_path, run(2.0), run(1.0), library, risky)
    assert [trial.verdict for trial in found.trials] == [REFUSED, REFUSED]
    assert found.trials[0].reason == "module.py:1 is not part of the program, and a patch to a library is nobody's fix"
    assert found.trials[1].reason == "it may alter the numbers that the program computes; --unsafe tries it"
    assert prove(tmp_path, run(2.0), run(1.0), risky, unsafe=True).trials[0].verdict == HELD


@pytest.mark.parametrize(
    ("after", "verdict", "reason"),
    [
        (run(1.0), HELD, ""),
        (
            run(1.0, end=1.0 + 1e-5),
            ALTERED,
            "its numbers are others, but within the tolerances of the comparison",
        ),
        (run(1.0, end=1.1), ALTERED, "the trained parameters differ by 10 % of how far training moved them"),
    ],
)
def test_a_change_of_numerics_leaves_the_same_bits_or_other_results(tmp_path, after, verdict, reason):
    risky = finding(kind=Kind.OPPORTUNITY)
    (trial,) = prove(tmp_path, run(2.0), after, risky, unsafe=True).trials
    assert (trial.verdict, trial.reason) == (verdict, reason)


def test_what_a_program_prints_otherwise_each_time_says_nothing_of_its_numbers(tmp_path):
    before = [run(2.0, f"took {number} s") for number in (1, 2, 3)]
    (trial,) = prove(tmp_path, before, run(1.0, "took 4 s"), finding(kind=Kind.OPPORTUNITY), unsafe=True).trials
    assert trial.verdict == HELD


def test_rounding_of_a_change_that_is_not_of_numerics_is_the_same(tmp_path):
    (trial,) = prove(tmp_path, run(2.0), run(1.0, end=1.0 + 1e-5)).trials
    assert (trial.verdict, trial.reason) == (HELD, "")


def test_two_findings_on_one_line_are_not_changed_twice(tmp_path):
    """Of the second's change it is told whether the first has made it, or has altered the line otherwise."""
    found = prove(tmp_path, run(2.0), run(1.0), finding(), finding(), finding("oversized-storage"))
    assert [trial.verdict for trial in found.trials] == [HELD, REFUSED, REFUSED]
    assert found.trials[1].reason == "a change that held does this, too"
    assert found.trials[2].reason == "a change that held has altered this line; run profkit again after it"


def test_the_interval_is_students():
    gain = gain_of([run(1.0), run(1.0), run(1.0)], [run(math.exp(-x)) for x in (0.1, 0.2, 0.3)])
    half = 6.965 * 0.1 / math.sqrt(3)
    assert gain.share.fraction == pytest.approx(1 - math.exp(-0.2))
    assert (gain.share.low, gain.share.high) == pytest.approx((1 - math.exp(-0.2 + half), 1 - math.exp(-0.2 - half)))


def test_steps_are_timed_where_they_are_most_of_the_run():
    steps = gain_of([run(2.0, steps=10)] * 3, [run(1.0, steps=10)] * 3)
    assert (steps.of_step, steps.before_s) == (True, pytest.approx(0.2))
    few = gain_of([run(2.0, steps=7)] * 3, [run(1.0, steps=7)] * 3)
    assert (few.of_step, few.before_s) == (False, pytest.approx(2.0))


@pytest.mark.parametrize(
    ("before", "after", "frees"),
    [
        ((20, 40, 80), (5, 5, 5), True),
        ((20, 40, 80), (10, 20, 40), False),
        ((20, 30, 39), (5, 5, 5), False),
        ((20, 40, 80), (41, 41, 41), False),
        ((80,), (5,), False),
        ((), (), False),
    ],
)
def test_graphs_that_no_longer_grow_are_a_gain(before, after, frees):
    runs = [[Run(0, "", "", Seen(run_ns=1, graph_nodes=nodes), {}, {})] * 3 for nodes in (before, after)]
    assert gain_of(*runs).frees_graphs is frees


def test_the_seconds_shown_have_the_ratio_of_the_share():
    gain = gain_of([run(1.0), run(4.0), run(2.0)], [run(2.0), run(1.0), run(1.0)])
    assert gain.after_s / gain.before_s == pytest.approx(1 - gain.share.fraction)


def test_what_is_too_small_to_matter_is_tried_only_if_it_was_asked_for(tmp_path):
    tiny = replace(finding(), severity=Severity.INFO)
    (trial,) = prove(tmp_path, run(2.0), run(1.0), tiny, small=False).trials
    reason = "it is too small to matter here; --select retained-graph tries it"
    assert (trial.verdict, trial.reason) == (REFUSED, reason)
    assert prove(tmp_path, run(2.0), run(1.0), tiny).trials[0].verdict == HELD


@pytest.mark.parametrize(
    ("severity", "saving", "verdict"),
    [
        (Severity.LOW, Saving(10, 0.02, 0.01, 0.09), REFUSED),
        (Severity.LOW, Saving(10, 0.02, 0.01, 0.09, bytes=1 << 20), HELD),
        (Severity.LOW, Saving(0, 0.0, 0.0, 0.0), HELD),
        (Severity.LOW, None, HELD),
        (Severity.MEDIUM, Saving(10, 0.03, 0.01, 0.09), HELD),
    ],
)
def test_time_that_noise_would_hide_is_tried_only_if_it_was_asked_for(tmp_path, severity, saving, verdict):
    little = replace(finding(), severity=severity, saving=saving)
    (trial,) = prove(tmp_path, run(2.0), run(1.0), little, small=False).trials
    assert trial.verdict == verdict
    if verdict == REFUSED:
        said = "it saves 2.0 % of the time, which runs do not tell from noise; --select retained-graph tries it"
        assert trial.reason == said
    assert prove(tmp_path, run(2.0), run(1.0), little).trials[0].verdict == HELD


def test_a_change_that_alters_numbers_is_tried_only_if_it_was_asked_for(tmp_path):
    random = replace(finding("host-created-tensor"), severity=Severity.HIGH)
    text = b"x = torch.rand(8).cuda()\n"
    (trial,) = prove(tmp_path, run(2.0), run(1.0), random, text=text).trials
    reason = "the device draws other random numbers than the host; --unsafe tries it"
    assert (trial.verdict, trial.reason) == (REFUSED, reason)
    assert prove(tmp_path, run(2.0), run(1.0), random, unsafe=True, text=text).trials[0].verdict == HELD


def test_what_an_unsafe_change_alters_is_told_with_what_it_wins(tmp_path):
    chance = finding(kind=Kind.OPPORTUNITY)
    fixes = prove(tmp_path, run(2.0), run(1.0, "loss 0.6"), chance, unsafe=True)
    (trial,) = fixes.trials
    assert (trial.verdict, trial.reason) == (ALTERED, "standard output says 0.6 instead of 0.5")
    assert trial.gain.share.low == pytest.approx(0.5)
    assert fixes.held == (trial,)
    assert prove(tmp_path, run(2.0), run(2.0, "loss 0.6"), chance, unsafe=True).trials[0].verdict == NO_GAIN
    assert prove(tmp_path, run(2.0), run(1.0, "loss 0.6"), finding(), unsafe=True).trials[0].verdict == CHANGED


def test_more_waiting_than_time_is_not_left_out():
    def waited(run_s: float, crowded_s: float) -> Run:
        seen = Seen(run_ns=int(run_s * 1e9), crowded_ns=int(crowded_s * 1e9))
        return Run(0, "", "", seen, {}, {})

    gain = gain_of([waited(2.0, 1.0)] * 3, [waited(1.0, 1.1)] * 3)
    assert (gain.before_s, gain.after_s, gain.waited) == pytest.approx((2.0, 1.0, 0.0))
    assert gain_of([waited(2.0, 1.0)] * 3, [waited(1.0, 0.5)] * 3).after_s == pytest.approx(0.5)


def test_a_change_that_fails_inside_profkit_does_not_end_the_others(tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("unforeseen")

    known = room._change_of
    monkeypatch.setattr(room, "_change_of", lambda rule: fails if rule == "debug-mode-on" else known(rule))
    monkeypatch.delenv("PROFKIT_STRICT")
    found = prove(tmp_path, run(2.0), run(1.0), finding("debug-mode-on"), finding())
    assert [trial.verdict for trial in found.trials] == [REFUSED, HELD]
    assert found.trials[0].reason.startswith("the change failed inside profkit (ValueError at ")


@pytest.mark.parametrize(("unsafe", "kinds"), [(True, [Kind.FAULT, Kind.OPPORTUNITY]), (False, None)])
def test_changes_of_numerics_come_last_where_they_are_tried(tmp_path, unsafe, kinds):
    given = [finding(kind=Kind.OPPORTUNITY), finding()]
    fixes = prove(tmp_path, run(2.0), run(1.0), *given, unsafe=unsafe)
    assert [trial.finding.kind for trial in fixes.trials] == (kinds or [one.kind for one in given])
