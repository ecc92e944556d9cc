"""A run's figures for TensorBoard's "Scalars" tab: an event file with a point per figure.

The event files lie beside the copies of the traces. In a run directory TensorBoard would show them as another run,
among those that the program itself writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from profkit.findings.values import Diagnosis

PREFIX = "events.out.tfevents."
"""How TensorBoard recognises event files."""


def figures_of(diagnosis: Diagnosis) -> Iterator[tuple[str, float, str]]:
    """Tag, figure and description. A rule's findings overlap, so only the one with the largest saving counts."""
    timing = diagnosis.timing
    if timing.step_time_ns is not None:
        yield "step_time_ms/recorded", timing.step_time_ns / 1e6, "The median step as it was recorded."
    if timing.unprofiled_step_time_ns is not None:
        what = f"The median step without the profiler, {timing.unprofiled_from or 'measured'}."
        yield "step_time_ms/without_profiler", timing.unprofiled_step_time_ns / 1e6, what
    savings: dict[str, float] = {}
    for finding in diagnosis.findings:
        if finding.saving is not None and finding.saving.time_ns_per_step > 0:
            savings[finding.rule] = max(savings.get(finding.rule, 0.0), finding.saving.fraction)
    for rule, fraction in savings.items():
        yield f"saving_percent/{rule}", 100 * fraction, "What a step would gain, as a share of it."
    if diagnosis.total is not None:
        yield "saving_percent/all_faults", 100 * diagnosis.total.fraction, "What all faults cost together."
    for peak in diagnosis.peaks:
        most = peak.tensor_bytes or peak.reserved_bytes or peak.seen_bytes
        what = "The most that tensors took" if peak.tensor_bytes else "The most memory in use"
        yield f"peak_memory_MB/{peak.where}", most / 1e6, f"{what} of {peak.where}."


def write_scalars(diagnosis: Diagnosis, folder: Path, wall_time: float) -> Path:
    """Write the event file into ``folder``. Its points lie at the start of the run, or at ``wall_time`` if that is
    unknown, so that "Wall" as the horizontal axis shows how the runs developed."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    started = _seconds(diagnosis.run.started)
    before = set(folder.glob(f"{PREFIX}*"))
    writer = EventFileWriter(str(folder))
    try:
        for tag, figure, description in figures_of(diagnosis):
            summary = scalar_pb(tag, figure, description)
            writer.add_event(Event(wall_time=wall_time if started is None else started, step=0, summary=summary))
    finally:
        writer.close()
    (written,) = set(folder.glob(f"{PREFIX}*")) - before
    return written


def _seconds(started: str | None) -> float | None:
    try:
        return datetime.fromisoformat(started or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return None
