"""Recordings of forward passes with and without a backward pass."""

from __future__ import annotations

from typing import Any

from profkit.rules.base import Suspicion
from profkit.rules.unused_autograd_graph import unused_autograd_graph
from tests.traces import mark, op, step

Json = dict[str, Any]


LENGTH = 1000


def find(facts) -> list[Suspicion]:
    return list(unused_autograd_graph.check(facts))


def forward(at: float, first: int, nodes: int = 12) -> list[Json]:
    """Operators that make a node each: the numbers rise."""
    return [op("aten::linear", at + 10 * k, 9, sequence=first + k) for k in range(nodes)]


def ending(at: float, number: int) -> list[Json]:
    """An operator without a graph that uses the number which the next node would have."""
    return [op("aten::argmax", at, 5, sequence=number)]


def backward(at: float, numbers: range) -> list[Json]:
    return [
        op("autograd::engine::evaluate_function: AddmmBackward0", at + 10 * k, 9, sequence=number)
        for k, number in enumerate(reversed(numbers))
    ]


def evaluating(steps: int = 3, nodes: int = 12) -> list[Json]:
    events = []
    for i in range(steps):
        at, first = LENGTH * i, nodes * i
        events += [step(i, at, LENGTH), *forward(at + 1, first, nodes), *ending(at + 500, first + nodes)]
    return events


def training(steps: int = 3, used: int = 12, unused: int = 0, seen: int | None = None) -> list[Json]:
    """Steps that make ``unused`` nodes and then ``used`` ones, and run these backward in the first ``seen`` steps."""
    events = []
    for i in range(steps):
        at, first = LENGTH * i, (used + unused) * i
        events += [
            step(i, at, LENGTH),
            *forward(at + 1, first, unused),
            *ending(at + 300, first + unused),
            *forward(at + 310, first + unused, used),
            *ending(at + 500, first + unused + used),
        ]
        if seen is None or i < seen:
            events += backward(at + 600, range(first + unused, first + unused + used))
    return events


def located(*chains: tuple[int, ...]) -> list[Json]:
    """A located step whose operators lie in these chains of lines, 12 operators each, then three measured ones."""
    events = [step(0, 0, LENGTH)]
    for n, chain in enumerate(chains):
        at = 1 + 300 * n
        events += [mark(site, at + depth, 200 - 2 * depth) for depth, site in enumerate(chain)]
        events += forward(at + 10, 12 * n)
    events += ending(900, 12 * len(chains))
    later = [{**event, "ts": event["ts"] + LENGTH} for event in evaluating()]
    return [*events, *later]
