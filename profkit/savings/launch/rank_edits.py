"""From one rank's own edit to an edit of all ranks of its launch.

Host time and device work that the edit takes out of the steps says at which places the rank's work gets shorter. If a
device runs beside the host, the replay of the rank alone says by how much. Time taken out of a wait for others comes
off the transfer. A collective whose call vanishes is not asked for.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts, derived_once
from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.launch.on_all_ranks import OwnEdit, on_all_ranks
from profkit.derive.launch.work_by_rank import Place
from profkit.derive.timeline.intervals import NOTHING, Intervals, union
from profkit.patterns.averaging.exchanged import own_number
from profkit.patterns.ranks.blocked import blocked_time
from profkit.patterns.ranks.exchanges import Exchanges, find_exchanges
from profkit.patterns.ranks.sites import read_site
from profkit.patterns.ranks.working import Spent, cut_pieces, spend
from profkit.savings.edits import Edit
from profkit.savings.replay import removed_host_time, replay
from profkit.trace.events import NONE, Bools, Float64s, Int64s
from profkit.trace.statistics import among, distinct_rows


def edit_of_launch(facts: Facts, edit: Edit) -> JointEdit | None:
    """The rank's edit on all ranks of its launch; None if the recording belongs to none."""
    return facts.once(_OnAllRanks(edit))


class _OnAllRanks(Struct, frozen=True):
    """The same of one edit as a key of `Facts.once`."""

    edit: Edit

    def __call__(self, facts: Facts) -> JointEdit | None:
        table = own_number(facts, facts.launch.tables) if facts.launch is not None else NONE
        if facts.launch is None or table == NONE:
            return None
        return on_all_ranks(facts.launch, own_edit(facts, self.edit, table))


def own_edit(facts: Facts, edit: Edit, table: int) -> OwnEdit:
    """What the edit takes out of the rank's places and collectives."""
    exchanges, on_host = find_exchanges(facts), removed_host_time(facts, edit)
    return OwnEdit(
        table=table,
        shares=_shares(facts, edit, on_host),
        gone=_not_asked_for(facts, edit, exchanges),
        less_ns=_shorter_transfers(facts, edit, exchanges, on_host),
        uncertainty=edit.uncertainty,
    )


def _shares(facts: Facts, edit: Edit, on_host: Intervals) -> dict[Place, float]:
    """The share of each place's time in the measured steps that vanishes."""
    had, left = _spent(facts), _spent_without(facts, _taken(facts, edit, on_host))
    cause, site = (np.concatenate([getattr(one, name) for one in (had, left)]) for name in ("cause", "site"))
    if not len(cause):
        return {}
    first, number = distinct_rows(cause, site)
    known = [_place(facts, *pair) for pair in zip(cause[first].tolist(), site[first].tolist(), strict=True)]
    places = {place: code for code, place in enumerate(dict.fromkeys(known))}
    number = np.array([places[place] for place in known], dtype=np.int64)[number]
    had_ns: Float64s = np.bincount(number[: len(had.cause)], had.time_ns, len(places)).astype(np.float64)
    kept_ns: Float64s = np.minimum(np.bincount(number[len(had.cause) :], left.time_ns, len(places)), had_ns)
    if facts.device.present:
        kept_ns = _as_replayed(facts, edit, had_ns, kept_ns)
    share = 1 - kept_ns / np.maximum(had_ns, 1)
    return {place: part for place, part in zip(places, share.tolist(), strict=True) if part > 0}


def _as_replayed(facts: Facts, edit: Edit, had_ns: Float64s, kept_ns: Float64s) -> Float64s:
    """Host and device hide each other's work: in all, as much time vanishes as the rank alone would gain. If it gains
    more than the time taken out, because a wait for the device vanishes, the rest is spread evenly."""
    own = ~among(edit.work, facts.device.work[facts.device.collective])
    alone = structs.replace(edit, work=edit.work[own], work_kept_ns=edit.work_kept_ns[own])
    gained_ns, taken_ns = replay(facts, alone).fraction * facts.steps.measured_ns, float((had_ns - kept_ns).sum())
    if gained_ns <= taken_ns:
        return had_ns - (had_ns - kept_ns) * (gained_ns / max(taken_ns, 1.0))
    return kept_ns * max(0.0, 1 - (gained_ns - taken_ns) / max(float(kept_ns.sum()), 1.0))


@derived_once
def _spent(facts: Facts) -> Spent:
    return _spent_without(facts, NOTHING)


def _spent_without(facts: Facts, taken: Intervals) -> Spent:
    """What the rank does in the measured steps outside its waits for others, without the time taken out."""
    begin_ns, end_ns = blocked_time(facts)
    outside = union(np.concatenate([begin_ns, taken.start_ns]), np.concatenate([end_ns, taken.end_ns]))
    steps = facts.steps
    return spend(facts, cut_pieces(steps.begun_ns, steps.done_ns, np.flatnonzero(steps.measured), outside))


def _taken(facts: Facts, edit: Edit, on_host: Intervals) -> Intervals:
    """What the edit takes out of the host's time and of the device's own work."""
    events = facts.trace.events
    own = ~among(edit.work, facts.device.work[facts.device.collective])
    start_ns, end_ns = events.start_ns[edit.work[own]], events.ends_of(edit.work[own])
    begin_ns = np.minimum(start_ns + edit.work_kept_ns[own].clip(min=0), end_ns)
    return union(np.concatenate([on_host.start_ns, begin_ns]), np.concatenate([on_host.end_ns, end_ns]))


def _place(facts: Facts, cause: int, site: int) -> Place:
    line = read_site(facts, site) if site >= 0 else None
    return (cause, "", NONE) if line is None else (cause, line.file, line.line)


def _not_asked_for(facts: Facts, edit: Edit, exchanges: Exchanges) -> Bools:
    """The exchanges whose calls or kernels the edit takes out whole."""
    rows, spans = edit.kept_ns <= 0, edit.span_kept_ns <= 0
    start_ns = np.concatenate([facts.trace.events.start_ns[edit.rows[rows]], edit.span_start_ns[spans]])
    end_ns = np.concatenate([facts.tree.end_ns[edit.rows[rows]], edit.span_end_ns[spans]])
    called = np.flatnonzero(exchanges.call >= 0)
    call = exchanges.call[called]
    begin_ns, over_ns = facts.trace.events.start_ns[call], facts.tree.end_ns[call]
    gone: Bools = among(exchanges.row, edit.work[edit.work_kept_ns <= 0])
    covered_ns = union(start_ns, end_ns).covered_within(begin_ns, over_ns)
    gone[called] |= (over_ns > begin_ns) & (covered_ns == over_ns - begin_ns)
    return gone


def _shorter_transfers(facts: Facts, edit: Edit, exchanges: Exchanges, on_host: Intervals) -> Int64s:
    """By how much each gets shorter: an exchange on the device by the part of its kernel that vanishes, one on the host
    by the part of the wait for it that vanishes."""
    begin_ns, end_ns = blocked_time(facts)
    waited_ns = on_host.covered_within(begin_ns, np.maximum(begin_ns, end_ns))
    kept_ns = facts.trace.events.duration_ns.copy()
    np.minimum.at(kept_ns, edit.work, edit.work_kept_ns)
    kernel_ns = facts.trace.events.duration_ns[exchanges.row] - kept_ns[exchanges.row]
    return np.where(exchanges.on_device, kernel_ns, waited_ns)
