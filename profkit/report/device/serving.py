"""The steps of what serves a language model in words."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.core.units import format_bytes, format_count, format_share, format_time
from profkit.findings.serving import EngineSteps
from profkit.report.wording import printable

SERVING = "Steps that generate text"
_MOST_REPLAYED = 0.9
"""Of the kernels: a graph's step has a few before and after the replay."""


def sentences(one: EngineSteps) -> list[str]:
    """What a kind of step holds, how long it takes, and what lies between two."""
    found = [*(_of_engine(one) if one.engine else _of_loop(one))]
    if one.device_ns:
        found.append(f"The device works {format_time(one.device_ns)} of that, {_launched(one.replayed_fraction)}.")
    if one.families:
        parts = ", ".join(f"{printable(part.family)} {format_share(part.fraction)}" for part in one.families)
        found.append(f"Of its kernels' time: {parts}.")
    if one.idle_ns > 0:
        where = f", in {', '.join(map(printable, one.idle_in))}" if one.idle_in else ""
        found.append(f"Before it the device idles {format_time(one.idle_ns)}{where}.")
    if one.tokens_per_s:
        each = format_time(1e9 / one.tokens_per_s)
        found.append(f"That makes {one.tokens_per_s:,.0f} tokens a second, one every {each}.")
    return [*found, *_floor(one)]


def _of_engine(one: EngineSteps) -> Iterator[str]:
    tokens = f"{one.tokens:,.0f} tokens" if one.tokens else "an unknown number of tokens"
    over = f" over {one.context_tokens:,.0f} tokens of context" if one.context_tokens > one.tokens else ""
    steps, sequences = format_count(one.steps, "step"), format_count(round(one.sequences), "sequence")
    yield (
        f"{one.engine}, {one.kind}: {steps} of {tokens} of {sequences}{over}, {format_time(one.step_ns)} each, by the "
        "names of its ranges."
    )


def _of_loop(one: EngineSteps) -> Iterator[str]:
    where = f" at {printable(one.where)}" if one.where else ""
    each, sequences = format_time(one.step_ns), format_count(round(one.sequences), "sequence")
    yield f"A loop of the program's own{where} adds a token to {sequences} in each pass, {each} each."
    if one.tokens > one.sequences:
        yield f"Each pass reads {one.tokens / one.sequences:,.0f} tokens of a sequence again, of which one is new."
    if one.beside_tokens:
        others = format_count(one.beside_tokens, "other token")
        yield (
            f"For each pass the model also looks up {others}. If they stay the same, as a source to translate does, "
            "read them once, before the loop."
        )


def _floor(one: EngineSteps) -> Iterator[str]:
    """How far a pass is from reading what it needs."""
    if one.kind != "decode" or not one.step_ns:
        return
    if one.engine:
        if one.replayed_fraction >= _MOST_REPLAYED:
            yield "How far that is from reading weights and cache once is unknown: a graph's kernels have no shapes."
        return
    if not one.weight_bytes:
        return
    cache = f" and {format_bytes(one.cache_bytes)} of keys and values" if one.cache_bytes else ""
    reads = f"A pass has to read {format_bytes(one.weight_bytes)} of weights{cache}"
    if not one.floor_ns:
        yield f"{reads}, at least for as long as the memory takes: its rate was not measured (`profkit doctor`)."
        return
    times = one.step_ns / one.floor_ns
    if times >= 1:  # else the shapes say more than the pass reads, as with experts or weights in a cache
        yield f"{reads}, at least {format_time(one.floor_ns)}: it takes {times:,.1f} times as long."


def _launched(replayed: float) -> str:
    if replayed >= _MOST_REPLAYED:
        return "replayed from a graph"
    if replayed <= 1 - _MOST_REPLAYED:
        return "kernel by kernel, without a graph"
    return f"{format_share(replayed)} of its kernels replayed from graphs"
