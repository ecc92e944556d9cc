"""Both sides' icicles as one: where the time of a step went, and what became of it.

A part is as wide as the longer of its two times, and at least as wide as its parts together. So what is gone keeps its
place beside what is new, which an icicle of either side alone would leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from profkit.derive.device.generated import parse_generated
from profkit.diagnosis.compare.comparison import MovedBranch, MovedTree
from profkit.diagnosis.compare.recorded import Recorded
from profkit.findings.pictures import Branch, Pictures

_LEAST_WIDTH = 0.004
"""Of everything shown: four pixels of a wide page."""
_MOST_BRANCHES = 600
"""As many as the page of one recording may have, for both sides."""
_LINE_NUMBER = re.compile(r":\d+(?=$|, )")
_Key = tuple[str, ...]


class _Part(Struct):
    """A part of both trees: its name on the later side, the nanoseconds of a step on either, and its own parts."""

    name: str
    before_ns: float = 0.0
    after_ns: float = 0.0
    parts: dict[_Key, _Part] = field(default_factory=dict)

    def width_ns(self) -> float:
        return max(self.before_ns, self.after_ns, sum(part.width_ns() for part in self.parts.values()))


def moved_tree(before: Sequence[Recorded], after: Sequence[Recorded]) -> MovedTree | None:
    """None if a recording has no icicle, or the sides' have other levels."""
    pictures = [run.diagnosis.pictures or Pictures() for run in (*before, *after)]
    kinds = {(one.levels, one.of_device) for one in pictures}
    if len(kinds) != 1 or not all(one.branches for one in pictures):
        return None
    root = _Part("")
    for side, runs in (("before", before), ("after", after)):
        for run in runs:
            _add(root, run, side, len(runs))
    ((levels, of_device),) = kinds
    total_ns = max(root.width_ns(), 1.0)
    branches = sorted(_lay_out(root.parts, 0, 0.0, total_ns), key=lambda one: (one.depth, one.begin))
    return MovedTree(levels, of_device, tuple(branches)[:_MOST_BRANCHES])


def _add(root: _Part, run: Recorded, side: str, runs: int) -> None:
    """Add a run's branches, which come level by level, to its side's times of a step."""
    pictures = run.diagnosis.pictures or Pictures()
    steps = max(len(run.measured_ns), 1) * runs
    above: list[tuple[Branch, _Part]] = []
    for depth in range(len(pictures.levels)):
        level = [one for one in pictures.branches if one.depth == depth]
        placed: list[tuple[Branch, _Part]] = []
        for branch in level:
            parent = root if depth == 0 else _part_around(branch, above)
            if parent is None:
                continue
            part = parent.parts.setdefault(_key(branch), _Part(""))
            part.name = f"{branch.label} {branch.source}".strip()
            if side == "before":
                part.before_ns += branch.time_ns / steps
            else:
                part.after_ns += branch.time_ns / steps
            placed.append((branch, part))
        above = placed


def _part_around(branch: Branch, above: Sequence[tuple[Branch, _Part]]) -> _Part | None:
    middle = branch.begin + branch.fraction / 2
    return next((part for one, part in above if one.begin <= middle <= one.begin + one.fraction), None)


def _key(branch: Branch) -> _Key:
    """A line keeps its key if lines are added above it, a generated kernel if the compiler numbers it anew."""
    if branch.source:
        return _LINE_NUMBER.sub("", branch.label), " ".join(branch.source.split())
    return (str(parse_generated(branch.label) or branch.label),)


def _lay_out(parts: Mapping[_Key, _Part], depth: int, begin_ns: float, total_ns: float) -> Iterator[MovedBranch]:
    """The widest first, and without narrow ones."""
    for part in sorted(parts.values(), key=lambda one: (-one.width_ns(), one.name)):
        width_ns = part.width_ns()
        if width_ns < _LEAST_WIDTH * total_ns:
            break
        place = round(begin_ns / total_ns, 5), round(width_ns / total_ns, 5)
        yield MovedBranch(depth, part.name, *place, round(part.before_ns), round(part.after_ns))
        yield from _lay_out(part.parts, depth + 1, begin_ns, total_ns)
        begin_ns += width_ns
