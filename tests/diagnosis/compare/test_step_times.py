"""When a difference between step times counts as a change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from profkit.diagnosis.compare.comparison import Verdict
from profkit.diagnosis.compare.step_times import EQUIVALENCE_BAND, compare_step_times, student_quantile
from tests.diagnosis.compare.runs import around

LEAST_HALF_WIDTH = 1.959964 * math.sqrt(2) * 0.01


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.3027), (3, 3.1824), (4, 2.7764), (6, 2.4469), (10, 2.2281), (30, 2.0423), (1e9, 1.9600)],
)
def test_students_quantile_matches_published_tables(freedom: float, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, rel=1.5e-3)


def test_students_quantile_rounds_the_degrees_of_freedom_down_to_at_least_one() -> None:
    assert student_quantile(2.99) == student_quantile(2)
    assert student_quantile(0.2) == student_quantile(1)


def test_the_change_is_the_ratio_of_the_lower_quartiles() -> None:
    found = compare_step_times([(10, 20, 30, 40, 500)], [(22, 22, 22, 22, 22)])
    assert found.change == pytest.approx(0.1)
    assert (found.before_ns, found.after_ns) == (20, 22)


def test_steady_single_runs_have_the_interval_of_the_assumed_spread_between_runs() -> None:
    found = compare_step_times([around(10, 0)], [around(11, 0)])
    assert found.low == pytest.approx(1.1 * math.exp(-LEAST_HALF_WIDTH) - 1)
    assert found.high == pytest.approx(1.1 * math.exp(LEAST_HALF_WIDTH) - 1)


@pytest.mark.parametrize(
    ("after_ms", "verdict"),
    [
        (10.0, Verdict.NO_DIFFERENCE),
        (10.2, Verdict.NO_DIFFERENCE),
        (10.25, Verdict.INCONCLUSIVE),
        (10.28, Verdict.INCONCLUSIVE),
        (10.31, Verdict.WORSE),
        (10.5, Verdict.WORSE),
        (9.5, Verdict.BETTER),
        (9.75, Verdict.INCONCLUSIVE),
    ],
)
def test_two_steady_single_runs(after_ms: float, verdict: Verdict) -> None:
    assert compare_step_times([around(10, 0)], [around(after_ms, 0)]).verdict is verdict


def test_a_run_that_drifts_widens_the_interval_by_its_drift() -> None:
    drifting = tuple(round(10e6 * (1 + 0.1 * i / 11)) for i in range(12))
    found = compare_step_times([around(10, 0)], [drifting])
    blocks = [np.quantile(np.log(drifting[i : i + 3]), 0.25) for i in range(0, 12, 3)]
    half_width = math.hypot(student_quantile(6) * np.std(blocks, ddof=1), LEAST_HALF_WIDTH)
    assert found.low == pytest.approx(math.expm1(math.log1p(found.change) - half_width), abs=1e-4)
    assert found.verdict is Verdict.INCONCLUSIVE


def test_several_runs_are_judged_by_the_spread_between_them_alone() -> None:
    before, after = [around(ms, 0.3) for ms in (10.0, 10.1, 10.2)], [around(ms, 0.3) for ms in (10.8, 10.9, 11.0)]
    found = compare_step_times(before, after)
    assert found.verdict is Verdict.WORSE
    centres = [[float(np.median(np.log(run))) for run in side] for side in (before, after)]
    error = math.sqrt(sum(np.var(side, ddof=1) / 3 for side in centres))
    assert found.low == pytest.approx(math.expm1(math.log1p(found.change) - student_quantile(3) * error), abs=1e-4)


def test_one_run_against_several_is_one_more_draw_of_them() -> None:
    several = [around(ms, 0) for ms in (10.0, 10.2, 10.4)]
    found = compare_step_times([around(10.2, 0)], several)
    deviation = np.std(np.log([10.0, 10.2, 10.4]), ddof=1) * math.sqrt(4 / 3)
    assert found.high is not None
    assert math.log1p(found.high) - math.log1p(found.change) == pytest.approx(student_quantile(2) * deviation, rel=1e-3)


def test_two_varying_runs_show_no_change_however_many_steps_they_have() -> None:
    before = [around(10.0, 0) * 10, around(12.0, 0) * 10]
    after = [around(11.5, 0) * 10, around(13.5, 0) * 10]
    assert compare_step_times(before, after).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("steps", [1, 3])
def test_too_few_steps_have_no_interval_and_a_note_says_so(steps: int) -> None:
    found = compare_step_times([(10_000_000,) * steps], [(20_000_000,) * 12])
    assert (found.low, found.high, found.verdict) == (None, None, Verdict.INCONCLUSIVE)
    assert "fewer than 4 steps" in found.reasons[0]


def test_four_steps_are_enough() -> None:
    assert compare_step_times([(10_000_000,) * 4], [(20_000_000,) * 4]).verdict is Verdict.WORSE


def test_a_change_that_equal_operators_share_is_put_down_to_the_machine() -> None:
    found = compare_step_times([around(10, 0)], [around(12, 0)], machine=math.log(1.2))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.low == pytest.approx(math.expm1(-LEAST_HALF_WIDTH))
    assert found.machine_change == pytest.approx(0.2)
    (reason,) = found.reasons
    assert reason == (
        "operators that are the same on both sides took 20 % longer: the machine or its settings changed as well"
    )


def test_a_faster_machine_that_hides_a_change_makes_the_verdict_inconclusive() -> None:
    found = compare_step_times([around(10, 0)], [around(10, 0)], machine=math.log(0.8))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "took 20 % less: the machine" in found.reasons[0]


def test_a_change_beyond_that_of_the_machine_is_reported() -> None:
    found = compare_step_times([around(10, 0)], [around(13, 0)], machine=math.log(1.1))
    assert found.verdict is Verdict.WORSE
    assert found.low == pytest.approx(1.3 / 1.1 * math.exp(-LEAST_HALF_WIDTH) - 1, abs=1e-6)


def test_time_for_new_pages_may_be_chance_and_is_stated() -> None:
    found = compare_step_times([around(10, 0)], [around(12, 0)], pages=math.log(1.2))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.low == pytest.approx(math.expm1(-LEAST_HALF_WIDTH))
    (reason,) = found.reasons
    assert reason.startswith("new pages of memory made the step 20 % longer, by chance; to prevent that, set MALLOC_")


def test_a_change_beyond_the_time_for_new_pages_is_reported() -> None:
    found = compare_step_times([around(10, 0)], [around(13, 0)], pages=math.log(1.1))
    assert found.verdict is Verdict.WORSE


@pytest.mark.parametrize(("share", "reasons"), [(0.0299, 0), (0.0301, 1), (-0.0301, 1)])
def test_new_pages_of_less_than_three_percent_are_within_the_assumed_spread(share: float, reasons: int) -> None:
    assert len(compare_step_times([around(10, 0)], [around(10, 0)], pages=share).reasons) == reasons


def _wrong(noise: str, runs: int, trials: int = 400) -> float:
    """The share of comparisons of equal programs that report a change."""
    chance = np.random.default_rng(1)
    called = 0
    for _ in range(trials):
        before, after = ([_draw(noise, chance) for _ in range(runs)] for _ in range(2))
        called += compare_step_times(before, after).verdict in (Verdict.WORSE, Verdict.BETTER)
    return called / trials


def _draw(noise: str, chance: np.random.Generator) -> tuple[int, ...]:
    steps = chance.normal(0, 0.03, 13)
    if noise == "autocorrelated":
        level = chance.normal(0, 0.03 / math.sqrt(1 - 0.25))
        for i, shock in enumerate(chance.normal(0, 0.03, 13)):
            level = 0.5 * level + shock
            steps[i] = level
    elif noise == "spikes":
        steps = np.where(chance.random(13) < 0.3, chance.exponential(0.3, 13), steps / 3)
    elif noise == "runs":
        steps = steps / 2 + chance.normal(0, 0.01)
    return tuple(round(ns) for ns in 10e6 * np.exp(steps))


@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize("noise", ["independent", "autocorrelated", "spikes", "runs"])
def test_at_most_one_in_twenty_comparisons_of_equal_programs_reports_a_change(noise: str, runs: int) -> None:
    assert _wrong(noise, runs) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_a_certain_but_very_small_change_is_no_difference() -> None:
    before, after = [around(ms, 0) for ms in (10.0, 10.001)], [around(ms, 0) for ms in (10.28, 10.281)]
    found = compare_step_times(before, after)
    assert found.low is not None
    assert found.low > 0
    assert found.verdict is Verdict.NO_DIFFERENCE


def test_the_band_is_stated() -> None:
    assert compare_step_times([around(10)], [around(10)]).band == EQUIVALENCE_BAND == 0.05
