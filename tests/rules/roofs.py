"""Launches of exact length for the rules that judge by the roofline: steps of an H100 or an MI300X that it fills."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.rules.base import Rule, Suspicion
from profkit.savings.replay import replay
from tests.savings.roofline.launching import H100, steps_of
from tests.traces import Json, runtime

__all__ = ["H100", "MI300X", "found", "on_device", "saved"]

MI300X = "AMD Instinct MI300X"
BFLOAT16 = "c10::BFloat16"


def on_device(*calls: list[Json], card: str = H100, idle: float = 0.0) -> Facts:
    """Steps with these calls, at whose end the host waits for the device, and then as many microseconds of Python."""
    host_us = max(event["ts"] + event["dur"] for one in calls for event in one if event["cat"] != "kernel")
    end_us = max(event["ts"] + event["dur"] for one in calls for event in one)
    wait = [runtime("cudaDeviceSynchronize", host_us, max(end_us - host_us, 1), correlation=9_999)]
    return steps_of(*calls, wait, card=card, length=end_us + 10 + idle)


def found(rule: Rule, facts: Facts) -> list[Suspicion]:
    return list(rule.check(facts))


def saved(facts: Facts, suspicion: Suspicion) -> float:
    """The share of the step that the finding's edit saves."""
    return replay(facts, suspicion.edit).fraction
