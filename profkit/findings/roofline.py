"""What the device could do, as a diagnosis tells it: its roofs, and the launches of a step below them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """All calls of ``operator`` with these inputs in a step, a mean: ``count`` of them take ``step_ns``. One
    call has that many floating-point ``operations`` of products and moves ``bytes``. ``of_possible`` is the share of
    what the device could do, 1 at the roof. ``rate`` names the type whose peak rate counts; ``limit`` is ``memory`` or
    ``arithmetic``, whichever roof is lower there."""

    operator: str
    family: str
    shapes: str
    rate: str
    count: float
    step_ns: int
    operations: float
    bytes: float
    operations_per_s: float
    bytes_per_s: float
    of_possible: float
    limit: str


@dataclass(frozen=True, slots=True)
class RooflineFamily:
    """The same for all calls of one family. ``fraction`` is its share of the device's work."""

    family: str
    step_ns: int
    fraction: float
    count: float
    operations_per_s: float
    bytes_per_s: float
    of_possible: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """How near a step comes to what ``device`` could do. ``peaks`` are its operations per second by type, ``bandwidth``
    its memory's bytes per second; ``origin`` says where these come from. ``counted`` is the share of the device's work
    whose operations and bytes are known. ``utilisation`` is the step's operations over what the device could compute
    in ``step_ns`` (MFU). ``points`` are the largest by time, at most some tens."""

    device: str
    origin: str
    bandwidth: float
    peaks: Mapping[str, float] = field(default_factory=dict)
    step_ns: int = 0
    worked_ns: int = 0
    counted: float = 0.0
    operations: float = 0.0
    utilisation: float = 0.0
    families: tuple[RooflineFamily, ...] = ()
    points: tuple[RooflinePoint, ...] = ()
    more_points: int = 0
