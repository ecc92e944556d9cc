"""The phases of a run, from stacks whose times are known."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.whole_run import phases
from profkit.patterns.whole_run.phases import account_for, label_stacks, repeated_between_steps
from profkit.run.directory import CallSite
from profkit.run.whole_run import Place, RunAccount, StackActivity, StackTime
from profkit.trace.events import no_trace
from tests.traces import facts_of, mark, op, step

S = 1_000_000_000
MAIN = Place(CallSite("train.py", 90, "<module>"))
EPOCH = Place(CallSite("train.py", 40, "main"), loop=39)
STEP = Place(CallSite("train.py", 43, "main"), loop=42, trains=True)
OWN_PYTHON = Place(CallSite("train.py", 44, "main"), loop=42, trains=True)
READ = Place(CallSite("train.py", 41, "main"), loop=39)
PARSE = Place(CallSite("data.py", 7, "parse"), loop=6)
EVALUATE = Place(CallSite("train.py", 46, "main"), loop=39)
SCORE = Place(CallSite("train.py", 12, "evaluate"), loop=11, evaluates=True)
ROLL_OUT = Place(CallSite("train.py", 45, "main"), loop=39)
ACT = Place(CallSite("train.py", 19, "rollout"), loop=18, without_gradients=True)
AVERAGE = Place(CallSite("train.py", 44, "main"), loop=42, trains=True, without_gradients=True)
SAVE = Place(CallSite("train.py", 47, "main"), loop=39)
BUILD = Place(CallSite("train.py", 30, "main"))
CLEAN = Place(CallSite("train.py", 48, "main", "freed = gc.collect()"), loop=39)
PLACES = (MAIN, EPOCH, STEP, OWN_PYTHON, READ, PARSE, EVALUATE, SCORE, SAVE, BUILD, ROLL_OUT, ACT, AVERAGE, CLEAN)


def stack(activity, places, time_s, first_s, last_s, visits=1):
    numbers = tuple(PLACES.index(place) for place in (MAIN, *places))
    return StackTime(activity.value, numbers, int(time_s * S), 0, int(first_s * S), int(last_s * S), 1, visits)


def run(*stacks, columns=(), column_s=1):
    return RunAccount(9 * S, 10 * S, 30 * S, PLACES, stacks, column_s * S, columns, is_over=True)


def told(account):
    return account_for(account, label_stacks(account))


def labels(account):
    return {phase.label: round(phase.time_ns / S, 3) for phase in told(account).phases}


TRAINING = (
    stack(StackActivity.BACKWARD, [STEP], 4, 3, 17),
    stack(StackActivity.UPDATE, [STEP], 2, 3, 17),
)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (stack(StackActivity.OTHER, [BUILD], 1, 0, 2), phases.BEFORE),
        (stack(StackActivity.FORWARD, [BUILD], 1, 0, 2), phases.BEFORE),
        (stack(StackActivity.OTHER, [MAIN], 1, 18, 19), phases.AFTER),
        (stack(StackActivity.OTHER, [OWN_PYTHON], 1, 4, 17), phases.STEPS),
        (stack(StackActivity.FORWARD, [STEP], 1, 2, 17), phases.STEPS),
        (stack(StackActivity.OTHER, [READ, PARSE], 1, 5, 12), phases.BETWEEN),
        (stack(StackActivity.OTHER, [EVALUATE, SCORE], 1, 5, 12), phases.EVALUATION),
        (stack(StackActivity.DATA, [EVALUATE, SCORE], 1, 5, 12), phases.EVALUATION),
        (stack(StackActivity.FORWARD, [EVALUATE, SCORE], 1, 0, 1), phases.BEFORE),
        (stack(StackActivity.FORWARD, [ROLL_OUT, ACT], 1, 2, 12), phases.UNGRADED),
        (stack(StackActivity.FORWARD, [ROLL_OUT, ACT], 1, 0, 2), phases.BEFORE),
        (stack(StackActivity.OTHER, [ROLL_OUT, ACT], 1, 17, 19), phases.AFTER),
        (stack(StackActivity.OTHER, [AVERAGE], 1, 4, 17), phases.STEPS),
        (stack(StackActivity.DATA, [STEP], 1, 2, 17), phases.DATA),
        (stack(StackActivity.SAVING, [SAVE], 1, 5, 12), phases.SAVING),
        (stack(StackActivity.NETWORK, [BUILD], 1, 0, 1), phases.NETWORK),
        (stack(StackActivity.IMPORTING, [], 1, 0, 1), phases.IMPORTS),
        (stack(StackActivity.COMPILING, [STEP], 1, 2, 3), phases.COMPILING),
        (stack(StackActivity.LOGGING, [STEP], 1, 3, 17), phases.LOGGING),
        (stack(StackActivity.LOADING, [BUILD], 1, 1, 2), phases.LOADING),
        (stack(StackActivity.EVALUATING, [EPOCH], 1, 5, 12), phases.EVALUATION),
        (stack(StackActivity.COLLECTING, [STEP], 1, 3, 17), phases.COLLECTING),
        (stack(StackActivity.COLLECTING, [CLEAN], 1, 5, 12), phases.BETWEEN),
        (stack(StackActivity.PROFKIT, [STEP], 1, 5, 6), phases.PROFKIT),
    ],
)
def test_each_stack_belongs_to_one_phase(seen, expected):
    found = labels(run(*TRAINING, seen))
    assert found.pop(phases.START) == 1
    assert found == ({phases.STEPS: 7} if expected == phases.STEPS else {phases.STEPS: 6, expected: 1})


def test_shares_are_of_the_run_without_profkit():
    whole = told(run(*TRAINING, stack(StackActivity.PROFKIT, [STEP], 1, 5, 6)))
    assert (whole.time_ns, whole.own_ns) == (8 * S, S)
    fractions = {phase.label: phase.fraction for phase in whole.phases}
    assert fractions == {phases.START: 1 / 7, phases.STEPS: 6 / 7, phases.PROFKIT: 1 / 8}


def test_without_steps_the_programs_code_is_told_as_such():
    assert labels(run(stack(StackActivity.OTHER, [BUILD], 5, 0, 6))) == {phases.START: 1, phases.PROGRAM: 5}


def test_a_program_that_only_calls_a_model_steps_by_it():
    calling = stack(StackActivity.FORWARD, [EPOCH], 5, 2, 17)
    assert labels(run(calling))[phases.STEPS] == 5


FIT = Place(CallSite("fit.py", 9, "main", "trainer.train()"))


@pytest.mark.parametrize(
    ("activity", "expected"), [(StackActivity.OTHER, phases.STEPS), (StackActivity.DATA, phases.DATA)]
)
def test_what_a_library_s_own_loop_does_between_its_passes_belongs_to_the_steps(activity, expected):
    def at(activity, time_s):
        return StackTime(activity.value, (0,), time_s * S, 0, 2 * S, 17 * S, 9, 1)

    callback = StackTime(StackActivity.OTHER.value, (0, 1), S, 0, 5 * S, 12 * S, 9, 1)
    account = RunAccount(
        9 * S, 10 * S, 30 * S, (FIT, READ), (at(StackActivity.BACKWARD, 4), at(activity, 2), callback), S
    )
    assert label_stacks(account) == [phases.STEPS, expected, phases.BETWEEN]


def test_a_program_that_only_evaluates_steps_by_its_evaluation():
    scoring = stack(StackActivity.OTHER, [EVALUATE, SCORE], 5, 2, 17)
    found = labels(
        run(stack(StackActivity.OTHER, [BUILD], 1, 0, 1), scoring, stack(StackActivity.OTHER, [MAIN], 1, 18, 19))
    )
    assert found == {phases.START: 1, phases.BEFORE: 1, phases.STEPS: 5, phases.AFTER: 1}


def test_a_program_that_only_runs_a_model_without_gradients_steps_by_that():
    assert labels(run(stack(StackActivity.FORWARD, [ROLL_OUT, ACT], 5, 2, 17)))[phases.STEPS] == 5


def test_work_without_gradients_is_told_at_its_innermost_line():
    whole = told(run(*TRAINING, stack(StackActivity.FORWARD, [ROLL_OUT, ACT], 1, 2, 12)))
    (line,) = next(phase for phase in whole.phases if phase.label == phases.UNGRADED).lines
    assert line.location.line == 19


def test_a_part_of_a_run_has_no_start():
    part = RunAccount(0, 10 * S, 30 * S, PLACES, TRAINING, S)
    assert labels(part) == {phases.START: 0, phases.STEPS: 6}


def test_places_that_do_not_exist_are_left_out():
    """A file may be damaged."""
    broken = StackTime("other", (700, -3), S, 0, 0, S, 1, 1)
    unknown = StackTime("singing", (), S, 0, 0, S, 1, 1)
    assert labels(run(*TRAINING, broken, unknown))[phases.STEPS] == 6


def test_the_band_shows_the_phase_with_most_of_each_column():
    columns = (((0, 7), (1, 9)), (), ((2, 5),))
    saving = stack(StackActivity.SAVING, [SAVE], 1, 5, 12)
    whole = told(run(*TRAINING, saving, columns=columns))
    assert [whole.phases[number].label for number in whole.band] == [
        phases.START,
        phases.STEPS,
        phases.STEPS,
        phases.SAVING,
    ]


def test_a_file_that_claims_a_run_of_ages_draws_a_bounded_band():
    claimed = RunAccount(1, 10**18, 30 * S, PLACES, TRAINING, 1, (((0, 1),),) * 5000)
    assert len(told(claimed).band) == 2400


def columns_of(numbers):
    """Each column has one stack all the time; None is another phase."""
    return tuple(((number, S),) if number is not None else ((0, S),) for number in numbers)


def find(label, *stacks, columns):
    facts = Facts(no_trace(), account=run(*TRAINING, *stacks, columns=columns_of(columns)))
    return [(found.site.line, found.time_ns // S, found.visits) for found in repeated_between_steps(facts, label)]


def test_what_the_training_waits_for_again_and_again_is_told_at_the_line_beside_it():
    parse = stack(StackActivity.OTHER, [READ, PARSE], 3, 5, 15)
    read = stack(StackActivity.OTHER, [READ], 1, 5, 15)
    columns = [None] * 5 + [2, 3, None, None, 2, 2] + [None] * 8
    assert find(phases.BETWEEN, parse, read, columns=columns) == [(41, 4, 2)]


@pytest.mark.parametrize(
    ("parse_s", "clean_s", "own_s", "inner"),
    [
        (3, 0, 1, [7]),
        (2, 4, 1, [11, 7]),
        (1, 7, 0, [11]),  # an eighth is no place to begin
        (1, 0, 1, [7]),
        (1, 0, 2, []),  # most of it passes at the line itself
        (0, 0, 3, []),
    ],
)
def test_the_lines_below_are_told_if_most_of_it_passes_there(parse_s, clean_s, own_s, inner):
    clean = Place(CallSite("data.py", 11, "clean"), loop=10)
    stacks = (
        *TRAINING,
        *(
            StackTime(StackActivity.OTHER.value, places, time_s * S, 0, 5 * S, 15 * S, 1, 2)
            for places, time_s in (((0, 4, 5), parse_s), ((0, 4, len(PLACES)), clean_s), ((0, 4), own_s))
            if time_s
        ),
    )
    numbers = range(2, len(stacks))
    visit = tuple((at, S) for at in numbers)
    columns = (*columns_of([None] * 5), visit, ((0, S),), visit)
    account = RunAccount(
        9 * S, 10 * S, 30 * S, (*PLACES, clean), stacks, S, columns + columns_of([None] * 8), is_over=True
    )
    (found,) = repeated_between_steps(Facts(no_trace(), account=account), phases.BETWEEN)
    assert (found.site.line, [site.line for site in found.inner]) == (41, inner)


def test_once_is_not_again():
    assert find(phases.BETWEEN, stack(StackActivity.OTHER, [READ], 3, 5, 8), columns=[None] * 5 + [2, 2, 2, None]) == []


def test_what_comes_before_the_first_step_or_after_the_last_does_not_count():
    saving = stack(StackActivity.SAVING, [SAVE], 4, 1, 19, visits=3)
    assert find(phases.SAVING, saving, columns=[2, 2, None, None, 2] + [None] * 13 + [2]) == [(47, 1, 2)]
    assert find(phases.SAVING, saving, columns=[2, 2] + [None] * 16 + [2]) == []


def test_what_a_function_that_evaluates_does_around_its_loop_is_no_step():
    before = Place(CallSite("train.py", 10, "evaluate"), evaluates=True)
    after = Place(CallSite("train.py", 14, "evaluate"), evaluates=True)
    stacks = (
        StackTime(StackActivity.OTHER.value, (0,), 1 * S, 0, 0, 2 * S, 1, 1),
        StackTime(StackActivity.FORWARD.value, (1,), 5 * S, 0, 3 * S, 17 * S, 1, 1),
        StackTime(StackActivity.OTHER.value, (2,), 2 * S, 0, 18 * S, 19 * S, 1, 1),
    )
    account = RunAccount(9 * S, 10 * S, 30 * S, (before, SCORE, after), stacks, S, (), is_over=True)
    assert labels(account) == {phases.START: 1, phases.BEFORE: 1, phases.STEPS: 5, phases.AFTER: 2}


@pytest.mark.parametrize(
    ("copied_s", "expected"), [(2, {phases.NETWORK: 5}), (4, {phases.NETWORK: 3, phases.BETWEEN: 4})]
)
def test_a_line_that_mostly_waits_for_the_network_does_so_in_all_its_looks(copied_s, expected):
    sending = stack(StackActivity.NETWORK, [READ], 3, 5, 12), stack(StackActivity.OTHER, [READ], copied_s, 5, 12)
    found = labels(run(*TRAINING, *sending))
    assert {label: found[label] for label in found if label not in (phases.START, phases.STEPS)} == expected


@pytest.mark.parametrize(("other_s", "visits"), [(0, 4), (2, 1)])
def test_visits_within_one_column_are_known_from_how_often_the_line_was_entered(other_s, visits):
    read = Place(CallSite("train.py", 41, "main"), loop=39, entries=5)
    stacks = (
        StackTime(StackActivity.BACKWARD.value, (0,), 5 * S, 0, 1 * S, 19 * S, 1, 5),
        StackTime(StackActivity.OTHER.value, (1, 2), 4 * S, 0, 2 * S, 18 * S, 1, 1),
        StackTime(StackActivity.OTHER.value, (1, 3), 4 * S, 0, 2 * S, 18 * S, 1, 1),
        StackTime(StackActivity.SAVING.value, (1,), other_s * S, 0, 2 * S, 18 * S, 1, 1),
    )
    column = ((0, 5 * S), (1, 4 * S), (2, 4 * S))
    places = (STEP, read, PARSE, Place(CallSite("data.py", 9, "parse"), loop=6))
    account = RunAccount(0, S, 21 * S, places, stacks, 20 * S, (column,), is_over=True)
    found = repeated_between_steps(Facts(no_trace(), account=account), phases.BETWEEN)
    assert [(one.site.line, one.visits) for one in found] == ([(41, visits)] if visits > 1 else [])


def steps_with_lines(marked: int, operators: tuple[int, ...]) -> list[dict]:
    """A located step in which call site ``marked`` runs, and measured ones, with so many operators each."""
    events = [mark(marked, 10, 900)]
    for number, count in enumerate(operators):
        events += [step(number, 1000 * number, 1000)]
        events += [op("aten::mul", 1000 * number + 20 + 10 * i, 5) for i in range(count)]
    return events


@pytest.mark.parametrize(
    ("marked", "operators", "in_steps"),
    [
        (1, (20, 20, 20), True),
        (0, (20, 20, 20), False),  # the recorded steps do not evaluate
        (1, (60, 20, 20), False),  # the end of an epoch fell into the located step by chance
    ],
)
def test_an_evaluation_in_each_step_lies_in_the_steps(marked, operators, in_steps):
    account = run(*TRAINING, stack(StackActivity.OTHER, [EVALUATE, SCORE], 5, 4, 16))
    callsites = (STEP.site, EVALUATE.site)
    facts = facts_of(steps_with_lines(marked, operators), callsites=callsites, account=account)
    whole = phases.whole_run(facts)
    assert whole is not None
    assert {phase.label: phase.in_steps for phase in whole.phases}[phases.EVALUATION] is in_steps
    assert not any(phase.in_steps for phase in whole.phases if phase.label != phases.EVALUATION)


def test_a_run_that_was_only_watched_has_no_recorded_steps():
    account = run(*TRAINING, stack(StackActivity.OTHER, [EVALUATE, SCORE], 5, 4, 16))
    whole = phases.whole_run(Facts(no_trace(), account=account))
    assert whole is not None
    assert not any(phase.in_steps for phase in whole.phases)
