"""Files whose tensors are views of larger storages, which `torch.save` writes whole.

A mark in the recording tells it of each file that is written while the profiler runs, at no line if the step was not
located. The account of the run tells the line, and how long its files take.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.core.marks import SAVED_MARK
from profkit.core.units import format_bytes
from profkit.derive.facts import Facts
from profkit.patterns.places.events import call_site
from profkit.run.directory import CallSite

_SIZES = re.compile(re.escape(SAVED_MARK) + r"(\d{1,18})\.(\d{1,18})")


class SavedViews(Struct, frozen=True):
    """A file for which ``shown_bytes`` of tensors are written as ``whole_bytes`` of storages."""

    shown_bytes: int
    whole_bytes: int

    @property
    def kept(self) -> float:
        """The share of the bytes that stay if copies of the tensors are written."""
        return self.shown_bytes / self.whole_bytes

    @property
    def told(self) -> str:
        shown, whole = format_bytes(self.shown_bytes), format_bytes(self.whole_bytes)
        return (
            f" Of {whole} in a file its tensors show {shown}: they are views, and are saved with their whole storages."
        )


OF_VIEWS = (
    "Save copies of the views, `torch.save(view.clone(), path)`: a tensor is saved with its whole storage, whatever "
    "part it shows."
)


def saved_views(facts: Facts, site: CallSite) -> SavedViews | None:
    """The largest such file that a line writes; one whose line is not known counts for any."""
    if not facts.has_trace:
        return None
    found = []
    for row in np.flatnonzero(facts.trace.where_name(lambda name: name.startswith(SAVED_MARK))).tolist():
        sizes, where = _SIZES.fullmatch(facts.trace.name_of(row)), call_site(facts, int(facts.lines.site[row]))
        is_here = where is None or (where.file, where.line) == (site.file, site.line)
        if sizes is not None and is_here and 0 < int(sizes[2]) >= int(sizes[1]):
            found.append(SavedViews(int(sizes[1]), int(sizes[2])))
    return max(found, key=lambda one: one.whole_bytes, default=None)
