"""What the host put on the device: from each kernel or copy back to its runtime call and its operator."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.trace.events import DEVICE_WORK, NONE, Category, Int32s, Int64s, Rows, Trace


class Launches(Struct, frozen=True):
    """Columns over the device's work, in the order of `work`.

    ``call`` is the row of the runtime call that launched it, ``operator`` the row of the innermost operator around
    that call; `NONE` where the trace does not say. Kernels of one graph launch share their call.
    """

    work: Rows
    call: Rows
    operator: Rows

    @property
    def unlaunched(self) -> int:
        """How many pieces of device work have no launch record."""
        return int((self.call < 0).sum())


def link_launches(trace: Trace, calling: Int32s) -> Launches:
    """Join device work with runtime calls by correlation id, and with operators by nesting, else by external id.

    ``calling`` is the innermost operator around each event.
    """
    events = trace.events
    work = trace.rows(*DEVICE_WORK)
    calls = trace.rows(Category.RUNTIME)
    call = _join(events.correlation[work], events.correlation[calls], calls)
    operators = events.category == Category.OPERATOR
    operator = np.where(call >= 0, calling[call], np.int64(NONE))
    owners = np.flatnonzero(operators & (events.external > 0))
    by_id = _join(events.external[work], events.external[owners], owners)
    return Launches(work, call, np.where(operator >= 0, operator, by_id))


def _join(keys: Int64s, table_keys: Int64s, table_rows: Rows) -> Rows:
    """For each key the table's row with the same key (the first one), `NONE` without one or for keys <= 0."""
    if not len(table_keys):
        return np.full(len(keys), NONE, dtype=np.int64)
    order = np.argsort(table_keys, kind="stable")
    sorted_keys = table_keys[order]
    at = np.searchsorted(sorted_keys, keys).clip(max=len(sorted_keys) - 1)
    return np.where((sorted_keys[at] == keys) & (keys > 0), table_rows[order[at]], NONE)
