"""What an event is, told by its category and name, whatever its era and vendor called it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.marks import GC_MARK, LINE_MARK, PAUSE_MARK, SAVE_MARK
from profkit.trace.events import DEVICE_WORK, NONE, Category, Int32s

_CATEGORIES = {
    "cpu_op": Category.OPERATOR,
    "Operator": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "xpu_runtime": Category.RUNTIME,
    "xpu_driver": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "privateuse1_driver": Category.RUNTIME,
    "Runtime": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "Kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "Memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "Memset": Category.MEMSET,
    "gpu_user_annotation": Category.DEVICE_ANNOTATION,
    "cuda_sync": Category.DEVICE_SYNC,
}
_ON_STREAMS = (*DEVICE_WORK, Category.DEVICE_ANNOTATION, Category.DEVICE_SYNC)
ON_DEVICE = {name for name, kind in _CATEGORIES.items() if kind in _ON_STREAMS}
"""The file's categories of events that stand on a stream, not on a thread."""
MEMORY_EVENT = "[memory]"
_READ_AS_ANNOTATION = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel.")
"""Until 2021 these carried the category of operators."""


def classify(pairs: list[tuple[str, str]]) -> tuple[NDArray[np.uint8], Int32s]:
    """Category and, for line marks, call site of each (category, name)."""
    categories = np.zeros(len(pairs), dtype=np.uint8)
    sites = np.full(len(pairs), NONE, dtype=np.int32)
    for code, (category, name) in enumerate(pairs):
        site = name.removeprefix(LINE_MARK)
        if name == MEMORY_EVENT:
            categories[code] = Category.MEMORY
        elif name.startswith(PAUSE_MARK):
            categories[code] = Category.PAUSE
        elif name.startswith((GC_MARK, SAVE_MARK)):
            categories[code] = Category.HOST_MARK
        elif site is not name and site.isascii() and site.isdigit() and len(site) < 8:
            categories[code], sites[code] = Category.LINE_MARK, int(site)
        elif category in ("cpu_op", "Operator") and name.startswith(_READ_AS_ANNOTATION):
            categories[code] = Category.ANNOTATION
        else:
            categories[code] = _CATEGORIES.get(category, Category.OTHER)
    return categories, sites
