"""Collectives whose recordings do not name their process group: 2 x 2 ranks, in microseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs

from profkit.derive.launch.lateness import weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.derive.launch.table import Group, RankTable
from tests.derive.launch.tables import Did, table

ROWS, COLUMNS, ALL = ((0, 1), (2, 3)), ((0, 2), (1, 3)), (0, 1, 2, 3)
LISTS = {rank: (ALL, *(ranks for ranks in (*ROWS, *COLUMNS) if rank in ranks)) for rank in range(4)}
STEPS = 4
DOUBT = "the recordings do not say which process group some collectives (all_reduce) belong to: "


def collective(begins: Sequence[float], takes: float, step: int, size: int) -> list[Did]:
    """One collective for each rank of the group, beginning at these times."""
    return [Did(begin, max(begins) + takes, step, size=size) for begin in begins]


def training(apart: float, takes: float = 5) -> list[list[Did]]:
    """Each rank's step: rows exchange 100 bytes twice, then columns exchange 200 bytes. One of the rows and one of the
    columns, alternately, is this much later."""
    did: list[list[Did]] = [[], [], [], []]
    for step in range(STEPS):
        start = 10_000.0 * step
        for turn in range(2):
            for row, ranks in enumerate(ROWS):
                at = start + 2_000 * turn + (apart if (step + turn) % 2 == row else 0)
                for rank, one in zip(ranks, collective([at, at + 3], takes, step, 100), strict=True):
                    did[rank].append(one)
        for column, ranks in enumerate(COLUMNS):
            at = start + 6_000 + (apart if step % 2 == column else 0)
            for rank, one in zip(ranks, collective([at, at + 3], takes, step, 200), strict=True):
                did[rank].append(one)
    return did


def tables_of(
    apart: float, listed: bool, *, operation: str = "all_reduce", takes: float = 5, on_device: bool = False
) -> list[RankTable]:
    group = {rank: Group("", 4, candidates=LISTS[rank] if listed else ()) for rank in range(4)}
    tables = [
        table(
            rank,
            [Did(one.start, one.end, one.step, size=one.size, operation=operation) for one in did],
            world=4,
            groups=[group[rank]],
        )
        for rank, did in enumerate(training(apart, takes))
    ]
    return [
        structs.replace(
            one, collectives=structs.replace(one.collectives, on_device=np.full(len(one.collectives), on_device))
        )
        for one in tables
    ]


def named() -> Launch:
    """The same, with named groups as in a modern recording."""
    tables = []
    for rank, did in enumerate(training(100)):
        row, column = next(one for one in ROWS if rank in one), next(one for one in COLUMNS if rank in one)
        of_size = [Did(one.start, one.end, one.step, size=one.size, group=one.size // 100 - 1) for one in did]
        tables.append(table(rank, of_size, world=4, groups=[Group("tp", 2, row), Group("dp", 2, column)]))
    return match(tables)


def pairs_of(launch: Launch) -> list[tuple[int, ...]]:
    """The sorted ranks of each joint collective."""
    parts = launch.parts
    return sorted(tuple(parts.table[parts.joint == joint].tolist()) for joint in range(len(launch.joint)))


@pytest.mark.parametrize("listed", [True, False])
def test_groups_without_names_are_separated_by_collectives_that_cannot_be_joint(listed):
    expected = pairs_of(named())
    found = match(tables_of(100, listed))
    assert pairs_of(found) == expected
    assert sorted(set(expected)) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert any("divided by which ranks" in note for note in found.notes) is not listed


def test_clocks_wrong_by_a_day_do_not_change_the_groups():
    tables = tables_of(100, listed=False)
    day = 86_400_000_000_000
    taken = tables[2].collectives
    late = structs.replace(taken, start_ns=taken.start_ns + day, end_ns=taken.end_ns + day)
    assert pairs_of(match([*tables[:2], structs.replace(tables[2], collectives=late), tables[3]])) == pairs_of(named())


def test_with_several_possible_groups_nothing_is_compared():
    found = match(tables_of(0, listed=True))
    assert len(found.joint) == 0
    (note,) = found.notes
    assert note.endswith("some collectives (all_reduce) belong to: they are not compared")


def test_without_a_list_of_groups_the_collectives_of_one_stream_belong_to_all_ranks():
    found = match(tables_of(0, listed=False))
    assert set(pairs_of(found)) == {ALL}
    assert found.notes == (f"{DOUBT}taken for those of all ranks, which nothing contradicts",)


@pytest.mark.parametrize("listed", [True, False])
def test_kernels_that_end_together_belong_to_one_group(listed):
    """Long ones overlap, so all ranks may have taken part. But only those of one group end at the same moment."""
    assert pairs_of(match(tables_of(100, listed, takes=500, on_device=True))) == pairs_of(named())
    threads = match(tables_of(100, listed, takes=500))  # they notice the end when they get a processor
    assert set(pairs_of(threads)) == (set() if listed else {ALL})


def test_kernels_that_end_together_on_all_ranks_may_be_taken_for_one_group():
    """All ranks wait equally long, whatever their groups."""
    found = match(tables_of(0, listed=True, on_device=True))
    assert set(pairs_of(found)) == {ALL}
    assert found.notes == (f"{DOUBT}taken for one of 4 ranks, because they end at the same time on all of these",)
    assert weigh_lateness(found).waited_ns.reshape(-1, 4)[:, 0].tolist() == [3_000] * 3 * STEPS


def test_a_few_kernels_that_end_together_prove_nothing():
    tables = tables_of(0, listed=True, on_device=True)
    steps = [np.where(one.collectives.step == 0, -1, one.collectives.step) for one in tables]
    few = [
        structs.replace(one, collectives=structs.replace(one.collectives, step=step))
        for one, step in zip(tables, steps, strict=True)
    ]
    columns = {int(size) for size in match(few).joint.size_bytes}
    assert columns == {100}  # six exchanges within rows, three within columns


def test_an_all_gather_that_ends_on_one_rank_after_another_belongs_to_one_group():
    """A ring's last piece comes to each rank in turn, some microseconds later or earlier in each."""
    tables = tables_of(0, listed=False, takes=40_000, on_device=True)
    late = [
        one.collectives.end_ns + 300_000 * (np.arange(len(one.collectives)) % 2) * (rank == 1)
        for rank, one in enumerate(tables)
    ]
    found = match(
        [
            structs.replace(one, collectives=structs.replace(one.collectives, end_ns=end))
            for one, end in zip(tables, late, strict=True)
        ]
    )
    assert set(pairs_of(found)) == {ALL}


def test_ranks_that_do_not_form_groups_of_equal_size_are_not_compared():
    tables = tables_of(100, listed=False)
    third = structs.replace(
        tables[3].collectives, start_ns=tables[0].collectives.start_ns, end_ns=tables[0].collectives.end_ns
    )
    found = match([*tables[:3], structs.replace(tables[3], collectives=third)])
    assert any("they belong to several groups and are not compared" in note for note in found.notes)


def test_broadcasts_prove_nothing_as_their_root_ends_before_others_begin():
    assert set(pairs_of(match(tables_of(100, listed=False, operation="broadcast")))) == {ALL}
    assert len(match(tables_of(100, listed=True, operation="broadcast")).joint) == 0


def test_one_listed_group_leaves_no_doubt():
    tables = [structs.replace(one, groups=(Group("", 4, candidates=(ALL,)),)) for one in tables_of(0, listed=True)]
    assert set(pairs_of(match(tables))) == {ALL}


def message(rank: int, others: Sequence[tuple[int, int]], sends: bool) -> Group:
    return Group("", 2, sends=sends, candidates=tuple(others))


def test_the_receiver_of_a_message_is_the_possible_rank_that_may_expect_it():
    """Pipelines of ranks 0 and 1, and of 2 and 3: each sends to, and receives from, number 1 or 0 of its group."""
    groups = {
        0: [message(0, [(0, 1), (0, 2)], True), message(0, [(1, 0), (2, 0)], False)],
        1: [message(1, [(1, 0)], True), message(1, [(0, 1)], False)],
        2: [message(2, [(2, 1), (2, 3)], True), message(2, [(1, 2), (3, 2)], False)],
        3: [message(3, [(3, 0), (3, 1), (3, 2)], True), message(3, [(0, 3), (1, 3), (2, 3)], False)],
    }
    did = [
        Did(at, at + 5, step, operation="send_recv", group=group)
        for step in range(3)
        for group, at in enumerate((100 * step, 100 * step + 50))
    ]
    found = match([table(rank, did, world=4, groups=groups[rank]) for rank in range(4)])
    assert set(pairs_of(found)) == {(0, 1), (2, 3)}
    assert found.notes == ()


def test_a_message_with_several_possible_receivers_is_not_compared_and_a_note_says_so():
    did = [Did(0, 5, operation="send_recv")]
    sender = table(0, did, world=3, groups=[message(0, [(0, 1), (0, 2)], True)])
    receivers = [table(rank, did, world=3, groups=[message(rank, [(0, rank)], False)]) for rank in (1, 2)]
    found = match([sender, *receivers])
    assert len(found.joint) == 0
    assert found.notes[0] == "rank0: its messages do not say whom they go to or come from, so they are not compared"
