"""What a program does once, before its steps: it captures CUDA graphs, tries out kernels, and warms up.

A capture shows by the runtime's calls. For the others names have to do: of the functions in which Triton, Inductor,
FlashInfer and DeepGEMM time kernels, and of functions and ranges called after warming up. A learning rate that warms up
is no such name.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profkit.derive.timeline.intervals import Intervals, union, unite
from profkit.trace.events import Bools, Category, Trace

_FRAME = re.compile(r"(?:.*[/\\])?([^/\\]+)\(\d+\): (\w+)$")
_TUNING_FILES = re.compile(r"autotuner|tuner|triton_heuristics|testing|select_algorithm|autotune_process|benchmarking")
_TUNING = re.compile(r"_*(?:do_bench\w*|_?bench|benchmark\w*|autotune\w*|compile_and_tune|profile_single_kernel)$")
"""In ``triton/runtime/autotuner.py``, ``triton/testing.py``, ``torch/_inductor``, ``flashinfer/autotuner.py`` and
``deep_gemm/jit_kernels/tuner.py``. A function ``run`` of such a file uses what was found before."""
_WORDS = "run|do|compile|compile_or|kernels?|jit|engine|model|gpu|cuda|all|decode|prefill|maybe"
_WARMING = re.compile(rf"_*(?:(?:{_WORDS})_+)*(?:warm_?up|dummy_run)(?:_(?:{_WORDS}))*$", re.IGNORECASE)
_CAPTURING = re.compile(r"_*capture_(?:model|graphs?|cuda_?graphs?|one_batch_size|one_stream)$|capture_\d+_[A-Z]+$")
"""vLLM's ``compile_or_warm_up_model``, ``_dummy_run`` and ``capture_model``; SGLang's ``capture_one_batch_size``."""
_RANGE_WORD = re.compile(r"(?:^|[|:/\s#])(warm[-_ ]?up)(?:$|[|:/\s#\d])", re.IGNORECASE)
"""A range named after warming up alone, or with such a part: ``[param|alex_net|0|warmup|forward]``."""


class Starting(Struct, frozen=True):
    """When a thread was busy with what comes once. The three may overlap."""

    capturing: Intervals
    tuning: Intervals
    warming: Intervals

    @property
    def any(self) -> Intervals:
        return unite(self.capturing, self.tuning, self.warming)


def find_starting(trace: Trace, lane: int) -> Starting:
    """The start-up of the thread ``lane``."""
    events = trace.events
    here = events.lane == lane
    frames, ranges = here & (events.category == Category.PYTHON), here & (events.category == Category.ANNOTATION)
    return Starting(
        capturing(trace, here),
        _when(trace, frames & trace.where_name(_tunes)),
        _when(trace, (frames & trace.where_name(_warms)) | (ranges & trace.where_name(_is_warming_range))),
    )


def capturing(trace: Trace, wanted: Bools | None = None) -> Intervals:
    """When CUDA graphs were captured, by all threads or by the calls ``wanted``. What is launched meanwhile does not
    run."""
    events = trace.events
    begin = trace.where_name(lambda name: "StreamBeginCapture" in name)
    end = trace.where_name(lambda name: "StreamEndCapture" in name)
    begins, ends = np.sort(events.start_ns[begin]), np.sort(events.start_ns[end])
    if wanted is not None:
        begins, ends = np.sort(events.start_ns[begin & wanted]), np.sort(events.start_ns[end & wanted])
    after = np.append(ends, events.end_ns.max(initial=0))[np.searchsorted(ends, begins)]
    return union(begins, after)


def _when(trace: Trace, wanted: Bools) -> Intervals:
    return union(trace.events.start_ns[wanted], trace.events.ends_of(wanted))


def _tunes(name: str) -> bool:
    frame = _FRAME.match(name)
    return frame is not None and bool(_TUNING_FILES.search(frame[1]) and _TUNING.match(frame[2]))


def _warms(name: str) -> bool:
    frame = _FRAME.match(name)
    return frame is not None and bool(_WARMING.match(frame[2]) or _CAPTURING.match(frame[2]))


def _is_warming_range(name: str) -> bool:
    return bool(_RANGE_WORD.search(name) or _WARMING.match(name) or _CAPTURING.match(name))
