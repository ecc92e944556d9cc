"""Which inputs are padded, concluded from all batches that were seen of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from profkit.collect.tensors.padded_rows import MASK, Layout, RowLengths, are_padded
from profkit.run.directory import CallSite, PaddedBatch, PaddedInput


class Source(NamedTuple):
    """Where tensors come from: the line that calls the model, or the lines that may have padded a batch."""

    site: CallSite | None
    made: tuple[CallSite, ...]


class SeenTensor(NamedTuple):
    """A tensor of one look, measured in all layouts that fit its shape."""

    name: str
    shape: tuple[int, ...]
    rows: Mapping[Layout, RowLengths]


Look = tuple[Source, Sequence[SeenTensor]]
"""A batch or the arguments of a call: all tensors that came together."""


class PaddedTensor(NamedTuple):
    """A tensor that looks padded in one layout, with its place in the batch, the value of its padding and what came
    with it the last time."""

    found: PaddedInput
    place: int
    layout: Layout
    value: bytes
    tensor: SeenTensor
    others: Sequence[SeenTensor]


def conclude(seen: Sequence[Look]) -> Iterator[PaddedTensor]:
    """The padded tensors, told apart by their name and place in the batch, each in the layout with most to remove."""
    looks: dict[tuple[Source, str, int, int], list[tuple[SeenTensor, Sequence[SeenTensor]]]] = {}
    for source, tensors in seen:
        for place, one in enumerate(tensors):
            looks.setdefault((source, one.name, place, len(one.shape)), []).append((one, tensors))
    candidates = [
        each for (source, _, place, _), of_one in looks.items() for each in _candidates(source, place, of_one)
    ]
    sides = {_source_of(each): each.found.is_left for each in candidates if each.found.kind != MASK}
    best: dict[int, PaddedTensor] = {}
    for each in candidates:
        if each.found.kind == MASK and not _tells_rows(each, sides.get(_source_of(each))):
            continue
        known = best.get(id(each.tensor))
        if known is None or _removable(each.found) > _removable(known.found):
            best[id(each.tensor)] = each
    yield from best.values()


def _candidates(
    source: Source, place: int, looks: list[tuple[SeenTensor, Sequence[SeenTensor]]]
) -> Iterator[PaddedTensor]:
    looks = [one for one in looks if one[0].rows]  # a model that generates takes single tokens after the first call
    if not looks:
        return
    tensor, others = looks[-1]
    for layout in tensor.rows:
        measured = [one.rows[layout] for one, _ in looks if layout in one.rows]
        value, kind = measured[-1].value, measured[-1].kind
        measured = [each for each in measured if each.value == value]
        if are_padded(measured):
            batches = [PaddedBatch(m.length, int(m.used.max()), float(m.used.mean()), len(m.used)) for m in measured]
            found = PaddedInput(
                name=tensor.name,
                shape=tensor.shape,
                batch_dim=layout.batch_dim,
                dim=layout.dim,
                kind=kind,
                is_left=layout.is_left,
                batches=tuple(batches),
                site=source.site,
                made=source.made,
            )
            yield PaddedTensor(found, place, layout, value, tensor, others)


def _source_of(one: PaddedTensor) -> Source:
    return Source(one.found.site, one.found.made)


def _tells_rows(one: PaddedTensor, is_left: bool | None) -> bool:
    """Whether a tensor of two values says what is padding. Either value may: it is the one on the side on which the
    data is padded (``is_left``) or, if that does not show, zero."""
    is_padding = not any(one.value) if is_left is None else one.found.is_left == is_left
    return is_padding and any(_goes_with(one.found, other) for other in one.others)


def _goes_with(mask: PaddedInput, other: SeenTensor) -> bool:
    """Whether the other tensor holds data for the rows and positions of a mask."""
    is_mask = any(each.kind == MASK for each in other.rows.values())
    return not is_mask and {mask.shape[mask.batch_dim], mask.shape[mask.dim]} <= set(other.shape[:3])


def _removable(one: PaddedInput) -> float:
    """The share of the positions that no row of its batch uses."""
    return 1 - sum(batch.longest for batch in one.batches) / sum(batch.length for batch in one.batches)
