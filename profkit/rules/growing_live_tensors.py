"""A name of the program keeps more and more tensors, step after step.

What it detects
A variable, an attribute or an entry of a container that holds more tensors at the end of each recorded step than at
the end of the one before, over four samples or more, while the allocator's live bytes grow as well. The tensors carry
no autograd graph (`retained-graph` looks for those) and their bytes are used (`oversized-storage` looks for views that
keep a large storage). Not reported: numbers, containers with a maximum length, names that the program visibly empties,
rebinds in a loop or joins into one tensor, and caches that check whether they hold a key. Names that hold the same
tensors are one finding, because each of them keeps the tensors alive.

In a memory snapshot, where no names are known: lines that in each of four rounds or more allocate memory that is never
freed, a tenth of the peak or more by the end of the history, while the model works in each round. Data that are put on
the device before the model works are not growth.

Why is this bad?
Each step's outputs stay where they were computed, so memory grows until the run dies, after more steps than anyone
tried. Often only a mean or a count of them is needed in the end.

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
Memory, not time: the growth per step of the tensors that the name holds, at most the growth of the allocator's live
bytes, which several such names share. In a snapshot: what each round leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.patterns.allocator.rounds import kept_rounds
from profkit.patterns.named_lines import growing_lines, kept_lines
from profkit.patterns.retention import holding
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, format_count, pick_form, rule

_BY_SNAPSHOT_CONFIDENCE = 0.7
"""The container may have a bound that a snapshot does not show."""


def _by_snapshot(facts: Facts) -> Suspicions:
    rounds = kept_rounds(facts)
    if rounds is None or rounds.keeps_passes:
        return
    yield Suspicion(
        message=f"{format_bytes(rounds.each_bytes)} stays allocated after each of {rounds.rounds} rounds, "
        f"{format_bytes(rounds.total_bytes)} by now. A snapshot does not show which name holds it; this line "
        "allocates last in a round.",
        fix="Look from this line on for what is appended or stored. Keep only what is needed of it: a running sum "
        "or count, or `x.cpu()` if all the tensors are needed.",
        places=kept_lines(facts, rounds),
        size_bytes=rounds.each_bytes,
        grows=True,
        confidence=_BY_SNAPSHOT_CONFIDENCE,
        count=rounds.rounds,
        evidence={"rounds": rounds.rounds, "bytes_per_round": rounds.each_bytes, "bytes": rounds.total_bytes},
    )


@rule(Kind.FAULT, Need.LIVE, Need.MEMORY, Need.GROWTH, by_snapshot=_by_snapshot)
def growing_live_tensors(facts: Facts) -> Suspicions:
    """One finding for each line that makes a name hold more, and one for all names that hold the same tensors."""
    notable = holding.notable_growth_bytes(facts)
    names = [
        name
        for name in holding.growing_names(facts)
        if name.more_bytes >= notable and not name.is_bounded and not name.is_mostly_wasted
    ]
    first = holding.first_at_each_line(sorted(names, key=lambda name: -name.more_bytes))
    groups = holding.held_together(facts, first, "bytes", lambda name: name.more_bytes)
    seen_share = min(1.0, holding.live_growth_per_step(facts) / max(1, sum(group[0].more_bytes for group in groups)))
    for group in groups:
        yield _suspect(facts, group, int(seen_share * group[0].more_bytes))


def _suspect(facts: Facts, names: Sequence[holding.GrowingName], size_bytes: int) -> Suspicion:
    name, others = names[0], " and ".join(f"`{other.path}`" for other in names[1:])
    hold = pick_form(len(names) - 1, "holds", "hold")
    same = f" {others} {hold} the same tensors: nothing is freed until all of them let go." if others else ""
    instead = " and ".join(f"`{each.path}`" for each in names)
    on_host = ", or keep `x.cpu()` if all of them are needed" if facts.device.present else ""
    return Suspicion(
        message=f"Memory grows by {format_bytes(size_bytes)} a step: `{name.path}` keeps "
        f"{format_count(name.more_tensors, 'tensor')} more each step, and nothing empties it.{same}",
        fix=f"Keep only what is needed of the tensors: add to a running sum or count instead of {instead}{on_host}. "
        f"Or empty {pick_form(len(names), 'it', 'them')} once in a while.",
        places=growing_lines(facts, name.path, *(each.site for each in names)),
        size_bytes=size_bytes,
        grows=True,
        confidence=0.9,
        count=name.more_tensors,
        evidence={"tensors_per_step": name.more_tensors, "bytes_per_step": name.more_bytes},
    )
