"""Each step that adds a token is launched kernel by kernel, and the device waits for the launches.

What it detects
Steps that only generate, a token for each sequence, of which no graph launches a kernel: an engine's by the names of
their ranges (vLLM, SGLang, TensorRT-LLM), or a model's passes in a loop of one's own, by the single token of each
sequence that they look up and the draw that follows. In these steps the device has to idle for a fifth of the step or
more while the host launches. The step is taken without the recording, at its shortest. Not reported: prefill, whose
kernels are long, and steps whose kernels are long enough to hide the launches.

Why is this bad?
A token needs the same few hundred kernels each time, and with few sequences each takes microseconds: less than its
launch. A server spends most of its time in such steps. A graph launches all of them at once.

Example
    llm = LLM(model, enforce_eager=True)

Use instead
    llm = LLM(model)  # the sizes up to max_num_seqs are captured

How the saving is estimated
The recorded steps are replayed without the host's time between the launches of these steps, as one graph would launch
them: kernels run back to back, with the gaps of a graph, which are shorter than those between launches. Waits for the
device and for data stay, and so do the other steps.
"""

from __future__ import annotations

from profkit.derive.timeline.intervals import intersection
from profkit.patterns import name_lines, order_sites
from profkit.patterns.serving.decoding import Decoding, eager_decoding
from profkit.patterns.serving.names import named_steps
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    rule,
)
from profkit.savings.launching import as_one_graph, idle_while_launching, launched_kernels, launching_time
from profkit.trace import among

_IDLE_SHARE = 0.2
"""Of the shortest that the step can be, as with `launch-bound`: less is what a healthy step has between kernels."""
_FIXES = {
    "vLLM": "Start vLLM without `--enforce-eager` (`enforce_eager=False`): it then captures a graph for each batch "
    "size. A size beyond `max_cudagraph_capture_size` needs a larger one.",
    "SGLang": "Start SGLang without `--disable-cuda-graph`. If only large batches have no graph, raise "
    "`--cuda-graph-max-bs`.",
    "TensorRT-LLM": "Give `cuda_graph_config` the batch sizes that occur, with `enable_padding`.",
}
_OF_A_LOOP = (
    "Give the cache a fixed size and replay one graph for each token: `cache_implementation='static'` for `generate` "
    "in transformers. In your own loop write keys and values into buffers of full length, and call the model under "
    '`torch.compile(mode="reduce-overhead")`.'
)


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.WHOLE_STEP)
def eager_decode(facts: Facts) -> Suspicions:
    """One finding for all of these steps."""
    launches, events = facts.launches, facts.trace.events
    if named_steps(facts) is not None and not (launches.call >= 0).any():
        raise CannotLook("the recording does not say which call launched which kernel")
    found = eager_decoding(facts)
    if found is None:
        return
    kernels = launched_kernels(facts)
    launching = intersection(launching_time(facts, kernels), found.host)
    idle_share = idle_while_launching(facts, launching)
    if idle_share < _IDLE_SHARE:
        return
    mine = found.host.covered_within(events.start_ns[kernels.call_of], events.start_ns[kernels.call_of] + 1) > 0
    work, calls = kernels.work[mine], kernels.call_of[mine]
    operators = launches.operator[among(launches.work, work) & (launches.operator >= 0)]
    yield Suspicion(
        message=f"Steps that add {_tokens(found)} launch {found.kernels:,.0f} kernels one by one, and the device idles "
        f"at least {format_share(idle_share)} of the step meanwhile.{_graphed(found)}",
        fix=_FIXES.get(found.engine, _OF_A_LOOP),
        places=name_lines(facts, order_sites(facts.lines.forward_site[operators])[:1]),
        rows=calls,
        edit=as_one_graph(facts, launching, work),
        count=round(found.kernels),
        evidence={
            "idle_fraction": round(idle_share, 4),
            "kernels_per_token": round(found.kernels, 1),
            "sequences": round(found.sequences, 1),
        },
    )


def _tokens(found: Decoding) -> str:
    return "a token" if found.sequences <= 1 else f"a token to each of {found.sequences:,.0f} sequences"


def _graphed(found: Decoding) -> str:
    if not found.others:
        return ""
    return f" {format_count(found.others, 'step')} of the same kind come from a graph."
