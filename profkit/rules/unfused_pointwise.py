"""A chain of elementwise operations reads and writes the whole tensor once for each of them.

What it detects
Three or more elementwise operators in a row (arithmetic, activations, comparisons, casts, dropout) on tensors of the
same, large number of elements. Operators of an optimizer's step and of a DataLoader do not count. A compiled region has
operators of other names and is never reported. Nor is one operator of two tensors that repeats on equal shapes: it may
be a benchmark, whose results are not each other's inputs. A formula of several lines that is a function
of its own is reported at the line that calls it. It is an opportunity: the compiler costs seconds at the start.

Why is this bad?
Each operator loads its input from memory, adds or multiplies, and stores a result that the next one loads again. Memory
moves far fewer numbers a second than the processor can add, so moving takes the time, and it is paid once for each
operator instead of once for the formula.

Example
    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))

Use instead
    @torch.compile
    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))

How the saving is estimated
The chain keeps the share of its time that one fused kernel has of its memory traffic: the distinct inputs read once and
the result written once, over the inputs and outputs of all operators. The recording does not tell how many of the
inputs are the same tensor; one, plus a quarter of the others, count as distinct. On a CPU the arithmetic of `exp`,
`tanh` and their like stays: the time beyond what the slowest other operator of the chains needs to move as many bytes.
If every call of such an operator was that slow, it also loses as much as the other operators vary from call to call:
the first write to memory that the system hands out anew takes several times as long. `tanh` and `log` become dearer
where MKL's vector functions, which compute them as operators, are faster than SLEEF's, which a fused kernel calls: on
Intel's processors a fused formula with `tanh` may be no faster at all. Python's time between the operators vanishes.
Their backward nodes shrink by the same share as the traffic; on a CPU a fused backward pass computes the functions once
more. The time to compile is not included.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.families import base_name
from profkit.derive.operators.operators import parse_types
from profkit.derive.timeline.intervals import stretches
from profkit.patterns import (
    backward_of,
    group_by_place,
    in_most_steps,
    length_ns,
    name_lines,
    program_elementwise,
    program_operators,
    program_traffic,
    runs_inside_a_call,
    sites_by_time,
    spent_ns,
)
from profkit.patterns.loops.accesses import MAX_GAP_NS, TINY_ELEMENTS
from profkit.patterns.places.callers import sole_call_site
from profkit.patterns.releases import INDUCTOR, note_since
from profkit.patterns.time.freeing import frees
from profkit.rules.base import Facts, Kind, Need, Suspicion, Suspicions, format_bytes, rule
from profkit.savings import Edit, combine, scale_operators, shrink_spans
from profkit.savings.replay import replay
from profkit.trace import Int64s, Rows, distinct, distinct_rows

_MIN_OPERATORS = 3
"""Two operators in a row (add and relu, scale and shift) are everywhere, and fusing them saves a third at best."""
_MIN_ELEMENTS = 64 << 10
"""256 KiB of float32: two or three such tensors exceed the L2 cache of a core (256 KiB to 2 MiB), and on a GPU a
smaller kernel takes less time than its launch."""
_NEAR_LINES = 3
"""Chains this many lines apart in one function are parts of one formula."""
_TRANSCENDENTAL = frozenset(
    (
        "acos",
        "asin",
        "atan",
        "atan2",
        "celu",
        "cos",
        "cosh",
        "elu",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "gelu",
        "log",
        "log10",
        "log1p",
        "log2",
        "logaddexp",
        "mish",
        "pow",
        "selu",
        "sigmoid",
        "silu",
        "sin",
        "sinh",
        "softplus",
        "tan",
        "tanh",
    )
)
"""Computed by polynomials of ten and more terms, which on a CPU takes longer than moving the data."""
_SLEEF = {
    "tanh": (5.5, 2.4),
    "erfc": (5.5, 3.4),
    "log2": (3.0, 1.2),
    "log": (2.0, 0.65),
    "acos": (1.7, 1.0),
    "atan": (1.7, 1.1),
    "tan": (1.7, 1.1),
    "asin": (1.5, 0.8),
}
"""What the function takes in a fused kernel on one thread, with the data in the cache: how many times as long as the
operator alone, and the nanoseconds a number. PyTorch calls MKL for the operators alone (``IMPLEMENT_VML_MKL`` in ATen's
``cpu/vml.h``), and SLEEF everywhere else. The ratio is that of an Intel Xeon. On other processors MKL is far slower: on
an AMD EPYC a `tanh` alone takes six times as long as on the Xeon, and inside a fused kernel less than that. The
nanoseconds of SLEEF differ by less than half between the two; the larger figure is taken. `exp`, `sin`, `cos` and `erf`
take the same in MKL and SLEEF (`bench_pointwise.py --functions`)."""
_NUMBERS_PER_THREAD = 32768
"""An operator on a CPU starts no thread for fewer (``at::internal::GRAIN_SIZE``)."""
_VML_TYPES = {"float": 1, "double": 2}
"""How many times as long as a float one number takes. For all other types the operator already uses SLEEF."""
_ARITHMETIC_UNCERTAINTY = 0.3
"""Of what a fused kernel computes: with two to sixteen numbers in a vector, processors may differ by as much."""
_UNCERTAINTY = 0.25
"""For chains of three to ten, how far the extremes (one distinct input, or all of them) lie from the estimate."""


class _Chain(Struct, frozen=True):
    """One run of a chain: its elementwise operators on tensors of one number of elements, the share of their traffic
    that a fused kernel keeps, and the bytes that each moves."""

    rows: Rows
    elements: int
    kept: float
    moves_bytes: Int64s

    @property
    def moved_bytes(self) -> int:
        return int(self.moves_bytes.sum())


@rule(Kind.OPPORTUNITY, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def unfused_pointwise(facts: Facts) -> Suspicions:
    """Find the chains and group them by the place in the program that they come from."""
    for chains, rows in group_by_place(facts, list(_find_chains(facts)), lambda chain: chain.rows, _NEAR_LINES):
        if not in_most_steps(facts, rows):
            continue
        steps = facts.steps.measured_count
        moved = sum(chain.moved_bytes for chain in chains) // steps
        kept = sum(chain.moved_bytes * chain.kept for chain in chains) / steps
        longest = max(len(chain.rows) for chain in chains)
        edit = _fuse_on_device(facts, chains) if facts.device.present else _fuse_on_host(facts, chains)
        if not facts.device.present and replay(facts, edit).fraction <= 0:
            continue
        yield Suspicion(
            message=f"{format_bytes(moved)} a step is moved where one pass would move about {format_bytes(kept)}: "
            f"{longest} elementwise operations in a row each read and write whole tensors.",
            fix=_advise(facts, rows),
            rows=rows,
            edit=edit,
            confidence=0.8,
            count=max(1, round(len(chains) / steps)),
            places=name_lines(facts, [sole_call_site(facts, rows), *sites_by_time(facts, rows)]),
            evidence={"operators_in_chain": longest, "moved_bytes_per_step": moved, "fused_bytes_per_step": int(kept)},
        )


def _advise(facts: Facts, rows: Rows) -> str:
    since, seconds = note_since(facts, INDUCTOR), "Compiling takes seconds once."
    if runs_inside_a_call(facts, rows):
        return (
            "The formula is not on this line but inside what it calls. If that is a library, it may have a setting for "
            f"a fused form; otherwise put the model under `torch.compile`{since}. {seconds}"
        )
    return (
        f"Put the formula into a function under `torch.compile`{since}, or call the ready-made fused operator if "
        f"PyTorch has one (`nn.functional.gelu`, `silu`, `torch.lerp`, `addcmul`). {seconds}"
    )


def _find_chains(facts: Facts) -> Iterator[_Chain]:
    """Maximal runs of elementwise operators on one number of elements within a step."""
    rows = program_operators(facts)
    traffic = program_traffic(facts)
    pointwise, transparent = program_elementwise(facts)
    pointwise = pointwise & (traffic.elements > 0)
    large = pointwise & (traffic.elements >= _MIN_ELEMENTS)
    transparent = transparent | pointwise & (traffic.elements <= TINY_ELEMENTS)  # the compiler fuses these too
    kept = np.flatnonzero(large | ~transparent)
    start, end = facts.trace.events.start_ns[rows], facts.tree.end_ns[rows]
    step = facts.steps.index_of(start)
    here, after = kept[:-1], kept[1:]
    joined = large[here] & large[after] & (traffic.elements[here] == traffic.elements[after])
    freed = frees(facts).intervals
    gap_ns = start[after] - end[after - 1] - freed.covered_before(start[after]) + freed.covered_before(end[after - 1])
    joined &= (step[here] == step[after]) & (gap_ns <= MAX_GAP_NS)
    for part in (kept[one] for one in stretches(np.flatnonzero(~joined) + 1, len(kept), _MIN_OPERATORS)):
        moved = traffic.read_bytes[part], traffic.written_bytes[part]
        if not large[part].all() or _updates_in_turn(facts, rows[part]) or _repeats_a_call(facts, rows[part], *moved):
            continue
        yield _price(rows[part], int(traffic.elements[part[0]]), *moved)


def _updates_in_turn(facts: Facts, rows: Rows) -> bool:
    """Whether one or two in-place operators repeat: a loop over parameters (an average of weights), not a formula."""
    codes = distinct(facts.trace.events.name_code[rows])
    return len(codes) < _MIN_OPERATORS and all(facts.trace.names[code].endswith("_") for code in codes)


def _repeats_a_call(facts: Facts, rows: Rows, read_bytes: Int64s, written_bytes: Int64s) -> bool:
    """Whether one operator of several tensors runs again and again on inputs alike, as in a benchmark of ``a + b``. In
    a chain one of them would be the result before, and all others tensors of their own; nothing recorded says so."""
    events = facts.trace.events
    kinds = (column[rows] for column in (events.name_code, events.dims_code, events.types_code))
    return bool((read_bytes >= 2 * written_bytes).all()) and all((kind == kind[0]).all() for kind in kinds)


def _price(rows: Rows, elements: int, read_bytes: Int64s, written_bytes: Int64s) -> _Chain:
    """A later operator reads every result but the last; all other reads come from outside.

    The recording does not tell which of the reads from outside are of one tensor. Formulas name their few variables
    over and over, so a quarter of what may be distinct counts as distinct.
    """
    moves = read_bytes + written_bytes
    least = int(written_bytes.max())
    most = max(int(read_bytes.sum() - written_bytes[:-1].sum()), least)
    fused = least + (most - least) / 4 + int(written_bytes[-1])
    return _Chain(rows, elements, fused / int(moves.sum()), moves)


def _arithmetic_ns(facts: Facts, chains: list[_Chain]) -> tuple[Int64s, Int64s]:
    """What each operator of the chains computes on a CPU besides moving data: now, and in a fused kernel."""
    rows = np.concatenate([chain.rows for chain in chains])
    moves = np.concatenate([chain.moves_bytes for chain in chains])
    spent = spent_ns(facts, rows)
    names, types = facts.trace.events.name_code[rows], facts.trace.events.types_code[rows]
    first, kind = distinct_rows(names, moves, types)
    best_ns, worst_ns = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
    np.minimum.at(best_ns, kind, spent)  # the fastest of equal operators: the others waited for memory
    np.maximum.at(worst_ns, kind, spent)
    plain = [base_name(facts.trace.names[code]) for code in names[first]]
    slow = np.array([name in _TRANSCENDENTAL for name in plain])
    per_byte = (best_ns / moves[first])[~slow].max(initial=0.0)
    waited_ns = ((worst_ns - best_ns) / moves[first])[~slow].max(initial=0.0) * moves[first]
    best_ns = np.where(slow & (best_ns - waited_ns >= per_byte * moves[first]), best_ns - waited_ns, best_ns)
    own = np.where(slow & (per_byte > 0), best_ns - per_byte * moves[first], 0.0).clip(min=0)
    elements = np.concatenate([np.full(len(chain.rows), chain.elements) for chain in chains])[first]
    sleef = [_sleef_ns(facts, *one) for one in zip(plain, types[first], elements, best_ns, strict=True)]
    fused = np.maximum(own, sleef)
    return np.minimum(own[kind], spent).astype(np.int64), fused[kind].astype(np.int64)


def _sleef_ns(facts: Facts, name: str, types_code: int, elements: int, alone_ns: float) -> float:
    """What a fused kernel takes for a function that takes ``alone_ns`` as an operator; 0 where SLEEF computes both."""
    width = _VML_TYPES.get(next(iter(parse_types(facts.trace.text_of(types_code))), ""), 0)
    if not width or name not in _SLEEF:
        return 0.0
    ratio, element_ns = _SLEEF[name]
    host = facts.run.host
    threads = max(1, min(host.torch_threads if host else 1, elements // _NUMBERS_PER_THREAD))
    return min(ratio * alone_ns, element_ns * width * elements / threads)


def _spans(facts: Facts, chains: list[_Chain]) -> tuple[Int64s, Int64s]:
    """Where each chain starts and ends, with Python's time between its operators."""
    return (
        np.array([facts.trace.events.start_ns[chain.rows[0]] for chain in chains]),
        np.array([facts.tree.end_ns[chain.rows[-1]] for chain in chains]),
    )


def _fuse_on_host(facts: Facts, chains: list[_Chain]) -> Edit:
    """Each chain becomes one pass that does all its arithmetic; the backward pass is another that does it again."""
    rows = np.concatenate([chain.rows for chain in chains])
    share = np.array([chain.kept for chain in chains])
    at = np.cumsum([0, *(len(chain.rows) for chain in chains[:-1])])
    spent, (stays, computed) = spent_ns(facts, rows), _arithmetic_ns(facts, chains)
    start, end = _spans(facts, chains)
    length = length_ns(facts, start, end)
    fused = np.minimum(np.add.reduceat(spent - stays, at) * share + np.add.reduceat(computed, at), length)
    nodes = backward_of(facts, rows)
    backward = max(float(spent_ns(facts, nodes).sum()), 1.0)
    kept = min(1.0, float(share.mean() + computed.sum() / backward))
    saved = float((length - fused).sum()) + (1 - kept) * backward * bool(nodes.size)
    in_doubt = _ARITHMETIC_UNCERTAINTY * float(computed.sum()) * (2 if nodes.size else 1)
    uncertainty = min(1.0, _UNCERTAINTY + in_doubt / max(saved, 1.0))
    return combine(
        [
            shrink_spans(start, end, fused.astype(np.int64), uncertainty),
            scale_operators(facts, nodes, np.full(len(nodes), kept), uncertainty),
        ]
    )


def _fuse_on_device(facts: Facts, chains: list[_Chain]) -> Edit:
    """Each chain becomes one launch and one kernel; its backward nodes shrink alike."""
    rows = np.concatenate([chain.rows for chain in chains])
    kept = np.concatenate([np.full(len(chain.rows), chain.kept) for chain in chains])
    nodes = backward_of(facts, rows)
    lengths = np.array([len(chain.rows) for chain in chains])
    one_call = np.add.reduceat(spent_ns(facts, rows), np.cumsum(lengths) - lengths) // lengths
    return combine(
        [
            shrink_spans(*_spans(facts, chains), one_call, _UNCERTAINTY),
            scale_operators(facts, nodes, np.full(len(nodes), kept.mean()), _UNCERTAINTY, len(chains) / len(rows)),
            scale_operators(facts, rows, kept, _UNCERTAINTY, launch_kept=1.0),
        ]
    )
