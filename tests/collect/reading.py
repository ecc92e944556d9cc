"""Reading what a recording left, with little but the standard library."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from profkit.collect.sessions.exporting import export, write_plain
from profkit.collect.sessions.session import ProfilerSession
from profkit.core.marks import LINE_MARK
from profkit.run.directory import CallSite, load_callsites

Event = dict[str, Any]


def read_events(directory: Path) -> list[Event]:
    """The complete events of the one trace in a run directory, by time."""
    (trace,) = directory.glob("*.pt.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return sorted((event for event in events if event.get("ph") == "X"), key=lambda event: event["ts"])


def export_whole(recordings: Sequence[ProfilerSession], directory: Path, unfinished_step: int | None = None) -> str:
    """Write stopped recordings as one trace and return its name."""
    with ExitStack() as stack:
        files = [stack.enter_context(write_plain(recording, directory)) for recording in recordings]
        return export(files, directory, unfinished_step)


def steps_of(events: list[Event]) -> dict[int, Event]:
    """The annotations of steps by their number."""
    named = {event["name"]: event for event in events if event["name"].startswith("ProfilerStep#")}
    return {int(name.removeprefix("ProfilerStep#")): event for name, event in named.items()}


def is_inside(event: Event, around: Event) -> bool:
    return around["ts"] <= event["ts"] and event["ts"] + event["dur"] <= around["ts"] + around["dur"]


def marks_of(events: list[Event]) -> list[Event]:
    return [event for event in events if event["name"].startswith(LINE_MARK)]


def marks_around(event: Event, events: list[Event]) -> list[int]:
    """The call sites of the line marks around an event, outermost first."""
    around = [mark for mark in marks_of(events) if mark["tid"] == event["tid"] and is_inside(event, mark)]
    around.sort(key=lambda mark: (mark["ts"], -mark["dur"]))
    return [int(mark["name"].removeprefix(LINE_MARK)) for mark in around]


def site_of(name: str, directory: Path) -> CallSite:
    """The innermost line that is marked around the one event of this name."""
    events = read_events(directory)
    (found,) = [event for event in events if event["name"] == name]
    return load_callsites(directory)[marks_around(found, events)[-1]]


def traces_in(directory: Path) -> list[Path]:
    return list(directory.glob("*.pt.trace.json.gz"))
