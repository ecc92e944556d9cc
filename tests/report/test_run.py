"""The account of the whole run in the reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.findings.values import (
    Diagnosis,
    Finding,
    Kind,
    Location,
    Phase,
    PhaseLine,
    RunCurve,
    RunSummary,
    Saving,
    Severity,
    StepsInRun,
    Timing,
    WholeRun,
)
from profkit.patterns.whole_run.phases import EVALUATION, PROFKIT, START, STEPS
from profkit.report import FORMATS, render
from profkit.report.json import parse_json
from profkit.report.run_wording import describe_run, phase_rows

S = 1_000_000_000
EVALUATED = PhaseLine(Location("/me/<train>.py", 8, "main"), 3 * S)
PHASES = (
    Phase(START, S, 0.1),
    Phase(STEPS, 6 * S, 0.6),
    Phase(EVALUATION, 3 * S, 0.3, lines=(EVALUATED,)),
    Phase(PROFKIT, 10 * S, 0.5),
)
WHOLE = WholeRun(20 * S, PHASES, own_ns=10 * S, column_ns=S, band=(0, 1, 1, 2, 3))


@pytest.fixture
def diagnosis():
    return Diagnosis(RunSummary((), None, None, None, None), Timing(0, None, ""), (), {}, (), whole_run=WHOLE)


def test_one_line_names_the_largest_phases_without_profkits_own():
    assert describe_run(WHOLE) == (
        "The run took 10.0 s without profkit's own 10.0 s: 60 % steps, 30 % evaluation, 10 % starting Python."
    )


def test_a_run_that_was_killed_is_told_as_such():
    whole = replace(WHOLE, is_over=False, own_ns=0, phases=(Phase(STEPS, 20 * S, 1.0),))
    assert describe_run(whole) == "The run was ended from outside after at least 20.0 s: 100 % steps."


def test_phases_without_time_have_no_row():
    rows = phase_rows(replace(WHOLE, phases=(Phase(START, 0, 0.0), *PHASES[1:])))
    assert [(row.label, row.time, row.share, row.place) for row in rows] == [
        (STEPS, "6.00 s", "60 %", ""),
        (EVALUATION, "3.00 s", "30 %", "<train>.py:8"),
        (PROFKIT, "10.0 s", "50 %", ""),
    ]
    assert phase_rows(None) == []


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_each_report_for_people_has_the_line_and_the_phases(diagnosis, name):
    text = " ".join(render(diagnosis, name).split())
    assert "60 % steps, 30 % evaluation" in text.replace("\\", "")
    assert "Where the run" in text
    assert "<train>.py" not in text or name != "html"


def test_the_band_of_the_page_has_a_piece_for_each_stretch(diagnosis):
    page = render(diagnosis, "html")
    assert '<rect class="compute" x="20.0%" width="40.0%" height="32"><title>steps: 1.00 s to 3.00 s</title>' in page


def test_a_band_with_numbers_of_no_phase_is_drawn_without_a_name(diagnosis):
    """A file may have come from anybody."""
    odd = replace(diagnosis, whole_run=replace(WHOLE, band=(9, -1)))
    assert "<title>: 0 ns to 1.00 s</title>" in render(odd, "html")


def test_the_recorded_steps_are_framed_on_the_band(diagnosis):
    page = render(replace(diagnosis, whole_run=replace(WHOLE, recorded_ns=(2 * S, 3 * S))), "html")
    assert '<rect class="recorded" x="40.0%" y="1" width="20.0%" height="30"><title>recorded: 2.00 s to 3.00 s' in page
    assert "Framed: the recorded steps, 2.00 s to 3.00 s" in page
    assert "Framed" not in render(diagnosis, "html")


def test_a_short_recording_at_the_end_is_seen(diagnosis):
    page = render(replace(diagnosis, whole_run=replace(WHOLE, recorded_ns=(5 * S - 1, 5 * S))), "html")
    assert '<rect class="recorded" x="99.7%" y="1" width="0.3%"' in page


def test_what_was_seen_during_the_run_lies_below_the_band(diagnosis):
    memory = RunCurve("memory of the process", ((S, 1e9), (3 * S, 4e9), (9 * S, 2e9)), is_bytes=True)
    use = RunCurve("use of <GPU> 0", ((0, 0.0), (S, 0.25)))
    none = RunCurve("use of GPU 1", ((0, 0.0), (S, 0.0)))
    page = render(replace(diagnosis, whole_run=replace(WHOLE, curves=(memory, use, none))), "html")
    assert '<path class="idle" d="M20.00 100V75.0H60.00V0.0H100.00V50.0V100Z"/>' in page
    assert "memory of the process, at most 4.00 GB" in page
    assert '<path class="idle" d="M0.00 100V100.0H20.00V75.0V100Z"/>' in page
    assert "use of &lt;GPU&gt; 0, at most 25 %" in page
    assert "GPU 1" not in page


def test_curves_and_recorded_steps_are_saved_and_read_back(diagnosis):
    whole = replace(WHOLE, recorded_ns=(1, 2), curves=(RunCurve("memory", ((1, 2.0),), is_bytes=True),))
    assert parse_json(render(replace(diagnosis, whole_run=whole), "json").encode()).whole_run == whole


def steps_of(*typical_ms, fastest=None):
    """A part of the run for each, 100 ms long."""
    fastest = fastest or typical_ms
    return tuple(
        StepsInRun(at * S // 10, (at + 1) * S // 10, 10, ms * S // 1000, shortest * S // 1000, 2 * ms * S // 1000)
        for at, (ms, shortest) in enumerate(zip(typical_ms, fastest, strict=True))
    )


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (steps_of(90, *range(8, 24)), "Its steps took 8.50 ms at first and 22.5 ms at last."),
        (steps_of(90, *range(24, 8, -1)), "Its steps took 23.5 ms at first and 9.50 ms at last."),
        (steps_of(90, *[10] * 8, *[14] * 8), ""),
        (steps_of(90, *[10] * 8, *[20] * 8, fastest=[10] * 17), ""),
        (steps_of(90, *range(8, 23)), ""),
        ((), ""),
    ],
    ids=["longer", "shorter", "two fifths longer", "held up", "too few", "unknown"],
)
def test_the_line_on_the_run_says_if_its_steps_changed(steps, told):
    line = describe_run(replace(WHOLE, steps=steps))
    assert line.endswith(f"10 % starting Python. {told}".rstrip())


def test_a_run_that_was_only_watched_has_its_number_of_steps(diagnosis):
    text = render(replace(diagnosis, whole_run=replace(WHOLE, steps=steps_of(4, 90, 2))), "text")
    assert "steps    30 steps of about 4.00 ms" in text
    assert "steps of about" not in render(diagnosis, "text")


def test_the_time_of_steps_lies_below_the_band(diagnosis):
    part = StepsInRun(S, 2 * S, 10, 4_000_000, 2_000_000, 5_000_000)
    later = StepsInRun(2 * S, 3 * S, 20, 8_000_000, 5_000_000, 90_000_000)
    page = render(replace(diagnosis, whole_run=replace(WHOLE, steps=(part, later))), "html")
    assert '<path class="typical" d="M20.00 60.0H40.00M40.00 20.0H60.00"/>' in page
    assert '<path class="spread" d="M20.00 80.0H40.00V50.0H20.00zM40.00 50.0H60.00V0.0H40.00z"/>' in page
    assert "Time of a step, 30 of them: 4.00 ms at first, 8.00 ms at last." in page
    assert "which took 90.0 ms, more than is shown." in page
    assert "Time of a step" not in render(replace(diagnosis, whole_run=replace(WHOLE, steps=(part,))), "html")


def test_one_part_of_very_long_steps_does_not_flatten_the_others(diagnosis):
    page = render(replace(diagnosis, whole_run=replace(WHOLE, steps=steps_of(10, 10, 900, 10))), "html")
    assert '<text x="4" y="13">50.0 ms</text>' in page


def found(rule, severity, *in_run):
    return Finding(rule, Kind.FAULT, severity, "", 1, 1.0, "", saving=Saving(0, 0.1, 0.1, 0.1, run_ns=S), in_run=in_run)


def test_a_finding_of_the_run_is_marked_below_the_band_and_leads_to_it(diagnosis):
    findings = (
        found("slow-<start>", Severity.HIGH, (S, 2 * S), (4 * S, 9 * S)),
        found("of-the-step", Severity.MEDIUM),
        found("late-release", Severity.LOW, (5 * S - 1, 5 * S)),
        found("for-information", Severity.INFO, (S, 2 * S)),
    )
    page = render(replace(diagnosis, findings=findings), "html")
    assert (
        '<a class="in-run" href="#finding-1"><svg height="12" aria-hidden="true"><rect class="mark-high" x="20.0%"'
        in page
    )
    assert '<rect class="mark-high" x="80.0%" width="20.0%" height="12"><title>4.00 s to 9.00 s</title></rect>' in page
    assert "</svg>1. slow-&lt;start&gt;, 1.00 s</a>" in page
    assert '<a class="in-run" href="#finding-3"' in page
    assert page.count('class="in-run"') == 2
    assert 'id="finding-1"' in page
    assert 'id="finding-3"' in page


def test_the_axis_below_the_band_has_the_times(diagnosis):
    page = render(diagnosis, "html")
    assert '<text x="0%" y="13" text-anchor="start">0 s</text><text x="25%" y="13" text-anchor="middle">1.25 s' in page
    assert '<text x="100%" y="13" text-anchor="end">5.00 s</text>' in page


def test_it_is_saved_and_read_back(diagnosis):
    assert parse_json(render(diagnosis, "json").encode()).whole_run == WHOLE


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "memory-timeline"])
def test_without_an_account_no_report_mentions_the_run(diagnosis, name):
    assert "Where the run" not in render(replace(diagnosis, whole_run=None), name)
