"""Functions that give something else each time they are called, by their names."""

from __future__ import annotations

import libcst

from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import called_in

_ALIVE = frozenset(
    (
        "bernoulli",
        "choice",
        "dropout",
        "get",
        "input",
        "multinomial",
        "next",
        "normal",
        "perf_counter",
        "permutation",
        "poisson",
        "read",
        "readline",
        "sample",
        "shuffle",
        "time",
        "uniform",
    )
)
"""Functions that give something else each time they are called."""


def refuse_alive(value: libcst.CSTNode) -> None:
    """Raise `Refused` if an expression, or a function, calls what gives something else each time."""
    if alive := {name for name in called_in(value) if name in _ALIVE or name.startswith("rand")}:
        raise Refused(f"the line calls `{min(alive)}`, which gives something else each time")
