"""Which two ranks a message is a matter of, by what recordings say."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.launch.table import Group
from profkit.patterns.ranks.table import rank_table
from tests.traces import Json, annotation, facts_of, kernel, op, runtime, step

WORLD = {"pg_name": "0", "ranks": [0, 1, 2, 3]}
STAGES = {"pg_name": "1", "ranks": [2, 3]}


def of_gloo(name: str, concrete: list[str] | None) -> list[Json]:
    return [
        op(f"c10d::{name}", 10, 4, dims=[[[64, 8]], [], [], []], concrete=concrete, external=1),
        annotation(f"gloo:{name.rstrip('_')}", 13, 30),
    ]


def of_nccl(name: str) -> list[Json]:
    return [
        op("c10d::send", 0, 9),
        annotation(name, 2, 5),
        runtime("cudaLaunchKernel", 3, 2, correlation=1),
        kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)", 9, 5, correlation=1),
    ]


def group_of(events: list[Json], groups: list[Json] | None = None, rank: int = 2, ranks: int = 4) -> Group:
    known: dict[str, Any] = {"rank": rank, "world_size": ranks} | ({"pg_config": groups} if groups else {})
    (group,) = rank_table(facts_of([step(0, 0, 100), *events], distributedInfo=known), "rank").groups
    return group


def test_a_call_of_gloo_names_the_other_ranks_number_in_the_only_group():
    assert group_of(of_gloo("send", ["", "", "1", "0"]), [WORLD]) == Group("2 to 1", 2, (2, 1), sends=True)
    assert group_of(of_gloo("recv_", ["", "", "3", "0"]), [WORLD]) == Group("3 to 2", 2, (3, 2), sends=False)


def test_in_one_of_several_groups_it_may_be_one_of_several_ranks():
    found = group_of(of_gloo("send", ["", "", "1", "0"]), [WORLD, STAGES])
    assert (found.ranks, found.candidates) == (None, ((2, 1), (2, 3)))


def test_two_ranks_have_only_each_other():
    assert group_of(of_gloo("send", None), rank=1, ranks=2).ranks == (1, 0)


@pytest.mark.parametrize(
    ("name", "concrete", "groups"),
    [
        ("send", None, [WORLD]),
        ("send", ["", "", "1", "0"], None),
        ("recv_any_source_", ["", "", "0"], [WORLD]),
        ("send", ["", "", "17", "0"], [WORLD]),
        ("send", ["", "", "x", "0"], [WORLD]),
    ],
)
def test_what_is_not_said_is_not_guessed(name, concrete, groups):
    found = group_of(of_gloo(name, concrete), groups)
    assert found.is_message
    assert (found.ranks, found.candidates) == (None, ())


@pytest.mark.parametrize(
    ("name", "groups", "ranks"),
    [
        ("nccl:send 2->3", None, (2, 3)),
        ("nccl:recv 2<-1", None, (1, 2)),
        ("nccl:send 0->1", None, None),
        ("nccl:send 0->1", [WORLD, STAGES], (2, 3)),
        ("nccl:recv 2<-1", [WORLD, STAGES], (1, 2)),
    ],
)
def test_ranges_of_old_traces_have_both_numbers_in_a_group(name, groups, ranks):
    assert group_of(of_nccl(name), groups).ranks == ranks


@pytest.mark.parametrize("hostile", [3, "all", [[2, 3]], [{"ranks": "2, 3"}], [{"ranks": [2, None]}], [{"ranks": []}]])
def test_a_list_of_groups_may_be_anything(hostile):
    assert group_of(of_gloo("send", ["", "", "1", "0"]), hostile).ranks is None


def test_messages_of_gloo_do_not_wait_for_those_before_in_their_thread():
    taken = rank_table(
        facts_of(
            [step(0, 0, 100), *of_gloo("send", None), *of_gloo("send", None)],
            distributedInfo={"rank": 0, "world_size": 2},
        ),
        "rank",
    ).collectives
    assert len(set(taken.lane.tolist())) == 2
    assert (taken.start_ns == taken.issue_ns).all()
