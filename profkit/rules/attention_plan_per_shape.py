"""cuDNN plans its attention anew for each shape that comes, and each step brings a new one.

What it detects
Calls of cuDNN's attention, forward or backward, in which the host works for five milliseconds or more, in half of the
recorded steps and at least three of them. A call whose plan exists takes a tenth of a millisecond, and no shape is
planned twice, so each of these steps brought a new one. The host's waits in such a call do not count, nor does the work
of the driver.

Why is this bad?
`scaled_dot_product_attention` uses cuDNN's kernels where they are fastest, on Hopper and Blackwell in half precision.
cuDNN compiles a plan for the exact shapes and strides of queries, keys and values, which takes the host 20 to 550 ms,
and PyTorch keeps it. With a cache of keys and values each token has a new length, and batches padded to their longest
sample bring new lengths for a long time. The device idles meanwhile. It ends once all lengths have come.

Example
    for token in range(longest):
        mixed = scaled_dot_product_attention(query, keys[:, :, :token], values[:, :, :token])

Use instead
    torch.backends.cuda.enable_cudnn_sdp(False)   # other kernels need no plan
    for token in range(longest):
        mixed = scaled_dot_product_attention(query, keys[:, :, :token], values[:, :, :token])

Or use few lengths: pad batches to a multiple of 64 or more with a mask, or attend to a cache of fixed length.

How the saving is estimated
Each of these calls keeps its calls of the runtime, and as much of the host's other work as an ordinary call takes: the
median of those recorded, or else a quarter of a millisecond. The kernels stay as they are. Those that need no plan may
be slower, which the range allows for.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.families import operators_of
from profkit.patterns import in_most_steps, name_lines, order_sites, times_per_step
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_count, format_time, rule
from profkit.savings import shrink
from profkit.trace import Category, median

_PLANNED = frozenset(
    (
        "_scaled_dot_product_cudnn_attention",
        "_cudnn_attention_forward",
        "_cudnn_attention_backward",
        "_scaled_dot_product_cudnn_attention_backward",
    )
)
_PLAN_NS = 5_000_000
"""A plan takes 22 ms (GB10, lablup/mlxcel issue 1820), 57 ms (H100, with the profiler), 440 ms forward and 550 ms
backward (B200, modelscope/FunASR issue 3704)."""
_ORDINARY_NS = 250_000
"""A call with its plan at hand: 236 µs (pytorch/pytorch pull request 191576)."""
_MIN_STEPS = 3
"""The first steps also plan, once for each of the model's shapes, so two steps with a plan prove nothing."""
_UNCERTAINTY = 0.2
"""At long lengths cuDNN's kernels are up to 75 % faster than the others, so leaving them costs part of the gain."""
_FIX = (
    "Call `torch.backends.cuda.enable_cudnn_sdp(False)` when the program starts: the other kernels need no "
    "plan. Or use few lengths: pad to a multiple of 64 or more, or attend to a cache of fixed length with a "
    "mask."
)


@rule(Kind.FAULT, Need.DEVICE, Need.OPERATORS)
def attention_plan_per_shape(facts: Facts) -> Suspicions:
    """One finding for all such calls, because a single setting stops them."""
    events, tree = facts.trace.events, facts.tree
    calls = np.flatnonzero(tree.outermost(operators_of(facts.trace, _PLANNED)) & facts.measured)
    if not calls.size:
        return
    in_runtime_ns = tree.total_under(np.where(events.category == Category.RUNTIME, events.duration_ns, 0))[calls]
    worked_ns = tree.end_ns[calls] - events.start_ns[calls] - in_runtime_ns
    plans = worked_ns >= _PLAN_NS
    rows, planned_ns = calls[plans], worked_ns[plans]
    if not in_most_steps(facts, rows, _MIN_STEPS):
        return
    ordinary_ns = int(median(worked_ns[~plans])) if (~plans).any() else _ORDINARY_NS
    count, each_ns = times_per_step(facts, rows), int(median(planned_ns))
    yield Suspicion(
        message=f"In {format_count(count, 'call')} of attention a step the host makes a new cuDNN plan, "
        f"{format_time(each_ns)} each. A plan serves one shape, and these steps bring new ones.",
        fix=_FIX,
        rows=rows,
        edit=shrink(rows, in_runtime_ns[plans] + ordinary_ns, _UNCERTAINTY),
        confidence=0.8,
        count=count,
        spent_ns=facts.steps.per_step_ns(planned_ns.sum()),
        places=name_lines(facts, order_sites(facts.lines.forward_site[rows], planned_ns)),
        evidence={"plans_per_step": count, "planning_ns": each_ns},
    )
