"""Edits of a launch: what a fix would change. Rules hand them to the replay of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from profkit.trace.events import Float64s, Int64s


def _none() -> Int64s:
    return np.zeros(0, dtype=np.int64)


class JointEdit(Struct, frozen=True, eq=False):
    """A change to a launch.

    Rows ``row`` in the work of the tables ``table`` take ``kept_ns`` instead. The collectives ``joint`` take
    ``transfer_ns`` from their last rank's start. Each rank asks for the collectives ``early`` earlier, by ``early_ns``
    of its own work. The collectives ``gone`` vanish, and nobody waits in them. ``uncertainty`` is the share by which
    the model behind the edit may be off either way. An edit equals only itself.
    """

    table: Int64s = field(default_factory=_none)
    row: Int64s = field(default_factory=_none)
    kept_ns: Int64s = field(default_factory=_none)
    joint: Int64s = field(default_factory=_none)
    transfer_ns: Int64s = field(default_factory=_none)
    early: Int64s = field(default_factory=_none)
    early_ns: Int64s = field(default_factory=_none)
    gone: Int64s = field(default_factory=_none)
    uncertainty: float = 0.1


def shrink_ranks_work(table: int, row: Int64s, kept_ns: Int64s | Float64s, uncertainty: float = 0.1) -> JointEdit:
    """Rows of one rank's work take ``kept_ns`` instead, one value each, which may be longer."""
    return JointEdit(table=np.full(len(row), table), row=row, kept_ns=kept_ns.astype(np.int64), uncertainty=uncertainty)


def shrink_transfers(joint: Int64s, transfer_ns: Int64s, uncertainty: float) -> JointEdit:
    """The collectives take ``transfer_ns`` from their last rank's start, one value each."""
    return JointEdit(joint=joint, transfer_ns=transfer_ns.astype(np.int64), uncertainty=uncertainty)


def ask_earlier(joint: Int64s, early_ns: Int64s, uncertainty: float) -> JointEdit:
    """Each rank asks for the collectives earlier, by this much of its own work."""
    return JointEdit(early=joint, early_ns=early_ns.astype(np.int64), uncertainty=uncertainty)


def combine_joint(edits: Sequence[JointEdit]) -> JointEdit:
    """All edits at once. Where two of them touch the same, the shorter time or the greater change counts."""
    columns = ("table", "row", "kept_ns", "joint", "transfer_ns", "early", "early_ns", "gone")
    joined = {name: np.concatenate([_none(), *(getattr(edit, name) for edit in edits)]) for name in columns}
    return JointEdit(**joined, uncertainty=max((edit.uncertainty for edit in edits), default=0.1))
