"""What a change to one rank's program does to its launch.

All ranks run the same program, so the change applies to each of them. If it shortens this rank's work at a line, it
shortens the others' work at that line by the same share. A rank that does nothing at the line gains nothing. A rank
whose work was not recorded saves the median share of the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.replay import parts_by_table
from profkit.derive.launch.table import Cause, RankTable
from profkit.derive.launch.transfers import transfer_times
from profkit.derive.launch.work_by_rank import Place, place_codes
from profkit.trace.events import Bools, Float64s, Int64s


class OwnEdit(Struct, frozen=True):
    """What a change takes out of one rank's recording.

    ``table`` is the rank's; ``shares`` is the share of its time that vanishes at each place. By the rows of its
    collectives, ``gone`` says which ones vanish, and ``less_ns`` how much shorter the transfers of the others become.
    """

    table: int
    shares: Mapping[Place, float]
    gone: Bools
    less_ns: Int64s
    uncertainty: float = 0.1


def on_all_ranks(launch: Launch, own: OwnEdit) -> JointEdit:
    """The same change on all ranks of the launch."""
    shares = [_shares_of(table, own.shares) for table in launch.tables]
    saved = [
        float((share * table.work.time_ns).sum() / max(int(table.work.time_ns.sum()), 1))
        for table, share in zip(launch.tables, shares, strict=True)
        if not table.is_light
    ]
    usual = float(np.median(saved)) if saved else 0.0
    tables, rows, kept = [], [], []
    for number, (table, share) in enumerate(zip(launch.tables, shares, strict=True)):
        whole = np.where(table.work.cause == Cause.UNRECORDED, usual, share)
        row = np.flatnonzero(whole > 0)
        tables.append(np.full(len(row), number, dtype=np.int64))
        rows.append(row)
        kept.append(np.rint((1 - whole[row]) * table.work.time_ns[row]).astype(np.int64))
    _, joint, row = parts_by_table(launch)[own.table]
    gone = own.gone[row]
    shorter = ~gone & (own.less_ns[row] > 0)
    left_ns = (transfer_times(launch)[joint[shorter]] - own.less_ns[row[shorter]]).clip(min=0)
    return JointEdit(
        table=np.concatenate(tables),
        row=np.concatenate(rows),
        kept_ns=np.concatenate(kept),
        joint=joint[shorter],
        transfer_ns=left_ns,
        gone=joint[gone],
        uncertainty=own.uncertainty,
    )


def _shares_of(table: RankTable, shares: Mapping[Place, float]) -> Float64s:
    """The share that vanishes of each row of a rank's work."""
    if not len(table.work):
        return np.zeros(0)
    of_place = np.array([*shares.values(), 0.0])
    code = place_codes(table, tuple(shares))  # other places have higher codes
    found: Float64s = of_place[np.minimum(code, len(shares))]
    return found.clip(0.0, 1.0)
