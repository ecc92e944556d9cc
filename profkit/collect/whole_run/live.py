"""What a watched program does now: a line on the terminal, and a file of figures in OpenMetrics' text format.

Both are written on the thread that looks at the program, never on one of its own. Lines are whole, since redrawing one
in place would garble the program's output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from profkit.core.files.writing import write_file
from profkit.core.units import format_bytes, format_share, format_time
from profkit.run.whole_run import PHASE_OF, PROGRAM_PHASE, DeviceUse, StackActivity

_PAUSE_NS = 5_000_000_000
"""Often enough to see that a program goes on, seldom enough to leave its own output readable."""
OVER = "over"


class Pace(NamedTuple):
    """How many steps are over, and how long the last one took, in nanoseconds; 0 if unknown."""

    steps: int = 0
    last_ns: int = 0


class Moment(NamedTuple):
    """What is known at a moment of the run; times are in nanoseconds, ``held_bytes`` is the process's memory and -1 if
    unknown. ``steps_per_s`` counts the time since the moment before."""

    at_ns: int
    phase: str
    pace: Pace
    steps_per_s: float
    held_bytes: int
    devices: tuple[DeviceUse, ...]

    @property
    def line(self) -> str:
        """The line for a terminal."""
        parts = [format_time(self.at_ns), self.phase]
        if self.pace.steps:
            parts += [f"step {self.pace.steps:,}", f"{self.steps_per_s:.3g} steps/s"]
        if self.pace.last_ns:
            parts.append(f"{format_time(self.pace.last_ns)} the last")
        if self.held_bytes >= 0:
            parts.append(format_bytes(self.held_bytes))
        parts += [f"GPU {use.index} {format_share(busy)} busy" for use, busy, _ in _latest(self.devices)]
        return "profkit: " + " · ".join(parts)

    @property
    def metrics(self) -> str:
        """The file in OpenMetrics' text format, which Prometheus' node exporter collects."""
        families = [
            _family("profkit_run_seconds", "gauge", "Time since the watch began.", [("", self.at_ns / 1e9)]),
            _family("profkit_phase", "gauge", "What the main thread does.", [(f'{{phase="{self.phase}"}}', 1)]),
        ]
        if self.pace.steps:
            families += [
                _family("profkit_steps", "counter", "Training steps so far.", [("_total", self.pace.steps)]),
                _family("profkit_step_seconds", "gauge", "The last step.", [("", self.pace.last_ns / 1e9)]),
                _family("profkit_steps_per_second", "gauge", "Since the last writing.", [("", self.steps_per_s)]),
            ]
        if self.held_bytes >= 0:
            families.append(_family("profkit_memory_bytes", "gauge", "Of the process.", [("", self.held_bytes)]))
        if known := _latest(self.devices):
            busy = [(f'{{device="{use.index}"}}', share) for use, share, _ in known]
            used = [(f'{{device="{use.index}"}}', held) for use, _, held in known]
            families += [
                _family("profkit_device_busy_ratio", "gauge", "Of the driver's last period.", busy),
                _family("profkit_device_memory_bytes", "gauge", "Of all processes.", used),
            ]
        return "".join(families) + "# EOF\n"


class Live:
    """`look` writes when it is time: the line if ``shows_line`` and stderr is a terminal, the ``metrics`` file if there
    is one. ``pace`` tells the steps so far."""

    def __init__(self, shows_line: bool, metrics: Path | None, pace: Callable[[], Pace]) -> None:
        self._shows_line, self._metrics, self._pace = shows_line, metrics, pace
        self._due_ns = self._before_ns = self._steps = 0

    def look(
        self, now_ns: int, activity: StackActivity | None, held_bytes: int, devices: Callable[[], tuple[DeviceUse, ...]]
    ) -> None:
        """``now_ns`` counts from the beginning of the watch; ``activity`` is what the stack shows, None when the
        run is over."""
        if now_ns < self._due_ns and activity is not None:
            return
        self._due_ns = now_ns + _PAUSE_NS
        pace = self._pace()
        new, took_s = pace.steps - self._steps, (now_ns - self._before_ns) / 1e9
        self._steps, self._before_ns = pace.steps, now_ns
        training = "steps" if new > 0 else "between steps" if pace.steps else PROGRAM_PHASE
        phase = OVER if activity is None else PHASE_OF.get(activity, training)
        self._write(Moment(now_ns, phase, pace, new / took_s if took_s > 0 else 0.0, held_bytes, devices()))

    def _write(self, moment: Moment) -> None:
        if self._metrics is not None:
            with suppress(OSError):
                write_file(self._metrics.parent, self._metrics.name, moment.metrics.encode())
        if self._shows_line:
            stream = sys.__stderr__
            with suppress(OSError, ValueError):  # closed; in the background a write may stop the program
                if stream is not None and stream.isatty() and os.tcgetpgrp(stream.fileno()) == os.getpgrp():
                    os.write(stream.fileno(), f"{moment.line}\n".encode())


def _latest(devices: Sequence[DeviceUse]) -> list[tuple[DeviceUse, float, int]]:
    """Each device with its busy share and its used bytes by the last sample, if the driver tells both."""
    last = [(use, use.samples[-1]) for use in devices if use.samples]
    return [(use, seen.busy, seen.used_bytes) for use, seen in last if seen.busy >= 0 and seen.used_bytes >= 0]


def _family(name: str, kind: str, means: str, samples: Sequence[tuple[str, float]]) -> str:
    rows = "".join(f"{name}{label} {value:.15g}\n" for label, value in samples)
    return f"# TYPE {name} {kind}\n# HELP {name} {means}\n{rows}"
