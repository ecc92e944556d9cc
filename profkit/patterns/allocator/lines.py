"""The lines of the program that allocated what is held."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts, derived_once
from profkit.derive.memory.allocator import Allocator
from profkit.derive.memory.origins import Origin, calling_frames, innermost, outermost, python_frames
from profkit.patterns.places.frames import is_library, is_package, is_profkits
from profkit.run.directory import CallSite
from profkit.source.code import recorded_line
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.snapshot.columns import Stacks
from profkit.trace.statistics import among

_OLDER, _BACKWARD = -3, -2
"""Stand for lines that nobody can know, below `NONE`."""
_WHY = {_OLDER: "older than the history", _BACKWARD: "in the backward pass, whose threads run no Python"}


class HoldingLine(Struct, frozen=True):
    """What one line of the program allocated of some pieces, ``count`` of them. ``site`` is None for memory without a
    known Python frame; ``why`` says why there is none, if that is known. ``frame`` is the line's among the snapshot's
    frames. If the line calls an installed package, ``inside`` is the line there that allocated most, ``inside_bytes``
    of it."""

    frame: int
    site: CallSite | None
    size_bytes: int
    count: int
    why: str = ""
    inside: CallSite | None = None
    inside_bytes: int = 0


def allocator_of(facts: Facts) -> Allocator:
    """The allocator as the snapshot shows it, for rules that need a snapshot."""
    if facts.allocator is None:
        raise ValueError("there is no memory snapshot")
    return facts.allocator


@derived_once
def frames_of_stacks(facts: Facts) -> Rows:
    """For each stack the innermost frame of the user's code, else the innermost Python frame that is not profkit's,
    `NONE` without any."""
    stacks = allocator_of(facts).snapshot.stacks
    others = python_frames(stacks) & ~_of_files(stacks, is_profkits)
    own, any_python = innermost(stacks, user_frames(facts)), innermost(stacks, others)
    return _frames_at(stacks, np.where(own == NONE, any_python, own))


@derived_once
def package_frames_of_stacks(facts: Facts) -> Rows:
    """For each stack the innermost frame of an installed package that the program's line calls, `NONE` without one."""
    stacks = allocator_of(facts).snapshot.stacks
    inner = innermost(stacks, python_frames(stacks) & _of_files(stacks, is_package))
    return _frames_at(stacks, np.where(inner < innermost(stacks, user_frames(facts)), inner, NONE))


@derived_once
def calling_frames_of_stacks(facts: Facts) -> Rows:
    """For each stack the innermost frame of the user's code outside all calls of modules: where the model is called.
    `NONE` without any."""
    stacks = allocator_of(facts).snapshot.stacks
    called = outermost(stacks, calling_frames(stacks))
    begin = np.where(called == NONE, stacks.starts[:-1], called + 1)
    return _frames_at(stacks, innermost(stacks, user_frames(facts), begin))


def _frames_at(stacks: Stacks, places: Rows) -> Rows:
    frames = np.full(len(places), NONE, dtype=np.int64)
    known = places != NONE
    frames[known] = stacks.frames[places[known]]
    return frames


@derived_once
def user_frames(facts: Facts) -> Bools:
    """Which of the snapshot's distinct frames are the user's code."""
    stacks = allocator_of(facts).snapshot.stacks
    return python_frames(stacks) & ~_of_files(stacks, is_library)


def _of_files(stacks: Stacks, accept: Callable[[str], bool]) -> Bools:
    """The distinct frames whose file ``accept`` is true for."""
    accepted = np.array([accept(file.replace("\\", "/")) for file in stacks.files], dtype=bool)
    return accepted[stacks.file] if len(accepted) else np.zeros(len(stacks.file), dtype=bool)


def site_of(facts: Facts, frame: int) -> CallSite | None:
    """The place of a frame of the snapshot, None for `NONE`."""
    if frame == NONE:
        return None
    stacks = allocator_of(facts).snapshot.stacks
    file, line = stacks.files[int(stacks.file[frame])], int(stacks.line[frame])
    return CallSite(file, line, stacks.functions[int(stacks.function[frame])], recorded_line(file, line))


def holding_lines(facts: Facts, pieces: Bools) -> list[HoldingLine]:
    """The lines that allocated these pieces, the one with most bytes first."""
    allocator = allocator_of(facts)
    found = allocator.allocations
    key = frames_of_stacks(facts)[found.stack]
    has_history = among(found.device, np.array([use.device for use in allocator.devices if use.has_history]))
    is_older = (key == NONE) & (found.made_by == NONE) & (found.stack == 0) & has_history
    key[(key == NONE) & (found.made_by != NONE) & (allocator.origins[found.stack] == Origin.BACKWARD)] = _BACKWARD
    key[is_older] = _OLDER
    known, at = np.unique(key[pieces], return_inverse=True)
    sizes = np.bincount(at, found.size_bytes[pieces], len(known)).astype(np.int64)
    counts = np.bincount(at, minlength=len(known))
    order = np.argsort(-sizes, kind="stable")
    inside = package_frames_of_stacks(facts)[found.stack[pieces]]
    lines = []
    for i in order.tolist():
        frame, mine = max(int(known[i]), NONE), (at == i) & (inside != NONE)
        inner, inner_bytes = _heaviest(inside[mine], found.size_bytes[pieces][mine])
        whose = HoldingLine(frame, site_of(facts, frame), int(sizes[i]), int(counts[i]), _WHY.get(int(known[i]), ""))
        lines.append(structs.replace(whose, inside=site_of(facts, inner), inside_bytes=inner_bytes))
    return lines


def _heaviest(frames: Rows, sizes: Int64s) -> tuple[int, int]:
    """The frame with most bytes, and these; `NONE` without any."""
    known, at = np.unique(frames, return_inverse=True)
    if not len(known):
        return NONE, 0
    weights = np.bincount(at, sizes)
    return int(known[weights.argmax()]), int(weights.max())
