"""How a predicted saving came about: what was taken out of the step, and how the replayed step changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TakenFrom(str, Enum):
    """Whose time it is."""

    HOST = "host"
    """Events of the host, such as operators."""
    STRETCH = "stretch"
    """Stretches of the host's time with all that runs in them, such as a whole loop; they have no name."""
    DEVICE = "device"
    """The device's work: kernels and copies."""
    WAIT = "wait"
    """Waits of the host for the device. What a wait gives back depends on what else the host then waits for."""
    RANK = "rank"
    """A rank's own work between its waits for others."""
    TRANSFER = "transfer"
    """Collectives and messages, from the start of their last rank on."""
    EARLIER = "earlier"
    """Collectives and messages that ranks ask for this much earlier."""


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Pieces of one name that a fix shortens, in a step: their number, how long they take in all, and what stays. What
    lies inside another piece counts with that one. In a launch the figures are sums over all ranks."""

    name: str
    origin: TakenFrom
    count: float
    took_ns: int
    kept_ns: int


@dataclass(frozen=True, slots=True)
class Account:
    """How a saving came about.

    ``taken`` are the pieces that the fix shortens, those that give back most first; ``more`` counts the names that are
    left out, and ``more_ns`` is what these give back. ``step_ns`` is the length of a measured step in the replay, where
    nothing that the recording added counts, and ``edited_ns`` its length with the fix. If several places are priced
    together, all of this is about all of them, and ``part`` is this place's share (else 1.0). ``uncertainty`` is how
    far the model behind the kept times may be off, as a share of the saving either way; ``spread`` is how much the
    measured steps differ."""

    taken: tuple[TakenOut, ...]
    step_ns: int
    edited_ns: int
    uncertainty: float
    spread: float
    more: int = 0
    more_ns: int = 0
    part: float = 1.0

    @property
    def fraction(self) -> float:
        """The share of the step that all of it gives back together."""
        return max(0.0, (self.step_ns - self.edited_ns) / max(self.step_ns, 1))
