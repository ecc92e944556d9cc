"""What larger batches gave when they were tried, beside what was predicted."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

from profkit.core.units import format_bytes, format_share, format_time
from profkit.diagnosis.fixing.larger_batches import BatchTrial, BatchTrials
from profkit.report.wording import printable

_WIDTH = 80
"""Columns, as reports have where they are piped."""
_HEAD = ("samples", "a second", "times", "predicted", "a step", "memory")
_CROWDED = 0.1
"""Caches of the CPU are shared, too: from here on a reader has to know."""
_SURE = 0.02
"""Two trials of the same batch that are closer than this need no word."""


def render_larger_batches(tried: BatchTrials, predicted: Mapping[int, float]) -> str:
    """The end of the report with ``--try-batch``. ``predicted`` are multiples of the samples a second, by how many
    times the batch is as large."""
    rows = [_HEAD, *(_row(tried, trial, predicted) for trial in tried.trials if not trial.problem)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    table = ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    words = [fill(sentence, _WIDTH, break_on_hyphens=False) for sentence in _sentences(tried)]
    return "\n".join(["Larger batches, tried", *(table if len(rows) > 1 else []), *words])


def _row(tried: BatchTrials, trial: BatchTrial, predicted: Mapping[int, float]) -> tuple[str, ...]:
    gain = f"{tried.gain(trial):.2f}" if trial.times > 1 else ""
    told = f"{predicted[trial.times]:.2f}" if trial.times in predicted else ""
    step, memory = format_time(int(trial.step_s * 1e9)), format_bytes(trial.peak_bytes)
    return f"{trial.samples:,}", f"{trial.rate:,.0f}", gain, told, step, memory


def _sentences(tried: BatchTrials) -> list[str]:
    own = tried.own
    said = []
    for trial in tried.trials:
        if trial.problem:
            which = f"With {trial.times} times the batch" if trial.times > 1 else "No batch could be tried"
            said.append(printable(f"{which}: {trial.problem}."))
        elif trial.samples < trial.times * own.samples:
            said.append(
                f"With {trial.times} times the batch a step took {trial.samples} samples, not "
                f"{trial.times * own.samples}: the data hold no more, or the program decides that elsewhere."
            )
    if own.problem:
        return said
    if tried.spread is not None and tried.spread > _SURE:
        said.append(f"The first batch ran twice, {format_share(tried.spread)} apart: less than that is chance.")
    crowded = max(trial.crowded for trial in tried.trials)
    if crowded > _CROWDED:
        said.append(f"Other programs had the CPUs for {format_share(crowded)} of a trial. That is taken out.")
    if tried.trains and len(tried.trials) > 1:
        said.append("The learning rate and its schedule depend on the batch: set them anew before you train with it.")
    if tried.saved:
        said.append("The trials saved checkpoints in their copies of the folder, which are gone.")
    return said
