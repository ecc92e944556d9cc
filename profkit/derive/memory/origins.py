"""The part of the program that each recorded stack is from: a model's call, the backward pass, an optimizer's step, …

It follows from names of PyTorch's own files and functions, and of its C++ functions if those were recorded. No Python
runs on the threads of the backward pass, so their stacks are empty if only Python's were recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from profkit.trace.events import NONE, Bools, Int32s, Rows
from profkit.trace.snapshot.columns import Action, History, Stacks


class Origin(IntEnum):
    """Where a stack comes from."""

    UNKNOWN = 0
    """No stack was recorded, or its frames do not say."""
    PROGRAM = 1
    """The program itself, outside all of the following."""
    FORWARD = 2
    """A call of a module."""
    BACKWARD = 3
    OPTIMIZER = 4
    """An optimizer's step."""
    CLEARING = 5
    """`zero_grad`."""
    BUILDING = 6
    """A module is made, moved or loaded."""
    WORKSPACE = 7
    """A library's workspace, such as cuBLAS's."""


_CALLING = re.compile(r"torch/nn/modules/module\.py$")
_OPTIMIZERS = re.compile(r"(^|/)torch/optim/")
"""PyTorch wraps the step of every optimizer, also of other packages, in a function of its own."""
_OPTIMIZER_FILE = re.compile(r"(^|/)torch/optim/(?P<name>\w+)\.py$")
_ALL_OPTIMIZERS = frozenset(("optimizer", "lr_scheduler", "swa_utils"))
"""Files that stand in the stacks of any optimizer, or are none."""
_MODULES = re.compile(r"(^|/)torch/nn/modules/")
_DISTRIBUTED = re.compile(r"(^|/)torch/distributed/")
_TORCH = re.compile(r"(^|/)torch/")
_AUTOGRAD = re.compile(r"(^|/)torch/(autograd/(__init__|graph)|_tensor)\.py$")
_ENGINE = re.compile(r"torch::autograd::Engine::")
_WORKSPACES = re.compile(r"getNewWorkspace|getCurrentCUDABlasHandle|(cu|hip)blas(Lt)?Workspace", re.IGNORECASE)


_MOMENTS = {"adam": 2, "adamw": 2, "adamax": 2, "nadam": 2, "radam": 2, "adadelta": 2, "adagrad": 1}
"""How many tensors like each parameter the optimizers of ``torch/optim`` keep at least, by file; Adam keeps a third
with ``amsgrad=True``. SGD is not named, as it keeps none without momentum, nor are those whose settings decide."""


def is_python(file: str) -> bool:
    """Whether a frame's file is Python's. Those of C++ are ``??``, or end in ``.cpp`` and the like."""
    return file.endswith(".py") or file.startswith("<")


def python_frames(stacks: Stacks) -> Bools:
    """Which of the distinct frames are Python's."""
    return _files(stacks, is_python)


def holding(stacks: Stacks, frames: Bools) -> Bools:
    """The stacks that hold one of these frames, given by a mask of the distinct ones."""
    seen = np.concatenate([[0], np.cumsum(frames[stacks.frames])])
    held: Bools = seen[stacks.starts[1:]] > seen[stacks.starts[:-1]]
    return held


def innermost(stacks: Stacks, frames: Bools, begin: Rows | None = None) -> Rows:
    """For each stack the place in ``stacks.frames`` of the innermost of these frames, searched from ``begin`` on if
    that is given; `NONE` without one."""
    places = np.flatnonzero(frames[stacks.frames])
    if not len(places):
        return np.full(len(stacks.starts) - 1, NONE, dtype=np.int64)
    at = np.searchsorted(places, stacks.starts[:-1] if begin is None else begin)
    place = places[at.clip(max=len(places) - 1)]
    return np.where((at < len(places)) & (place < stacks.starts[1:]), place, NONE).astype(np.int64)


def outermost(stacks: Stacks, frames: Bools) -> Rows:
    """For each stack the place in ``stacks.frames`` of the outermost of these frames; `NONE` without one."""
    places = np.flatnonzero(frames[stacks.frames])
    if not len(places):
        return np.full(len(stacks.starts) - 1, NONE, dtype=np.int64)
    at = np.searchsorted(places, stacks.starts[1:]) - 1
    place = places[at.clip(min=0)]
    return np.where((at >= 0) & (place >= stacks.starts[:-1]), place, NONE).astype(np.int64)


def calling_frames(stacks: Stacks) -> Bools:
    """Which of the distinct frames belong to a call of a module."""
    calls = _functions(stacks, lambda name: name in {"_call_impl", "_wrapped_call_impl"})
    forwards = _functions(stacks, lambda name: name == "forward")
    return (_files(stacks, _CALLING.search) & calls) | (python_frames(stacks) & forwards)


def tell_origins(stacks: Stacks) -> NDArray[np.uint8]:
    """The `Origin` of each stack. If a stack shows several, the later one in `_telling` counts, as it runs inside the
    earlier: an optimizer's closure calls the model."""
    python = python_frames(stacks)
    has_python = holding(stacks, python)
    reported = np.where(has_python, Origin.PROGRAM, Origin.UNKNOWN).astype(np.uint8)
    for origin, frames in _telling(stacks):
        reported[holding(stacks, frames)] = origin
    on_threads = _begin_in_torch(stacks, python) | (~has_python & ~holding(stacks, ~python) & has_python.any())
    on_threads[0] &= has_python.any()
    reported[on_threads & (reported != Origin.WORKSPACE)] = Origin.BACKWARD
    return reported


def tell_origins_of_entries(history: History, origins: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The `Origin` of each entry of the history. If no free has a stack, as with ``context="alloc"``, an empty stack is
    no sign of the backward pass."""
    reported = origins[history.stack]
    frees = np.isin(history.action, (Action.FREE_REQUESTED, Action.FREE_COMPLETED))
    if not history.stack[frees].any():
        reported[frees] = Origin.UNKNOWN
    return reported


def known_moments(stacks: Stacks) -> int:
    """How many tensors like each parameter the program's optimizer keeps, as far as its frames tell; 0 if they do not,
    or if several optimizers differ in that."""
    own = [match["name"] for file in stacks.files if (match := _OPTIMIZER_FILE.search(file.replace("\\", "/")))]
    kept = {_MOMENTS.get(name, 0) for name in own if name not in _ALL_OPTIMIZERS}
    return kept.pop() if len(kept) == 1 else 0


def _telling(stacks: Stacks) -> tuple[tuple[Origin, Bools], ...]:
    """The frames that show each origin of a stack that holds them."""
    modules, optimizers = _files(stacks, _MODULES.search), _files(stacks, _OPTIMIZERS.search)
    clears = _functions(stacks, lambda name: name == "zero_grad")
    loads = _functions(stacks, lambda name: name in {"load_state_dict", "from_pretrained"})
    builds = modules & _functions(stacks, lambda name: name in {"__init__", "_apply", "reset_parameters"})
    engine = _functions(stacks, _ENGINE.search)
    backs = _functions(stacks, lambda name: name in {"backward", "grad", "_make_grads", "_engine_run_backward"})
    return (
        (Origin.UNKNOWN, _files(stacks, _DISTRIBUTED.search)),
        (Origin.BUILDING, builds | loads),
        (Origin.OPTIMIZER, optimizers & ~clears),
        (Origin.CLEARING, clears),
        (Origin.FORWARD, calling_frames(stacks)),
        (Origin.BACKWARD, (_files(stacks, _AUTOGRAD.search) & backs) | engine),
        (Origin.WORKSPACE, _functions(stacks, _WORKSPACES.search)),
    )


def _begin_in_torch(stacks: Stacks, python: Bools) -> Bools:
    """The stacks whose outermost Python frame is PyTorch's, while a program's threads begin in the program or in
    Python's library. There the backward pass calls back into Python, for a function of the program or to recompute a
    checkpoint."""
    first = outermost(stacks, python)
    begins = np.zeros(len(first), dtype=bool)
    known = np.flatnonzero(first != NONE)
    begins[known] = _files(stacks, _TORCH.search)[stacks.frames[first[known]]]
    return begins


def _files(stacks: Stacks, accept: Callable[[str], object]) -> Bools:
    """The distinct frames whose file ``accept`` is true for."""
    accepted = np.array([bool(accept(file.replace("\\", "/"))) for file in stacks.files], dtype=bool)
    return _of_table(accepted, stacks.file)


def _functions(stacks: Stacks, accept: Callable[[str], object]) -> Bools:
    """The distinct frames whose function ``accept`` is true for."""
    return _of_table(np.array([bool(accept(name)) for name in stacks.functions], dtype=bool), stacks.function)


def _of_table(accepted: Bools, codes: Int32s) -> Bools:
    return accepted[codes] if len(accepted) else np.zeros(len(codes), dtype=bool)
