"""Groups of rows that are looked for one after another: a tensor is compared with a value, and rows are picked where it
is equal, again and again."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.families import base_name
from profkit.patterns.calls import Call
from profkit.patterns.flow.followed import FollowedCalls, followed_calls
from profkit.patterns.step_calls import step_calls
from profkit.patterns.used.picked import PICKING, picked_shares
from profkit.trace.events import Rows

_LEAST_ROWS = 1024
"""Fewer are scanned faster than an operator starts."""
_MOST_PICKED = 1.25
"""All groups together, as a share of the rows: each row is in one group, and some are picked twice over."""


class GroupScan(Struct, frozen=True):
    """Comparisons of the located step of one tensor of so many ``elements``, the ``compared`` operators, and the
    ``picking`` ones by their results, with the ``shares`` that each picks."""

    elements: int
    compared: list[int]
    picking: list[int]
    shares: list[float]


@derived_once
def group_scans(facts: Facts) -> tuple[GroupScan, ...] | None:
    """None if the data flow was not recorded, or the memory of what is picked."""
    followed = followed_calls(facts)
    if followed is None or not facts.memory.present:
        return None
    step = step_calls(facts)
    shares = {int(step.rows[place]): share for place, share in picked_shares(facts, step).items()}
    found: dict[tuple[int, int], GroupScan] = {}
    for number, elements, users in _comparisons(followed):
        picking = [followed.row[user] for user in users]
        known = [shares[row] for row in picking if row in shares]
        if len(known) < len(picking):
            continue
        scan = found.setdefault((followed.takes(number)[0], elements), GroupScan(elements, [], [], []))
        scan.compared.append(followed.row[number])
        scan.picking.extend(picking)
        scan.shares.extend(known)
    return tuple(scan for scan in found.values() if _are_apart(scan))


def _comparisons(followed: FollowedCalls) -> Iterator[tuple[int, int, list[int]]]:
    """The calls that compare a row of values with one of them, the length of the row, and the calls that pick by the
    result. One whose result anything else takes is needed as it is."""
    for number, call in followed.operator.items():
        users = sorted(followed.users.get(number, ()))
        if base_name(call.name) != "eq" or not users or not followed.takes(number):
            continue
        elements = _length_of(call)
        if elements >= _LEAST_ROWS and all(base_name(followed.operator[user].name) in PICKING for user in users):
            yield number, elements, users


def _length_of(call: Call) -> int:
    """The length of the row that is compared with one number, 0 if other things are compared."""
    row, *others = [tuple(shape) for shape in call.shapes] or [()]
    return row[0] if len(row) == 1 and all(math.prod(other) == 1 for other in others) else 0


def _are_apart(scan: GroupScan) -> bool:
    """Whether no row can be in many groups, so that picking them all moves the rows about once."""
    return sum(scan.shares) * len(scan.compared) <= _MOST_PICKED * len(scan.shares)


def rows_of_scan(scan: GroupScan) -> Rows:
    """The operators of the scan, those of the located step."""
    return np.array([*scan.compared, *scan.picking], dtype=np.int64)
