"""The files beside the trace: what is known of the run, and what was sampled of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profkit.collect.machine import environment
from profkit.collect.machine.rates import read_rates
from profkit.collect.program.compiled import read_compiled
from profkit.collect.recorder.subject import Subject
from profkit.run import CALLSITES_FILE, LIVE_FILE, RUN_FILE, SAMPLES_FILE, CallSite, LiveSample, LoadSample, Run, save
from profkit.source.user_code import UserFiles


class SideFiles:
    """``run`` is what will be written next."""

    def __init__(self, directory: Path, subject: Subject) -> None:
        run = environment.describe_run(subject.command, subject.target, subject.variant)
        self.run: Run = replace(run, rates=read_rates("cpu"))
        self._directory = directory
        self._is_user = UserFiles(subject.roots)

    def set(self, **fields: Any) -> None:
        """Set fields of the run."""
        self.run = replace(self.run, **fields)

    def write(self, callsites: Sequence[CallSite], live: Sequence[LiveSample], samples: Sequence[LoadSample]) -> None:
        """Write all of them as of now."""
        self.set(compiled=read_compiled(self._is_user.__getitem__))
        save(self._directory, RUN_FILE, self.run)
        save(self._directory, CALLSITES_FILE, callsites)
        save(self._directory, LIVE_FILE, live)
        save(self._directory, SAMPLES_FILE, list(samples))
