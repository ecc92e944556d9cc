"""Which lines make steps long, and which get longer, by looks at steps that were only timed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.derive.facts import Facts
from profkit.patterns.whole_run.timed_lines import TimedLines, timed_lines
from profkit.run.directory import CallSite, Run
from profkit.run.whole_run import Place, StackActivity, StackTime
from profkit.trace.events import no_trace
from tests.patterns.looks import BATCH, BEGUN_NS, EVALUATE, FORWARD, SCORE, UPDATE, looked_at, slow_steps

MS = 1_000_000


def of(columns: list[dict[int, int]], later_ms: list[float], ends_ms: float | None = None) -> TimedLines | None:
    """100 ms in each column; the steps end with the last of them, or there."""
    account, later_ns = looked_at(columns), tuple(int(ms * MS) for ms in later_ms)
    until_ns = BEGUN_NS + int((100 * len(columns) if ends_ms is None else ends_ms) * MS)
    run = Run(torch="2.13", later_step_ns=later_ns, timed_until_ns=until_ns)
    return timed_lines(Facts(no_trace(), run, account=account))


def test_the_line_that_is_seen_in_long_steps_alone_makes_them_long():
    """Ten steps of 20 ms, then one of 200: of that, 160 ms pass in the evaluation and 40 in the update."""
    found = of(*slow_steps(SCORE))
    assert found is not None
    assert (found.steps, found.long_steps) == (44, 4)
    (line,) = found.explaining()
    assert (line.site.line, line.label, line.callers[0].line) == (12, "evaluation", 46)
    assert line.excess_ns == pytest.approx(4 * 180 * MS, rel=0.01)
    assert line.run_ns == pytest.approx(line.excess_ns, rel=0.01)
    assert found.excess_ns == pytest.approx(4 * 180 * MS, rel=0.01)


def test_the_training_s_own_line_does_not_explain_what_another_program_stretches():
    found = of(*slow_steps(UPDATE))
    assert found is not None
    assert found.explaining() == ()


def test_the_innermost_line_that_the_training_does_not_run_stands_for_a_stack():
    """The evaluation calls the model, as the training does: the line in it that does so is told."""
    found = of(*slow_steps(FORWARD))
    assert found is not None
    (line,) = found.explaining()
    assert (line.site.line, line.callers[0].line) == (12, 46)


@pytest.mark.parametrize(("place", "is_apart"), [(BATCH, True), (EVALUATE, False)])
def test_a_line_of_a_function_that_trains_is_not_apart(place, is_apart):
    found = of(*slow_steps(place))
    assert found is not None
    assert found.explaining()[0].is_apart is is_apart


def growing(update_ms: tuple[int, int], score_ms: tuple[int, int]) -> TimedLines:
    """80 columns, in each four steps at first and less of them later. The two lines take so much of a step in the
    first half and in the second."""
    halves = [update + score for update, score in zip(update_ms, score_ms, strict=True)]
    columns, later = [], []
    for half, step_ms in enumerate(halves):
        per_step = {UPDATE: update_ms[half], SCORE: score_ms[half]}
        columns += [{place: ms * MS * 100 // step_ms for place, ms in per_step.items()}] * 40
        later += [float(step_ms)] * (4_000 // step_ms)
    found = of(columns, later)
    assert found is not None
    return found


def test_the_line_whose_time_grew_alone_is_named():
    found = growing((10, 10), (10, 30))
    (line,) = found.grown()
    assert line.site.line == 12
    assert (line.first_ns, line.last_ns) == (pytest.approx(10 * MS, rel=0.1), pytest.approx(30 * MS, rel=0.1))
    at_once = line.timed_ns - 300 * 10 * MS  # without even growth: beyond the first ones
    assert at_once == pytest.approx(100 * 20 * MS, rel=0.1)
    assert line.grown_ns(found.steps, 0) == pytest.approx(line.timed_ns - 300 * (10 - 20 / 225 * 37.5) * MS, rel=0.02)
    assert line.grown_ns(found.steps, 1_000) == line.timed_ns  # in the first of these steps it was nothing yet


def test_earlier_steps_that_had_grown_already_count_from_the_programs_first():
    """Nothing at first, 2 ms more in each 100 steps: 4 ms in the middle of 200 earlier steps (100 before them), 13 in
    the middle of the last quarter of 240 (100 between)."""
    line = growing((10, 10), (10, 30)).every[0]
    line = replace(line, first_ns=4 * MS, last_ns=4 * MS + 410 * 20_000, timed_ns=2_000 * MS)
    assert line.grown_ns(240, 100, 200, 100) == pytest.approx(2_000 * MS + 200 * 4 * MS)
    slower = replace(line, last_ns=4 * MS + 410 * 10_000)  # 2 ms were there at first
    assert slower.grown_ns(240, 100, 200, 100) == pytest.approx((2_000 - 240 * 2) * MS + 200 * 2 * MS)


@pytest.mark.parametrize(
    ("update_ms", "score_ms"),
    [((10, 20), (10, 20)), ((10, 10), (10, 10)), ((10, 10), (30, 10))],
    ids=["all lines got longer", "none did", "they got shorter"],
)
def test_growth_of_all_lines_names_none(update_ms, score_ms):
    assert growing(update_ms, score_ms).grown() == ()


def test_a_few_looks_more_are_chance():
    """A look stands for 100 ms: the line was seen once at first and three times at last."""
    account, later_ns = looked_at([{UPDATE: 100 * MS}] * 8), (10 * MS,) * 80
    columns = [*account.columns[:6], *([((1, 100 * MS),)] * 2)]
    changed = looked_at([dict(column) for column in columns], look_ms=100)
    run = Run(torch="2.13", later_step_ns=later_ns, timed_until_ns=BEGUN_NS + 800 * MS)
    found = timed_lines(Facts(no_trace(), run, account=changed))
    assert found is not None
    assert found.grown() == ()


@pytest.mark.parametrize("ends_ms", [None, 900.0])
def test_steps_that_began_before_the_watch_or_without_a_time_tell_nothing(ends_ms):
    columns, later = slow_steps(SCORE)
    if ends_ms is None:
        run = Run(torch="2.13", later_step_ns=tuple(int(ms * MS) for ms in later))
        assert timed_lines(Facts(no_trace(), run, account=looked_at(columns))) is None
    else:
        assert of(columns, later, ends_ms) is None


def test_a_handful_of_steps_tells_nothing():
    columns, later = slow_steps(SCORE)
    assert of(columns, later[-15:]) is None
    assert of(columns, later[-16:]) is not None


def test_a_comprehension_and_its_line_are_one_line():
    account = looked_at([{UPDATE: 100 * MS}] * 4)
    inner = Place(CallSite("train.py", 43, "main.<locals>.<listcomp>"))
    stack = StackTime(StackActivity.OTHER.value, (0, len(account.places)), 200 * MS, 0, 0, 400 * MS, 9, 1)
    columns = tuple(((0, 50 * MS), (len(account.stacks), 50 * MS)) for _ in range(4))
    both = replace(account, places=(*account.places, inner), stacks=(*account.stacks, stack), columns=columns)
    run = Run(torch="2.13", later_step_ns=(10 * MS,) * 40, timed_until_ns=BEGUN_NS + 400 * MS)
    found = timed_lines(Facts(no_trace(), run, account=both))
    assert found is not None
    (line,) = [line for line in found.inner if line.timed_ns]
    assert (line.site.function, line.timed_ns, line.callers) == ("main", 400 * MS, ())


@pytest.mark.parametrize("varies", [True, False])
def test_columns_that_all_hold_a_part_of_a_long_step_tell_only_by_their_differences(varies):
    """Of 100 ms, 20 or 60 pass in a long step, in which the evaluation runs; or 40 in each of them."""
    parts = [20, 60] if varies else [40, 40]
    columns = [{UPDATE: (100 - parts[at % 2]) * MS, SCORE: parts[at % 2] * MS} for at in range(20)]
    later = [float(ms) for at in range(20) for ms in (*[5] * ((100 - parts[at % 2]) // 5), parts[at % 2])]
    found = of(columns, later)
    assert found is not None
    assert [line.site.line for line in found.explaining()] == ([12] if varies else [])
    assert found.knows_usual is varies


def test_what_is_computed_leads_before_its_backward_pass():
    """Both grow, the backward pass more; the rest of the step does not."""
    columns, later = list[dict[int, int]](), list[float]()
    for score, update in ((10, 10), (30, 50)):
        step_ms = score + update + 10
        parts = {SCORE: score, UPDATE: update, EVALUATE: 10}
        columns += [{stack: ms * MS * 100 // step_ms for stack, ms in parts.items()}] * 45
        later += [float(step_ms)] * (4_500 // step_ms)
    found = of(columns, later)
    assert found is not None
    assert [(line.site.line, line.is_backward) for line in found.grown()] == [(12, False), (43, True)]


def test_a_file_that_claims_any_number_of_columns_or_stacks_tells_nothing():
    """Each stack has a row of columns: a small file could ask for all memory of the machine."""
    columns, later_ms = slow_steps(SCORE)
    account, later_ns = looked_at(columns), tuple(int(ms * MS) for ms in later_ms)
    run = Run(torch="2.13", later_step_ns=later_ns, timed_until_ns=BEGUN_NS + int(100 * len(columns) * MS))
    assert timed_lines(Facts(no_trace(), run, account=account)) is not None
    for more in ({"columns": account.columns + ((),) * 1200}, {"stacks": account.stacks * 10_000}):
        assert timed_lines(Facts(no_trace(), run, account=replace(account, **more))) is None
