"""The words in a snapshot that profkit understands, since PyTorch 2.1."""

from __future__ import annotations

from enum import IntEnum

from profkit.trace.snapshot.columns import Action, State


class Word(IntEnum):
    """Keys."""

    ACTION = 0
    ADDR = 1
    DEVICE_FREE = 2
    """Replaces the address if memory ran out."""
    SIZE = 3
    STREAM = 4
    TIME_US = 5
    """Since 2.2."""
    FRAMES = 6
    STATE = 7
    ADDRESS = 8
    REQUESTED_SIZE = 9
    BLOCKS = 10
    TOTAL_SIZE = 11
    SEGMENT_TYPE = 12
    SEGMENT_POOL_ID = 13
    """Since 2.1; a trace's ``pool_id`` is not needed."""
    IS_EXPANDABLE = 14
    DEVICE = 15
    NAME = 16
    FILENAME = 17
    LINE = 18
    SEGMENTS = 19
    DEVICE_TRACES = 20
    ALLOCATOR_SETTINGS = 21
    LARGE = 22
    REAL_SIZE = 23
    HISTORY = 24
    """Until 2.0: the block's allocations, each with ``real_size`` and ``frames``. It belongs to the last."""


FIRST_ACTION = 32
"""Above the numbers of all keys."""
FIRST_STATE = 64
"""Above those of all actions."""
_STATES = {
    "inactive": State.INACTIVE,
    "active_allocated": State.ACTIVE,
    "active_awaiting_free": State.PENDING_FREE,  # as `torch.cuda.memory._snapshot` writes it
    "active_pending_free": State.PENDING_FREE,  # as C++ writes it by itself
}
WORDS: dict[bytes, int] = {
    **{word.name.lower().encode(): int(word) for word in Word},
    **{action.name.lower().encode(): FIRST_ACTION + action for action in Action if action is not Action.OTHER},
    **{name.encode(): FIRST_STATE + state for name, state in _STATES.items()},
}
