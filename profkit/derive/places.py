"""From events to places in the user's code."""

from __future__ import annotations

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.frames import is_user_frame, parse_frame
from profkit.run import CallSite
from profkit.trace.events import Category, Rows


def call_site(facts: Facts, site: int) -> CallSite | None:
    """The call site of this code, None where no line is known."""
    return facts.callsites[site] if 0 <= site < len(facts.callsites) else None


def enclosing_function(facts: Facts, rows: Rows) -> CallSite | None:
    """The function of the user's code that most of the rows run in, from recorded Python frames.

    Its line is that of the ``def``: all that a recording made elsewhere can give.
    """
    events, names = facts.trace.events, facts.trace.names
    around = facts.once(_user_frames)[rows]
    around = around[around >= 0]
    if not around.size:
        return None
    codes, counts = np.unique(events.name_code[around], return_counts=True)
    frame = parse_frame(names[codes[counts.argmax()]])
    return CallSite(*frame) if frame else None


def _user_frames(facts: Facts) -> Rows:
    """For each event the innermost frame of the user's code around it. The autograd engine's own thread has none: there
    it is that of the forward operator."""
    frames = facts.trace.events.category == Category.PYTHON
    if frames.any():
        frames &= facts.trace.where_name(is_user_frame)
    around, forward = facts.tree.nearest_ancestor(frames), facts.lines.forward
    return np.where((around < 0) & (forward >= 0), around[forward], around)

