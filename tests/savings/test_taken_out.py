"""The pieces that an edit takes out of a step, each once, and the replayed step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profkit.derive.facts import Facts
from profkit.derive.launch.joint_edits import ask_earlier, combine_joint, shrink_ranks_work, shrink_transfers
from profkit.findings.accounts import TakenFrom, TakenOut
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_spans, shrink_work, unblock
from profkit.savings.simulate import predict_saving
from profkit.savings.taken_out import MOST_NAMES, account_of, account_of_launch
from tests.savings.replaying import LAUNCH, SYNC, _ns, _rows
from tests.savings.test_rank_edits import facts_of as facts_of_launch
from tests.savings.test_rank_edits import rank
from tests.traces import facts_of, kernel, op, runtime, step

MEAN = "void at::native::reduce_kernel<512, 1, at::native::MeanOps<float> >(int)"


def recorded() -> Facts:
    """Two steps of 100 µs: two products of 20 µs, one with a call inside, and a kernel of 30 µs that is waited for."""
    events = []
    for n in range(2):
        at = 100 * n
        events += [
            step(n, at, 100),
            op("aten::mm", at + 5, 20),
            op("aten::as_strided", at + 10, 5),
            op("aten::mm", at + 30, 20),
            runtime(LAUNCH, at + 55, 2, correlation=n + 1),
            kernel(
                "void at::native::reduce_kernel<1, at::native::MeanOps<float> >(int)", at + 60, 30, correlation=n + 1
            ),
            runtime(SYNC, at + 60, 31),
        ]
    return facts_of(events)


def taken(facts: Facts, edit: Edit) -> list[tuple[str, str, float, float, float]]:
    return [
        (piece.name, piece.origin.value, piece.count, piece.took_ns / 1000, piece.kept_ns / 1000)
        for piece in account_of(facts, edit).taken
    ]


def test_operators_of_one_name_are_one_piece_and_what_lies_inside_goes_with_them():
    facts = recorded()
    edit = combine([remove(_rows(facts, "aten::mm")), remove(_rows(facts, "aten::as_strided"))])
    assert taken(facts, edit) == [("aten::mm", "host", 2, 40, 0)]


def test_where_two_edits_meet_the_least_that_stays_counts():
    facts = recorded()
    rows = _rows(facts, "aten::mm")
    edit = combine([shrink(rows, _ns(*[10] * 4), 0.1), shrink(rows, _ns(*[5] * 4), 0.1)])
    assert taken(facts, edit) == [("aten::mm", "host", 2, 40, 10)]


def test_what_would_take_as_long_as_before_is_no_piece():
    facts = recorded()
    rows = _rows(facts, "aten::mm")
    assert taken(facts, shrink(rows, _ns(20, 20, 20, 20), 0.1)) == []
    assert taken(facts, shrink(rows, _ns(20, 19, 20, 20), 0.1)) == [("aten::mm", "host", 0.5, 10, 9.5)]


def test_events_inside_a_stretch_and_stretches_inside_another_go_with_it():
    facts = recorded()
    spans = shrink_spans(_ns(5, 10, 105), _ns(50, 20, 150), 0, 0.1)
    edit = combine([spans, remove(_rows(facts, "aten::mm"))])
    assert taken(facts, edit) == [("", "stretch", 1, 45, 0)]


def test_a_kernel_has_the_name_that_a_person_would_say():
    facts = recorded()
    edit = shrink_work(facts.launches.work, _ns(12, 12), 0.1)
    assert taken(facts, edit) == [("reduce_kernel (MeanOps)", "device", 1, 30, 12)]


def test_waits_are_pieces_only_if_the_devices_side_was_recorded():
    facts = recorded()
    assert taken(facts, unblock(_rows(facts, SYNC))) == [(SYNC, "wait", 1, 31, 0)]
    without = facts_of([step(0, 0, 100), runtime(SYNC, 10, 30), step(1, 100, 100), runtime(SYNC, 110, 30)])
    assert taken(without, unblock(_rows(without, SYNC))) == []


def test_the_replayed_step_is_the_savings():
    facts = recorded()
    edit = remove(_rows(facts, "aten::mm"), uncertainty=0.25)
    account = account_of(facts, edit)
    assert account.fraction == pytest.approx(predict_saving(facts, edit).fraction, abs=1e-4)
    assert (account.step_ns, account.edited_ns, account.uncertainty, account.spread) == (100_000, 60_000, 0.25, 0)
    assert account_of(facts, edit, part=0.5).part == 0.5


def test_an_edit_without_anything_has_an_empty_account():
    account = account_of(recorded(), Edit())
    assert (account.taken, account.more, account.fraction) == ((), 0, 0)


def test_the_pieces_that_give_back_most_come_first_and_the_rest_is_counted():
    events = [step(0, 0, 1_000), step(1, 1_000, 1_000)]
    names = [f"op{n}" for n in range(MOST_NAMES + 3)]
    for at in (0, 1_000):
        events += [op(name, at + 50 * n, 10 + n) for n, name in enumerate(names)]
    facts = facts_of(events)
    account = account_of(facts, remove(_rows(facts, *names)))
    assert [piece.name for piece in account.taken] == names[:2:-1]
    assert (account.more, account.more_ns) == (3, 33_000)


def test_the_account_of_a_launch_names_ranks_and_collectives(tmp_path: Path):
    facts = facts_of_launch(tmp_path, rank(0, 20_000, 40_000), rank(1, 40_000, 40_000))
    launch = facts.launch
    assert launch is not None
    late = launch.tables[1].work
    rows = np.flatnonzero(late.time_ns > 30_000_000)
    joint = np.arange(len(launch.joint))
    edit = combine_joint(
        [
            shrink_ranks_work(1, rows, late.time_ns[rows] // 2),
            shrink_transfers(joint, np.zeros(len(joint), dtype=np.int64), 0.2),
            ask_earlier(joint, np.full(len(joint), 1_000_000), 0.1),
        ]
    )
    account = account_of_launch(facts, edit)
    by_origin = {piece.origin: piece for piece in account.taken}
    assert set(by_origin) == {TakenFrom.RANK, TakenFrom.TRANSFER, TakenFrom.EARLIER}
    assert by_origin[TakenFrom.RANK].name == "rank 1"
    assert by_origin[TakenFrom.RANK].took_ns == pytest.approx(2 * by_origin[TakenFrom.RANK].kept_ns, abs=2)
    assert isinstance(by_origin[TakenFrom.EARLIER], TakenOut)
    assert by_origin[TakenFrom.EARLIER].took_ns == 1_000_000
    assert account.edited_ns < account.step_ns
