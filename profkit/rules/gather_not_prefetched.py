"""FSDP gathers a layer's parameters only when the layer needs them, and the GPU waits for each.

What it detects
All-gathers of FSDP's parameters that nothing asked for ahead of their layer, for which a GPU stands still although it
computed the layer before without any transfer beside it, where sending them during that layer would save 3 % of the
step. FSDP's own ranges in the recording tell its gathers from those of activations, which cannot be sent earlier, and
those that are prefetched. What is waited for late ranks is no part of it. Three things keep a gather: the host asks for
it too late; FSDP's rate limiter keeps the host waiting; or it was asked for in time and stands in its stream behind a
reduce-scatter that waits for the layer's gradients.

Why is this bad?
Parameters are the same throughout the step, so their gather needs nothing that the layer before computes. Sent
meanwhile it is free, as long as the layer computes for as long as the gather takes.

Example
    model = FSDP(model, auto_wrap_policy=policy, backward_prefetch=None)

Use instead
    model = FSDP(model, auto_wrap_policy=policy, backward_prefetch=BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True)

or, of FSDP2:

    for block, following in itertools.pairwise(model.blocks):
        block.set_modules_to_forward_prefetch([following])

It takes the memory of one more layer's parameters.

How the saving is estimated
Each of these gathers begins one layer earlier, when the gather before it has ended. What it then does beside the
layer's compute, as far as no other transfer runs there, comes off its time: with all ranks they are replayed together,
else the recorded rank alone. A reduce-scatter that stood before the gather would give way too, which is not counted. No
recording of several GPUs was at hand: the rule was tried on traces written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit.derive.facts import Facts
from profkit.evidence.averaging.exchanged import own_number
from profkit.evidence.averaging.exposed import Exposed, find_exposed
from profkit.evidence.averaging.gathers import Held, LateGathers, find_late_gathers
from profkit.evidence.ranks.exchanges import find_exchanges
from profkit.findings import MEDIUM_FROM, Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.transfers import places_of, shorten_alone, shorten_jointly
from profkit.savings.launches import predict_launch_saving
from profkit.savings.simulate import predict_saving
from profkit.trace.events import Bools
from profkit.trace.values import among, distinct
from profkit.units import format_count, format_time

_MOST_STEPS = 0.5
_UNCERTAINTY = 0.4
"""Transfers and kernels slow each other down."""
_WHY = {
    Held.HOST: "the host asks for them too late",
    Held.LIMITER: "FSDP's rate limiter keeps the host from asking",
    Held.STREAM: "they were asked for and had to wait in their stream",
}
_FORWARD = ("Ask for the next layer's parameters before this layer runs: `forward_prefetch=True`, of FSDP2 "
            "`set_modules_to_forward_prefetch`.")  # fmt: skip
_BACKWARD = ("Ask for the next layer's parameters before this layer's gradients: "
             "`backward_prefetch=BackwardPrefetch.BACKWARD_PRE`, of FSDP2 "
             "`set_modules_to_backward_prefetch`.")  # fmt: skip
_LIMIT = "Pass `limit_all_gathers=False`, if there is memory for the parameters of more than two layers."
_SLOW_HOST = " The host is hardly ahead of the GPU: larger layers to a unit, or what launch-bound says, help too."


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS, Need.WHOLE_STEP)
def gather_not_prefetched(facts: Facts) -> Iterator[Suspicion]:
    """Look at the gathers of each pass by what held them up."""
    late = find_late_gathers(facts)
    if not len(late.row):
        return
    exposed = find_exposed(facts)
    for backward in (False, True):
        for held in Held:
            mine = (late.backward == backward) & (late.held == held)
            step = facts.steps.index_of(find_exchanges(facts).issue_ns[late.row[mine]])
            if len(distinct(step)) >= max(1, _MOST_STEPS * facts.steps.measured_count):
                yield from _judge(facts, exposed, late, mine, held, backward)


def _judge(
    facts: Facts, exposed: Exposed, late: LateGathers, mine: Bools, held: Held, backward: bool
) -> Iterator[Suspicion]:
    saved_ns = np.zeros(len(exposed.row), dtype=np.int64)
    own = exposed.table == own_number(facts, exposed.tables)
    by_row = np.zeros(int(late.row.max()) + 1, dtype=np.int64)
    by_row[late.row[mine]] = late.saved_ns[mine]
    chosen = own & among(exposed.row, late.row[mine])
    saved_ns[chosen] = by_row[exposed.row[chosen]]
    joint = shorten_jointly(exposed, chosen, saved_ns, _UNCERTAINTY) if exposed.is_whole else None
    alone = None if exposed.is_whole else shorten_alone(facts, exposed, chosen, saved_ns, _UNCERTAINTY)
    saving = predict_launch_saving(facts, joint) if joint else predict_saving(facts, alone) if alone else None
    if saving is None or saving.fraction < MEDIUM_FROM:
        return
    steps = max(facts.steps.measured_count, 1)
    count, waited_ns = round(int(mine.sum()) / steps), int(exposed.exposed_ns[chosen].sum() / steps)
    which = "backward" if backward else "forward"
    advice = _LIMIT if held is Held.LIMITER else _BACKWARD if backward else _FORWARD
    yield Suspicion(
        message=f"In the {which} pass the GPU waits {format_time(waited_ns)} a step for "
        f"{format_count(count, 'gather')} of parameters that could run beside the layer before: {_WHY[held]}.",
        fix=advice + (_SLOW_HOST if held is Held.HOST else ""),
        edit=alone,
        launch_edit=joint,
        count=count,
        confidence=0.8 if exposed.is_whole else 0.6,
        places=places_of(exposed, chosen),
        evidence={"gathers_per_step": count, "waited_ns_per_step": waited_ns, "held_by": held.name.lower(),
                  "pass": which},
    )  # fmt: skip
