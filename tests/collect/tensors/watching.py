"""One step under the watch of PyTorch's calls."""

from __future__ import annotations

from collections.abc import Callable

from profkit.collect.tensors.recomputation import CallWatch
from profkit.run.directory import Recomputation


def watched(step: Callable[[], object]) -> Recomputation:
    """What the watch found in the step."""
    watch = CallWatch()
    watch.begin()
    try:
        step()
        watch.end_step()
    finally:
        watch.stop()
    assert watch.found is not None
    return watch.found
