"""FSDP gathers a layer's parameters only when the layer needs them, and the GPU waits for each.

What it detects
All-gathers of FSDP's parameters that nothing requested ahead of their layer, for which a GPU waits although it
computed the layer before without any transfer beside it, if sending them during that layer would save 3 % of the step.
FSDP's own ranges in the recording distinguish its gathers from those of activations, which cannot be sent earlier, and
show which are prefetched. Waits for late ranks do not count. Three things delay a gather: the host requests it too
late; FSDP's rate limiter keeps the host waiting; or it was requested in time and stands in its stream after a
reduce-scatter that waits for the layer's gradients.

Why is this bad?
Parameters are the same throughout the step, so their gather needs nothing that the layer before computes. Sent during
that layer it is free, as long as the layer computes for as long as the gather takes.

Example
    model = FSDP(model, auto_wrap_policy=policy, backward_prefetch=None)

Use instead
    model = FSDP(model, auto_wrap_policy=policy, backward_prefetch=BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True)

or, with FSDP2:

    for block, following in itertools.pairwise(model.blocks):
        block.set_modules_to_forward_prefetch([following])

It takes the memory of one more layer's parameters.

How the saving is estimated
Each of these gathers begins one layer earlier, when the gather before it has ended. What then runs beside the layer's
compute, with no other transfer there, comes off its time: all ranks are replayed together or, with one recording, this
rank alone. A reduce-scatter that stood before the gather would give way too, which is not counted. No recording of
several GPUs was available: the rule was tested on traces written by hand.
"""

from __future__ import annotations

import numpy as np

from profkit.patterns import are_most_steps
from profkit.patterns.averaging.exchanged import own_number
from profkit.patterns.averaging.exposed import Exposed, find_exposed
from profkit.patterns.averaging.gathers import Held, LateGathers, find_late_gathers
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.rules.base import MEDIUM_FROM, Facts, Kind, Need, Suspicion, Suspicions, format_count, format_time, rule
from profkit.savings.transfer_edits import places_of, shorten
from profkit.trace import Bools, among, distinct

_UNCERTAINTY = 0.4
"""Transfers and kernels slow each other down."""
_WHY = {
    Held.HOST: "the host requests them too late",
    Held.LIMITER: "FSDP's rate limiter keeps the host from requesting them",
    Held.STREAM: "they were requested and had to wait in their stream",
}
_FORWARD = (
    "Request the next layer's parameters before this layer runs: `forward_prefetch=True`, with FSDP2 "
    "`set_modules_to_forward_prefetch`."
)
_BACKWARD = (
    "Request the next layer's parameters before this layer's gradients: "
    "`backward_prefetch=BackwardPrefetch.BACKWARD_PRE`, with FSDP2 `set_modules_to_backward_prefetch`."
)
_LIMIT = "Pass `limit_all_gathers=False`, if there is memory for the parameters of more than two layers."
_SLOW_HOST = " The host is hardly ahead of the GPU: larger layers per unit, or the fix for launch-bound, help too."


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS, Need.WHOLE_STEP)
def gather_not_prefetched(facts: Facts) -> Suspicions:
    """Look at the gathers of each pass by what delayed them."""
    late = find_late_gathers(facts)
    if not len(late.row):
        return
    exposed = find_exposed(facts)
    for backward in (False, True):
        for held in Held:
            mine = (late.backward == backward) & (late.held == held)
            step = facts.steps.index_of(find_exchanges(facts).issue_ns[late.row[mine]])
            if are_most_steps(facts, len(distinct(step))):
                yield _judge(facts, exposed, late, mine, held, backward)


def _judge(facts: Facts, exposed: Exposed, late: LateGathers, mine: Bools, held: Held, backward: bool) -> Suspicion:
    saved_ns = np.zeros(len(exposed.row), dtype=np.int64)
    own = exposed.table == own_number(facts, exposed.tables)
    by_row = np.zeros(int(late.row.max()) + 1, dtype=np.int64)
    by_row[late.row[mine]] = late.saved_ns[mine]
    chosen = own & among(exposed.row, late.row[mine])
    saved_ns[chosen] = by_row[exposed.row[chosen]]
    alone, joint = shorten(facts, exposed, chosen, saved_ns, _UNCERTAINTY, _UNCERTAINTY)
    steps = max(facts.steps.measured_count, 1)
    count, waited_ns = round(int(mine.sum()) / steps), int(exposed.exposed_ns[chosen].sum() / steps)
    which = "backward" if backward else "forward"
    advice = _LIMIT if held is Held.LIMITER else _BACKWARD if backward else _FORWARD
    return Suspicion(
        message=f"In the {which} pass the GPU waits {format_time(waited_ns)} a step for "
        f"{format_count(count, 'gather')} of parameters. They could run beside the layer before, but "
        f"{_WHY[held]}.",
        fix=advice + (_SLOW_HOST if held is Held.HOST else ""),
        edit=alone,
        launch_edit=joint,
        worth=MEDIUM_FROM,
        count=count,
        confidence=0.8 if exposed.is_whole else 0.6,
        places=places_of(exposed, chosen),
        evidence={
            "gathers_per_step": count,
            "waited_ns_per_step": waited_ns,
            "held_by": held.name.lower(),
            "pass": which,
        },
    )
