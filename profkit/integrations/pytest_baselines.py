"""The baselines of tests: run directories, stored here and compared by `profkit.diagnosis.compare`."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from profkit.core.errors import UnreadableInput
from profkit.core.units import format_share
from profkit.diagnosis.compare import compare_paths
from profkit.diagnosis.compare.comparison import Comparison, Verdict
from profkit.report.comparison.wording import difference_note, headline
from profkit.run.directory import DIAGNOSIS_FILE, REPORT_FILE, RUN_FILE, load_run

_MACHINE = ("device", "CPUs")
"""Differences which show that two runs come from different machines."""
_UPDATE = "pytest --profkit-update-baseline"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Why a test fails, or why nobody can tell; empty if there is nothing to say."""

    failure: str = ""
    warning: str = ""


def compare_with(baseline: Path, directory: Path, max_regression: float) -> Judgement:
    """Whether the steps in ``directory`` certainly take longer than the baseline's, by at least that share."""
    if not baseline.is_dir():
        return Judgement(failure=f"there is no baseline at {baseline}: `{_UPDATE}` stores this run as one")
    try:
        comparison = compare_paths(baseline, directory, force=True)  # both are of one test
    except UnreadableInput as error:
        return Judgement(failure=f"this run cannot be compared with its baseline: {error}")
    unlike = _other_machine(baseline, directory, comparison)
    if unlike:
        return Judgement(warning=f"not compared, the baseline comes from another machine: {unlike} (`{_UPDATE}`)")
    if comparison.is_regression(max_regression):
        return Judgement(failure=_explain(comparison, baseline, max_regression))
    if comparison.verdict is Verdict.INCONCLUSIVE:
        reasons = "; ".join((headline(comparison), *comparison.step_time.reasons))
        return Judgement(warning=f"compared with {baseline}: {reasons}")
    return Judgement()


def store(directory: Path, baseline: Path) -> str | None:
    """Replace the baseline by this run; returns the reason if that is impossible.

    Leaves out the files that `profkit diagnose` can make again. Never deletes anything but a run.
    """
    if baseline.exists() and not (baseline / RUN_FILE).is_file():
        return f"{baseline} exists but is not a run, so it is not replaced"
    new = baseline.with_name(f".{baseline.name}.{os.getpid()}")
    try:
        shutil.copytree(directory, new, ignore=shutil.ignore_patterns(DIAGNOSIS_FILE, REPORT_FILE))
        if baseline.exists():
            shutil.rmtree(baseline)
        os.replace(new, baseline)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        return f"{baseline} cannot be written: {error.strerror or error}"
    return None


def _other_machine(baseline: Path, directory: Path, comparison: Comparison) -> str:
    unlike = [difference_note(difference) for difference in comparison.differences if difference.what in _MACHINE]
    before, after = load_run(baseline).host, load_run(directory).host
    if before is not None and after is not None and before.processor != after.processor:
        unlike.append(f"processor {before.processor or 'unknown'} against {after.processor or 'unknown'}")
    return "; ".join(unlike)


def _explain(comparison: Comparison, baseline: Path, max_regression: float) -> str:
    share = format_share(max_regression)
    return (
        f"a step takes longer than in the baseline, by {share} or more and by more than the noise\n\n"
        f"{comparison}\nbaseline: {baseline} (`{_UPDATE}` replaces it)"
    )
