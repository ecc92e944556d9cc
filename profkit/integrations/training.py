"""Recording a training whose loop belongs to a framework: callbacks begin, advance and end the recording."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.report.wording import verdict
from profkit.run.directory import REPORT_FILE
from profkit.run.plan import ACTIVE_STEPS, LIMIT_S, WAIT_STEPS, WARMUP_STEPS, Plan

if TYPE_CHECKING:
    from profkit.collect.recorder.profiler import profile
    from profkit.findings.values import Diagnosis


class TrainingRecording:
    """`begin`, `end_step` after each step, `finish`, `report`. Each is safe to call when there is nothing to do.

    Only the first training is recorded. Inside another recording (`profkit diagnose train.py`, a surrounding
    `profkit.profile`) that one gets the steps, and this records nothing.
    """

    def __init__(self, directory: str | Path | None = None, **settings: Any) -> None:
        """Takes the settings of `profkit.profile`."""
        self._directory, self._settings = directory, settings
        Plan(**self._settings)  # raises for settings that make no sense
        self._profile: profile | None = None
        self._is_open = self._is_own = self._was_announced = False
        self._reports = True

    @property
    def directory(self) -> Path | None:
        """The run directory, if there is one yet."""
        return self._profile.directory if self._profile is not None and self._is_own else None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis, made on first use; None before the recording is over."""
        found: Diagnosis | None = self._profile.diagnosis if self._profile is not None and self._is_own else None
        return found

    def begin(self, reports: bool = True) -> None:
        """Start recording. With several ranks each records and only one ``reports``."""
        if self._profile is not None:
            return
        self._reports = reports
        from profkit.collect.recorder.profiler import profile

        self._profile = profile(self._directory, **self._settings)
        self._profile.__enter__()
        self._is_open, self._is_own = True, not self._profile.is_over

    def end_step(self) -> None:
        if self._profile is not None and self._is_open:
            self._profile.step()
            if self._is_own and self._reports and self._profile.is_over and not self._was_announced:
                self._was_announced = True
                _say(
                    f"recorded in {self.directory}; the report comes when the training ends, "
                    f"or now: profkit diagnose {self.directory}"
                )

    def pause(self) -> None:
        """Keep everything up to `resume` out of the steps."""
        if self._profile is not None and self._is_open:
            self._profile.pause()

    def resume(self) -> None:
        if self._profile is not None and self._is_open:
            self._profile.resume()

    def finish(self, error: BaseException | None = None) -> None:
        """End the recording; ``error`` is the one that ended the training."""
        if self._profile is not None and self._is_open:
            self._is_open = False
            self._profile.__exit__(None if error is None else type(error), error, None)
            if error is not None and self._is_own:
                _say(f"recorded in {self.directory} up to the error: profkit diagnose {self.directory}")

    def report(self) -> None:
        """Print the verdict and where the report is."""
        if not self._reports:
            return
        diagnosis = self.diagnosis
        if diagnosis is not None and self.directory is not None:
            _say(verdict(diagnosis))
            _say(f"the report: {self.directory / REPORT_FILE}")


class TrainingCallback:
    """What the frameworks' callbacks share: the settings of `profkit.profile`, and the results."""

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        wait: int = WAIT_STEPS,
        warmup: int = WARMUP_STEPS,
        active: int = ACTIVE_STEPS,
        limit_s: float = LIMIT_S,
        at_step: int = 0,
    ) -> None:
        self._recording = TrainingRecording(
            directory, wait=wait, warmup=warmup, active=active, limit_s=limit_s, at_step=at_step
        )

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis, once the recording is over."""
        return self._recording.diagnosis

    @property
    def directory(self) -> Path | None:
        """The run directory, once training has begun."""
        return self._recording.directory


def _say(line: str) -> None:
    with suppress(Exception):  # the program may have closed or replaced its stderr
        sys.stderr.write(f"profkit: {line}\n")
