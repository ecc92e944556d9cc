"""Edits: what a fix would change in a recording. Rules make them, and the replay prices them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from profkit.trace.events import Int64s, Rows


def _no_rows() -> Int64s:
    return np.zeros(0, dtype=np.int64)


class Edit(Struct, frozen=True, eq=False, weakref=True):
    """A change to the recorded steps.

    ``rows`` are host events that would take ``kept_ns`` each instead of their recorded time. They may come from any
    step; the replay only looks at the measured ones. ``spans`` are the same for stretches of a host thread that are not
    events, such as a whole loop: start, end, and what each keeps. ``work`` are pieces of device work that would take
    ``work_kept_ns``. ``waits`` are waits of the host that would no longer be necessary. ``uncertainty`` is how far the
    model behind the kept times may be off either way (0.3: 30 % of the saving). ``of_plain_steps`` says that the kept
    times come from steps without the recording, so that it does not matter where that slowed the steps. Edits are
    compared by identity.
    """

    rows: Rows = field(default_factory=_no_rows)
    kept_ns: Int64s = field(default_factory=_no_rows)
    span_start_ns: Int64s = field(default_factory=_no_rows)
    span_end_ns: Int64s = field(default_factory=_no_rows)
    span_kept_ns: Int64s = field(default_factory=_no_rows)
    work: Rows = field(default_factory=_no_rows)
    work_kept_ns: Int64s = field(default_factory=_no_rows)
    waits: Rows = field(default_factory=_no_rows)
    uncertainty: float = 0.1
    of_plain_steps: bool = False


def remove(rows: Rows, work: Rows | None = None, uncertainty: float = 0.1) -> Edit:
    """The host events ``rows`` and the device work ``work`` vanish."""
    work = _no_rows() if work is None else work
    return Edit(
        rows=rows,
        kept_ns=np.zeros(len(rows), dtype=np.int64),
        work=work,
        work_kept_ns=np.zeros(len(work), dtype=np.int64),
        uncertainty=uncertainty,
    )


def shrink(rows: Rows, kept_ns: Int64s, uncertainty: float) -> Edit:
    """The host events ``rows`` take ``kept_ns`` instead, one value each."""
    return Edit(rows=rows, kept_ns=kept_ns.astype(np.int64), uncertainty=uncertainty)


def shrink_spans(start_ns: Int64s, end_ns: Int64s, kept_ns: Int64s | int, uncertainty: float) -> Edit:
    """Stretches of the main thread, with everything that runs in them, take ``kept_ns`` instead: one value each, or one
    for all."""
    kept = np.full(len(start_ns), kept_ns, dtype=np.int64)
    return Edit(span_start_ns=start_ns, span_end_ns=end_ns, span_kept_ns=kept, uncertainty=uncertainty)


def shrink_work(work: Rows, kept_ns: Int64s, uncertainty: float) -> Edit:
    """The pieces of device work ``work`` take ``kept_ns`` instead, one value each."""
    return Edit(work=work, work_kept_ns=kept_ns.astype(np.int64), uncertainty=uncertainty)


def unblock(waits: Rows, uncertainty: float = 0.2) -> Edit:
    """The host goes on instead of waiting at ``waits``."""
    return Edit(waits=waits, uncertainty=uncertainty)


def combine(edits: list[Edit]) -> Edit:
    """All edits at once. The replay counts time that two of them take out only once."""
    if len(edits) == 1:
        return edits[0]  # the same object, whose replay is known
    columns = ("rows", "kept_ns", "span_start_ns", "span_end_ns", "span_kept_ns", "work", "work_kept_ns", "waits")
    joined = {name: np.concatenate([getattr(edit, name) for edit in edits]) for name in columns}
    return Edit(
        **joined,
        uncertainty=max(edit.uncertainty for edit in edits),
        of_plain_steps=all(edit.of_plain_steps for edit in edits),
    )
