"""What each piece of memory is for: parameters, gradients, an optimizer's state, activations, …

That follows from where it was allocated, where it was freed, and its size: a gradient is as large as a parameter. If
these do not say, the purpose is unknown. Memory that is older than the history has a name of its own.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from profkit.derive.memory.allocations import Allocations
from profkit.derive.memory.origins import Origin
from profkit.trace.events import NONE, Bools, Int64s, Rows
from profkit.trace.snapshot.columns import Action, History
from profkit.trace.statistics import among

_WORKSPACE_BYTES = np.array([8_519_680, 33_554_432, 1_048_576], dtype=np.int64)
"""PyTorch's default for a thread and stream: for cuBLAS on other GPUs and on Hopper, and for cuBLASLt
(``aten/src/ATen/cuda/CublasHandlePool.cpp``)."""


class Purpose(IntEnum):
    """What a piece of memory is for."""

    UNKNOWN = 0
    PARAMETERS = 1
    """And buffers: allocated where a module is made, moved or loaded."""
    GRADIENTS = 2
    OPTIMIZER_STATE = 3
    ACTIVATIONS = 4
    """Left behind by calls of the model, for the backward pass or as their result."""
    TEMPORARIES = 5
    """Freed before the end of the pass or step that it was allocated in."""
    WORKSPACE = 6
    GRAPH_POOL = 7
    """In a private pool, such as that of a CUDA graph."""
    OWN = 8
    """Inputs, and whatever else the program itself makes outside the model."""
    EARLIER = 9
    """Older than the history, which says nothing about it."""
    COPIES = 10
    """Older than the history, and as many and as large as the parameters once or several times over: a momentum, or a
    copy of the model such as an average of its weights."""


LABELS = {
    Purpose.PARAMETERS: "parameters and buffers",
    Purpose.GRADIENTS: "gradients",
    Purpose.OPTIMIZER_STATE: "optimizer state",
    Purpose.COPIES: "optimizer state or copies of the parameters",
    Purpose.ACTIVATIONS: "activations",
    Purpose.TEMPORARIES: "temporaries",
    Purpose.WORKSPACE: "workspace of libraries",
    Purpose.GRAPH_POOL: "graph pools",
    Purpose.OWN: "inputs and the program's own tensors",
    Purpose.EARLIER: "allocated before the history begins",
    Purpose.UNKNOWN: "unknown",
}
"""In the order in which reports tell them."""


def label_of(purpose: Purpose, has_history: bool) -> str:
    """The label of a purpose on a device of which a history was kept or not."""
    return "without a record" if purpose is Purpose.EARLIER and not has_history else LABELS[purpose]


def tell_purposes(
    history: History, found: Allocations, origins: NDArray[np.uint8], entries: NDArray[np.uint8], moments: int
) -> NDArray[np.uint8]:
    """The `Purpose` of each allocation, by the origins of the stacks and of the history's entries. ``moments`` is how
    many tensors like a parameter the optimizer is known to keep for each."""
    is_made, is_freed = found.made_by >= 0, found.freed_by >= 0
    made_in = np.where(is_made | (found.stack > 0), origins[found.stack], Origin.UNKNOWN)
    freed_in = np.full(len(found), Origin.UNKNOWN, dtype=np.uint8)
    freed_in[is_freed] = entries[found.freed_by[is_freed]]
    outlived_backward = _heard(entries == Origin.BACKWARD, found)
    purpose = np.full(len(found), Purpose.UNKNOWN, dtype=np.uint8)
    purpose[~is_made & (found.stack == 0)] = Purpose.EARLIER
    purpose[made_in == Origin.BUILDING] = Purpose.PARAMETERS
    purpose[made_in == Origin.PROGRAM] = Purpose.OWN
    purpose[made_in == Origin.FORWARD] = Purpose.ACTIVATIONS
    purpose[(made_in == Origin.FORWARD) & (freed_in == Origin.FORWARD) & ~outlived_backward] = Purpose.TEMPORARIES
    waits = np.isin(made_in, (Origin.PROGRAM, Origin.FORWARD)) | (purpose == Purpose.EARLIER)
    purpose[waits & (freed_in == Origin.BACKWARD)] = Purpose.ACTIVATIONS
    older = purpose == Purpose.EARLIER
    purpose[(made_in == Origin.OPTIMIZER) | (older & (freed_in == Origin.OPTIMIZER))] = Purpose.OPTIMIZER_STATE
    within = ~_heard(entries != Origin.OPTIMIZER, found)
    purpose[(made_in == Origin.OPTIMIZER) & (freed_in == Origin.OPTIMIZER) & within] = Purpose.TEMPORARIES
    ends_in_backward = bool(len(entries)) and bool(entries[-1] == Origin.BACKWARD)
    _tell_gradients(found, purpose, made_in, freed_in, ends_in_backward)
    purpose[made_in == Origin.WORKSPACE] = Purpose.WORKSPACE
    purpose[_workspaces(history, found, purpose, made_in)] = Purpose.WORKSPACE
    purpose[found.pool > 0] = Purpose.GRAPH_POOL
    _tell_older_parameters(history, found, purpose, entries, moments)
    return purpose


def _tell_older_parameters(
    history: History, found: Allocations, purpose: NDArray[np.uint8], entries: NDArray[np.uint8], moments: int
) -> None:
    """Find parameters among the pieces that are older than the history and outlive all training in it: of each size
    there are as many as gradients at once, or as many again for each tensor that is kept beside a parameter. If an
    optimizer ran that is known to keep some, they are its state. Nothing shows what the others are, nor is any size
    judged of which there are fewer."""
    gradients = purpose == Purpose.GRADIENTS
    if not gradients.any() or (purpose == Purpose.PARAMETERS).any():
        return
    for device in np.unique(found.device[gradients]):
        mine = found.device == device
        trains = (history.device == device) & np.isin(entries, (Origin.FORWARD, Origin.BACKWARD, Origin.OPTIMIZER))
        last = int(np.flatnonzero(trains).max(initial=NONE))
        older = mine & (purpose == Purpose.EARLIER) & (found.is_held | (found.freed_by > last))
        sizes, counts = _most_at_once(history, found, gradients & mine)
        held = _counts_of(sizes, found.requested_bytes[older])
        copies = _commonest((held // counts)[held >= counts] - 1, (sizes * counts)[held >= counts])
        if copies is None or 2 * (sizes * counts)[held >= counts * (copies + 1)].sum() < (sizes * counts).sum():
            continue
        is_new = bool((mine & (purpose == Purpose.OPTIMIZER_STATE)).any())
        state = moments if copies >= moments and not is_new else 0
        parts = (Purpose.PARAMETERS, *[Purpose.OPTIMIZER_STATE] * state, *[Purpose.COPIES] * (copies - state))
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            pieces = np.flatnonzero(older & (found.requested_bytes == size))
            if len(pieces) >= count * len(parts):
                purpose[pieces[: count * len(parts)]] = np.repeat(np.array(parts, dtype=np.uint8), count)


def _most_at_once(history: History, found: Allocations, pieces: Bools) -> tuple[Int64s, Int64s]:
    """The sizes of these pieces of a device, and how many of each there are when there are most."""
    change = np.zeros(len(history) + 1, dtype=np.int64)
    np.add.at(change, found.made_by[pieces] + 1, 1)
    np.add.at(change, found.freed_by[pieces & ~found.is_held] + 1, -1)
    row = int(np.cumsum(change).argmax()) - 1
    at_once = pieces & (found.made_by <= row) & (found.is_held | (found.freed_by > row))
    sizes, counts = np.unique(found.requested_bytes[at_once], return_counts=True)
    return sizes, counts.astype(np.int64)


def _counts_of(sizes: Int64s, values: Int64s) -> Int64s:
    """How many of the values equal each of the sizes, which are sorted."""
    values = np.sort(values)
    return np.searchsorted(values, sizes, side="right") - np.searchsorted(values, sizes, side="left")


def _commonest(values: Int64s, weights: Int64s) -> int | None:
    """The value with most weight."""
    known, at = np.unique(values, return_inverse=True)
    return int(known[np.bincount(at, weights, len(known)).argmax()]) if len(known) else None


def _tell_gradients(
    found: Allocations, purpose: NDArray[np.uint8], made_in: Int64s, freed_in: NDArray[np.uint8], is_in_backward: bool
) -> None:
    """Gradients are what the backward pass allocates and does not free, if it is as large as a parameter where
    parameters are known. Pieces of other sizes belong to a pass that is not over, or to something else."""
    parameters = found.requested_bytes[purpose == Purpose.PARAMETERS]
    fits = among(found.requested_bytes, parameters) if len(parameters) else np.ones(len(found), dtype=bool)
    backward, cleared = made_in == Origin.BACKWARD, freed_in == Origin.CLEARING
    stays = backward & (freed_in != Origin.BACKWARD)
    purpose[backward & ~stays] = Purpose.TEMPORARIES
    purpose[(stays & fits) | (cleared & (backward | (purpose == Purpose.EARLIER)))] = Purpose.GRADIENTS
    if is_in_backward:
        purpose[stays & ~fits & ~cleared & found.is_held] = Purpose.TEMPORARIES


def _workspaces(history: History, found: Allocations, purpose: NDArray[np.uint8], made_in: Int64s) -> Rows:
    """The workspaces that no C++ frames name: pieces of the usual sizes that are never freed. On the program's threads
    they follow another allocation of the same stack, as an operator asks for them after its result. On those of the
    backward pass no parameter is as large. A thread and stream has one of each size."""
    usual = among(found.requested_bytes, _WORKSPACE_BYTES) & found.is_held & (found.made_by >= 0)
    beside = np.zeros(len(found), dtype=bool)
    at = np.flatnonzero(usual & (found.made_by > 0))
    beside[at] = _follows_its_like(history, found.made_by[at])
    parameters = found.requested_bytes[purpose == Purpose.PARAMETERS]
    odd = ~among(found.requested_bytes, parameters) if len(parameters) else np.zeros(len(found), dtype=bool)
    ahead = np.isin(made_in, (Origin.PROGRAM, Origin.FORWARD)) & beside
    wanted = np.flatnonzero(usual & (ahead | ((made_in == Origin.BACKWARD) & odd)))
    stream = history.stream[found.made_by[wanted]]
    keys = np.stack([found.device[wanted], made_in[wanted] == Origin.BACKWARD, stream, found.requested_bytes[wanted]])
    return wanted[np.unique(keys, axis=1, return_index=True)[1]] if len(wanted) else wanted


def _follows_its_like(history: History, rows: Rows) -> Bools:
    """Whether the allocation before each of these has the same stack, with only segments' entries in between."""
    allocations = np.flatnonzero(np.isin(history.action, (Action.ALLOC, Action.FREE_REQUESTED)))
    before = allocations[(np.searchsorted(allocations, rows) - 1).clip(min=0)]
    same = (history.action[before] == Action.ALLOC) & (history.stack[before] == history.stack[rows]) & (before < rows)
    follows: Bools = same & (history.device[before] == history.device[rows])
    return follows


def _heard(rows: Bools, found: Allocations) -> Bools:
    """Whether one of these rows of the history lies between the allocation and the end of each piece."""
    count = np.concatenate([[0], np.cumsum(rows)])
    end = np.where(found.freed_by >= 0, found.freed_by, len(rows))
    heard: Bools = count[end] > count[found.made_by + 1]
    return heard
