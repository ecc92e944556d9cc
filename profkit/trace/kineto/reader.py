"""Reader of Kineto traces: the Chrome trace JSON that ``torch.profiler`` exports, plain, gzip or zstd, of any version.

The file is read as a stream. Its content is unpacked piece by piece (`containers`) and cut into chunks of whole events
(`event_text`), which are decoded into typed structs and become columns at once (`columns`). No dict is built per event.
Only the columns and one chunk are held at a time, never the whole text.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profkit.core.errors import UnreadableInput
from profkit.core.units import format_count
from profkit.trace.containers import Content, OnProgress
from profkit.trace.events import Recording, Trace
from profkit.trace.kineto.columns import ColumnBuilder, TooMuch
from profkit.trace.kineto.event_text import EventText, NoEvents
from profkit.trace.kineto.schema import Document, encodable
from profkit.trace.kineto.text_window import Losses, Window
from profkit.trace.limits import DEFAULT_LIMIT_BYTES

_LARGE_BYTES = 1 << 20
"""Reading a file of this size, compressed or not, takes longer than starting another process."""
_RELEASE_OF_BASE_TIME = (2, 3)
"""``baseTimeNanoseconds`` is newer than the nanoseconds of 2.3, whose traces still count from 1970."""
_MOST_GROUPS, _MOST_RANKS = 4096, 1 << 20
"""The most of one launch: a file may claim anything."""
_LATEST_NS = 4 * 10**18
"""The year 2096; twice that fits 64 bits."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_kineto(path: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES, on_progress: OnProgress | None = None) -> Trace:
    """Read a trace from a file. Of a damaged one, what can be saved is read. If the diagnosis would take more memory
    than the limit (see `limits`), only the first whole steps that fit are kept. Health notes say what is missing.

    Raises `UnreadableInput`, naming the file and the cause, if it holds no event.
    """
    content, builder = Content(path, on_progress), ColumnBuilder(limit_bytes)
    with _no_collection():
        window = open_window(content)
        text = EventText(window, builder, content.file_bytes >= _LARGE_BYTES)
        try:
            document = text.read()
        except NoEvents as cause:
            raise UnreadableInput(path, content.damage or str(cause)) from None
        except TooMuch:
            raise UnreadableInput(path, "holds more at one moment than the memory limit allows") from None
        losses = text.losses
        if not builder.rows:
            raise UnreadableInput(path, content.damage or _why_nothing(losses))
        is_cut_off = content.damage is not None or losses.nothing_after is not None
        recording = _describe(document, is_cut_off, has_gaps=losses.places > 0)
        trace = builder.build(recording, recording.clock_base_ns)
    if not len(trace.events):
        raise UnreadableInput(path, "holds no event with a time")
    return trace.with_health(*_describe_losses(content, losses, builder.rows))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hundreds of thousands of events come and go without a reference cycle. Searching for one would take longer than
    decoding them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def open_window(content: Content) -> Window:
    """A window that begins at the first text that is not blank."""
    window = Window(iter(content))
    while len(window.text) < len(_BYTE_ORDER_MARK) and window.extend():
        pass
    if window.text.startswith(_BYTE_ORDER_MARK):
        window.forget(len(_BYTE_ORDER_MARK))
    window.strip()
    if not window.text:
        raise UnreadableInput(content.path, content.damage or "is empty")
    if window.text[:1] not in (b"{", b"["):
        raise UnreadableInput(content.path, "is neither JSON nor gzip nor zstd")
    return window


def _why_nothing(losses: Losses) -> str:
    return f"is not whole JSON: {losses.cause} at byte {losses.first_byte:,}" if losses.cause else "holds no events"


def _describe_losses(content: Content, losses: Losses, rows: int) -> Iterator[str]:
    """What is missing from a damaged file, and where."""
    kept = f"{format_count(rows, 'event')} could be read"
    size, end = content.size_bytes, losses.nothing_after
    if content.damage:
        yield f"the file {content.damage}: {kept}"
    elif end is not None:
        yield f"the file is cut off or damaged at byte {end:,} of {size:,} of its content, the rest is lost: {kept}"
    if losses.places:
        places = format_count(losses.places, "place")
        yield (
            f"the file is damaged in {places}, first at byte {losses.first_byte:,} of its content ({losses.cause}), "
            f"leaving out {format_count(losses.size_bytes, 'byte')}: {kept}"
        )


def _describe(document: Document, is_cut_off: bool, has_gaps: bool) -> Recording:
    info = document.distributed if isinstance(document.distributed, dict) else {}
    devices = document.devices if isinstance(document.devices, list) else []
    return Recording(
        devices=tuple(encodable(str(device.get("name") or "")) for device in devices if isinstance(device, dict)),
        memory_bytes=tuple(_integer(one.get("totalGlobalMem")) or 0 for one in devices if isinstance(one, dict)),
        has_shapes=_flag(document.record_shapes),
        has_stacks=_flag(document.with_stack),
        has_memory=_flag(document.profile_memory),
        rank=_rank(info.get("rank")),
        ranks=_rank(info.get("world_size")),
        host=encodable(document.host_name) if isinstance(document.host_name, str) else "",
        is_cut_off=is_cut_off,
        has_gaps=has_gaps,
        least_release=_RELEASE_OF_BASE_TIME if isinstance(document.base_ns, int) else None,
        clock_base_ns=_moment(document.base_ns),
        groups=tuple(dict.fromkeys(_groups(info.get("pg_config")))),
    )


def _groups(configured: object) -> Iterator[tuple[int, ...]]:
    """The ranks of the process groups in ``distributedInfo``, which has them since 2024."""
    for one in configured[:_MOST_GROUPS] if isinstance(configured, list) else ():
        ranks = one.get("ranks") if isinstance(one, dict) else None
        known = ranks if isinstance(ranks, list) and len(ranks) <= _MOST_RANKS else []
        if known and all(type(rank) is int and 0 <= rank < _MOST_RANKS for rank in known):
            yield tuple(known)


def _rank(value: object) -> int | None:
    """None for anything that cannot be the number of a rank or of all ranks."""
    return value if type(value) is int and 0 <= value < _MOST_RANKS else None


def _moment(value: object) -> int:
    """Nanoseconds since 1970; 0 for anything that is no time of this century or the last."""
    return value if type(value) is int and abs(value) <= _LATEST_NS else 0


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _flag(value: object) -> bool | None:
    return None if value is None else bool(value)
