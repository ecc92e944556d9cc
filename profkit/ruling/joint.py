"""Edits that show together: what part each has in what all of them give back."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.derive.facts import Facts
from profkit.savings.edits import Edit, combine
from profkit.savings.replay import replay


def parts_of(facts: Facts, edits: Sequence[Edit]) -> list[float]:
    """For each edit half of what it gives back alone and half of what the others lack without it, as a share of the
    sum: where the host goes on at one wait, the next one often takes its place. Equal parts where none of it tells."""
    if len(edits) == 1:
        return [1.0]
    everything = replay(facts, combine([*edits])).fraction
    weights = []
    for number, edit in enumerate(edits):
        rest = replay(facts, combine([*edits[:number], *edits[number + 1 :]])).fraction
        weights.append(replay(facts, edit).fraction + max(0.0, everything - rest))
    total = sum(weights)
    return [weight / total if total else 1 / len(edits) for weight in weights]
