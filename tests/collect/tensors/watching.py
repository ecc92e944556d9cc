"""One step under the watch of PyTorch's calls."""

from __future__ import annotations

from collections.abc import Callable

from profkit.collect.tensors.recomputation import CallWatch
from profkit.run.directory import Recomputation


def watch_of(step: Callable[[], object]) -> CallWatch:
    """The watch of the step, which is over."""
    watch = CallWatch()
    watch.begin()
    try:
        step()
        watch.end_step()
    finally:
        watch.stop()
    return watch


def watched(step: Callable[[], object]) -> Recomputation:
    """What the watch found in the step."""
    found = watch_of(step).found
    assert found is not None
    return found
