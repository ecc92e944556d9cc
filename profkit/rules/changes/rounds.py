"""What the rounds of a loop may not do if its calls of a cell become one call of a layer before it."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import called_in, is_set, lies_in, mutated, names_in, scope_of, uses

_TAPPING = frozenset(
    (
        "register_hook",
        "retain_grad",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    )
)
"""Methods that hear of each round: its state as a tensor, or the call of the cell."""
_TRAINING = frozenset(("backward", "step", "set_grad_enabled"))
"""Called in each round they change the weights between two rounds, or which rounds have gradients."""
_MEASURING = frozenset(("len", "size", "min", "max", "int"))
"""Functions that can be called once more: a number of rounds is then written twice."""
_LISTS = frozenset(("list", "tuple", "unbind", "chunk", "split", "sorted", "zip", "map", "DataLoader", "deque"))
"""Functions that return no tensor, though loops take items of it."""
_LITERALS = (libcst.List, libcst.Tuple, libcst.ListComp, libcst.GeneratorExp, libcst.Dict, libcst.DictComp)


def refuse_other_rounds(
    text: ProgramText, loop: libcst.For, given: libcst.BaseExpression, index: str, own: libcst.CSTNode | None
) -> None:
    """Raise `Refused` if rounds differ from those of a sequence: the input ``given`` or the ``index`` is changed
    before the call, by a line other than ``own``; weights change; or somebody hears of each round."""
    inputs = names_in(given) if isinstance(given, libcst.Name) else set()
    for name in sorted(inputs | ({index} if index else set())):
        for one in uses(text, loop.body, name):
            if is_set(text, one) and not lies_in(text, one, own):
                raise Refused(f"line {text.line_of(one)} changes `{name}` in each round")
        if mutated(text, loop.body, {name}):
            raise Refused(f"`{name}` is changed in place in each round")
    if _TRAINING & called_in(loop.body):
        raise Refused("the loop trains in its rounds, or turns gradients on and off")
    if tapped := _TAPPING & names_in(text.module):
        raise Refused(f"`{min(tapped)}` hears of each round")


def refuse_no_tensor(text: ProgramText, loop: libcst.For, source: libcst.BaseExpression) -> None:
    """Raise `Refused` if what the loop takes items of is known to be a list: a layer takes one tensor."""
    if not isinstance(source, libcst.Name):
        return
    kinds = [text_of(one.annotation.annotation) for one in _parameters(text, loop, source.value) if one.annotation]
    is_other = any("Tensor" not in kind or "[" in kind for kind in kinds)
    if is_other or any(map(_is_list, _values(text, loop, source.value))):
        raise Refused(f"`{source.value}` is no tensor but a list")


def refuse_no_state(text: ProgramText, loop: libcst.For, source: str) -> None:
    """Raise `Refused` if what a state begins as may be None: a cell takes that, too."""
    values = [text_of(one) for one in _values(text, loop, source)]
    values += [text_of(one.default) for one in _parameters(text, loop, source) if one.default is not None]
    if source == "None" or values == ["None"]:
        raise Refused(f"nothing shows that `{source}` is a tensor")


def _values(text: ProgramText, near: libcst.CSTNode, name: str) -> list[libcst.BaseExpression]:
    """What a variable is set to in the function."""
    scope = scope_of(text, near)
    parts = [part for part in text.nodes(libcst.Assign) if scope_of(text, part) is scope]
    return [part.value for part in parts if any(text_of(one.target) == name for one in part.targets)]


def _parameters(text: ProgramText, near: libcst.CSTNode, name: str) -> list[libcst.Param]:
    """Those of the function that have this name."""
    scope = scope_of(text, near)
    return [one for one in text.nodes(libcst.Param) if one.name.value == name and scope_of(text, one) is scope]


def _is_list(value: libcst.BaseExpression) -> bool:
    return isinstance(value, _LITERALS) or (isinstance(value, libcst.Call) and called_name(value) in _LISTS)


def refuse_uncertain_number(rounds: libcst.BaseExpression) -> None:
    """Raise `Refused` if a number of rounds may be another one if it is computed again."""
    is_plain = not matchers.findall(rounds, matchers.NamedExpr() | matchers.Lambda() | matchers.Await())
    if not is_plain or called_in(rounds) - _MEASURING:
        raise Refused("how many rounds there are is computed in the loop's head")


def refuse_earlier_reads(text: ProgramText, loop: libcst.For, own: libcst.CSTNode, state: str) -> None:
    """Raise `Refused` if a round reads the state of the one before, which a loop over all states does not have."""
    for one in uses(text, loop.body, state):
        if text.line_of(one) < text.line_of(own):
            raise Refused(f"line {text.line_of(one)} reads the `{state}` of the round before")


def refuse_later_reads(text: ProgramText, loop: libcst.For, names: set[str]) -> None:
    """Raise `Refused` if something outside of a loop reads its variables, which go with it."""
    for name in sorted(names - {""}):
        for one in uses(text, scope_of(text, loop), name):
            around = [*text.ancestors(one)]
            if not any(parent is loop or _gives(parent, name) for parent in around) and not is_set(text, one):
                raise Refused(f"line {text.line_of(one)} reads `{name}` outside of the loop")


def _gives(node: libcst.CSTNode, name: str) -> bool:
    """Whether a loop or a comprehension sets a variable for what lies in it."""
    if isinstance(node, libcst.BaseComp):
        return name in names_in(node.for_in)
    return isinstance(node, libcst.For) and name in names_in(node.target)
