"""The ranks exchange data while none of them computes: the transfer is not hidden behind anything.

What it detects
Collectives of one kind whose transfers, not covered by compute, take 3 % of the step or more in most steps of the
median rank, if there is compute to hide them behind. Waiting for the last rank does not count: with all ranks of a
launch, a transfer takes what the last rank to start spends in it. One rank alone cannot show that, so there a transfer
counts no more than the shortest comparable one of the recording (operation, group, bytes) and no more than 10 Gbit
Ethernet would take, and it is reported if a tenth of the step can be saved; with all ranks, 3 %.

Not reported: collectives in inference, whose results the next operator needs; those in the stream that computes, unless
they carry gradients or FSDP's parameters, which need nothing of the layers beside them, or a model's buffers, which
need not be sent; FSDP's first gather of a pass and last reduce-scatter, which have no layer to run beside; and those
that another rule reports: gradients averaged after the backward pass, several times per optimizer step, or in many
small messages, and gathers of parameters that are not prefetched.

Why is this bad?
A GPU has streams to exchange data in while it computes. Whatever does not fit beside the compute is added to each step
of every rank, and the share grows with the number of ranks and with slower links between them.

Example
    model = DistributedDataParallel(model)  # 1 GB of gradients, a backward pass of 100 ms, 10 GB/s

Use instead
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model = DistributedDataParallel(model)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)  # half of the bytes

or exchange less often: a larger batch, or gradients accumulated under `model.no_sync()`.

How the saving is estimated
All ranks are replayed together or, with one recording, this rank alone. Transfers of gradients take half of their time:
in bfloat16 they have half of the bytes, and accumulated over two batches they come half as often. Broadcasts of buffers
(`broadcast_buffers`, on by default) vanish. Of other transfers, the part vanishes that fits beside the compute of the
step. On a CPU, FSDP waits for each transfer where it asks for it; there the gathers of the backward pass vanish,
because parameters are kept after the forward pass. Much of this depends on what is not recorded, so the range is wide.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.launch.chance import LEAST_STEPS
from profkit.patterns.averaging.exposed import Exposed, PerStep, add_up, find_exposed, measure_steps
from profkit.patterns.averaging.gathers import gathered_again
from profkit.patterns.averaging.kinds import Exchange, beside, cannot_be_hidden, is_told_elsewhere, kinds_of
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.rules.base import (
    HIGH_FROM,
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_time,
    rule,
)
from profkit.savings.transfer_edits import places_of, shorten
from profkit.trace import Bools, median

_MOST_STEPS = 0.5
_UNCERTAINTY, _UNCERTAINTY_ALONE = 0.4, 0.7
"""Transfers and kernels slow each other down. On one rank alone, part of the time may be a wait for another."""
_REPLICAS = "DataParallel.forward"
"""Threads of one process have a rule of their own."""
_NAMES = {
    Exchange.GRADIENTS: "All-reduces of gradients",
    Exchange.SHARDED: "All-gathers and reduce-scatters",
    Exchange.EXPERTS: "All-to-alls",
    Exchange.STAGES: "Messages from rank to rank",
    Exchange.BUFFERS: "Broadcasts of the model's buffers",
    Exchange.OTHER: "Collectives",
}
_FIXES = {
    Exchange.GRADIENTS: "Send half of the bytes (`model.register_comm_hook(None, default_hooks.bf16_compress_hook)`), "
    "or send less often: a larger batch, or gradients accumulated under `model.no_sync()`. Each changes numerics: "
    "check the loss.",
    Exchange.SHARDED: "Gather the next layer while this one computes. With FSDP pass `forward_prefetch=True`, "
    "`backward_prefetch=BackwardPrefetch.BACKWARD_PRE`, and `limit_all_gathers=False` if memory allows; "
    "elsewhere `async_op=True`. If there is memory for it, shard only over the GPUs of one machine.",
    Exchange.EXPERTS: "Start it with `async_op=True` and meanwhile compute what does not need it: the dense layers, or "
    "the other half of the batch. Or send less: bfloat16, experts on the same machine.",
    Exchange.STAGES: "Cut the batch into more micro-batches, so that one is sent while the next is computed, with "
    "`batch_isend_irecv` in place of `send` and `recv`.",
    Exchange.BUFFERS: "Pass `broadcast_buffers=False` to DistributedDataParallel, which then sends none before each "
    "forward pass. Each rank keeps its own, such as the running statistics of BatchNorm. Rank 0's are saved: "
    "check the evaluation.",
    Exchange.OTHER: "Start it with `async_op=True`, compute what does not need its result, and `wait()` where the "
    "result is used.",
}
_KEEP = (
    "On a CPU FSDP waits for each of them and can prefetch none. If memory allows, keep the parameters after "
    "the forward pass: `reshard_after_forward=False`, or for FullyShardedDataParallel "
    "`ShardingStrategy.SHARD_GRAD_OP`. The backward pass then gathers none."
)
_OWN_STREAM = "It runs in the stream that computes, where nothing can run beside it: start it with `async_op=True`. "


@rule(Kind.OPPORTUNITY, Need.WHOLE_STEP)
def exposed_communication(facts: Facts) -> Suspicions:
    """Look at each kind of exchange by itself."""
    if facts.launch is None and not len(find_exchanges(facts)):
        return
    exposed = find_exposed(facts)
    # Without a backward pass each collective needs the result before it.
    infers = len(facts.operators.rows) > 0 and not facts.lines.backward.any()
    if not len(exposed.row) or facts.trace.named(_REPLICAS).any() or infers:
        return
    steps = measure_steps(exposed)
    if not exposed.is_whole:
        if len(steps.number) < LEAST_STEPS:
            raise CannotLook("fewer than three steps of one rank: waits for other ranks look like transfers")
        if not (exposed.column("size_bytes") > 0).any():
            raise CannotLook("the recording does not say how large the messages are")
    kind = kinds_of(facts, exposed)
    elsewhere = is_told_elsewhere(facts, exposed) | cannot_be_hidden(facts, exposed, kind)
    for one in _NAMES:
        mine = (kind == one) & ~elsewhere
        shares = add_up(exposed, steps, exposed.exposed_ns, mine) / np.maximum(steps.length_ns, 1)
        often = sum(median(of_step) >= MEDIUM_FROM for of_step in shares.T)
        hidden = 1.0 if one is Exchange.BUFFERS else _part_hidden(exposed, steps, mine)
        if often and often >= _MOST_STEPS * len(steps.number) and hidden > 0:
            yield _judge(facts, exposed, steps, one, mine, hidden)


def _part_hidden(exposed: Exposed, steps: PerStep, mine: Bools) -> float:
    """The part of what is exposed that would fit behind compute that covers no transfer yet."""
    covering = add_up(exposed, steps, exposed.transfer_ns - exposed.exposed_ns, np.ones(len(mine), dtype=bool))
    free_ns = (steps.computed_ns - covering).clip(min=0)
    exposed_ns = add_up(exposed, steps, exposed.exposed_ns, mine)
    return float(np.minimum(free_ns, exposed_ns).sum() / max(float(exposed_ns.sum()), 1.0))


def _judge(facts: Facts, exposed: Exposed, steps: PerStep, kind: Exchange, mine: Bools, hidden: float) -> Suspicion:
    in_stream = mine & (exposed.column("on_compute") > 0)
    on_compute = bool(exposed.exposed_ns[in_stream].sum() > _MOST_STEPS * exposed.exposed_ns[mine].sum())
    # On a CPU, FSDP gathers again for the backward pass.
    again = mine & beside(facts, exposed, np.zeros(0, np.int64) if facts.device.present else gathered_again(facts))
    saved_ns = exposed.exposed_ns * (again if again.any() else hidden)
    if kind is Exchange.GRADIENTS and not on_compute:
        saved_ns = exposed.transfer_ns / 2
    alone, joint = shorten(facts, exposed, mine, saved_ns.astype(np.int64), _UNCERTAINTY, _UNCERTAINTY_ALONE)
    exposed_ns = int(median(add_up(exposed, steps, exposed.exposed_ns, mine)))
    whom, unsure = "the ranks for", ", not counting waits for late ranks."
    if not exposed.is_whole:
        whom = "this rank for up to"
        unsure = ". One rank alone does not show whether part of that is a wait for a late rank."
    return Suspicion(
        message=f"{_NAMES[kind]} hold up {whom} {format_time(exposed_ns)} a step in which nothing is computed{unsure}",
        fix=(_OWN_STREAM if on_compute else "") + (_KEEP if again.any() else _FIXES[kind]),
        edit=alone,
        launch_edit=joint,
        # It takes other numerics, more memory, or another structure, and one rank alone shows little.
        worth=MEDIUM_FROM if exposed.is_whole else HIGH_FROM,
        count=max(1, round(int(mine.sum()) / (len(exposed.tables) * max(len(steps.number), 1)))),
        confidence=0.8 if exposed.is_whole else 0.5,
        places=places_of(exposed, mine),
        evidence={"exposed_ns_per_step": exposed_ns, "kind": kind.name.lower(), "in_computing_stream": int(on_compute)},
    )
