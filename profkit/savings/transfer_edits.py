"""Edits of transfers, and the lines that findings name for them."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.launch.joint_edits import JointEdit, shrink_transfers
from profkit.patterns.averaging.exchanged import on_trace_clock
from profkit.patterns.averaging.exposed import Exposed
from profkit.patterns.named_lines import Places, call_lines
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.savings.edits import Edit, shrink_spans, shrink_work
from profkit.trace.events import Bools, Int64s


def shorten(
    facts: Facts, exposed: Exposed, mine: Bools, saved_ns: Int64s, uncertainty: float, uncertainty_alone: float
) -> tuple[Edit | None, JointEdit | None]:
    """The edit of this rank or, if all ranks are known, of the launch."""
    if exposed.is_whole:
        return None, _shorten_jointly(exposed, mine, saved_ns, uncertainty)
    return _shorten_alone(facts, exposed, mine, saved_ns, uncertainty_alone), None


def _shorten_jointly(exposed: Exposed, mine: Bools, saved_ns: Int64s, uncertainty: float) -> JointEdit:
    """Each transfer gets shorter by the median of what its ranks save."""
    joint, first = np.unique(exposed.joint[mine], return_index=True)
    of_each = np.split(saved_ns[mine], first[1:])  # parts are sorted by joint
    less_ns = np.array([np.median(values) for values in of_each])
    return shrink_transfers(joint, exposed.transfer_ns[mine][first] - less_ns.astype(np.int64), uncertainty)


def _shorten_alone(facts: Facts, exposed: Exposed, mine: Bools, saved_ns: Int64s, uncertainty: float) -> Edit:
    """The kernels get shorter on a device, the waits on a CPU."""
    exchanges, taken = find_exchanges(facts), exposed.tables[0].collectives
    rows, saved_ns = exposed.row[mine], saved_ns[mine]
    if facts.device.present:
        work = exchanges.row[rows]
        return shrink_work(work, (facts.trace.events.duration_ns[work] - saved_ns).clip(min=0), uncertainty)
    start_ns, end_ns = (on_trace_clock(facts, times[rows]) for times in (taken.wait_start_ns, taken.wait_end_ns))
    held = end_ns > start_ns
    saved_ns = np.minimum(saved_ns, exposed.exposed_ns[mine])
    return shrink_spans(start_ns[held], end_ns[held], (end_ns - start_ns - saved_ns)[held], uncertainty)


def places_of(exposed: Exposed, mine: Bools) -> Places:
    """The lines, those with the longest exposed transfers first."""
    return call_lines(exposed.tables, exposed.table[mine], exposed.row[mine], exposed.exposed_ns[mine])
