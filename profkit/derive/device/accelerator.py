"""Which accelerator the program used, and whether its work was recorded.

A program whose device was not recorded looks like one on a CPU: its operators return once their work is launched, so
they seem to take only the time of the launch. The host's events give the device away: allocations on it, launches
without kernels, operators that only one kind of device has, and events of unknown categories.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.core.units import format_count
from profkit.trace.events import DEVICE_WORK, Category, Trace
from profkit.trace.statistics import distinct

_DEVICE_TYPES = {
    1: "CUDA",
    4: "OpenCL",
    6: "HIP",
    9: "XLA",
    10: "Vulkan",
    11: "Metal",
    12: "XPU",
    13: "MPS",
    15: "HPU",
    16: "VE",
    18: "IPU",
    19: "MTIA",
    20: "PrivateUse1",
}
"""The devices of ``c10/core/DeviceType.h``, without the host (0), its libraries (2, 5) and those without memory."""
_PREFIXES = {
    "mtia": "MTIA",
    "hpu": "HPU",
    "glow": "Glow",
    "xpu": "XPU",
    "privateuse1": "PrivateUse1",
    "mlu": "MLU",
    "gcu": "GCU",
    "npu": "NPU",
    "musa": "MUSA",
}
"""Prefixes of the categories of their events in Kineto's ``ActivityType`` and its forks; an underscore follows."""
_LAUNCH = re.compile(r"LaunchKernel|KernelLaunch|GraphLaunch|ExtModuleLaunch", re.IGNORECASE)
_VENDORS = {"cuda": "CUDA", "cu": "CUDA", "hip": "HIP", "ze": "XPU", "ur": "XPU"}
_OF_ONE_DEVICE = (
    (re.compile(r"aten::_?(lstm_)?mps_.*|aten::_lstm_mps|.*_for_mps"), "MPS"),
    (re.compile(r"aten::_?miopen_(?!ctc).*"), "HIP"),
    (re.compile(r"aten::_?cudnn_(?!is_acceptable|init_dropout|ctc).*"), "CUDA"),
    (re.compile(r"aten::_scaled_dot_product_(cudnn|efficient)_.*"), "CUDA"),
    (re.compile(r"aten::_(flash|efficient)_attention_(forward|backward)|aten::_thnn_fused_(lstm|gru)_cell.*"), "CUDA"),
)
"""Operators of ``native_functions.yaml`` that only one kind of device runs. ``_cudnn_is_acceptable`` runs on a CPU
too."""
_AN = ("MPS", "MTIA", "MLU", "XPU", "XLA", "HPU", "IPU", "NPU", "OpenCL")
_ACTIVITIES = {"CUDA": "CUDA", "HIP": "CUDA", "XPU": "XPU", "MTIA": "MTIA", "HPU": "HPU", "PrivateUse1": "PrivateUse1"}
"""The members of ``torch.profiler.ProfilerActivity`` that record their work."""


class Accelerator(Struct, frozen=True):
    """The accelerator that a program used. If its work was not recorded, ``evidence`` says what shows it."""

    name: str
    is_recorded: bool
    evidence: str = ""

    @property
    def label(self) -> str:
        """The name with its article: ``a CUDA device``, ``an XPU``."""
        return f"{'an' if self.name in _AN else 'a'} {self.name}{'' if self.name.endswith('PU') else ' device'}"

    @property
    def activity(self) -> str | None:
        """The member of ``ProfilerActivity`` that records it; None if there is none, as for MPS."""
        return _ACTIVITIES.get(self.name)


def find_accelerator(trace: Trace) -> Accelerator | None:
    """The accelerator that was used; None if nothing shows one."""
    if trace.rows(*DEVICE_WORK).size:
        return Accelerator(_of_memory(trace) or "GPU", is_recorded=True)
    name, count, categories = _of_foreign(trace)
    if name:
        events = f"{format_count(count, 'event')} of kinds that profkit cannot read: {categories}"
        return Accelerator(name, False, events)
    if (found := _of_launches(trace)) is not None:
        launches = format_count(found[1], "kernel launch", "kernel launches")
        return Accelerator(found[0], False, f"{launches} but no kernels")
    if name := _of_memory(trace):
        return Accelerator(name, False, "memory was allocated there")
    names = [trace.names[code] for code in distinct(trace.events.name_code[trace.rows(Category.OPERATOR)]).tolist()]
    for pattern, device in _OF_ONE_DEVICE:
        if operator := next((name for name in names if pattern.fullmatch(name)), None):
            return Accelerator(device, False, f"{operator} runs on no other")
    return None


def _of_foreign(trace: Trace) -> tuple[str, int, str]:
    for prefix, name in _PREFIXES.items():
        found = [(each, count) for each, count in trace.recording.foreign if each.lower().startswith(f"{prefix}_")]
        if found:
            return name, sum(count for _, count in found), ", ".join(each for each, _ in found)
    return "", 0, ""


def _of_memory(trace: Trace) -> str:
    types = distinct(trace.events.device_type[trace.rows(Category.MEMORY)])
    return next((_DEVICE_TYPES[kind] for kind in types.tolist() if kind in _DEVICE_TYPES), "")


def _of_launches(trace: Trace) -> tuple[str, int] | None:
    rows = np.flatnonzero(trace.matching(_LAUNCH))
    rows = rows[trace.events.category[rows] == Category.RUNTIME]
    if not rows.size:
        return None
    call = trace.name_of(int(rows[0]))
    vendor = next((name for prefix, name in _VENDORS.items() if call.startswith(prefix)), "GPU")
    return vendor, len(rows)
