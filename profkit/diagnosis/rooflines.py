"""The measured steps on the roofline, as values that reports show."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.core.errors import UsageError
from profkit.derive.device.generated import parse_generated
from profkit.derive.facts import Facts
from profkit.findings.roofline import Roofline, RooflineFamily, RooflinePoint
from profkit.savings.cost_models.devices import (
    PRESUMED,
    find_rates,
    known_cards,
    presumed_rates,
    rates_of,
    why_no_rates,
)
from profkit.savings.roofline import launches
from profkit.savings.roofline.calls import Call

_MOST_POINTS = 60
"""A picture with more is a cloud, and a diagnosis stays small."""
_MOST_SHAPES = 3
"""Of a call: what follows are biases and statistics."""


_LEAST_COUNTED = 0.25
"""Of the device's work: figures for less would pass for those of the step."""


def tell_roofline(facts: Facts) -> Roofline | None:
    """What a diagnosis tells: of a device only, as a call recorded on a processor takes longer than its arithmetic, and
    only where a good part of the work is counted. `profkit roofline` tells what there is."""
    found = describe_roofline(facts) if facts.device.present else None
    return None if found is None or found.counted < _LEAST_COUNTED else found


def describe_roofline(facts: Facts) -> Roofline | None:
    """None if the recording has no shapes or steps, or the device's rates are not known."""
    found = launches.roofline_of(facts) if facts.has_trace else None
    if found is None or not found.points:
        return None
    measured, is_presumed = facts.run.rates is found.rates, found.rates.device.startswith(PRESUMED)
    return Roofline(
        device=found.rates.device,
        origin="measured" if measured else ("kernels' names" if is_presumed else "data sheet"),
        bandwidth=found.rates.bandwidth,
        peaks=dict(found.rates.products),
        step_ns=int(found.step_ns),
        worked_ns=int(found.worked_ns),
        counted=round(found.counted, 4),
        operations=found.operations,
        utilisation=round(found.utilisation, 4),
        families=tuple(_families(found)),
        points=tuple(_point(one) for one in found.points[:_MOST_POINTS]),
        more_points=max(0, len(found.points) - _MOST_POINTS),
    )


def why_no_roofline(facts: Facts) -> str:
    """Why `describe_roofline` has nothing to tell."""
    if not facts.has_trace:
        return "it holds no operators or kernels"
    if not facts.operators.has_shapes:
        return "it holds no tensor shapes (record_shapes=True)"
    if rates_of(facts) is None and not facts.device.present:
        return "the rates of its processor were not measured (`profkit doctor` does so once, for later recordings)"
    if presumed_rates(facts) is None:
        return why_no_rates(facts)
    return "it holds no step with calls whose operations or bytes are known"


def check_card(card: str) -> None:
    """Raises `UsageError` if no data sheet is known for a card of this name."""
    if find_rates(card) is None:
        raise UsageError(f"--card {card}: no data sheet is known for it; known are {', '.join(known_cards())}")


def _point(one: launches.Point) -> RooflinePoint:
    return RooflinePoint(
        operator=str(parse_generated(one.call.name) or one.call.name),
        family=one.demand.kind.value,
        shapes=shapes_text(one.call),
        rate=one.rate,
        count=round(one.count, 2),
        step_ns=int(one.step_ns),
        operations=one.demand.operations,
        bytes=one.demand.bytes,
        operations_per_s=one.operations_per_s,
        bytes_per_s=one.bytes_per_s,
        of_possible=round(one.of_possible, 4),
        limit="memory" if one.is_memory_bound else "arithmetic",
    )


def shapes_text(call: Call) -> str:
    """``256x1024, 1024x512``: the first tensors of a call; of a list of tensors how many there are."""
    texts = []
    for shapes in call.shapes:
        if len(shapes) > 1:
            texts.append(f"{len(shapes)} tensors")
        elif shapes and shapes[0]:
            texts.append("x".join(map(str, shapes[0])))
    return ", ".join(texts[:_MOST_SHAPES])


def _families(found: launches.Roofline) -> Iterable[RooflineFamily]:
    """The one with most time first."""
    of: dict[str, list[launches.Point]] = {}
    for point in found.points:
        of.setdefault(point.demand.kind.value, []).append(point)
    for family, points in sorted(of.items(), key=lambda one: -sum(point.step_ns for point in one[1])):
        step_ns = sum(point.step_ns for point in points)
        yield RooflineFamily(
            family=family,
            step_ns=int(step_ns),
            fraction=round(step_ns / found.worked_ns, 4),
            count=round(sum(point.count for point in points), 2),
            operations_per_s=sum(point.count * point.demand.operations for point in points) / step_ns * 1e9,
            bytes_per_s=sum(point.count * point.demand.bytes for point in points) / step_ns * 1e9,
            of_possible=round(sum(point.of_possible * point.step_ns for point in points) / step_ns, 4),
        )
