"""The GPUs of the machine as the driver's management library (NVML) sees them, a few times a minute.

The library is opened by its own name. The module ``pynvml`` must not be imported here: the program may have one of that
name, and it has not imported PyTorch yet.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import Any

import msgspec

from profkit.run.whole_run import DeviceChoice, DeviceSample, DeviceUse

_LIBRARY = "libnvidia-ml.so.1"
_MULTIPROCESSORS = 1
"""``NVML_CLOCK_SM`` in ``nvml.h``."""
_NAME_BYTES = 96
"""``NVML_DEVICE_NAME_V2_BUFFER_SIZE`` in ``nvml.h``."""
_MOST_DEVICES = 64
"""No machine has more; a broken library may claim so."""
_FIRST_NS, _PAUSE_NS = 2_000_000_000, 1_000_000_000
"""A program that ends at once is not kept waiting for the driver; NVML's own figures change every second at most."""
_MOST_SAMPLES = 240
"""For each device; halved each time that they are used up, and the pause doubles: 20 kB in the file."""
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_UNKNOWN = -1
"""What a device does not tell."""


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Devices:
    """`look` takes a sample of each device when one is due; ``reason`` is why there are none."""

    def __init__(self, library: Any = None) -> None:
        self.reason = "the run was too short to ask the driver about devices"
        self._library = library
        self._known: list[tuple[Any, DeviceUse]] = []
        self._samples: list[list[DeviceSample]] = []
        self._due_ns, self._pause_ns = _FIRST_NS, _PAUSE_NS
        self._is_open = False

    def look(self, now_ns: int) -> None:
        """Take samples if it is time; ``now_ns`` counts from the beginning of the watch."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + self._pause_ns
        if not self._is_open:
            self._is_open = True
            self._open()
        for (handle, _), samples in zip(self._known, self._samples, strict=True):
            samples.append(self._sample(handle, now_ns))
        if self._samples and len(self._samples[0]) >= _MOST_SAMPLES:
            self._samples = [samples[1::2] for samples in self._samples]
            self._pause_ns *= 2

    def taken(self) -> tuple[DeviceUse, ...]:
        """The devices with their samples."""
        pairs = zip(self._known, self._samples, strict=True)
        return tuple(msgspec.structs.replace(use, samples=tuple(samples)) for (_, use), samples in pairs)

    def _open(self) -> None:
        try:
            library = self._library = self._library or ctypes.CDLL(_LIBRARY)
        except OSError:
            self.reason = "NVIDIA's management library is not installed here"
            return
        try:
            if status := library.nvmlInit_v2():
                self.reason = f"NVIDIA's management library cannot be used here (status {status})"
                return
            count = ctypes.c_uint()
            library.nvmlDeviceGetCount_v2(ctypes.byref(count))
            for index in range(min(count.value, _MOST_DEVICES)):
                handle = ctypes.c_void_p()
                if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
                    self._known.append((handle, self._describe(handle, index)))
                    self._samples.append([])
        except AttributeError:  # a library older than these functions
            self._known, self._samples = [], []
        self.reason = "" if self._known else "NVIDIA's management library shows no device"

    def _describe(self, handle: Any, index: int) -> DeviceUse:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._library.nvmlDeviceGetName(handle, name, ctypes.c_uint(_NAME_BYTES))
        most = ctypes.c_uint()
        self._library.nvmlDeviceGetMaxClockInfo(handle, ctypes.c_uint(_MULTIPROCESSORS), ctypes.byref(most))
        return DeviceUse(
            index,
            name.value.decode(errors="replace"),
            self._memory(handle).total,
            most.value,
            link_generation=self._told("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            link_lanes=self._told("nvmlDeviceGetMaxPcieLinkWidth", handle),
        )

    def _told(self, function: str, handle: Any) -> int:
        """The number that a function of the library writes; 0 if it does not know, or has no such function."""
        value = ctypes.c_uint()
        with suppress(AttributeError):
            if getattr(self._library, function)(handle, ctypes.byref(value)) == 0:
                return value.value
        return 0

    def _memory(self, handle: Any) -> _Memory:
        memory = _Memory()
        self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        return memory

    def _sample(self, handle: Any, now_ns: int) -> DeviceSample:
        rates, clock, reasons = _Rates(), ctypes.c_uint(), ctypes.c_ulonglong()
        library = self._library
        knows_rates = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0
        knows_clock = library.nvmlDeviceGetClockInfo(handle, ctypes.c_uint(_MULTIPROCESSORS), ctypes.byref(clock)) == 0
        with suppress(AttributeError):
            library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons))
        return DeviceSample(
            now_ns,
            rates.gpu / 100 if knows_rates else float(_UNKNOWN),
            self._memory(handle).used,
            clock.value if knows_clock else _UNKNOWN,
            reasons.value,
        )


def read_choice() -> DeviceChoice:
    """What this program could use of the devices, and whether PyTorch has begun to use any. It imports nothing."""
    torch = sys.modules.get("torch")
    visible = next((os.environ[name] for name in _VISIBLE if name in os.environ), None)
    build, was_initialised = None, False
    with suppress(Exception):  # the program may have replaced any of it
        if torch is not None:
            build = torch.version.cuda or torch.version.hip or ""
            was_initialised = bool(torch.cuda.is_initialized())
    return DeviceChoice(visible, build, was_initialised)
