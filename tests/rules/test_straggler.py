"""One rank that the others wait for."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.table import Cause
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.straggler import straggler
from profkit.savings.launch.launch_savings import predict_launch_saving
from tests.derive.launch.launches import Act, ask, both, end_step, facts_of_launch, launch_of, length_of, wait, work

TRANSFERS = {"grads": 10.0, "flag": 1.0}
JITTER = [3.0, -2.0, 4.0, -4.0, 1.0, -1.0, 2.0, -3.0]
"""Of the computing ranks, in steps that follow each other."""


def training(late: list[float], shift: int = 0, cause: Cause = Cause.INPUT, site: int = 2, steps: int = 8) -> list[Act]:
    """A step: a batch in 20 µs and what this rank is late, 100 µs of computing with some jitter, the gradients."""
    acts: list[Act] = []
    for i in range(steps):
        acts += [work(20 + late[i % len(late)], cause, site), work(100 + JITTER[(i + shift) % 8], Cause.COMPUTE, 0)]
        acts += [*both(f"grads#{i}"), work(5, Cause.COMPUTE, 1), end_step()]
    return acts


def find(programs: list[list[Act]]) -> list[Suspicion]:
    return list(straggler.check(facts_of_launch(launch_of(programs, TRANSFERS))))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_with_a_slow_loader_is_named_with_its_line_and_what_the_job_gains(ranks):
    programs = [training([0.0], rank) for rank in range(ranks)]
    programs[1] = training([50.0], 1)
    launch = launch_of(programs, TRANSFERS)
    facts = facts_of_launch(launch)
    (found,) = straggler.check(facts)
    assert found.evidence["rank"] == 1
    assert found.evidence["cause"] == "input"
    assert found.evidence["longer_ns_per_step"] == pytest.approx(50_000, rel=0.1)
    assert (found.location.file, found.location.line) == ("data.py", 5)
    mended = [*programs[:1], training([0.0], 1), *programs[2:]]
    gain = 1 - length_of(mended, TRANSFERS) / length_of(programs, TRANSFERS)
    assert predict_launch_saving(facts, found.launch_edit).fraction == pytest.approx(gain, abs=0.01)


def test_two_slow_ranks_of_eight_with_one_reason_are_one_finding():
    programs = [training([40.0 if rank in (2, 5) else 0.0], rank) for rank in range(8)]
    (found,) = find(programs)
    assert found.evidence["late_ranks"] == 2
    assert found.message.startswith("Ranks 2 and 5 work ")


def test_a_rank_whose_whole_work_is_slower_names_no_line():
    places = [work(40, Cause(cause), site) for cause in (0, 1, 4) for site in (0, 1, 2)]

    def all_over(factor: float, shift: int) -> list[Act]:
        acts: list[Act] = []
        for i in range(8):
            for at, one in enumerate(places):
                slower = 400 if factor > 1 and at == (i + shift) % 9 else 0
                acts.append(work(one.duration + slower, one.cause, one.site))
            acts += [*both(f"grads#{i}"), end_step()]
        return acts

    (found,) = find([all_over(1.0, 0), all_over(2.0, 0), all_over(1.0, 0)])
    assert found.location is None
    assert "all of its work takes longer" in found.message


def test_a_slow_loader_is_told_although_other_work_varies_more():
    def noisy(late: float, noise: list[float]) -> list[Act]:
        acts: list[Act] = []
        for i, more in enumerate(noise):
            acts += [work(20 + late + i % 2, Cause.INPUT, 2), work(100 + more, Cause.UNKNOWN, 0), *both(f"grads#{i}")]
            acts.append(end_step())
        return acts

    (found,) = find([noisy(0, [50, 0, 0, 50, 0]), noisy(46, [0, 0, 0, 0, 0])])
    assert found.evidence["cause"] == "input"
    # What one place takes longer is no loss where another takes less.
    assert find([noisy(0, [50, 0, 50, 50, 50]), noisy(46, [0, 0, 0, 0, 0])]) == []


def test_of_a_rank_that_recorded_little_nothing_is_made_up():
    def light(late: float) -> list[Act]:
        steps = ([work(120 + late, Cause.UNRECORDED, 0), *both(f"grads#{i}"), end_step()] for i in range(8))
        return [act for acts in steps for act in acts]

    (found,) = find([light(0), light(0), light(50)])
    assert found.message.endswith("most of that in what was not recorded of it.")
    assert "--ranks" in found.fix


def test_lateness_that_wanders_between_two_ranks_is_chance():
    late = [40.0, 0.0, 0.0, 40.0, 0.0, 40.0, 40.0, 0.0]
    assert find([training(late), training([40.0 - one for one in late])]) == []


def test_ranks_that_differ_by_jitter_are_silent():
    assert find([training([0.0], 0), training([0.0], 3)]) == []


def test_many_random_launches_hardly_ever_accuse_a_rank():
    """One in a hundred, by the level."""
    chance = np.random.default_rng(0)
    accused = 0
    for _ in range(200):
        late = [(20 * chance.random(5)).tolist() for _ in range(4)]
        accused += bool(find([training(one, steps=5) for one in late]))
    assert accused <= 8


def test_one_late_step_is_no_straggler():
    assert find([training([0.0]), training([0.0, 0.0, 0.0, 400.0, 0.0, 0.0, 0.0, 0.0])]) == []


def test_work_hidden_behind_a_transfer_is_silent():
    """What the gradients carry arrives after all have worked; the late rank has time meanwhile."""

    def hidden(more: float) -> list[Act]:
        acts: list[Act] = []
        for i in range(8):
            acts += [work(50), ask(f"grads#{i}"), work(20 + more), wait(f"grads#{i}"), end_step()]
        return acts

    slow = {"grads": 200.0}
    launch = launch_of([hidden(0), hidden(100)], slow)
    assert list(straggler.check(facts_of_launch(launch))) == []


@pytest.mark.parametrize("late", [(1, 3), (0, 1)])
def test_two_late_ranks_of_four_are_named_and_priced_together(late):
    programs = [training([50.0 if rank in late else 0.0], rank) for rank in range(4)]
    facts = facts_of_launch(launch_of(programs, TRANSFERS))
    (found,) = straggler.check(facts)
    assert found.message.startswith(f"Ranks {late[0]} and {late[1]} work ")
    assert found.evidence["longer_ns_per_step"] == pytest.approx(50_000, rel=0.1)
    gain = 1 - length_of([training([0.0], rank) for rank in range(4)], TRANSFERS) / length_of(programs, TRANSFERS)
    assert predict_launch_saving(facts, found.launch_edit).fraction == pytest.approx(gain, abs=0.01)


def test_ranks_that_are_late_for_different_reasons_are_named_with_both_lines():
    """To mend one of them would give nothing back."""
    programs = [training([0.0], 0), training([50.0], 1), training([0.0], 2), training([60.0], 3, Cause.HOST, 1)]
    (found,) = find(programs)
    assert found.message.startswith("Ranks 1 and 3 work ")
    assert found.message.endswith(
        "most of that of rank 3 in Python, with nothing for its device to do, "
        "most of that of rank 1 waiting for its DataLoader."
    )
    assert [place.line for place in found.places.all()] == [20, 5]


def test_the_ranks_of_a_slow_host_are_named_by_it():
    launch = launch_of([training([50.0 if rank < 2 else 0.0], rank) for rank in range(4)], TRANSFERS)
    tables = [
        structs.replace(table, identity=structs.replace(table.identity, host=f"h{at // 2}"))
        for at, table in enumerate(launch.tables)
    ]
    (found,) = straggler.check(facts_of_launch(structs.replace(launch, tables=tuple(tables))))
    assert found.message.startswith("The 2 ranks of host h0 work ")


def test_what_more_than_half_of_the_ranks_need_is_what_the_work_takes():
    assert find([training([50.0 if rank else 0.0], rank) for rank in range(4)]) == []


def test_a_rank_that_was_ready_to_run_and_had_no_cpu_is_no_straggler():
    """The same time is one if it computed meanwhile."""
    usual = [training([0.0], rank) for rank in (0, 2, 3)]
    assert find([*usual, training([50.0], 1, Cause.CONTENTION)]) == []
    assert len(find([*usual, training([50.0], 1, Cause.COMPUTE)])) == 1


def test_a_rank_that_is_late_and_crowded_out_gets_back_what_it_is_late():
    def crowded(late: float) -> list[Act]:
        acts = training([late], 1)
        return [one for act in acts for one in ((act, work(30, Cause.CONTENTION)) if act.kind == "end" else (act,))]

    programs = [training([0.0], 0), crowded(50.0), training([0.0], 2)]
    launch = launch_of(programs, TRANSFERS)
    (found,) = straggler.check(facts_of_launch(launch))
    assert found.evidence["longer_ns_per_step"] == pytest.approx(50_000, rel=0.1)
    gain = 1 - length_of([programs[0], crowded(0.0), programs[2]], TRANSFERS) / length_of(programs, TRANSFERS)
    assert predict_launch_saving(facts_of_launch(launch), found.launch_edit).fraction == pytest.approx(gain, abs=0.01)


def test_ranks_that_all_differ_have_none_that_stands_out():
    """Each is as late in every step as in the others; it is the last of eight by as much as the others differ."""
    even = [training([6.0 * rank], 0) for rank in range(8)]
    assert find(even) == []
    assert len(find([*even[:7], training([150.0], 0)])) == 1


def test_stages_of_a_pipeline_are_not_compared():
    def stage(length: float, *others: Act) -> list[Act]:
        acts: list[Act] = []
        for i in range(6):
            acts += [work(length), *both(f"grads#{i}"), *(both(f"flag#{i}") if others else ()), end_step()]
        return acts

    alone = [[work(1), *both(f"flag#{i}"), end_step()] for i in range(6)]
    launch = launch_of([stage(50), stage(150, work(0)), [act for acts in alone for act in acts]], TRANSFERS)
    with pytest.raises(CannotLook, match="no two"):
        list(straggler.check(facts_of_launch(launch)))


def test_with_fewer_than_three_steps_it_cannot_look():
    with pytest.raises(CannotLook, match="three steps"):
        find([training([0.0], steps=2), training([50.0], steps=2)])


def test_one_rank_alone_does_not_meet_its_needs():
    assert missing_needs(facts_of_launch(None), straggler.needs) == [Need.RANKS]
