"""A chain of elementwise operations reads and writes the whole tensor once for each of them.

What it detects
Three or more elementwise operators in a row (arithmetic, activations, comparisons, casts, dropout) on tensors of the
same, large number of elements. Operators of an optimizer's step and of a DataLoader do not count, and a compiled
region shows under other names, so it is never reported. It is an opportunity: the compiler costs seconds at the start.

Why is this bad?
Each of the operators loads its input from memory, does an addition or a multiplication, and stores a result that the
next one loads again. Memory moves far fewer numbers in a second than the processor can add, so the time is that of
the moving, and it is paid once for each operator instead of once for the formula.

Example
    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))

Use instead
    @torch.compile
    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))

How the saving is estimated
The chain takes the share of its time that one fused kernel has of its memory traffic: the distinct inputs read once
and the result written once, over the inputs and outputs of all operators. How many of the inputs are the same tensor
is not recorded: one and a quarter of the others are taken to be distinct. On a CPU the arithmetic of `exp`, `tanh` and
their like stays: what they take beyond the time in which the slowest other operator of the chains moves as many bytes.
Python's time between the operators vanishes, and their backward nodes shrink by the same share as the traffic. The time
to compile is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.derive.families import base_name
from profkit.derive.intervals import stretches
from profkit.findings import Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.rules.evidence import (
    backward_of,
    group_by_place,
    locations_of,
    program_elementwise,
    program_operators,
    program_traffic,
    share_of_steps,
    sites_by_time,
    spent_ns,
)
from profkit.rules.pricing import scale_operators
from profkit.rules.releases import INDUCTOR, note_since
from profkit.savings.edits import Edit, combine, shrink_spans
from profkit.trace.events import Int64s, Rows
from profkit.trace.values import distinct, distinct_rows
from profkit.units import format_bytes

_MIN_OPERATORS = 3
"""Two operators in a row (add and relu, scale and shift) stand everywhere, and fusing them saves a third at best."""
_MIN_ELEMENTS = 64 << 10
"""256 KiB of float32: two or three such tensors exceed the L2 cache of a core (256 KiB to 2 MiB), and on a GPU a kernel
on fewer takes less time than its launch."""
_TINY_ELEMENTS = 4096
"""Operators on fewer elements (a scale, a bias) cost their dispatch; the compiler takes them into the chain."""
_MAX_GAP_NS = 200_000
"""Python takes microseconds between two operators of a formula; a longer gap is other work, which fusion would keep."""
_NEAR_LINES = 3
"""Chains so many lines apart in one function are parts of one formula."""
_TRANSCENDENTAL = frozenset((
    "acos", "asin", "atan", "atan2", "celu", "cos", "cosh", "elu", "erf", "erfc", "exp", "exp2", "expm1", "gelu", "log",
    "log10", "log1p", "log2", "logaddexp", "mish", "pow", "selu", "sigmoid", "silu", "sin", "sinh", "softplus", "tan",
    "tanh",
))  # fmt: skip
"""Computed by polynomials of ten and more terms, which on a CPU takes longer than the moving of the data."""
_UNCERTAINTY = 0.25
"""How far the extremes, one distinct input or all of them, lie from the estimate for chains of three to ten."""


class _Chain(Struct, frozen=True):
    """One run of a chain: its elementwise operators, the bytes that each moves, and the share of this traffic that a
    fused kernel keeps."""

    rows: Rows
    kept: float
    moves_bytes: Int64s

    @property
    def moved_bytes(self) -> int:
        return int(self.moves_bytes.sum())


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def unfused_pointwise(facts: Facts) -> Iterator[Suspicion]:
    """Find the chains and group them by the place in the program that they come from."""
    found = list(_find_chains(facts))
    for place in group_by_place(facts, [chain.rows for chain in found], _NEAR_LINES):
        chains = [found[i] for i in place]
        rows = np.concatenate([chain.rows for chain in chains])
        if share_of_steps(facts, rows) < 0.5:
            continue
        steps = max(facts.steps.measured_count, 1)
        moved = sum(chain.moved_bytes for chain in chains) // steps
        kept = sum(chain.moved_bytes * chain.kept for chain in chains) / steps
        places = locations_of(facts, sites_by_time(facts, rows))
        longest = max(len(chain.rows) for chain in chains)
        yield Suspicion(
            message=f"{longest} elementwise operations in a row each read and write whole tensors: "
            f"{format_bytes(moved)} a step move where one pass would move about {format_bytes(kept)}.",
            fix=f"Put the formula into a function under `torch.compile`{note_since(facts, INDUCTOR)}, or call the "
            "ready-made fused operator where PyTorch has one (`nn.functional.gelu`, `silu`, `torch.lerp`, `addcmul`). "
            "Compiling takes seconds once.",
            rows=rows,
            edit=_fuse(facts, chains),
            confidence=0.8,
            count=max(1, round(len(chains) / steps)),
            location=places[0] if places else None,
            also=places[1:],
            evidence={"operators_in_chain": longest, "moved_bytes_per_step": moved, "fused_bytes_per_step": int(kept)},
        )


def _find_chains(facts: Facts) -> Iterator[_Chain]:
    """Maximal runs of elementwise operators on one number of elements within a step."""
    rows = program_operators(facts)
    traffic = program_traffic(facts)
    pointwise, transparent = program_elementwise(facts)
    pointwise = pointwise & (traffic.elements > 0)
    large = pointwise & (traffic.elements >= _MIN_ELEMENTS)
    transparent = transparent | pointwise & (traffic.elements <= _TINY_ELEMENTS)
    kept = np.flatnonzero(large | ~transparent)
    start, end = facts.trace.events.start_ns[rows], facts.tree.end_ns[rows]
    step = facts.steps.index_of(start)
    here, after = kept[:-1], kept[1:]
    joined = large[here] & large[after] & (traffic.elements[here] == traffic.elements[after])
    joined &= (step[here] == step[after]) & (start[after] - end[after - 1] <= _MAX_GAP_NS)
    for part in (kept[one] for one in stretches(np.flatnonzero(~joined) + 1, len(kept), _MIN_OPERATORS)):
        if large[part].all() and not _updates_in_turn(facts, rows[part]):
            yield _price(rows[part], traffic.read_bytes[part], traffic.written_bytes[part])


def _updates_in_turn(facts: Facts, rows: Rows) -> bool:
    """Whether one or two operators in place repeat: a loop over parameters (an average of weights), not a formula."""
    codes = distinct(facts.trace.events.name_code[rows])
    return len(codes) < _MIN_OPERATORS and all(facts.trace.names[code].endswith("_") for code in codes)


def _price(rows: Rows, read_bytes: Int64s, written_bytes: Int64s) -> _Chain:
    """Every result but the last is read by a later operator; what is read beyond that comes from outside.

    Which of the reads from outside are of one tensor is not recorded. Formulas name their few variables over and over,
    so a quarter of what may be distinct counts as such.
    """
    moves = read_bytes + written_bytes
    least = int(written_bytes.max())
    most = max(int(read_bytes.sum() - written_bytes[:-1].sum()), least)
    fused = least + (most - least) / 4 + int(written_bytes[-1])
    return _Chain(rows, fused / int(moves.sum()), moves)


def _fused_ns(facts: Facts, chains: list[_Chain]) -> Int64s:
    """What each chain takes in one pass on a CPU: the share of the traffic that is left, and all arithmetic."""
    rows = np.concatenate([chain.rows for chain in chains])
    moves = np.concatenate([chain.moves_bytes for chain in chains])
    spent = spent_ns(facts, rows)
    names = facts.trace.events.name_code[rows]
    first, kind = distinct_rows(names, moves)
    best_ns = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(best_ns, kind, spent)  # of equal operators the fastest: the others waited for memory
    slow = np.isin(names[first], facts.trace.codes_where(lambda name: base_name(name) in _TRANSCENDENTAL))
    per_byte = (best_ns / moves[first])[~slow].max(initial=0.0)
    arithmetic = np.where(slow & (per_byte > 0), best_ns - per_byte * moves[first], 0.0).clip(min=0)[kind]
    at = np.cumsum([0, *(len(chain.rows) for chain in chains[:-1])])
    stays = np.minimum(arithmetic, spent)
    share = np.array([chain.kept for chain in chains])
    fused_ns: Int64s = (np.add.reduceat(spent - stays, at) * share + np.add.reduceat(stays, at)).astype(np.int64)
    return fused_ns


def _fuse(facts: Facts, chains: list[_Chain]) -> Edit:
    """Each chain becomes one pass, or with a device one launch and one kernel; its backward nodes shrink alike."""
    on_device = facts.device.present
    parts = [
        shrink_spans(
            np.array([facts.trace.events.start_ns[chain.rows[0]] for chain in chains]),
            np.array([facts.tree.end_ns[chain.rows[-1]] for chain in chains]),
            np.array([spent_ns(facts, chain.rows).sum() // len(chain.rows) for chain in chains])
            if on_device else _fused_ns(facts, chains),
            _UNCERTAINTY,
        )
    ]  # fmt: skip
    rows = np.concatenate([chain.rows for chain in chains])
    kept = np.concatenate([np.full(len(chain.rows), chain.kept) for chain in chains])
    nodes = backward_of(facts, rows)
    parts.append(scale_operators(facts, nodes, np.full(len(nodes), kept.mean()), _UNCERTAINTY, len(chains) / len(rows)))
    if on_device:
        parts.append(scale_operators(facts, rows, kept, _UNCERTAINTY, launch_kept=1.0))
    return combine(parts)
