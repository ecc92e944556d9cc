"""Attention is written out as product, softmax and product, so a table of all scores is stored and passed over.

What it detects
`softmax(q @ k.T) @ v`: a product of matrices whose result, perhaps scaled or masked, goes through a softmax, perhaps
through dropout, and into another product. The softmax has the shape of the first product's result and of an input of
the second. `nn.MultiheadAttention` does this when asked for the weights (`need_weights=True`, its default). Not
reported: `scaled_dot_product_attention`, even if it falls back to this form inside; attention with an active dropout on
a CPU, where PyTorch has no fused kernel for it; and what that function cannot compute. It scales the scores, adds to
them and masks them, but has no cap (`tanh`), no sign and no gate on them or on their softmax.

Why is this bad?
The table holds a number for each pair of positions. The product writes it, each operator on it reads and writes it
again, and the backward pass needs it, so time and memory grow with the square of the length and go into moving it. A
fused kernel computes it in blocks that stay in the cache and never stores it.

Example
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    weights = torch.softmax(scores, dim=-1)
    mixed = weights @ v

Use instead
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)

How the saving is estimated
The operators on the table between the two products vanish, with their backward nodes. The products stay, each at the
time of the cheaper one: both do the same arithmetic, and what the other takes on top is writing the table. (If keys and
values differ in width, each at the time of the dearer one: the fused kernel wants them padded.) On a GPU with a known
data sheet they take at most what they need at half of its peak. The backward pass of a fused kernel makes five such
products for the two of the forward pass, one of them to compute the table again (Dao et al., FlashAttention, 2022,
algorithms 1 and 4). `--measure` runs both forms on the recorded shapes instead. In a snapshot: by how much the peak of
the memory would be lower without the tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.families import MATRIX, operators_of
from profkit.patterns import (
    Places,
    backward_of,
    call_of,
    frequent_lines,
    name_lines,
    per_step,
    program_operators,
    program_traffic,
    shapes_of,
    times_per_step,
)
from profkit.patterns.allocator.lines import site_of
from profkit.patterns.allocator.score_tables import score_tables
from profkit.patterns.releases import INDUCTOR, note_since
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    rule,
)
from profkit.run.experiment import Case, Experiment
from profkit.savings import Edit, Trial, combine, computing_ns, dtype_of, scale_operators
from profkit.savings.cost_models.devices import rates_of
from profkit.savings.cost_models.roofline import work_of
from profkit.trace import Float64s, Rows

_REACH = 64
"""Operators to look at on either side: a scale and a mask are a few, a bias by relative position is about forty."""
_LEAST_ON_CPU = 64
"""Queries and keys of one table on a CPU. Fused and written out took, PyTorch 2.13, one thread: 5.5 and 6.1 ms for
tables of 64 by 64, 50 and 146 ms of 512 by 512; but 7.4 and 5.1 ms of 20 by 20. With 1 by 10 a public decoder gained
nothing."""
_MIN_ELEMENTS = 4096
"""One pass over a smaller table takes less time than starting the operator; a gate over a few experts is no
attention."""
_SOFTMAX = frozenset(("softmax", "_softmax"))
_PRODUCTS = frozenset(("matmul", "bmm", "baddbmm", "mm"))
_BENDS = frozenset(
    (
        "abs",
        "sign",
        "sgn",
        "tanh",
        "sigmoid",
        "relu",
        "leaky_relu",
        "elu",
        "celu",
        "selu",
        "gelu",
        "silu",
        "mish",
        "prelu",
        "softplus",
        "hardtanh",
        "threshold",
        "clamp",
        "clamp_min",
        "clamp_max",
        "minimum",
        "maximum",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "pow",
        "square",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "erf",
        "sin",
        "cos",
        "cumsum",
        "cumprod",
    )
)
"""Functions of single scores: the fused kernel only has the softmax."""
_OF_PEAK = 0.5
"""The share of the peak rate of products that fused kernels reach in the forward pass: half to three quarters on an
A100 (Dao, FlashAttention-2, 2023), about half on an H100."""
_BACKWARD_PRODUCTS = 5
_UNCERTAINTY = 0.3
"""Not modelled: the fused kernel's own softmax, and that its smaller blocks make the products themselves faster."""


class _Attention(Struct, frozen=True):
    """One written-out attention: its two products, the softmax, and all operators on the table of scores.
    ``same_width``: keys and values have as many elements. ``attended``: the shapes of queries, keys and values as
    (batch, length, width); None if their batches differ."""

    scores: int
    softmax: int
    mix: int
    passes: Rows
    same_width: bool
    attended: tuple[tuple[int, ...], ...] | None


_FIX = (
    "Call `torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p)`{} instead of the two "
    "products and the softmax; with `nn.MultiheadAttention` pass `need_weights=False`."
)
_NAMED, _UNNAMED = 0.8, 0.6
"""How sure a snapshot makes: with a softmax in its stacks, and by the sizes alone. It does not show whether the program
does something to the scores that the fused kernel cannot."""


def _by_snapshot(facts: Facts) -> Suspicions:
    """Only where there is no trace, which shows the formula itself."""
    tables = None if facts.has_trace else score_tables(facts)
    if tables is None:
        return
    share = format_share(tables.total_bytes / tables.peak_bytes)
    seems, sign = ("is", "a stack names the softmax") if tables.named else ("seems to be", "only the sizes tell so")
    yield Suspicion(
        message=f"Attention {seems} written out here ({sign}): {format_count(tables.count, 'table')} of "
        f"{format_bytes(tables.table_bytes)}, one number for each pair of positions. They are {share} of the peak of "
        f"{format_bytes(tables.peak_bytes)}, which would be {format_bytes(tables.saved_bytes)} lower without them.",
        fix=_FIX.format(""),
        places=Places.of_sites(site_of(facts, frame) for frame in tables.frames),
        size_bytes=tables.saved_bytes,
        peak_fraction=tables.saved_bytes / tables.peak_bytes,
        confidence=_NAMED if tables.named else _UNNAMED,
        count=1,
        evidence={
            "table_bytes": tables.table_bytes,
            "tables_at_the_peak": tables.count,
            "bytes_of_tables": tables.total_bytes,
            "peak_bytes": tables.peak_bytes,
        },
    )


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES, by_snapshot=_by_snapshot)
def unfused_attention(facts: Facts) -> Suspicions:
    """Report each line with such a softmax: the line where the formula begins, then its other lines."""
    found = {attention.softmax: attention for attention in _find_attentions(facts)}
    for rows in frequent_lines(facts, np.array(sorted(found), dtype=np.int64)):
        attentions = [found[row] for row in rows]
        elements = max(int(facts.operators.elements[row]) for row in rows)
        parts = zip(*((one.scores, one.softmax, one.mix) for one in attentions), strict=True)
        formula = [row for part in parts for row in part]
        yield Suspicion(
            message=f"Attention is written out step by step {format_count(times_per_step(facts, rows), 'time')} a "
            f"step. A table of {elements:,} scores is stored, and gone through by "
            f"{format_count(len(attentions[0].passes), 'operator')} between the two products.",
            fix=_FIX.format(note_since(facts, INDUCTOR)),
            rows=rows,
            edit=_fuse(facts, attentions),
            places=name_lines(facts, facts.lines.site[formula]),
            evidence={"scores": elements, "passes_over_the_scores": len(attentions[0].passes)},
            trial=_run_fused(facts, attentions),
        )


def _find_attentions(facts: Facts) -> Iterator[_Attention]:
    """For each softmax the nearest product before it that makes its table, and the nearest after it that takes it."""
    rows = program_operators(facts)
    elements = program_traffic(facts).elements
    step = facts.step_of(rows)
    matrix = operators_of(facts.trace, MATRIX)[rows]
    products = _Products(facts)
    for at in np.flatnonzero(operators_of(facts.trace, _SOFTMAX)[rows] & (elements >= _MIN_ELEMENTS)):
        table = products.shapes_of(rows[at])[0]
        if not facts.device.present and min(table[-2:], default=0) < _LEAST_ON_CPU:
            continue
        start = max(int(at) - _REACH, 0)
        near = slice(start, at + _REACH)
        candidates: list[int] = (np.flatnonzero(matrix[near] & (step[near] == step[at])) + start).tolist()
        first = next((i for i in reversed(candidates) if i < at and products.make(rows[i], table)), None)
        last = next((i for i in candidates if i > at and products.values_with(table, rows[i])), None)
        if first is not None and last is not None and products.sums_over(rows[last], table, _along(facts, rows[at])):
            between = np.arange(first + 1, last)
            passes = rows[between[(elements[between] == elements[at]) & ~matrix[between]]]
            values = products.values_with(table, rows[last]) or ()
            same_width = products.keys_of(rows[first]) == math.prod(values)
            can_fuse = not _bends_scores(facts, products, passes, int(rows[at]))
            if can_fuse and (facts.device.present or not _drops(facts, passes)):
                attended = products.attended(rows[first], values)
                yield _Attention(int(rows[first]), int(rows[at]), int(rows[last]), passes, same_width, attended)


def _along(facts: Facts, softmax: int) -> int | None:
    """The dimension that a softmax sums to one along, counted from the end; None if it was not recorded."""
    known = softmax if facts.trace.events.concrete_code[softmax] >= 0 else int(facts.repeats.row[softmax])
    if known < 0:
        return None
    call = call_of(facts, known)
    dimensions, text = len(call.shapes[0]) if call.shapes else 0, call.argument(1)
    if not text.lstrip("-").isdecimal():
        return None
    return int(text) - dimensions if int(text) >= 0 else int(text)


def _bends_scores(facts: Facts, products: _Products, passes: Rows, softmax: int) -> bool:
    """Whether a pass does something that the fused kernel cannot: to the scores or their softmax a function other than
    the softmax or a product of two tables, or behind the softmax a sum of two tables, where no mask can stand."""
    gates = operators_of(facts.trace, frozenset(("mul", "div")))
    sums = operators_of(facts.trace, frozenset(("add", "sub", "rsub")))
    table = math.prod(products.shapes_of(softmax)[0])
    return bool(operators_of(facts.trace, _BENDS)[passes].any()) or any(
        sum(math.prod(shape) == table for shape in products.shapes_of(row)) > 1
        for row in passes[gates[passes] | (sums[passes] & (passes > softmax))].tolist()
    )


def _drops(facts: Facts, passes: Rows) -> bool:
    """Whether a dropout among the passes is active: an inactive one calls nothing."""
    dropout = passes[operators_of(facts.trace, frozenset(("dropout", "native_dropout")))[passes]]
    return bool(np.isin(facts.calling, dropout).any())


class _Products:
    """The shapes that products of matrices take and make; an einsum is judged by the products inside it."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._plain = operators_of(facts.trace, _PRODUCTS)
        einsum = operators_of(facts.trace, frozenset(("einsum",)))
        self._around = facts.tree.nearest_ancestor(einsum)
        self._inside = np.flatnonzero((self._around >= 0) & operators_of(facts.trace, frozenset(("bmm", "mm"))))

    def shapes_of(self, row: int) -> list[Sequence[int]]:
        """The shapes of the inputs that are tensors of at least one dimension."""
        return [shape for shape in shapes_of(self._facts, row) if shape]

    def make(self, row: int, table: Sequence[int]) -> bool:
        """Whether the result is the table, perhaps in another shape."""
        for left, right in self._factors(row):
            rows_and_columns = [left[-2], right[-1]]
            batch = left[:-2] if len(left) >= len(right) else right[:-2]
            if _is_same([*batch, *rows_and_columns], table):
                return True
        return False

    def values_with(self, table: Sequence[int], row: int) -> Sequence[int] | None:
        """What the product multiplies the table with, perhaps in another shape; None if it does not take the table. If
        both factors could be the table, it is the left one."""
        for left, right in self._factors(row):
            if _is_same(left, table):
                return right
            if _is_same(right, table):
                return left
        return None

    def sums_over(self, row: int, table: Sequence[int], along: int | None) -> bool:
        """Whether the product adds up along that dimension of the table: attention weighs the values with shares that
        add up to one. Where it adds up along the other, as where pixels are pooled into slots, it is none."""
        if along not in (-1, -2):
            return True
        summed = {
            left[-1] if _is_same(left, table) else right[-2]
            for left, right in self._factors(row)
            if _is_same(left, table) or _is_same(right, table)
        }
        return table[along] in summed

    def keys_of(self, row: int) -> int:
        """Elements of the second factor of the product that makes the table."""
        return max((math.prod(right) for _, right in self._factors(row)), default=0)

    def attended(self, scores: int, value: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of queries, keys and values, each as batch, length and width."""
        query, key = next(iter(self._factors(scores)), [(), ()])
        if min(map(len, (query, key, value))) < 2:
            return None
        width, keys = key[-2:]
        value = value if value[-2] == keys else [*value[:-2], value[-1], value[-2]]
        batches = {math.prod(shape[:-2]) for shape in (query, key, value)}
        if len(batches) != 1 or query[-1] != width or value[-2] != keys:
            return None
        batch = batches.pop()
        return (batch, query[-2], width), (batch, keys, width), (batch, keys, value[-1])

    def _factors(self, row: int) -> Iterator[list[Sequence[int]]]:
        """The last two tensors that a product takes (`baddbmm` adds to its first), if they are matrices."""
        for one in [row] if self._plain[row] else self._inside[self._around[self._inside] == row]:
            factors = self.shapes_of(one)[-2:]
            if len(factors) == 2 and min(map(len, factors)) > 1:
                yield factors


def _is_same(shape: Sequence[int], table: Sequence[int]) -> bool:
    """As many elements, and the same two last sizes in either order."""
    return math.prod(shape) == math.prod(table) and sorted(shape[-2:]) == sorted(table[-2:])


def _fuse(facts: Facts, attentions: list[_Attention]) -> Edit:
    """No passes over the tables, and products that do not write one."""
    parts = []
    for attention in attentions:
        products = np.array([attention.scores, attention.mix])
        kept = _kept_of_products(facts, products, attention.same_width)
        nodes = [backward_of(facts, products[:1]), backward_of(facts, products[1:])]
        kept_ns = float((computing_ns(facts, products) * kept).mean()) * _BACKWARD_PRODUCTS / 2
        parts += [
            scale_operators(facts, products, kept, _UNCERTAINTY),
            *(_cap(facts, one, kept_ns) for one in nodes),
            *(_cap(facts, rows, 0) for rows in (attention.passes, backward_of(facts, attention.passes))),
        ]
    return combine(parts)


def _kept_of_products(facts: Facts, products: Rows, same_width: bool) -> Float64s:
    """The share that each of the two keeps, so that both take equally long. On the host the recorded times decide: in
    such short operators the recording may have taken most of either time, and not the same of both."""
    whole = computing_ns(facts, products) if facts.device.present else facts.trace.events.duration_ns[products]
    kept_ns = whole.min() if same_width else whole.max()
    if facts.device.present and (fused_ns := _fused_ns(facts, products)):
        kept_ns = min(kept_ns, fused_ns)
    share: Float64s = np.minimum(1.0, kept_ns / whole.clip(min=1))
    return share


def _fused_ns(facts: Facts, products: Rows) -> float:
    """What each of the products takes inside the fused kernel of a GPU with known rates; 0 elsewhere."""
    rates, trace = rates_of(facts), facts.trace
    works = [work_of(trace.name_of(row), trace.text_of(trace.events.dims_code[row])) for row in products.tolist()]
    peaks = [rates.products.get(dtype_of(facts, row), 0.0) if rates else 0.0 for row in products.tolist()]
    if not all(peaks) or not all(works):
        return 0.0
    each = [work.operations / (_OF_PEAK * peak) for work, peak in zip(works, peaks, strict=True) if work]
    return 1e9 * sum(each) / len(each)


def _run_fused(facts: Facts, attentions: list[_Attention]) -> Trial | None:
    """Run the costliest attention in both forms, and keep the measured share of the operators of all of them."""
    slowest = max(attentions, key=lambda one: int(facts.trace.events.duration_ns[[one.scores, one.mix]].sum()))
    if slowest.attended is None:
        return None
    calls = per_step(facts, np.array([one.softmax for one in attentions]))
    case = Case("scaled_dot_product_attention", slowest.attended, dtype_of(facts, slowest.scores), calls)
    products = np.array([row for one in attentions for row in (one.scores, one.mix)])
    passes = np.concatenate([one.passes for one in attentions])
    nodes = [backward_of(facts, rows) for rows in (products, passes)]

    def edit_of(factor: float) -> Edit:
        kept = [(products, 1.0), (passes, 0.0), (nodes[0], 1.0), (nodes[1], 0.0)]
        return combine([scale_operators(facts, rows, factor, _UNCERTAINTY, launch_kept) for rows, launch_kept in kept])

    backward = bool(nodes[0].size)
    return Trial(Experiment("fused-attention", (case,), count=len(slowest.passes), backward=backward), edit_of)


def _cap(facts: Facts, rows: Rows, kept_ns: float) -> Edit:
    """The rows together take this time, or their own if that is less."""
    share = min(1.0, kept_ns / max(int(computing_ns(facts, rows).sum()), 1))
    return scale_operators(facts, rows, share, _UNCERTAINTY, launch_kept=float(kept_ns > 0))
