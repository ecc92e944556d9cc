"""Memory over the allocator's history as an SVG without scripts, styles or links.

Colours are attributes, so it works as a file of its own and inside a page whose policy forbids everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from profkit.core.errors import UsageError
from profkit.core.units import format_bytes, format_time
from profkit.findings.values import DeviceMemory, Diagnosis, MemoryTimeline
from profkit.report.wording import memory_title, printable

_WIDTH, _HEIGHT = 900, 300
_LEFT, _TOP, _LINE = 70, 24, 18
_GREY = "#777"
"""Legible on white and on black."""
_COLOURS = {
    "allocated before the history begins": "#9aa1ab",
    "parameters and buffers": "#8d6e4f",
    "optimizer state": "#7a5fb0",
    "optimizer state or copies of the parameters": "#b3a3d6",
    "workspace of libraries": "#5f6670",
    "graph pools": "#b8a000",
    "inputs and the program's own tensors": "#e69f00",
    "gradients": "#56b4e9",
    "activations": "#0072b2",
    "temporaries": "#ddcc77",
}
"""As in the pictures of a step: the forward pass and what it keeps are blue, the backward pass and gradients light
blue, the optimizer violet, what is loaded orange, launches and graphs yellow."""
_OTHER_COLOUR = "#cc79a7"


def render_memory_timeline(diagnosis: Diagnosis) -> str:
    """The pictures of all devices, one below the other. Raises `UsageError` if there is none."""
    shown = [(memory, memory.timeline) for memory in diagnosis.memory if memory.timeline is not None]
    if not shown:
        raise UsageError("memory-timeline: the recording holds no memory snapshot with a history")
    parts, top = [], 0
    for memory, timeline in shown:
        parts.append(
            f'<g transform="translate(0 {top})">\n{_text(0, 14, memory_title(diagnosis, memory), size=14)}\n'
            f"{_draw(memory, timeline)}\n</g>"
        )
        top += _height(timeline)
    return _svg("\n".join(parts), top)


def draw_timeline(memory: DeviceMemory) -> str:
    """The picture of one device without a word in it, as wide as there is room: the page writes beside it. Empty
    without a history."""
    timeline = memory.timeline
    if timeline is None:
        return ""
    label = f"Memory over the allocator's history, {format_bytes(memory.peak_bytes)} at the peak"
    size = f'viewBox="{_LEFT} {_TOP} {_WIDTH - _LEFT} {_HEIGHT}" preserveAspectRatio="none" height="220"'
    content = "\n".join(_shapes(timeline, _most_bytes(memory, timeline)))
    return f'<svg {size} role="img" aria-label="{escape(label, quote=True)}">\n{content}\n</svg>\n'


def ticks(memory: DeviceMemory) -> list[tuple[float, str]]:
    """The sizes beside the picture: per cent from above, and as text."""
    if memory.timeline is None:
        return []
    most = _most_bytes(memory, memory.timeline)
    return [(100 * (1 - share), format_bytes(most * share)) for share in (1.0, 0.75, 0.5, 0.25)]


def span_note(memory: DeviceMemory) -> str:
    """What lies from left to right, as a sentence."""
    span = f" in {format_time(memory.history_ns)}" if memory.history_ns is not None else ""
    return f"{memory.history_entries:,} entries of the allocator's history{span}"


def colour(label: str) -> str:
    """What a kind of memory is drawn in."""
    return _COLOURS.get(label, _OTHER_COLOUR)


def _most_bytes(memory: DeviceMemory, timeline: MemoryTimeline) -> int:
    return max([1, memory.peak_bytes, *timeline.reserved_bytes])


def _svg(content: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="100%" role="img" '
        f'font-family="sans-serif" font-size="12">\n{content}\n</svg>\n'
    )


def _height(timeline: MemoryTimeline) -> int:
    return _TOP + _HEIGHT + _LINE * (len(timeline.parts) + 4)


def _draw(memory: DeviceMemory, timeline: MemoryTimeline) -> str:
    most = _most_bytes(memory, timeline)
    return "\n".join([*_shapes(timeline, most), *_axes(memory, most), *_legend(timeline)])


def _shapes(timeline: MemoryTimeline, most: int) -> list[str]:
    under = [0] * len(timeline.entries)
    shapes = []
    for part in timeline.parts:
        over = [low + size for low, size in zip(under, part.bytes, strict=True)]
        outline = [*_points(timeline, over, most), *reversed(_points(timeline, under, most))]
        shapes.append(f'<polygon points="{" ".join(outline)}" fill="{colour(part.label)}"/>')
        under = over
    line = " ".join(_points(timeline, timeline.reserved_bytes, most))
    shapes.append(f'<polyline points="{line}" fill="none" stroke="{_GREY}" stroke-dasharray="4 3"/>')
    return shapes


def _points(timeline: MemoryTimeline, sizes: Sequence[int], most: int) -> list[str]:
    last = max(timeline.entries[-1], 1)
    return [
        f"{_LEFT + (_WIDTH - _LEFT) * entry / last:.1f},{_TOP + _HEIGHT * (1 - size / most):.1f}"
        for entry, size in zip(timeline.entries, sizes, strict=True)
    ]


def _axes(memory: DeviceMemory, most: int) -> Iterator[str]:
    bottom = _TOP + _HEIGHT
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH}" fill="none" stroke="{_GREY}"/>'
    for share in (0.25, 0.5, 0.75, 1.0):
        yield _text(_LEFT - 4, bottom - _HEIGHT * share + 4, format_bytes(most * share), anchor="end")
    yield _text(_LEFT, bottom + _LINE, span_note(memory))
    yield _text(_WIDTH, bottom + _LINE, f"peak {format_bytes(memory.peak_bytes)}", anchor="end")


def _legend(timeline: MemoryTimeline) -> Iterator[str]:
    top = _TOP + _HEIGHT + 2 * _LINE
    for at, part in enumerate(reversed(timeline.parts)):
        yield f'<rect x="{_LEFT}" y="{top + _LINE * at + 4}" width="12" height="12" fill="{colour(part.label)}"/>'
        yield _text(_LEFT + 18, top + _LINE * at + 14, f"{part.label}, at most {format_bytes(max(part.bytes))}")
    yield _text(_LEFT + 18, top + _LINE * len(timeline.parts) + 14, "dashed: reserved by the allocator")


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{_GREY}">'
        f"{escape(printable(words), quote=True)}</text>"
    )
