"""Did the program find room for what it asked for, and how far back does the allocator's history reach?"""

from __future__ import annotations

import numpy as np

from profkit.core.units import format_bytes, format_count
from profkit.derive.facts import Facts
from profkit.diagnosis.health.window import is_notable
from profkit.findings.values import Location
from profkit.patterns.allocator.failures import limit_of
from profkit.patterns.memory_use import memory_uses
from profkit.run.directory import KILLED, OutOfMemory
from profkit.trace.events import NONE

_HOST = -1


def describe_end_of_memory(facts: Facts) -> str | None:
    """The request that ended the program because it found no room: ``out of memory: train.py:31 asked for 2 GB …``."""
    failed = facts.run.out_of_memory
    if failed is None or not failed.ended:
        return None
    if failed.message == KILLED:
        return f"out of memory: {KILLED}, as no room was left on the host{_by_the_process(facts)}"
    return f"out of memory: {_request(failed)}{_held(facts, failed)}"


def check_memory_failures(facts: Facts) -> str | None:
    """Requests that found no room but did not end the program: it gave memory back and tried again."""
    failed = facts.run.out_of_memory
    if failed is None or failed.ended:
        return None
    times = format_count(failed.count, "time")
    return f"a GPU's memory ran out {times}, and the program went on: last {_request(failed)}{_held(facts, failed)}"


def _request(failed: OutOfMemory) -> str:
    where = Location.of(failed.site).short if failed.site else "an unknown line"
    asked = format_bytes(failed.asked_bytes) if failed.asked_bytes else "more memory"
    return f"{where} asked for {asked}"


def _held(facts: Facts, failed: OutOfMemory) -> str:
    """`` of the host's memory; the process held 300 MB of 24 GB``, as far as that is known."""
    if failed.device == _HOST:
        return f" of the host's memory{_by_the_process(facts)}"
    peaks = {one.device: one.allocated_bytes for one in memory_uses(facts)}
    peak_bytes = peaks.get(failed.device, 0)
    held = f"; tensors took up to {format_bytes(peak_bytes)}" if peak_bytes else ""
    return f"{_beyond_limit(facts, failed) or _of_device(failed)}{held}"


def _of_device(failed: OutOfMemory) -> str:
    free = f", of which {format_bytes(failed.free_bytes)} were free" if failed.total_bytes else ""
    total = f"'s {format_bytes(failed.total_bytes)}" if failed.total_bytes else "'s memory"
    return f" of GPU {failed.device}{total}{free}"


def _beyond_limit(facts: Facts, failed: OutOfMemory) -> str:
    """The limit of the process, if it kept the request from room that the GPU had; empty otherwise. PyTorch then tells
    the limit as the total, and what is free of the whole GPU."""
    limit_bytes = limit_of(facts, failed.device) or failed.total_bytes * (failed.free_bytes > failed.total_bytes)
    if not limit_bytes or failed.free_bytes < failed.asked_bytes:
        return ""
    return (
        f" of GPU {failed.device}, beyond the {format_bytes(limit_bytes)} that the process may use "
        f"(set_per_process_memory_fraction), though {format_bytes(failed.free_bytes)} of the GPU were free"
    )


def _by_the_process(facts: Facts) -> str:
    total_bytes = facts.run.host.memory_bytes if facts.run.host else 0
    held_bytes = max((one.rss_bytes for one in facts.samples), default=0)
    known = total_bytes and held_bytes
    return f"; the process held {format_bytes(held_bytes)} of {format_bytes(total_bytes)}" if known else ""


def check_history(facts: Facts) -> str | None:
    """Of anything older than the history only the size is known, and an earlier peak is not known at all."""
    allocator = facts.allocator
    if allocator is None or not allocator.devices:
        return None
    use = allocator.fullest
    if not any(one.has_history for one in allocator.devices):
        return (
            "the memory snapshot has no history: neither the peak nor what was freed is known "
            "(torch.cuda.memory._record_memory_history() records it)"
        )
    if not is_notable(use.older_bytes, use.peak_bytes):
        return None
    found = allocator.allocations
    older = (found.device == use.device) & (found.made_by == NONE)
    known = int(found.size_bytes[older & np.isin(found.stack, 0, invert=True)].sum())
    lines = f"; the lines of {format_bytes(known)} of it are known all the same" if known else ""
    return (
        f"the snapshot's history begins with {format_bytes(use.older_bytes)} already held, as it was switched on "
        f"late or is full (max_entries): an earlier peak is not known{lines}"
    )
