"""The steps of an engine in words."""

from __future__ import annotations

from profkit.core.units import format_count, format_share, format_time
from profkit.findings.serving import EngineSteps
from profkit.report.wording import printable

SERVING = "The engine's steps, by the names of its ranges"
_MOST_REPLAYED = 0.9
"""Of the kernels: a graph's step has a few before and after the replay."""


def sentences(one: EngineSteps) -> list[str]:
    """What a kind of step holds, how long it takes, and what lies between two."""
    tokens = f"{one.tokens:,.0f} tokens of {format_count(round(one.sequences), 'sequence')}"
    over = f" over {one.context_tokens:,.0f} tokens of context" if one.context_tokens > one.tokens else ""
    steps = format_count(one.steps, "step")
    found = [
        f"{one.engine}, {one.kind}: {steps} of {tokens}{over}, {format_time(one.step_ns)} each.",
        f"The device works {format_time(one.device_ns)} of that, {_launched(one.replayed_fraction)}.",
    ]
    if one.idle_ns > 0:
        where = f", in {', '.join(map(printable, one.idle_in))}" if one.idle_in else ""
        found.append(f"Before it the device idles {format_time(one.idle_ns)}{where}.")
    if one.tokens_per_s:
        each = format_time(1e9 / one.tokens_per_s)
        found.append(f"That makes {one.tokens_per_s:,.0f} tokens a second, one every {each}.")
    return found


def _launched(replayed: float) -> str:
    if replayed >= _MOST_REPLAYED:
        return "replayed from a graph"
    if replayed <= 1 - _MOST_REPLAYED:
        return "kernel by kernel, without a graph"
    return f"{format_share(replayed)} of its kernels replayed from graphs"
