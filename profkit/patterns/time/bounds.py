"""Who bounds the step, by the table of where its time goes: the same rows decide and are shown.

A step is the device's if that works for nearly all of it. It is the host's if the device idles for most of it while the
host does something that is named. If most of it passes though work is queued, or while the host waits for work that is
missing, nothing in the recording bounds it. Everything else is a mixture, whose rows are told. What passes before the
first kernel begins belongs to neither, and the rest is judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from profkit.patterns.time.idling import QUEUED, UNRECORDED_WAIT
from profkit.patterns.time.shares import BETWEEN, DEVICE, FIRST_LAG, IDLE, NO_HOST

_NEARLY_ALL = 0.9
"""If the device works for this share of the step, a faster host gives back at most the rest."""
_MOST = 0.5
_UNRECORDED = (f"{IDLE}{QUEUED}", f"{IDLE}{UNRECORDED_WAIT}", NO_HOST)


class Bound(str, Enum):
    """What a step waits for."""

    DEVICE = "device"
    HOST = "host"
    MIXTURE = "mixture"
    UNRECORDED = "unrecorded"


def is_of_device(label: str) -> bool:
    """Whether the row is time that the device takes, the pauses between its queued kernels included."""
    return label.startswith(DEVICE)


def is_busy(label: str) -> bool:
    """Whether recorded or proven work of the device runs in the time of this row."""
    return is_of_device(label) and label != BETWEEN


def is_unrecorded(label: str) -> bool:
    """Whether the device idles in the time of this row for a reason that was not recorded."""
    return label in _UNRECORDED


def is_of_host(label: str) -> bool:
    """Whether the device idles in the time of this row, and what the host does meanwhile is known."""
    return label.startswith(IDLE) and not is_unrecorded(label) and label != FIRST_LAG


def find_bound(rows: Iterable[tuple[str, float]]) -> Bound | None:
    """What the step waits for, by the rows of its table; None without a device."""
    parts = [(label, time) for label, time in rows if label != FIRST_LAG]
    device, host, unrecorded = (
        sum(time for label, time in parts if belongs(label)) for belongs in (is_of_device, is_of_host, is_unrecorded)
    )
    whole = device + host + unrecorded
    if whole <= 0:
        return None
    if device >= _NEARLY_ALL * whole:
        return Bound.DEVICE
    if unrecorded > _MOST * whole:
        return Bound.UNRECORDED
    return Bound.HOST if host > _MOST * whole else Bound.MIXTURE
