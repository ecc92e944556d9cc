"""The verdict: what was found, what was not, and when none can be given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.diagnosis.verdict import CUT_OFF, conclude, with_ranks
from profkit.findings.values import (
    Activity,
    CostlyPlace,
    Diagnosis,
    Doing,
    Elsewhere,
    Finding,
    Kind,
    LaunchSummary,
    Location,
    Peak,
    Phase,
    PhaseLine,
    RankSummary,
    RunSummary,
    Saving,
    Severity,
    TimeShare,
    Timing,
    VerdictKind,
    WholeRun,
    severity_of,
)
from tests.traces import annotation, facts_of, kernel, op, runtime, step

NO_STEPS = "no steps were found"


def finding(rule: str, fraction: float, kind: Kind = Kind.FAULT, size_bytes: int = 0, grows: bool = False) -> Finding:
    saving = Saving(int(fraction * 1e7), fraction, fraction, fraction, size_bytes)
    evidence = {"growth_bytes_per_step": size_bytes} if grows else {}
    return Finding(
        rule,
        kind,
        severity_of(saving, grows),
        "",
        1,
        1.0,
        "",
        Location("a/train.py", 7, "f"),
        saving=saving,
        evidence=evidence,
    )


def chance(rule: str, fraction: float, size_bytes: int = 0) -> Finding:
    return finding(rule, fraction, Kind.OPPORTUNITY, size_bytes)


def diagnosis(*findings: Finding, shares: dict[str, float] | None = None, skipped: int = 0) -> Diagnosis:
    parts = tuple(TimeShare(label, int(share * 1e7), share) for label, share in (shares or {}).items())
    rules = {f"rule-{i}": "no reason" for i in range(skipped)}
    run = RunSummary((), None, None, None, None)
    return Diagnosis(run, Timing(4, 10_000_000, "", shares=parts), findings, rules, ())


def text_of(*findings: Finding, **more) -> str:
    return conclude(diagnosis(*findings, **more)).text


def test_one_fault_is_named_with_its_cost():
    found = conclude(diagnosis(finding("a", 0.43)))
    assert (found.kind, found.text) == (VerdictKind.FOUND, "1 fault costs 43 % of the step: a at train.py:7")


def test_running_out_of_memory_comes_before_everything():
    failure = "out of memory: train.py:3 asked for 2 GB"
    alone = conclude(replace(diagnosis(), failure=failure), ["the program failed"])
    assert (alone.kind, alone.text) == (VerdictKind.CANNOT_JUDGE, "Out of memory: train.py:3 asked for 2 GB")
    with_fault = conclude(replace(diagnosis(finding("a", 0.43)), failure=failure))
    assert (with_fault.kind, with_fault.text) == (
        VerdictKind.FOUND,
        "Out of memory: train.py:3 asked for 2 GB; 1 fault costs 43 % of the step: a at train.py:7",
    )


def test_memory_that_ran_out_is_told_by_who_asked_and_what_was_held():
    evidence = {"asked_bytes": 512_000_000, "held_bytes": 8_000_000_000, "bytes_of_activations": 6_000_000_000}
    failed = replace(finding("out-of-memory", 0.0, size_bytes=10**9), severity=Severity.HIGH, evidence=evidence)
    place = failed.location.short if failed.location else "the program"
    found = f"Out of memory: {place} asked for 512 MB while 8.00 GB was held, 75 % of it activations"
    assert text_of(failed) == found
    assert text_of(failed, *[finding("a", 0.02)]) == f"{found}; 1 more fault"
    assert "asked for" not in text_of(replace(failed, severity=Severity.MEDIUM)), "the program went on"


def test_the_largest_gain_comes_first_whether_fault_or_opportunity():
    assert text_of(finding("a", 0.2), chance("b", 0.5), chance("c", 0.3)) == (
        "An opportunity would save 50 % of the step: b at train.py:7; 1 fault costs 20 % of the step: a at train.py:7"
    )
    assert text_of(finding("a", 0.5), chance("b", 0.2)) == "1 fault costs 50 % of the step: a at train.py:7"


def test_a_fault_states_what_it_saves_beyond_the_opportunity_before_it():
    shared = finding("a", 0.2)
    assert text_of(chance("b", 0.5), replace(shared, saving=replace(shared.saving, beyond=0.04))) == (
        "An opportunity would save 50 % of the step: b at train.py:7; "
        "1 fault costs 20 % of the step (4.0 % beyond that): a at train.py:7"
    )


def test_memory_that_grows_until_the_program_dies_comes_before_time():
    leak = finding("a", 0.0, size_bytes=4_000_000, grows=True)
    assert text_of(leak, chance("b", 0.5)) == "1 fault makes memory grow by 4.00 MB per step: a at train.py:7"


def test_several_faults_are_stated_with_their_joint_cost():
    both = replace(diagnosis(finding("a", 0.2), finding("b", 0.1)), total=Saving(2_500_000, 0.25, 0.2, 0.3))
    assert conclude(both).text == (
        "2 faults cost 25 % (20 to 30) of the step together; the worst costs 20 % of the step: a at train.py:7"
    )


@pytest.mark.parametrize(
    ("findings", "text"),
    [
        ((chance("b", 0.5),), "No fault, but an opportunity would save 50 % of the step: b at train.py:7"),
        (
            (chance("b", 0.5), chance("c", 0.4)),
            "No fault, but 2 opportunities; the largest would save 50 % of the step: b at train.py:7",
        ),
        (
            (replace(chance("b", 0.1), severity=Severity.MEDIUM), replace(chance("c", 0.4), severity=Severity.LOW)),
            "No fault, but 2 opportunities; the first would save 10 % of the step: b at train.py:7",
        ),
        (
            (replace(chance("b", 0.0, 3_000_000), severity=Severity.MEDIUM),),
            "No fault, but an opportunity would free 3.00 MB of memory: b at train.py:7",
        ),
        (
            (replace(chance("b", 0.0), severity=Severity.MEDIUM, saving=None),),
            "No fault found; what stands out, its gain not measured: b at train.py:7",
        ),
    ],
)
def test_opportunities_alone_are_not_called_faults(findings, text):
    assert text_of(*findings) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.03, ""), (0.02, "; operators take 80 % of the step, waiting for data 20 %")],
)
def test_if_little_was_found_the_step_is_described_too(fraction, text):
    found = text_of(finding("a", fraction), shares={"backward": 0.8, "waiting for data": 0.2})
    assert found == f"1 fault costs {fraction * 100:.1f} % of the step: a at train.py:7{text}"


@pytest.mark.parametrize("fraction", [0.02, 0.43])
def test_whatever_was_found_of_a_device_the_verdict_says_what_the_step_waits_for(fraction):
    found = text_of(finding("a", fraction), shares={"device: computing": 0.2, "idle: launching work": 0.8})
    assert found.endswith(": a at train.py:7; the host bounds the step: launching work 80 %; the device works 20 %")


def test_findings_for_information_count_as_nothing_found():
    assert conclude(diagnosis(finding("a", 0.001))).kind is VerdictKind.NOTHING_FOUND


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ({"device: computing": 0.9, "idle: launching work": 0.1}, "the device bounds the step: it works 90 %"),
        (
            {"optimizer": 0.1, "backward": 0.5, "operators of the forward pass and others": 0.35, "waiting": 0.05},
            "operators take 95 % of the step",
        ),
        (
            {"backward": 0.5, "waiting for data": 0.3, "Python and all else between operators": 0.2},
            "operators take 50 % of the step, waiting for data 30 %",
        ),
        ({"backward": 0.2, "Python in load (data.py:7)": 0.8}, "Python in load (data.py:7): 80 % of the step"),
        ({}, "4 steps of 10.0 ms"),
    ],
)
def test_a_verdict_without_findings_describes_the_step(shares, text):
    found = conclude(diagnosis(shares=shares))
    assert (found.kind, found.text) == (VerdictKind.NOTHING_FOUND, f"No fault found; {text}")


def test_a_verdict_without_findings_counts_the_rules_that_could_not_look():
    assert text_of(skipped=2) == "No fault found; 4 steps of 10.0 ms; 2 rules could not look"


def test_the_first_obstacle_is_the_reason_not_to_judge():
    found = conclude(diagnosis(), [NO_STEPS, "the file is cut off"])
    assert (found.kind, found.text) == (VerdictKind.CANNOT_JUDGE, "Cannot judge: no steps were found")


def test_if_only_the_steps_are_missing_the_verdict_begins_with_where_the_time_goes():
    shares = {"idle: compiling or loading code": 0.94, "device: computing": 0.06}
    bound = "he host bounds the step: compiling or loading code 94 %; the device works 6.0 %"
    missing = "no steps were found: the whole recording is treated as one step"
    assert conclude(diagnosis(shares=shares), [missing]).text == f"T{bound}; {missing}"
    assert conclude(diagnosis(shares=shares), ["the file is cut off"]).text == (
        f"Cannot judge: the file is cut off; t{bound}"
    )


def test_what_most_of_the_recording_was_spent_on_comes_first():
    start = "Compiling or loading code takes 94 % of the recording, 1.12 s of 1.18 s"
    assert (
        conclude(diagnosis(finding("a", 0.43)), (), start).text
        == f"{start}; 1 fault costs 43 % of the step: a at train.py:7"
    )


def test_that_the_file_is_cut_off_comes_before_what_was_found():
    cut = "The file is cut off, and what is lost may be from any part of the recording"
    assert (
        conclude(diagnosis(finding("a", 0.43)), [CUT_OFF]).text
        == f"{cut}; 1 fault costs 43 % of the step: a at train.py:7"
    )
    assert conclude(diagnosis(finding("a", 0.43)), ["x"]).text.endswith("; doubtful, as x")


def test_with_an_obstacle_the_verdict_does_not_say_that_there_is_no_fault():
    found = conclude(diagnosis(chance("b", 0.5)), ["no steps were found"])
    assert found.text == f"An opportunity would save 50 % of the step: b at train.py:7; doubtful, as {NO_STEPS}"
    unpriced = replace(chance("b", 0.0), severity=Severity.MEDIUM, saving=None)
    found = conclude(diagnosis(unpriced), ["no steps were found"])
    assert found.kind is VerdictKind.FOUND, "a report with a finding has a verdict on it"
    assert found.text == "What stands out, its gain not measured: b at train.py:7; doubtful, as no steps were found"


def test_the_verdict_begins_with_the_failure_of_the_program():
    failed = replace(diagnosis(), health=("the program failed: ValueError (at train.py:12)",))
    end = "The program failed: ValueError (at train.py:12)"
    assert conclude(failed).text.startswith(f"{end}; no fault found until then; ")
    assert conclude(failed, ["no steps were found"]).text == "Cannot judge: no steps were found"
    found = conclude(replace(failed, findings=(finding("a", 0.43),)))
    assert found.text == f"{end}; 1 fault costs 43 % of the step: a at train.py:7"


def test_findings_despite_an_obstacle_are_called_doubtful():
    found = conclude(diagnosis(finding("a", 0.43)), [NO_STEPS])
    assert found.kind is VerdictKind.FOUND
    assert found.text == "1 fault costs 43 % of the step: a at train.py:7; doubtful, as no steps were found"


def test_without_steps_the_first_note_is_the_reason():
    empty = replace(diagnosis(), timing=Timing(0, None, ""))
    assert conclude(empty).text == "Cannot judge: the recording holds no steps to measure"
    assert conclude(replace(empty, health=("it holds nothing",))).text == "Cannot judge: it holds nothing"


def test_a_diagnosis_carries_its_verdict():
    launched = [
        event
        for i in range(4)
        for event in (
            step(i, 100 * i, 100),
            runtime("cudaLaunchKernel", 100 * i + 5, 5, correlation=i + 1),
            annotation("evaluate", 100 * i + 20, 70),
            kernel("sgemm", 100 * i + 8, 10, correlation=i + 1),
        )
    ]
    verdict = diagnose(facts_of(launched)).verdict
    assert verdict is not None
    assert verdict.kind is VerdictKind.NOTHING_FOUND
    assert verdict.text.startswith("No known fault; the host bounds the step: launching work 68 %, ")
    unsure = diagnose(facts_of([op("aten::mm", 0, 50)])).verdict
    assert unsure is not None
    assert unsure.text == "Cannot judge: no steps were found: the whole recording is treated as one step"


def test_a_fault_of_the_whole_run_has_its_share_of_the_time():
    found = replace(finding("a", 0.0), severity=Severity.LOW, saving=None, evidence={"share_of_time": 0.43})
    assert text_of(found) == "1 fault takes 43 % of the run's time: a at train.py:7"


def costly(fraction: float, explained: bool, line: int = 41) -> CostlyPlace:
    doing = Doing(Activity.PRODUCTS, fraction, "aten::mm", 3, 0.7, Peak.MEASURED)
    return CostlyPlace(fraction, fraction, Location("a/model.py", line, "f"), does=(doing,), is_explained=explained)


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ((costly(0.6, True), costly(0.05, True, 9)), "No fault found; 60 % of the step is at model.py:41"),
        ((costly(0.6, True), costly(0.049, False, 9)), "No fault found; 60 % of the step is at model.py:41"),
        ((costly(0.6, True), costly(0.05, False, 9)), "No known fault; 5.0 % of the step is at model.py:9"),
        ((costly(0.6, False), costly(0.3, False, 9)), "No known fault; 60 % of the step is at model.py:41"),
    ],
)
def test_no_fault_is_found_only_if_all_that_takes_a_twentieth_is_explained(places, text):
    verdict = conclude(replace(diagnosis(), costliest=places))
    assert verdict.kind is VerdictKind.NOTHING_FOUND
    does = "matrix products and convolutions, at 70 % of the rate measured on this machine"
    assert verdict.text == f"{text} ({does}); 4 steps of 10.0 ms"


@pytest.mark.parametrize(("bound", "named"), [(0.1, 9), (0.3, 41), (0.6, 41)])
def test_a_place_that_others_mostly_hide_is_named_only_if_no_other_is_left(bound: float, named: int) -> None:
    hidden = replace(costly(0.6, False), bound=bound)
    assert f"is at model.py:{named} (" in conclude(replace(diagnosis(), costliest=(hidden, costly(0.2, False, 9)))).text
    assert "is at model.py:41 (" in conclude(replace(diagnosis(), costliest=(hidden,))).text


def test_of_a_place_that_is_not_explained_the_verdict_names_what_keeps_it_from_that():
    launching = Doing(Activity.LAUNCHING, 0.2, "aten::add", 300)
    place = costly(0.6, False)
    verdict = conclude(replace(diagnosis(), costliest=(replace(place, does=(*place.does, launching)),)))
    does = "among it 20 %: the host launches 300 operators, such as aten::add, while the device has nothing to do"
    assert f"at model.py:41 ({does}); " in verdict.text


@pytest.mark.parametrize(
    ("evaluation", "between", "text"),
    [
        (0.06, 0.04, "; 10 % of the run lies between the steps, most of it evaluation at train.py:40"),
        (0.01, 0.30, "; 31 % of the run lies between the steps, most of it at train.py:7"),
        (0.06, 0.03, ""),
    ],
)
def test_what_passes_between_the_steps_of_the_run_is_told_from_a_tenth_on(evaluation, between, text):
    evaluating, reading = (PhaseLine(Location("a/train.py", line, "main"), 1) for line in (40, 7))
    phases = (
        Phase("steps", 500, 0.5),
        Phase("before the first step", 190, 0.19),
        Phase("evaluation", int(evaluation * 1000), evaluation, lines=(evaluating,)),
        Phase("between the epochs", int(between * 1000), between, lines=(reading,)),
    )
    found = conclude(replace(diagnosis(), whole_run=WholeRun(1000, phases)))
    assert found.text == f"No fault found; 4 steps of 10.0 ms{text}"


def test_an_evaluation_in_each_step_does_not_lie_between_them():
    evaluating = PhaseLine(Location("a/train.py", 40, "main"), 1)
    phase = Phase("evaluation", 400, 0.4, lines=(evaluating,), in_steps=True)
    found = conclude(replace(diagnosis(), whole_run=WholeRun(1000, (Phase("steps", 600, 0.6), phase))))
    assert found.text == "No fault found; 4 steps of 10.0 ms"


@pytest.mark.parametrize(("run_ns", "is_told"), [(0, True), (100, False)])
def test_beside_a_finding_of_the_step_it_is_told_too_but_not_beside_one_of_the_run(run_ns, is_told):
    one = finding("a", 0.3)
    assert one.saving is not None
    reading = PhaseLine(Location("a/train.py", 7, "main"), 300)
    phases = (Phase("steps", 700, 0.7), Phase("between the epochs", 300, 0.3, lines=(reading,)))
    found = replace(one, saving=replace(one.saving, run_ns=run_ns))
    told = conclude(replace(diagnosis(found), whole_run=WholeRun(1000, phases))).text
    assert told.endswith("; 30 % of the run lies between the steps, most of it at train.py:7") is is_told


OTHER_LOOP = (
    "54 % of the run passes in a loop at attack.py:94, of which no step was recorded (run alone, `with "
    "profkit.profile(...)` around it records some); "
)


@pytest.mark.parametrize(
    ("beside", "start"),
    [
        (
            Elsewhere(0.95, 4, "work in C", "train.py:19"),
            "95 % of the time lies outside the judged steps, in one step of 4, most of it work in C at train.py:19; ",
        ),
        (
            Elsewhere(0.6, 0, "", "train.py:7"),
            "60 % of the time lies outside the judged steps, in longer steps, most of it at train.py:7; ",
        ),
        (Elsewhere(0.7, 6), "70 % of the time lies outside the judged steps, in one step of 6; "),
        (Elsewhere(0.85, of_recording=True), "85 % of the recording lies outside the judged steps; "),
        (Elsewhere(0.54, at="attack.py:94", of_run=True), OTHER_LOOP),
    ],
)
def test_if_most_of_the_time_is_elsewhere_the_verdict_begins_with_that(beside, start):
    """And does not say of the program that it has no fault."""
    nothing = conclude(replace(diagnosis(), elsewhere=beside)).text
    assert nothing == f"{start}no fault is known in the judged steps; 4 steps of 10.0 ms"
    one = conclude(replace(diagnosis(finding("a", 0.3)), elsewhere=beside)).text
    assert one == f"{start}1 fault costs 30 % of the step: a at train.py:7"


def test_beside_a_small_finding_the_costliest_place_is_named():
    found = conclude(replace(diagnosis(finding("a", 0.01), shares={"backward": 1.0}), costliest=(costly(0.6, False),)))
    assert "1 fault costs 1.0 % of the step: a at train.py:7; 60 % of the step is at model.py:41 (" in found.text


def test_what_has_no_known_place_is_left_to_the_table():
    verdict = conclude(replace(diagnosis(), costliest=(CostlyPlace(0.3, 0.3),)))
    assert verdict.text == "No known fault; 4 steps of 10.0 ms"


@pytest.mark.parametrize(
    ("ranks", "steps", "text"),
    [
        (4, 0, " in rank 1, and no step in common is too few to compare 4 ranks"),
        (4, 1, " in rank 1, and 1 step in common is too few to compare 4 ranks"),
        (4, 2, " in rank 1, and 2 steps in common are too few to compare 4 ranks"),
        (4, 3, ""),
        (1, 2, ""),
    ],
)
def test_a_verdict_without_findings_says_if_the_ranks_had_too_few_steps_in_common(ranks, steps, text):
    recorded = tuple(RankSummary(rank, f"rank-{rank}.json.gz") for rank in range(ranks))
    launch = LaunchSummary(ranks, recorded, steps, shown_rank=1)
    verdict = conclude(replace(diagnosis(), launch=launch))
    assert verdict.kind is VerdictKind.NOTHING_FOUND
    assert verdict.text.startswith(f"No fault found{text};")


@pytest.mark.parametrize(
    ("waited_ms", "caused_ms", "start"),
    [
        ((0, 30, 30), (20, 0, 0), "Ranks wait 30 % of a step for others, longest for rank 0; no fault found"),
        ((0, 10, 10), (0, 0, 0), "Ranks wait 10 % of a step for others; no fault found"),
        ((0, 9.9, 99), (50, 0, 0), "No fault found"),
    ],
)
def test_the_verdict_on_a_launch_begins_with_ranks_that_wait_for_each_other(waited_ms, caused_ms, start):
    ranks = tuple(
        RankSummary(rank, "", caused_ns=int(caused * 1e6), waited_ns=int(waited * 1e6))
        for rank, (waited, caused) in enumerate(zip(waited_ms, caused_ms, strict=True))
    )
    launch = LaunchSummary(3, ranks, 4, step_time_ns=100_000_000)
    assert with_ranks(conclude(replace(diagnosis(), launch=launch)), launch).text.startswith(start)


def test_a_place_that_takes_far_more_than_a_notable_finding_is_in_the_first_sentence():
    """The pipeline hands only such places over, beside findings of this severity."""
    small = diagnosis(finding("a", 0.06))
    assert "model.py" not in conclude(small).text
    found = conclude(replace(small, costliest=(costly(0.6, False),))).text
    assert "; 60 % of the step is at model.py:41 (" in found
