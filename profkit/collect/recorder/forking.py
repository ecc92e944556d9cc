"""What a fork of the program means for the recording that is on: the parent goes on with it, the child has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from profkit.collect.boundaries.signals import StepSignals
from profkit.collect.machine.sampler import Sampler
from profkit.collect.recorder.prologue import Prologue
from profkit.collect.sessions.lines import LineTracer
from profkit.collect.sessions.recordings import Recordings
from profkit.collect.tensors.recomputation import CallWatch


class Told(Protocol):
    """Who is told of forks; errors are its own affair."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def disown(self) -> None:
        """In the child."""


def follow_forks(current: Callable[[], Told | None]) -> None:
    """Tell whoever is ``current`` of each fork from here on, where the system has such a thing."""

    def telling(what: Callable[[Told], None]) -> Callable[[], None]:
        def tell() -> None:
            if (told := current()) is not None:
                what(told)

        return tell

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=telling(lambda told: told.before_fork()),
            after_in_parent=telling(lambda told: told.after_fork()),
            after_in_child=telling(lambda told: told.disown()),
        )


class Forking:
    """What the parts of a recording do when the program forks."""

    def __init__(
        self,
        sampler: Sampler,
        prologue: Prologue,
        tracer: LineTracer,
        signals: StepSignals,
        recordings: Recordings,
        calls: CallWatch,
    ) -> None:
        self._sampler, self._prologue = sampler, prologue
        self._tracer, self._signals, self._recordings, self._calls = tracer, signals, recordings, calls

    def before(self) -> None:
        """No thread may run, and the prologue pauses: a child that inherits it would record for as long as it lives."""
        self._sampler.suspend()
        self._prologue.break_off()

    def after(self) -> None:
        """In the parent, which goes on."""
        self._prologue.go_on()
        self._sampler.resume()

    def disown(self) -> None:
        """In the child: remove everything, and leave the recording to the parent."""
        self._tracer.pause()
        self._calls.stop()
        self._signals.remove()
        self._recordings.disown()
