"""Recordings that cannot belong to the others' launch: tables written by hand, in microseconds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.derive.launch.table import Group, RankTable
from tests.derive.launch.tables import Did, table

RANKS, STEPS = 4, 6
WORLD = Group("0", RANKS, tuple(range(RANKS)))


def exchanged(count: int = STEPS, sways: float = 0, operation: str = "all_reduce") -> list[Did]:
    """A collective of 1 ms in each step of 10 ms, alternately this much later and earlier."""
    begins = [10_000 * at + sways * (-1) ** at for at in range(count)]
    return [Did(begin, begin + 1_000, at, operation=operation) for at, begin in enumerate(begins)]


def rank_of(number: int, did: Sequence[Did]) -> RankTable:
    return table(number, did, world=RANKS, groups=[WORLD])


def beside_three(stranger: RankTable) -> Launch:
    return match([*(rank_of(number, exchanged()) for number in range(3)), stranger])


def left_out(launch: Launch) -> list[str]:
    return [note.removesuffix("; it is left out") for note in launch.notes if note.endswith("it is left out")]


def test_a_rank_whose_collectives_end_before_the_others_begin_is_left_out():
    """Its steps also take 10 ms, but alternately 3 ms more and less than the others', which exchange for 1 ms."""
    swaying = exchanged(sways=1_500)
    found = beside_three(rank_of(3, swaying))
    assert left_out(found) == [
        "rank3: by its times, collectives end before they have begun on other ranks, or the other way round"
    ]
    assert [one.identity.rank for one in found.tables] == [0, 1, 2]


def test_a_rank_that_varies_by_less_than_a_collective_takes_is_kept():
    assert beside_three(rank_of(3, exchanged(sways=490))).notes == ()


def test_a_rank_that_the_others_wait_for_in_every_second_step_is_kept():
    """Rank 3 comes 5 ms later in every second step, and the others' collectives last until it comes."""
    late = [5_000.0 * (at % 2) for at in range(STEPS)]
    others = [Did(10_000 * at, 10_000 * at + late[at] + 1_000, at) for at in range(STEPS)]
    mine = [Did(10_000 * at + late[at], 10_000 * at + late[at] + 1_000, at) for at in range(STEPS)]
    found = match([*(rank_of(number, others) for number in range(3)), rank_of(3, mine)])
    assert (len(found.tables), found.notes) == (RANKS, ())


def test_one_wrong_time_in_twenty_is_not_enough_to_leave_out_a_rank():
    def twenty(wrong: float) -> list[Did]:
        return [
            Did(d.start + wrong * (at == 7), d.end + wrong * (at == 7), d.step) for at, d in enumerate(exchanged(20))
        ]

    found = match([*(rank_of(number, twenty(0)) for number in range(3)), rank_of(3, twenty(4_000))])
    assert found.notes == ()


def test_broadcasts_prove_nothing_as_their_root_ends_before_others_begin():
    swaying = exchanged(sways=1_500, operation="broadcast")
    others = [rank_of(number, exchanged(operation="broadcast")) for number in range(3)]
    assert match([*others, rank_of(3, swaying)]).notes == ()


def test_two_contradicting_recordings_are_not_compared():
    swaying = exchanged(sways=1_500)
    found = match([table(0, exchanged()), table(1, swaying)])
    assert (len(found.tables), len(found.joint)) == (2, 0)
    assert found.notes[0].startswith("rank0, rank1: their times contradict each other")


def test_overlapping_collectives_in_one_stream_show_a_broken_clock_even_of_two_ranks():
    long = [Did(d.start, d.start + 1_000_000, d.step) for d in exchanged()]
    found = match([table(0, exchanged()), table(1, long)])
    assert left_out(found) == [
        "rank1: its collectives overlap each other within one thread or stream, so its times are wrong"
    ]


def test_collectives_of_two_streams_may_overlap():
    twice = [each for did in exchanged() for each in (did, after(did))]
    lanes = [
        structs.replace(one, collectives=structs.replace(one.collectives, lane=one.collectives.sequence % 2))
        for one in (rank_of(number, twice) for number in range(RANKS))
    ]
    assert match(lanes).notes == ()
    assert len(match(lanes).tables) == RANKS


def after(did: Did) -> Did:
    return Did(did.start + 100, did.end + 100, did.step, size=200)


@pytest.mark.parametrize(("steps", "stays"), [(3, False), (4, True)])
def test_a_rank_with_at_most_half_of_the_steps_is_left_out_and_one_with_more_gets_a_note(steps: int, stays: bool):
    found = beside_three(rank_of(3, exchanged(steps)))
    assert (len(found.tables) == RANKS) is stays
    note = (
        "rank3: not all of the 6 steps that most ranks recorded; only 4 of them show who is late"
        if stays
        else "rank3: it recorded 3 of the 6 steps that most others recorded; it is left out"
    )
    assert note in found.notes


def test_without_a_step_that_most_ranks_have_nobody_is_left_out():
    def later(number: int) -> list[Did]:
        return [Did(d.start, d.end, d.step + 100 * number, 50 + at) for at, d in enumerate(exchanged())]

    found = match([rank_of(number, later(number)) for number in range(RANKS)])
    assert len(found.tables) == RANKS


def test_a_rank_with_different_step_numbers_is_left_out_if_collective_numbers_show_it():
    def numbered(later: int) -> list[Did]:
        return [Did(d.start, d.end, d.step + later, 50 + at) for at, d in enumerate(exchanged())]

    found = match([*(rank_of(number, numbered(0)) for number in range(3)), rank_of(3, numbered(1))])
    assert left_out(found) == ["rank3: it numbers its steps differently from the others"]


def in_steps(lost: Sequence[int]) -> list[Did]:
    """Two collectives in each step, but one in the steps where one is lost."""
    return [
        did
        for at in range(STEPS)
        for did in (
            Did(10_000 * at, 10_000 * at + 1_000, at),
            Did(10_000 * at + 5_000, 10_000 * at + 6_000, at, size=200),
        )
        if not (at in lost and did.size == 200)
    ]


@pytest.mark.parametrize(("lost", "stays"), [([0, 1, 2, 3], False), ([2], True), ([], True)])
def test_a_rank_that_lost_collectives_in_most_steps_is_left_out_and_in_few_gets_a_note(lost: list[int], stays: bool):
    found = match([*(rank_of(number, in_steps([])) for number in range(3)), rank_of(3, in_steps(lost))])
    assert (len(found.tables) == RANKS) is stays
    note = "rank3: more or fewer collectives than others in some steps; those that others lack are not compared"
    assert (note in found.notes) is (stays and bool(lost))


def test_a_file_with_gaps_is_left_out_once_a_collective_is_missing():
    others = [rank_of(number, in_steps([])) for number in range(3)]
    with_gaps = [structs.replace(rank_of(3, in_steps(lost)), has_gaps=True) for lost in ([2], [])]
    assert [len(match([*others, one]).tables) for one in with_gaps] == [3, 4]


def test_if_a_recording_is_left_out_another_one_of_the_same_rank_takes_its_place():
    """The stranger holds more collectives, and would be taken for rank 2."""
    other = table(
        2, [Did(d.start, d.end, d.step, size=7) for d in in_steps([])], world=RANKS, groups=[WORLD], source="other"
    )
    found = match([*(rank_of(number, exchanged()) for number in range(RANKS)), other])
    assert [one.source for one in found.tables] == [f"rank{number}" for number in range(RANKS)]
    assert left_out(found) == ["other: its collectives are none of the others'"]


def test_of_two_recordings_of_one_rank_the_one_named_after_it_counts():
    tables = [structs.replace(rank_of(number, exchanged()), named_rank=number) for number in range(3)]
    copied = structs.replace(tables[2], source="a/rank0", named_rank=0)
    found = match([*tables[1:], copied])
    assert [one.source for one in found.tables] == ["rank1", "rank2"]
    assert left_out(found) == ["a/rank0: its name says rank 0, but its content says rank 2, which is rank2"]
