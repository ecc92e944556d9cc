"""A copy of a trace with more events in front of its own, made piece by piece from the file's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from profkit.core.errors import UnreadableInput
from profkit.trace.containers import Content
from profkit.trace.kineto.event_text import find_opening
from profkit.trace.kineto.reader import open_window


def with_events(path: Path, events: Iterable[bytes]) -> Iterator[bytes]:
    """The uncompressed text of a trace file with these events, each a JSON object, in front of its own. Nothing else
    changes. Only the text before the events and one piece are held at a time.

    Raises `UnreadableInput` if that is no trace of `torch.profiler`, or damaged before its events. The copy of a file
    that is cut off is cut off too.
    """
    window = open_window(Content(path))
    opening = find_opening(window)
    if opening is None:
        raise UnreadableInput(path, "is damaged before its events, so that no copy of it can be made")
    _, begin = opening
    while not (rest := window.text[begin:].lstrip()) and window.extend():
        pass
    yield window.text[:begin]
    before = b"\n"
    for event in events:
        yield before + event
        before = b",\n"
    yield (b"\n" if rest.startswith(b"]") else before) + rest
    while piece := window.next_piece():
        yield piece
