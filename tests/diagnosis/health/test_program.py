"""What the notes say about the program: how it ended, which process did the work, and what the recorder noted."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.diagnosis.health import check_recording
from profkit.diagnosis.health.program import check_children, check_operators, check_stacks
from profkit.diagnosis.pipeline import diagnose
from profkit.run.directory import LoaderUse, Recomputation, Run, StackSamples, Unwatched, Watch
from profkit.run.whole_run import RunAccount, StackActivity, StackTime, StepSpan
from profkit.trace.events import no_trace
from tests.traces import facts_of, kernel, op, step

WORK = op("aten::mul", 0, 50)
STEPS = [step(0, 0, 100), step(1, 100, 100)]
FAILED = "the program failed: ImportError: No module named 'lost'"


def verdict_of(events, **run) -> str:
    verdict = diagnose(facts_of(events, run=Run(torch="2.13", trace="t", **run))).verdict
    assert verdict is not None
    return verdict.text


def test_a_program_that_failed_is_judged_if_it_failed_after_the_first_step():
    before = "Cannot judge: the program failed before any step of it was recorded: ImportError: No module named 'lost'"
    assert verdict_of([WORK], notes=(FAILED,), exit_status=1) == before
    assert verdict_of([WORK], exit_status=139) == (
        "Cannot judge: the program ended with exit status 139 (SIGSEGV) before any step of it was recorded"
    )
    assert verdict_of([*STEPS, WORK], notes=(FAILED,), exit_status=1, step_signal="optimizer").startswith(
        "The program failed: ImportError: No module named 'lost'; no known fault until then; "
    )


def test_of_a_program_that_failed_before_its_first_step_no_place_is_said_to_cost_a_step():
    facts = [facts_of([WORK], run=Run(torch="2.13", trace="t", notes=notes)) for notes in ((), (FAILED,))]
    went_on, failed = map(diagnose, facts)
    assert went_on.costliest or went_on.hottest
    assert not failed.costliest
    assert not failed.hottest


def test_a_program_whose_child_processes_did_the_work_is_not_judged():
    verdict = verdict_of([WORK], own_cpu_ns=1_000_000_000, children_cpu_ns=9_000_000_000, target="sweep.py")
    assert verdict.startswith(
        "Cannot judge: only the program that starts the work was recorded: the processes that it started used 9.00 s "
        "of CPU time, the program itself 1.00 s. Put `with profkit.profile(DIRECTORY):`"
    )
    verdict = verdict_of([WORK], own_cpu_ns=1, children_cpu_ns=2, target="torch.distributed.run")
    assert "`torchrun ... -m profkit record train.py`" in verdict


@pytest.mark.parametrize(
    "run",
    [
        {"own_cpu_ns": 2, "children_cpu_ns": 1},  # a helper
        {"own_cpu_ns": 1, "children_cpu_ns": 2, "step_signal": "optimizer"},  # environments beside a training
        {"own_cpu_ns": 1, "children_cpu_ns": 2, "loaders": (LoaderUse(2, 8, False, False),)},  # workers load its data
    ],
)
def test_child_processes_that_only_help_do_not_prevent_judging(run):
    assert check_children(facts_of([WORK], run=Run(torch="2.13", **run))) is None


def test_a_rank_with_only_its_collectives_recorded_is_not_judged():
    verdict = verdict_of(STEPS, is_light=True, step_signal="optimizer")
    assert verdict.startswith("Cannot judge: of this rank only collectives and steps were recorded")
    assert not verdict_of(STEPS, step_signal="optimizer").startswith("Cannot judge: of this rank")


def test_a_recording_without_any_pytorch_operator_is_not_judged():
    assert verdict_of(STEPS, step_signal="epoch") == "Cannot judge: no operator of PyTorch ran in the recording"
    assert check_operators(facts_of([*STEPS, WORK])) is None
    assert check_operators(facts_of([*STEPS, kernel("gemm", 0, 50)])) is None


def test_a_watch_that_ended_early_is_told_unless_a_note_or_a_rule_without_its_figures_tells_it():
    ended = tuple(Unwatched(watch.value, f"{watch.value} ended") for watch in Watch)
    run = Run(unwatched=ended, notes=("lines ended",), recomputation=Recomputation())
    known = [note for note in check_recording(facts_of([WORK], run=run)) if note.endswith("ended")]
    assert known == ["lines ended", "calls ended", "names ended", "opening ended", "batches ended"]


def test_the_notes_of_the_recorder_come_first():
    notes = check_recording(facts_of([WORK], run=Run(notes=("the disk was full",))))
    assert notes[0] == "the disk was full"


def watched_only(steps: tuple[StepSpan, ...]) -> str:
    looks = StackTime(StackActivity.CHILD.value, (), 9_000, 0, 0, 9_000, 9, 1)
    account = RunAccount(1, 1, 9_001, (), (looks,), 1_000, is_over=True, steps=steps)
    run = Run(target="sweep.py", own_cpu_ns=1_000_000_000, children_cpu_ns=9_000_000_000)
    verdict = diagnose(Facts(no_trace(), run, account=account)).verdict
    assert verdict is not None
    return verdict.text


def test_of_a_run_that_was_only_watched_the_starter_alone_is_no_program_without_a_fault():
    assert watched_only(()).startswith("Cannot judge: only the program that starts the work was recorded")
    assert watched_only((StepSpan(5_000, 2, 2_000, 900, 1_100),)).startswith("No fault found in the account")


@pytest.mark.parametrize(
    ("busy_us", "reason", "is_told"), [(90, "no py-spy", True), (91, "no py-spy", False), (50, "", False)]
)
def test_where_python_takes_a_tenth_of_the_step_it_says_why_its_lines_are_not_known(busy_us, reason, is_told):
    steps = [event for at in (0, 100) for event in (step(at // 100, at, 100), op("aten::mul", at, busy_us))]
    facts = facts_of(steps, stacks=StackSamples(reason=reason))
    assert check_stacks(facts) == (reason if is_told else None)
    assert (reason in check_recording(facts)) == is_told
