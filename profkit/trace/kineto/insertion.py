"""A trace with further events in front of its own: the file's text, copied piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from profkit.errors import UnreadableInput
from profkit.trace.containers import Content
from profkit.trace.kineto.event_text import find_opening
from profkit.trace.kineto.reader import open_window


def with_events(path: Path, events: Iterable[bytes]) -> Iterator[bytes]:
    """The uncompressed text of the trace in a file with these events, each a JSON object, before the first of its own.
    Nothing else of it changes, and no more of it is held than what stands before the events, and a piece.

    Raises `UnreadableInput` where that is no trace of `torch.profiler` or has no whole beginning. What a file that is
    cut off lacks at its end its copy lacks too.
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
