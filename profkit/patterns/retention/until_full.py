"""How long a program that keeps more memory with each step can go on: until the device's memory is full, or the
host's."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.patterns.memory_use import MemoryUse, memory_use
from profkit.run.directory import unprofiled_steps
from profkit.trace.statistics import median


def time_until_full_ns(facts: Facts, tensor_bytes: int, node_bytes: int) -> float | None:
    """At the pace of the measured steps, if tensors grow by ``tensor_bytes`` a step, where the program's tensors are,
    and autograd nodes by ``node_bytes``, which are on the host. None if the memory, or the pace, is not known."""
    step_ns = _step_ns(facts)
    use = memory_use(facts)
    host = _host_use(facts)
    growth = [(use, tensor_bytes), (host, node_bytes)] if not use.is_host else [(host, tensor_bytes + node_bytes)]
    left = [_steps_left(one, more) for one, more in growth if more > 0 and one.is_known]
    return min(left) * step_ns if left and step_ns else None


def _steps_left(use: MemoryUse, more_bytes: int) -> float:
    return max(use.total_bytes - use.used_bytes, 0) / more_bytes


def _step_ns(facts: Facts) -> float:
    """Without a profiler, if that was timed."""
    timed = unprofiled_steps(facts.run, None)[0]
    return median(timed) if timed else float(facts.steps.median_ns or 0)


def _host_use(facts: Facts) -> MemoryUse:
    total = facts.run.host.memory_bytes if facts.run.host else 0
    return MemoryUse(total, max((one.rss_bytes for one in facts.samples), default=0), is_host=True)
