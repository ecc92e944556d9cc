"""A handwritten launch: three ranks and two steps, each with a collective of all ranks and one of the first two."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from profkit.derive.launch.lateness import Reason, WaitCosts, weigh_lateness
from profkit.derive.launch.launch import Joint, Launch, Parts
from profkit.derive.launch.matching import match
from profkit.derive.launch.pipelines import Staging
from profkit.derive.launch.table import Cause, Collectives, Group, RankTable, Steps, Work
from profkit.diagnosis.launch.summary import summarise
from profkit.findings.pictures import levels_of
from profkit.findings.values import GroupSummary, LaunchSummary, Location, SizeCount
from profkit.run.directory import CallSite, RankIdentity
from profkit.trace.events import Int64s

MS = 1_000_000
LOADING = CallSite("train.py", 31, "train", "for batch in loader:")


def _column(*values: int) -> Int64s:
    return np.array(values, np.int64)


def _table(rank: int, host: str, calls: int, own_ms: int) -> RankTable:
    """Two steps of 100 ms with these computing times; the collectives are those of `LAUNCH`."""
    nothing, flags = np.zeros(calls, np.int64), np.zeros(calls, np.bool_)
    site = nothing - 1
    collectives = Collectives(*[nothing] * 12, flags, site, flags, flags)  # type: ignore[arg-type]
    steps = Steps(_column(5, 6), _column(0, 100 * MS), _column(100 * MS, 200 * MS))
    both, at = _column(own_ms, own_ms) * MS, _column(0, 100 * MS)
    work = Work(_column(5, 6), at, at + both, _column(1, 1), _column(0, -1), both)
    return RankTable(RankIdentity(rank, 3, host=host), f"rank{rank}", (), (), (LOADING,), steps, collectives, work)


LAUNCH = Launch(
    tables=(_table(0, "a", 4, 83), _table(1, "a", 4, 82), _table(4, "b", 3, 90)),
    world_size=8,
    groups=(Group("0", 3, description="default_pg"), Group("1", 2)),
    texts=("allreduce",),
    joint=Joint(
        step=_column(5, 5, 6, -1),
        group=_column(0, 1, 0, 0),
        sequence=_column(0, 0, 1, 2),
        operation=_column(0, 0, 0, 0),
        size_bytes=_column(1_000, 100, 1_000_000_000, 1),
        members=_column(3, 2, 3, 3),
    ),
    parts=Parts(
        joint=_column(0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3),
        table=_column(0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2),
        row=_column(0, 0, 0, 1, 1, 2, 2, 1, 3, 3, 2),
    ),
    offset_ns=_column(0, 0, 0),
    notes=("5 of 8 ranks are missing",),
)
NOBODY = 1e9
"""Nobody waits for a rank that comes so long before the last one."""
TOLL = WaitCosts(
    caused_ns=_column(0, 0, 20, 2, 0, 0, 0, 10, 0, 0, 99) * MS,
    late_ns=_column(0, 0, 20, 2, 0, 0, 0, 10, 0, 0, 99) * MS,
    waited_ns=_column(20, 18, 0, 0, 2, 10, 9, 0, 99, 99, 0) * MS,
    exposed_ns=_column(1, 1, 1, 0, 0, 3, 3, 3, 9, 9, 9) * MS,
    transfer_ns=_column(2, 1, 4, 9) * MS,
    last=_column(2, 3, 7, 10),
    waited_apiece=np.array([20, 18, 0, 0, 2, 10, 9, 0, 99, 99, 0]) * float(MS),
    early_apiece=np.array([1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0]) * NOBODY,
)
NO_TOLL = weigh_lateness(match([]))


def _summary() -> LaunchSummary:
    return summarise(LAUNCH, TOLL, Staging(), (Reason(Cause.COMPUTE), None, Reason(Cause.INPUT, LOADING)), shown_rank=4)


def test_a_late_rank_has_its_lateness_cause_and_line() -> None:
    first, second, late = _summary().ranks
    assert (late.rank, late.host, late.source, late.steps, late.step_time_ns) == (4, "b", "rank4", 2, 100 * MS)
    assert (late.late_steps, late.late_ns, late.caused_ns, late.kept_waiting) == (2, 15 * MS, 15 * MS, 2)
    assert (late.cause, late.location) == ("input", Location.of(LOADING))
    assert (late.waited_ns, late.exposed_ns) == (0, 2 * MS)
    assert (first.late_steps, first.caused_ns, first.kept_waiting, first.cause) == (1, 1 * MS, 1, "compute")
    assert (first.waited_ns, second.waited_ns) == (15 * MS, 14 * MS + MS // 2)
    assert (second.late_steps, second.cause, second.location) == (0, "", None)


def test_very_small_lateness_is_not_counted() -> None:
    at_limit = 500_000  # half a per cent of 100 ms
    late_ns = _column(0, at_limit - 1, at_limit, 0, 0, 0, 0, 0, 0, 0, 0)
    costs = replace(TOLL, caused_ns=late_ns, late_ns=late_ns, early_apiece=np.zeros(11))
    _, just_below, just_late = summarise(LAUNCH, costs, Staging(), (None, Reason(Cause.HOST), Reason(Cause.HOST))).ranks
    assert (just_below.late_steps, just_below.cause, just_below.kept_waiting) == (0, "", 0)
    assert (just_late.late_steps, just_late.cause, just_late.caused_ns) == (1, "host", at_limit // 2)


def test_the_bytes_of_a_group_are_per_step() -> None:
    assert _summary().groups == (
        GroupSummary(
            "default_pg",
            3,
            3,
            1.0,
            500_000_500,
            3 * MS,
            (SizeCount(4096, 0.5, 500), SizeCount(1_000_000_000, 0.5, 500_000_000)),
        ),
        GroupSummary("1", 2, 2, 0.5, 50, MS // 2, (SizeCount(4096, 0.5, 50),)),
    )


def test_the_picture_shows_only_what_lies_in_steps() -> None:
    picture = _summary().picture
    assert picture is not None
    assert (picture.steps, picture.most_ns) == ((5, 6), 22 * MS)
    assert [(row.first, row.caused_ns, row.waited_ns) for row in picture.rows] == [
        (0, 2 * MS, 20 * MS),
        (1, 0, 20 * MS),
        (4, 20 * MS, 0),
    ]
    assert levels_of(picture.rows[2].caused) == [57, 29]


def test_the_summary_names_the_launch_and_its_notes() -> None:
    summary = _summary()
    assert (summary.world_size, summary.steps, summary.step_time_ns, summary.shown_rank) == (8, 2, 100 * MS, 4)
    assert summary.notes == ("5 of 8 ranks are missing",)


def test_a_launch_without_ranks_has_an_empty_summary() -> None:
    none = _column()
    launch = Launch((), -1, (), (), Joint(*[none] * 6), Parts(none, none, none), none)
    summary = summarise(launch, NO_TOLL, Staging(), ())
    assert summary == LaunchSummary(-1, ())


def test_ranks_without_collectives_have_their_step_times() -> None:
    none = _column()
    launch = replace(LAUNCH, joint=Joint(*[none] * 6), parts=Parts(none, none, none))
    summary = summarise(launch, NO_TOLL, Staging(), (None, None, None))
    assert [one.step_time_ns for one in summary.ranks] == [100 * MS] * 3
    assert (summary.picture, summary.groups, summary.steps) == (None, (), 0)
