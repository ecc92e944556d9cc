"""A name of the program keeps more and more tensors, step after step.

What it detects
A variable, an attribute or an entry of a container that holds more tensors at the end of each recorded step than at
the end of the one before, over four samples or more, while the allocator's live bytes grow as well. The tensors carry
no autograd graph (`retained-graph` looks for those) and their bytes are used (`oversized-storage` looks for views that
keep a large storage). Numbers, containers with a maximum length, names that the program visibly empties, binds anew in
a loop or joins into one tensor, and a cache that asks whether it holds a key are no fault.

In a memory snapshot, where no names are known: lines that by turns allocate four times or more what is never freed, a
tenth of the peak or more, to the end of the history, while the model works in each round. Data that are put on the
device before the model works are no growth.

Why is this bad?
Each step's outputs stay where they were computed, so memory grows until the run dies, after more steps than anyone
tried it with. Often only a mean or a count is wanted of them in the end.

Example
    outputs = []
    for x, y in batches:
        with torch.no_grad():
            outputs.append(model(x))
    mean = sum(output.mean() for output in outputs) / len(outputs)

Use instead
    total = 0.0
    for x, y in batches:
        with torch.no_grad():
            total += model(x).mean()
    mean = total / len(batches)

How the saving is estimated
Memory, not time: by how much the tensors that the name holds grow from step to step, and no more than the live bytes
grow by the allocator's word, which several such names share. By a snapshot: what one of the rounds leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit.derive.facts import Facts
from profkit.evidence.allocator.rounds import kept_rounds
from profkit.evidence.retention.holding import (
    GrowingName,
    first_at_each_line,
    growing_names,
    live_growth_per_step,
    notable_growth_bytes,
)
from profkit.findings import Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.places import growing_lines, kept_lines
from profkit.units import format_bytes, format_count

_BY_SNAPSHOT_CONFIDENCE = 0.7
"""The container may have a bound that a snapshot does not show."""


def _by_snapshot(facts: Facts) -> Iterator[Suspicion]:
    rounds = kept_rounds(facts)
    if rounds is None or rounds.keeps_passes:
        return
    yield Suspicion(
        message=f"{rounds.rounds} rounds leave {format_bytes(rounds.each_bytes)} each that nothing frees, "
        f"{format_bytes(rounds.total_bytes)} by now. A snapshot does not show which name holds it; this line allocates "
        "last in a round.",
        fix="Look from here on for what is appended or stored, and keep what is wanted of it and not the tensors: a "
        "running sum or count, or `x.cpu()` where all of them are needed.",
        places=kept_lines(facts, rounds),
        size_bytes=rounds.each_bytes,
        grows=True,
        confidence=_BY_SNAPSHOT_CONFIDENCE,
        count=rounds.rounds,
        evidence={"rounds": rounds.rounds, "bytes_per_round": rounds.each_bytes, "bytes": rounds.total_bytes},
    )


@rule(Kind.FAULT, Need.LIVE, Need.MEMORY, Need.GROWTH, by_snapshot=_by_snapshot)
def growing_live_tensors(facts: Facts) -> Iterator[Suspicion]:
    """One finding for each line that makes a name hold more."""
    notable = notable_growth_bytes(facts)
    names = [
        name
        for name in growing_names(facts)
        if name.more_bytes >= notable and not name.is_bounded and not name.is_mostly_wasted
    ]
    seen_share = min(1.0, live_growth_per_step(facts) / max(1, sum(name.more_bytes for name in names)))
    for name in first_at_each_line(sorted(names, key=lambda name: -name.more_bytes)):
        yield _suspect(facts, name, int(seen_share * name.more_bytes))


def _suspect(facts: Facts, name: GrowingName, size_bytes: int) -> Suspicion:
    on_host = ", or `x.cpu()` where all of them are needed" if facts.device.present else ""
    return Suspicion(
        message=f"`{name.path}` keeps {format_count(name.more_tensors, 'tensor')} more each step and nothing empties "
        f"it; memory grows by {format_bytes(size_bytes)} a step.",
        fix=f"Keep what is wanted of them and not the tensors: add to a running sum or count instead of `{name.path}`"
        f"{on_host}; or empty it once in a while.",
        places=growing_lines(facts, name.site),
        size_bytes=size_bytes,
        grows=True,
        confidence=0.9,
        count=name.more_tensors,
        evidence={"tensors_per_step": name.more_tensors, "bytes_per_step": name.more_bytes},
    )
