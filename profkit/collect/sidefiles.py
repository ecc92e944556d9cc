"""The files beside the trace: what is known of the run, and what was sampled of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profkit.collect import environment
from profkit.collect.subject import Subject
from profkit.run import CALLSITES_FILE, LIVE_FILE, RUN_FILE, SAMPLES_FILE, CallSite, LiveSample, LoadSample, Run, save


class SideFiles:
    """``run`` is what will be written next."""

    def __init__(self, directory: Path, subject: Subject) -> None:
        self.run: Run = environment.describe_run(subject.command, subject.target, subject.variant)
        self._directory = directory

    def set(self, **fields: Any) -> None:
        """Set fields of the run."""
        self.run = replace(self.run, **fields)

    def write(self, callsites: Sequence[CallSite], live: Sequence[LiveSample], samples: Sequence[LoadSample]) -> None:
        """Write all of them as of now."""
        save(self._directory, RUN_FILE, self.run)
        save(self._directory, CALLSITES_FILE, callsites)
        save(self._directory, LIVE_FILE, live)
        save(self._directory, SAMPLES_FILE, list(samples))
