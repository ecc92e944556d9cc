"""The ranges that PyTorch itself opens: around an optimizer's step, and around a request for the next batch."""

from __future__ import annotations

from profkit.trace.events import Bools, Category, Trace


def loading(trace: Trace) -> Bools:
    """The main thread's requests for the next batch."""
    return _annotation(trace, "enumerate(DataLoader)#")


def optimizing(trace: Trace) -> Bools:
    """The steps of optimizers."""
    return _annotation(trace, "Optimizer.step#")


def _annotation(trace: Trace, prefix: str) -> Bools:
    named = trace.where_name(lambda name: name.startswith(prefix))
    wanted: Bools = named & (trace.events.category == Category.ANNOTATION)
    return wanted
