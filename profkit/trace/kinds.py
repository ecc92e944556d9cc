"""What an event is, by its category and name, which differ between vendors and releases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.core.marks import CALL_MARK, GC_MARK, LINE_MARK, PAUSE_MARK, SAVE_MARK, STEP_MARK, UNMARKED
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
"""Categories of events on a stream instead of a thread."""
_NO_WORK = (
    "",
    "Trace",
    "overhead",
    "cpu_instant_event",
    "external_correlation",
    "collective_comm",
    "cuda_sync",
    "cuda_event",
    "cuda_profiler_range",
    "xpu_sync",
    "xpu_scope_profiler",
    "__metadata",
)
"""Categories that are no work of the program or a device, or repeat what others say (Kineto's ``ActivityType``).
``Trace`` is the bounds of the recording."""
MEMORY_EVENT = "[memory]"
_COMPILED_CODE = (
    "Torch-Compiled Region",
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "## Call CompiledFxGraph",
)
"""Prefixes of these names (``_dynamo/output_graph.py``, ``_dynamo/utils.py``, ``_inductor/output_code.py``,
``runtime_wrappers.py``). They are recorded as operators or, in some releases, as ranges of the program."""
BOUNDARIES = (STEP_MARK, "Optimizer.step#")
"""Their end is the end of a step, so a mark that was cut short would end an incomplete step."""
_READ_AS_ANNOTATION = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel.")
"""Until 2021 these were recorded as operators."""


def category_of(category: str) -> Category:
    """What the events of this category are if their names do not say otherwise."""
    return _CATEGORIES.get(category, Category.OTHER)


def is_foreign(category: str) -> bool:
    """Whether this category is unknown, as the work of an accelerator that profkit cannot read is."""
    return category not in _CATEGORIES and category not in _NO_WORK


def classify(pairs: list[tuple[str, str]]) -> tuple[NDArray[np.uint8], Int32s]:
    """The category of each (category in the file, name) and, for line marks, the call site."""
    categories = np.zeros(len(pairs), dtype=np.uint8)
    sites = np.full(len(pairs), NONE, dtype=np.int32)
    for code, (category, name) in enumerate(pairs):
        site = name.removeprefix(LINE_MARK)
        if name == MEMORY_EVENT:
            categories[code] = Category.MEMORY
        elif name.startswith(PAUSE_MARK):
            categories[code] = Category.PAUSE
        elif name.startswith((GC_MARK, SAVE_MARK, CALL_MARK, UNMARKED)):
            categories[code] = Category.HOST_MARK
        elif site is not name and site.isascii() and site.isdigit() and len(site) < 8:
            categories[code], sites[code] = Category.LINE_MARK, int(site)
        elif category in ("cpu_op", "user_annotation") and name.startswith(_COMPILED_CODE):
            categories[code] = Category.COMPILED_CODE
        elif category in ("cpu_op", "Operator") and name.startswith(_READ_AS_ANNOTATION):
            categories[code] = Category.ANNOTATION
        else:
            categories[code] = _CATEGORIES.get(category, Category.OTHER)
    return categories, sites
