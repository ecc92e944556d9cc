"""Padded batches: which dimension is padded, and the operators that compute the padding too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import MATRIX
from profkit.patterns.calls import Call, distinct_calls
from profkit.patterns.named_lines import Places, costliest_lines
from profkit.patterns.program import located_operators, named_operators, program_operators
from profkit.patterns.shapes import by_operator, first_shape, parse_numbers, with_shapes
from profkit.run.directory import CallSite, PaddedInput
from profkit.trace.events import Float64s, Rows

_SHIFTED = (-1, 0, 1)
"""A language model's inputs and targets lack one position of the batch; some models add one."""
_SCORES = ("_scaled_dot_product", "scaled_dot_product", "_flash_attention", "_efficient_attention")
_PRODUCTS = ("bmm", "baddbmm", "matmul")
_CONVOLUTIONS = frozenset(
    f"{prefix}conv{kind}" for prefix in ("", "_") for kind in ("1d", "2d", "3d", "olution", "_transpose1d")
)
_FILLS = ("aten::zeros", "aten::full", "aten::ones", "aten::new_zeros", "aten::new_full")
_PADS = ("aten::pad", "aten::constant_pad_nd")
_FINEST = 64
"""How much shorter a convolution's input may be than the batch: six layers that halve it."""
_KINDS = ("mask", "ids", "values")
"""What a padded input may be, the most certain first."""
_SURE = 2.0
"""Standard errors."""
_MOST_NAMED = 3
"""Ids, their mask and the labels."""


class PaddedLength(Struct, frozen=True):
    """A length to which batches of ``rows`` rows are padded, by all inputs that share it.

    ``longest`` is what the longest row of a batch uses of the ``length`` positions, ``mean`` what a row uses on
    average, both over the batches that were seen; ``shares`` are of each batch the share that its longest row uses. The
    batches of the recorded steps had the ``lengths``. ``dims`` are the padded dimensions of the widest input, of
    ``ndim`` dimensions.
    """

    names: tuple[str, ...]
    kind: str
    rows: int
    length: int
    lengths: tuple[int, ...]
    longest: float
    mean: float
    shares: tuple[float, ...]
    dims: int
    ndim: int
    is_left: bool
    made: tuple[CallSite, ...]
    sites: tuple[CallSite, ...]

    @property
    def batches(self) -> int:
        return len(self.shares)

    @property
    def unseen(self) -> float:
        """The share of a batch's padding that longer rows than those seen may use, half of the most that is expected:
        a further batch has the longest row of all with a chance of one in so many batches, and it may fill the batch.
        """
        return 0.5 / (self.batches + 1)

    def used_share(self, power: int = 1) -> float:
        """What is expected of the share that a batch's longest row uses, or of its square."""
        return (1 - self.unseen) * float(np.mean(np.power(self.shares, power))) + self.unseen

    @property
    def uncertainty(self) -> float:
        """How far the share of positions that no row uses may be off, of itself: by rows that were not seen or, with
        95 %, by chance (twice the standard error of a mean)."""
        unused = 1 - np.array(self.shares)
        chance = _SURE * unused.std(ddof=1) / np.sqrt(self.batches) if self.batches > 1 else 0.0
        return float(max(self.unseen * unused.mean(), chance) / max(1 - self.used_share(), 1e-9))

    @property
    def mean_share(self) -> float:
        return self.mean / self.length


@derived_once
def padded_lengths(facts: Facts) -> tuple[PaddedLength, ...]:
    """The padded lengths of the program's batches, each once. A model that takes a batch without its last position has
    no length of its own."""
    groups: dict[tuple[int, int], list[PaddedInput]] = {}
    for one in sorted(facts.run.padding or (), key=lambda one: -one.shape[one.dim]):
        rows, length = one.shape[one.batch_dim], one.shape[one.dim]
        known = next((length + shift for shift in _SHIFTED if (rows, length + shift) in groups), length)
        groups.setdefault((rows, known), []).append(one)
    return tuple(_join(rows, length, inputs) for (rows, length), inputs in groups.items())


def _join(rows: int, length: int, inputs: Sequence[PaddedInput]) -> PaddedLength:
    """The inputs of one length. Its figures are those of the input of which most batches were seen, the mask first."""
    best = min(inputs, key=lambda one: (_KINDS.index(one.kind), -len(one.batches)))
    widest = max(inputs, key=lambda one: len(one.shape))
    share = [(batch.longest / batch.length, batch.mean / batch.length) for batch in (*best.batches, *best.later)]
    longest, mean = np.mean(share, axis=0).tolist()
    names = dict.fromkeys(one.name for one in sorted(inputs, key=lambda one: one.site is None) if one.name)
    return PaddedLength(
        names=tuple(names)[:_MOST_NAMED],
        kind=best.kind,
        rows=rows,
        length=length,
        lengths=tuple(sorted({length, *(batch.length for one in inputs for batch in one.batches)})),
        longest=longest * length,
        mean=mean * length,
        shares=tuple(of_longest for of_longest, _ in share),
        dims=sum(size == length for size in widest.shape[1:]) if len(widest.shape) > 3 else 1,
        ndim=len(widest.shape),
        is_left=best.is_left,
        made=_each_once(site for one in inputs for site in one.made),
        sites=_each_once(one.site for one in inputs if one.site),
    )


def padding_places(facts: Facts, padded: PaddedLength) -> Places:
    """The line that pads, if it is known or fills the tensor in the step; then the line that calls the model."""
    filling = costliest_lines(facts, _making_rows(facts, padded)).all() if not padded.made else ()
    return Places.of([*Places.of_sites(padded.made).all(), *filling[:1], *Places.of_sites(padded.sites).all()])


def _making_rows(facts: Facts, padded: PaddedLength) -> Rows:
    """The operators of the located step that make a tensor of the padded shape: filled with one number, to be written
    into, or padded to that shape."""
    rows = located_operators(facts)
    rows = rows[named_operators(facts, *_FILLS, *_PADS)[rows]]
    wanted = {(padded.rows, padded.length), (padded.length, padded.rows)}
    calls, number = distinct_calls(facts, rows)
    made: Rows = rows[np.array([_shape_made(call)[:2] in wanted for call in calls], dtype=bool)[number]]
    return made


def _shape_made(call: Call) -> tuple[int, ...]:
    """The shape of what the operator returns; empty if its arguments do not tell."""
    if call.name not in _PADS:
        new = call.argument(0) or call.argument(1)  # of ``new_zeros`` the first is a tensor
        return parse_numbers(new)
    given, added = [*first_shape(call.shapes)], parse_numbers(call.argument(1))
    for place, (before, after) in enumerate(zip(added[::2], added[1::2], strict=False), start=1):
        if place <= len(given):
            given[-place] += before + after
    return tuple(given)


def _each_once(sites: Iterable[CallSite]) -> tuple[CallSite, ...]:
    return tuple(dict.fromkeys(sites))


Left = Callable[[int], float]
"""The share of the positions that stays, to the power of the dimensions that have it: on average over batches."""


def computing_padding(facts: Facts, padded: PaddedLength, left: Left) -> tuple[Rows, Float64s]:
    """The operators of the measured steps that compute a padded length, and the share of each that stays if the share
    ``left`` of the positions does: their square in tables of scores between all positions."""
    rows = program_operators(facts)
    known = with_shapes(facts, rows)
    rows, known = rows[known >= 0], known[known >= 0]
    tell = partial(_share_left, padded, left, _passes_through_convolutions(facts, padded))
    share = by_operator(facts, known, tell, float)
    return rows[share < 1], share[share < 1]


def _share_left(padded: PaddedLength, left: Left, spatial: int, name: str, shapes: list[tuple[int, ...]]) -> float:
    lengths = {length + shift for length in padded.lengths for shift in _SHIFTED}
    flat = {padded.rows * length for length in lengths}
    given = [shape for shape in shapes if shape]
    if not given:
        return 1.0
    if name == "embedding" and len(given) > 1:
        indices, words = int(np.prod(given[1])), given[0][0]
        is_padded = bool(lengths & set(given[1])) or indices in flat
        return (words + 2 * left(1) * indices) / (words + 2 * indices) if is_padded else 1.0
    if spatial and len(given[0]) == spatial and given[0][0] == padded.rows:
        finest = padded.length // _FINEST
        return left(padded.dims) if max(1, finest) < given[0][-1] <= max(lengths) else 1.0
    if _is_table(name, given, lengths):
        return left(2)
    return left(1) if any(_is_padded(shape, padded.rows, lengths, flat) for shape in given) else 1.0


def _is_table(name: str, given: list[tuple[int, ...]], lengths: set[int]) -> bool:
    """Whether an operator works on all pairs of positions. A weight may be as wide as the batch is long, but has two
    dimensions."""
    if any(len(shape) > 2 and shape[-1] in lengths and shape[-2] in lengths for shape in given):
        return True
    if len(given) < 2 or min(len(given[0]), len(given[1])) < 3:
        return False
    if name.startswith(_SCORES):
        return given[0][-2] in lengths and given[1][-2] in lengths
    products = given[-2:] if name == "baddbmm" else given[:2]
    return name in _PRODUCTS and products[0][-2] in lengths and products[1][-1] in lengths


def _is_padded(shape: tuple[int, ...], rows: int, lengths: set[int], flat: set[int]) -> bool:
    """Whether a tensor of this shape holds all positions of the batch."""
    if len(shape) == 1:
        return shape[0] in flat
    if any(size in flat for size in shape[:-1]):
        return True
    return bool(lengths & set(shape)) and (len(shape) > 2 or rows in shape)


def _passes_through_convolutions(facts: Facts, padded: PaddedLength) -> int:
    """The number of dimensions of a convolution's input that has the padded length in a dimension behind the
    channels; 0 if there is none."""
    known = with_shapes(facts, program_operators(facts))
    known = known[known >= 0]

    def tell(name: str, shapes: list[tuple[int, ...]]) -> int:
        first = next((shape for shape in shapes if shape), ())
        is_spatial = name in _CONVOLUTIONS and name in MATRIX and not set(padded.lengths).isdisjoint(first[2:])
        return len(first) if is_spatial and first[0] == padded.rows else 0

    return int(by_operator(facts, known, tell, int).max(initial=0)) if known.size else 0
