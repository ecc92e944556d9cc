"""A plan of a training step's memory, as text or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import msgspec

from profkit.core.units import format_bytes, format_share
from profkit.memory_planner.plan import CATEGORIES, CUDA_CONTEXT_BYTES, FORWARD, PRECISIONS, Change, MemoryPlan, Usage

SCHEMA = "profkit.memory-plan/1"
_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")
_LONGEST_REASON = 200
"""Characters, cut at a word. Messages of PyTorch go on with advice to its authors."""
_MIN_WIDTH = 60
"""In less, the figures of a table would leave no room for the names before them."""


def render_memory_plan(plan: MemoryPlan, format_name: str, width: int = 80) -> str:
    """The plan as ``text`` or ``json``."""
    if format_name == "json":
        values = {"schema": SCHEMA, **msgspec.to_builtins(plan)}
        return msgspec.json.format(msgspec.json.encode(values), indent=2).decode() + "\n"
    width = max(width, _MIN_WIDTH)
    lines = [*_head(plan, width), "", *_categories(plan.usage), "", *_needs(plan, width)]
    if plan.changes:
        lines += ["", *_changes(plan, width)]
    lines += ["", "What is left out", *(line for note in plan.notes for line in _wrap(f"- {note}", width, "  "))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent)


def _head(plan: MemoryPlan, width: int) -> list[str]:
    request = plan.request
    when = f"in the {plan.usage.when}" + ("" if plan.usage.when != FORWARD and "step" in plan.usage.when else " pass")
    how = "inference" if request.inference else request.optimizer
    peak = f"{format_bytes(plan.usage.peak_bytes)} at the peak, {when}"
    needs = f"{format_bytes(plan.usage.needed_bytes())} of GPU memory, {peak}" if plan.usage.reserved_bytes else peak
    return [
        *_wrap(f"{_named(plan)} at batch {request.batch:,}: {needs}", width),
        *_wrap(f"{plan.parameters:,} parameters; {how}; {PRECISIONS[request.precision]}", width),
    ]


def _inert(name: str) -> str:
    return ascii(name)[1:-1][:60]


def _named(plan: MemoryPlan) -> str:
    """The class of the model. A container that a function built is named by that function."""
    built_by = plan.request.target.rpartition(":")[2].rpartition(".")[2]
    is_container = plan.model in _CONTAINERS and built_by
    return _inert(f"the {plan.model} of {built_by}()" if is_container else plan.model)


def _categories(usage: Usage) -> Iterator[str]:
    for category in CATEGORIES:
        size = usage.by_category.get(category, 0)
        if size:
            yield f"{category:<17}{format_bytes(size):>9}  {format_share(size / usage.peak_bytes):>7}"
    yield "peaks: " + ", ".join(f"{phase} {format_bytes(size)}" for phase, size in usage.by_phase.items())


def _needs(plan: MemoryPlan, width: int) -> list[str]:
    lines = []
    if plan.usage.reserved_bytes:
        reserved, context = format_bytes(plan.usage.reserved_bytes), format_bytes(CUDA_CONTEXT_BYTES)
        lines += _wrap(
            f"{format_bytes(plan.usage.needed_bytes())} decides whether it fits: PyTorch's allocator reserves about "
            f"{reserved} for the peak, and the CUDA context takes about {context}.",
            width,
        )
    if plan.request.fits_bytes:
        lines += _wrap(_largest(plan), width)
    return lines


def _largest(plan: MemoryPlan) -> str:
    room = format_bytes(plan.request.fits_bytes)
    if plan.largest_batch is None:
        return f"The largest batch for {room} could not be found."
    if plan.largest_batch == 0 or plan.largest is None:
        return f"Not even one sample fits into {room}."
    needed = format_bytes(plan.largest.needed_bytes())
    return f"The largest batch that fits into {room} is {plan.largest_batch:,}: {needed}."


def _changes(plan: MemoryPlan, width: int) -> list[str]:
    room = plan.request.fits_bytes
    header = ("What a change would give", "peak", "less", *(("needs", "fits") if room else ()))
    ranked = sorted(plan.changes, key=lambda one: one.usage.peak_bytes if one.usage else plan.usage.peak_bytes)
    rows = [header, *(_row(change, plan.usage, room) for change in ranked if change.usage is not None)]
    sizes = [max(len(row[at]) for row in rows) for at in range(len(header))]
    sizes[0] = min(sizes[0], width - sum(sizes[1:]) - 2 * (len(header) - 1))
    lines = [line for row in rows for line in _cells(row, sizes)]
    refused = [f"- {one.name}: not planned: {_reason(one.refused)}" for one in plan.changes if one.usage is None]
    lines += [line for text in refused for line in _wrap(text, width, "  ")]
    return [*lines, *_wrap("* changes numerics; ~ sizes computed, not planned by a run", width)]


def _reason(text: str) -> str:
    return textwrap.shorten(ascii(text)[1:-1], _LONGEST_REASON, placeholder=" ...")


def _row(change: Change, before: Usage, room: int) -> tuple[str, ...]:
    usage = change.usage
    assert usage is not None
    name = change.name + " *" * change.numerics + " ~" * change.computed
    less = format_share(1 - usage.peak_bytes / before.peak_bytes)
    needed = usage.needed_bytes()
    fits = (format_bytes(needed), "yes" if needed <= room else "no") if room else ()
    return (name, format_bytes(usage.peak_bytes), less, *fits)


def _cells(row: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """The name is wrapped, with the figures beside its first line."""
    first, *rest = textwrap.wrap(row[0], sizes[0], subsequent_indent="  ") or [""]
    figures = "".join(f"  {cell:>{size}}" for cell, size in zip(row[1:], sizes[1:], strict=True))
    return [f"{first:<{sizes[0]}}{figures}", *rest]
