"""The names of the events that profkit adds to a trace, and of the profiler's own steps."""

from __future__ import annotations

LINE_MARK = "profkit.line#"
"""Prefix of the line tracer's events; a call site's index follows."""
UNMARKED = "profkit.unmarked"
"""An event at the moment from which on a function's lines are no longer marked, inside the mark of the line that calls
it."""
PAUSE_MARK = "profkit.pause"
"""An event around profkit's own work between two steps, which belongs to neither."""
GC_MARK = "profkit.gc#"
"""Prefix of the events around Python's garbage collections; the generation follows, then `GC_AUTOMATIC` if Python
started the collection itself."""
GC_AUTOMATIC = ".automatic"
"""Suffix of collections that the program did not ask for with ``gc.collect()``."""
SAVE_MARK = "profkit.save"
"""An event around each file that ``torch.save`` writes."""
SAVED_MARK = "profkit.saved#"
"""Prefix of an event in such a mark, where what is written is a small part of its storages: the bytes of the tensors
follow, a point, and those of the storages."""
CALL_MARK = "profkit.call#"
"""Prefix of the events around each call of PyTorch from Python in the located step; the call's number follows."""
STEP_MARK = "ProfilerStep#"
"""torch.profiler's own prefix for steps; its TensorBoard tab looks for it."""
