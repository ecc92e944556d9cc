"""Which collectives of several ranks belong together, and which recordings do not belong to the launch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.derive.launch.table import Group, RankTable
from tests.derive.launch.tables import Did, table

DAY_US = 86_400 * 10**6


def some(count: int = 6, shift: float = 0, first: int = -1, per_step: int = 2) -> list[Did]:
    """All-reduces of rising size, every 10 µs; of 100 and 200 bytes in each step."""
    return [
        Did(
            10 * i + shift, 10 * i + 5 + shift, i // per_step, first + i if first >= 0 else -1, 100 * (i % per_step + 1)
        )
        for i in range(count)
    ]


def pairs(launch: Launch) -> list[list[tuple[int, int]]]:
    """The ranks and their rows of each joint collective."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(len(launch.joint))]
    for joint, at, row in zip(launch.parts.joint, launch.parts.table, launch.parts.row, strict=True):
        found[joint].append((launch.tables[at].identity.rank, int(row)))
    return found


def side_by_side(count: int, ranks: Sequence[int] = (0, 1)) -> list[list[tuple[int, int]]]:
    return [[(rank, row) for rank in ranks] for row in range(count)]


def test_ranks_that_did_the_same_are_matched_one_by_one():
    launch = match([table(0, some()), table(1, some())])
    assert pairs(launch) == side_by_side(6)
    assert (launch.world_size, launch.notes, launch.joint.members.tolist()) == (2, (), [2] * 6)
    assert launch.joint.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert launch.joint.size_bytes.tolist() == [100, 200] * 3


def test_a_clock_wrong_by_a_day_only_changes_its_offset():
    launch = match([table(1, some(shift=DAY_US)), table(0, some())])
    assert pairs(launch) == side_by_side(6)
    assert launch.offset_ns.tolist() == [0, -DAY_US * 1000]


@pytest.mark.parametrize(("given", "kept"), [(5_000, 5_000), (2**63, 0), (10**30, 0)])
def test_a_given_clock_offset_that_no_clock_can_have_is_not_believed(given, kept):
    tables = [table(0, some()), table(1, some())]
    offsets = (0, given)
    known = [
        structs.replace(one, identity=structs.replace(one.identity, clock_offset_ns=offset))
        for one, offset in zip(tables, offsets, strict=True)
    ]
    assert match(known).offset_ns.tolist() == [0, kept]


def test_a_clock_offset_is_the_median_so_one_wrong_end_does_not_matter():
    other = [Did(d.start + 7, d.end + (50 if at == 0 else 7), d.step, -1, d.size) for at, d in enumerate(some())]
    assert match([table(0, some()), table(1, other)]).offset_ns.tolist() == [0, -7000]


def test_recordings_that_begin_at_different_collectives_are_matched_by_their_numbers():
    launch = match([table(0, some(first=40)), table(1, some(4, first=42))])
    assert pairs(launch) == [[(0, row + 2), (1, row)] for row in range(4)]


def test_recordings_of_different_steps_are_matched_by_the_steps_numbers():
    later = [Did(d.start, d.end, d.step + 1, -1, d.size) for d in some(4)]
    launch = match([table(0, some()), table(1, later)])
    assert pairs(launch) == [[(0, row + 2), (1, row)] for row in range(4)]


def test_recordings_without_steps_are_matched_if_they_fit_at_exactly_one_place():
    def without_steps(sizes: list[int]) -> list[Did]:
        return [Did(10 * i, 10 * i + 5, -1, -1, size) for i, size in enumerate(sizes)]

    launch = match([table(0, without_steps([1, 2, 3, 4, 5])), table(1, without_steps([3, 4, 5]))])
    assert pairs(launch) == [[(0, row + 2), (1, row)] for row in range(3)]


def test_a_sequence_that_fits_at_several_places_is_not_matched():
    def without_steps(count: int) -> list[Did]:
        return [Did(10 * i, 10 * i + 5, -1, -1, 100) for i in range(count)]

    launch = match([table(0, without_steps(5)), table(1, without_steps(4))])
    assert len(launch.joint) == 0
    (note,) = launch.notes
    assert note == "rank1: its collectives fit those of others at several places, and are not compared with them"


def test_a_rank_without_steps_in_common_gets_a_note():
    equal = [Did(d.start, d.end, d.step, -1, 100) for d in some(6)]
    later = [Did(d.start, d.end, d.step + 10, -1, 100) for d in some(4)]
    (note,) = match([table(0, equal), table(1, later)]).notes
    assert note == "rank1: its collectives are of steps that the others did not record, and are not compared with them"


def test_a_lost_kernel_leaves_the_rest_of_the_step_matched():
    launch = match([table(0, some(8, per_step=4)), table(1, [d for i, d in enumerate(some(8, per_step=4)) if i != 1])])
    assert pairs(launch) == [[(0, 0), (1, 0)], *([(0, row), (1, row - 1)] for row in range(2, 8))]


def test_ranks_may_put_different_numbers_of_bytes_into_an_all_to_all():
    def exchange(size: int) -> list[Did]:
        return [Did(0, 5, 0, -1, size, "all_to_all")]

    assert pairs(match([table(0, exchange(5)), table(1, exchange(7))])) == side_by_side(1)


def test_sizes_unknown_to_one_rank_are_not_compared():
    unknown = [Did(d.start, d.end, d.step, -1, -1) for d in some()]
    assert pairs(match([table(0, some()), table(1, unknown)])) == side_by_side(6)


def test_groups_with_different_names_are_matched_by_their_ranks():
    names = [Group("12", 2, (0, 1)), Group("13", 2, (0, 2))], [Group("7", 2, (0, 1))], [Group("12", 2, (0, 2))]
    mine = [Did(0, 5), Did(10, 15, group=1)]
    launch = match(
        [
            table(0, mine, world=3, groups=names[0]),
            table(1, [Did(0, 5)], world=3, groups=names[1]),
            table(2, [Did(10, 15)], world=3, groups=names[2]),
        ]
    )
    assert pairs(launch) == [[(0, 0), (1, 0)], [(0, 1), (2, 0)]]
    assert launch.joint.group.tolist() == [0, 1]


def test_groups_of_the_same_ranks_with_different_names_are_matched_by_order():
    first, second = (Group(a, 2, (0, 1)) for a in "ab"), (Group(a, 2, (0, 1)) for a in "cd")
    did = [Did(0, 5), Did(10, 15, group=1)]
    launch = match([table(0, did, groups=tuple(first)), table(1, did, groups=tuple(second))])
    assert (pairs(launch), launch.joint.group.tolist()) == (side_by_side(2), [0, 1])


def three_and(stranger: RankTable) -> Launch:
    return match([*(table(rank, some(), world=4) for rank in range(3)), stranger])


def test_a_rank_of_another_job_is_left_out_with_a_note():
    other = [Did(d.start, d.end, d.step, -1, 7, "broadcast") for d in some(20)]
    launch = three_and(table(3, other, world=4))
    assert pairs(launch) == side_by_side(6, (0, 1, 2))
    assert launch.notes == (
        "rank3: its collectives are none of the others'; it is left out",
        "rank 3 of 4 is missing; what it did is unknown",
    )


def test_a_collective_that_does_not_fit_is_left_out_with_a_note():
    launch = match(
        [
            table(0, some(), launch="a"),
            table(1, some(), launch="a"),
            table(1, some(4), source="copy"),
            table(1, some(), launch="b", source="old"),
            table(0, some(), world=8, source="larger"),
            table(5, some(), source="far"),
            table(1, [], source="empty"),
            table(-1, some(), source="nobody"),
        ]
    )
    assert pairs(launch) == side_by_side(6)
    assert sorted(launch.notes) == [
        "copy: it is rank 1, as rank1 is, which holds at least as many collectives; it is left out",
        "empty: it holds no collective that could tie it to the others; it is left out",
        "far: it is rank 5 of only 2 ranks; it is left out",
        "larger: it is one of 8 ranks, while the others are of 2; it is left out",
        "nobody: it does not say which rank it is; it is left out",
        "old: it belongs to another launch; it is left out",
    ]


def test_missing_ranks_are_named_and_a_sample_of_ranks_is_counted():
    assert three_and(table(0, some(), world=4)).notes[-1] == "rank 3 of 4 is missing; what it did is unknown"
    few = match([table(0, some(), world=128), table(1, some(), world=128)])
    assert few.notes == ("2 of 128 ranks were recorded; what the others did is unknown",)
    assert few.world_size == 128


def test_recordings_without_rank_numbers_are_counted():
    launch = match([table(-1, some(), world=-1, source="a"), table(-1, some(), world=-1, source="b")])
    assert [one.identity.rank for one in launch.tables] == [0, 1]
    assert (pairs(launch), launch.world_size) == (side_by_side(6), 2)


def test_without_collectives_nothing_is_matched():
    launch = match([])
    assert (len(launch.joint), len(launch.parts), launch.tables) == (0, 0, ())


def test_joint_collectives_of_all_groups_are_in_order_of_time():
    groups = (Group("a", 2, (0, 1)), Group("b", 2, (0, 1), "other"))
    did = [Did(0, 5), Did(10, 15, group=1), Did(20, 25)]
    launch = match([table(0, did, groups=groups), table(1, did, groups=groups)])
    assert launch.joint.group.tolist() == [0, 1, 0]
    assert np.all(np.diff(launch.parts.joint) >= 0)


def test_a_cut_off_recording_is_ignored_if_two_others_are_complete():
    broken = structs.replace(table(2, some(3), world=3), is_cut_off=True)
    whole = [table(0, some(), world=3), table(1, some(), world=3)]
    launch = match([*whole, broken])
    assert pairs(launch) == side_by_side(6)
    assert launch.notes[0] == "rank2: its file is cut off, and what is lost may be from any time; it is left out"
    assert [one.identity.rank for one in match([whole[0], broken]).tables] == [0, 2]


def test_an_unknown_group_contains_all_ranks():
    nameless = table(1, some(), world=-1, groups=(Group("", -1),))
    assert pairs(match([table(0, some(), groups=(Group("", 2),)), nameless])) == side_by_side(6)
