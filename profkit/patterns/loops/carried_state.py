"""What the source of a loop's lines says about a state that some of them carry from round to round: do they also take
the next part of a sequence that exists before the loop, with the same weights each time?"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from msgspec import Struct

from profkit.patterns.loops.loop_source import OF_TENSORS
from profkit.source.statements import assigned_names, derived_names, effect_of, names_in
from profkit.source.syntax import only_names, parse_line, parse_statements

_CASTS = frozenset(("bool", "double", "float", "half", "int", "long", "size"))
"""Methods of tensors, besides those that compute, that may be called on an input."""


class CarriedState(Struct, frozen=True):
    """``takes_sequence``: the lines compute a new state from the old one and from what the loop's head or counter
    picks, none of which comes from an earlier round. ``keeps_state``: no other line assigns the state."""

    takes_sequence: bool = False
    keeps_state: bool = False


def read_carried_state(state_lines: Sequence[str], body_lines: Iterable[str]) -> CarriedState:
    """Follow the names from what ``state_lines`` assign, in order, through the other lines of the loop.

    Nothing is known if a line cannot be parsed, or if a test reads a result: that test may end the loop.
    """
    lines = list(body_lines)
    body = [part for line in lines for part in parse_statements(line)]
    # of `for t in range(n): h = cell(x[t], h)` on one line, the head is the body's
    cells = [part for line in state_lines for part in parse_statements(line) if not isinstance(part, ast.For)]
    assigning = [line for line in cells if isinstance(line, ast.Assign) and _is_plain(line)]
    if not all(map(parse_line, lines)) or len(assigning) < len(cells) or not cells:
        return CarriedState()
    written, read = _written_and_read(assigning)
    texts = {ast.dump(line) for line in assigning}
    others = [line for line in body if ast.dump(line) not in texts]
    effects = [effect_of(line) for line in others]
    made = set[str]().union(*(effect.changes for effect in effects))
    rounds = _changing(others)
    varied, derived = derived_names(rounds, effects), derived_names(written, effects)
    given = read - written
    branches = [line for line in others if isinstance(line, (ast.If, ast.Try, ast.Match, ast.Break))]
    tests = set[str]().union(*(names_in(line) for line in others if isinstance(line, (ast.If, ast.Match, ast.While))))
    picked = {name for line in others if isinstance(line, ast.For) for name in names_in(line.target)}
    takes = (
        bool(written & read and given & varied)
        and not given & derived
        and not tests & derived
        and not (branches and given & (made - picked))
        and has_steady_weights(state_lines, (made | varied) - (written & read))
    )
    return CarriedState(takes, not branches and not written & read & made)


def has_steady_weights(lines: Iterable[str], changing: set[str]) -> bool:
    """Whether these lines call the same functions and modules each time, with at most one argument that changes and
    none that could be a weight. Layers of a stack differ in all of that."""
    parsed = [part for line in lines for part in parse_statements(line)]
    assigned = changing.union(*(effect_of(line).changes for line in parsed))
    calls = [node for line in parsed for node in ast.walk(line) if isinstance(node, ast.Call)]
    return all(_is_steady(call, changing, assigned) for call in calls)


def _is_steady(call: ast.Call, changing: set[str], assigned: set[str]) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in OF_TENSORS | _CASTS:
        return True
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    weights = arguments[1:] if method == "linear" else []
    return (
        isinstance(root, ast.Name)
        and root.id not in assigned
        and sum(bool(names_in(part) & changing) for part in arguments) <= 1
        and not any(names_in(part) & assigned or isinstance(part, ast.Subscript) for part in weights)
    )


def _is_plain(line: ast.Assign) -> bool:
    """Whether a line assigns the result of one expression and does not swap values."""
    return only_names(line.targets) is not None and not isinstance(line.value, ast.Tuple)


def _written_and_read(lines: list[ast.Assign]) -> tuple[set[str], set[str]]:
    """What the lines assign, and what they read that none of them has assigned before."""
    written, read = set[str](), set[str]()
    for line in lines:
        read |= names_in(line.value) - written
        written |= assigned_names(*line.targets)
    return written, read


def _changing(lines: list[ast.stmt]) -> set[str]:
    """The names that heads of loops vary, and counters."""
    names = set[str]()
    for line in lines:
        effect = effect_of(line)
        if isinstance(line, ast.For):
            names |= names_in(line.target)
        elif isinstance(line, ast.AugAssign) or (isinstance(line, ast.Assign) and effect.changes & effect.reads):
            names |= effect.changes
    return names
