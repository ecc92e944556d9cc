"""An attribute that grows by joining becomes a property: its parts are joined when somebody reads it, and kept so.

Whoever reads or sets it, in whatever file, gets what it was before.
"""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import Edit, ProgramText, called_name, followed_by, text_of
from profkit.rules.changes.bookkeeping import refuse_concurrent
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import fresh_name, is_set, lies_in, mutates, names_in, uses

_WATCHED = frozenset(
    ("__slots__", "__dict__", "__getattr__", "__getattribute__", "__setattr__", "__getstate__", "vars", "pickle")
)
"""Names by which a file may see that an attribute is none."""
_MAKING = frozenset(
    (
        "arange",
        "cat",
        "clone",
        "empty",
        "full",
        "ones",
        "rand",
        "randint",
        "randn",
        "stack",
        "tensor",
        "zeros",
    )
)
"""What these give belongs to nobody else."""
_PROPERTY = """
@property
def {name}(self):
    # joined when it is read; a reader without gradients does not cut off the parts' own
    if len(self.{parts}) > 1:
        with {torch}.enable_grad():
            self.{parts} = [{joined}]
    return self.{parts}[0]
"""
_SETTER = """
@{name}.setter
def {name}(self, value):
    self.{parts} = [value]
"""


def collect_parts(
    text: ProgramText, line: libcst.SimpleStatementLine, call: libcst.Call, part: libcst.BaseExpression
) -> bytes:
    """The file with the line's attribute as a property. Raises `Refused` if somebody might tell the two apart."""
    target = _target_of(line.body[0])
    name = target.attr.value
    method, kind = method_and_class(text, line)
    refuse_watched(text, kind, name)
    refuse_concurrent(text)
    if any(not _is_literal(one.value) or one.star for one in call.args[1:]):
        raise Refused("what the parts are joined by may be another one when they are read")
    own = [one for one in named(line, name) if text_of(one.value) == "self"]
    if len(own) != 2:
        raise Refused(f"what is joined to `self.{name}` is computed from it")
    parts = fresh_name(text, f"_{name}_parts")
    edits = _first_checks(text, method, line, name, parts)
    _refuse_other_owners(text, line, name)
    first = call.args[0].with_changes(value=libcst.parse_expression(f"self.{parts}"))
    joined = text_of(call.with_changes(args=[first, *call.args[1:]]))
    appended = text.parsed(f"self.{parts}.append({text_of(followed_by(part, 'clone'))})")
    edits[line] = lambda one: one.with_changes(body=appended.body)
    known = {"name": name, "parts": parts, "joined": joined, "torch": text.known_as("torch")}
    edits[method] = lambda one: _with_property(text, one, known)
    return text.edited(edits)


def _target_of(part: libcst.BaseSmallStatement) -> libcst.Attribute:
    assert isinstance(part, libcst.Assign)
    target = part.targets[0].target
    assert isinstance(target, libcst.Attribute)
    return target


def _with_property(
    text: ProgramText, method: libcst.FunctionDef, known: dict[str, str]
) -> libcst.FlattenSentinel[libcst.CSTNode]:
    getter, setter = (text.parsed(source.format(**known).lstrip()) for source in (_PROPERTY, _SETTER))
    between = libcst.EmptyLine(indent=False, newline=libcst.Newline())
    first = getter.with_changes(leading_lines=[one for one in method.leading_lines if one.comment is None])
    own = [between, *(one for one in method.leading_lines if one.comment is not None)]
    return libcst.FlattenSentinel(
        [first, setter.with_changes(leading_lines=[between]), method.with_changes(leading_lines=own)]
    )


def method_and_class(text: ProgramText, line: libcst.SimpleStatementLine) -> tuple[libcst.FunctionDef, libcst.ClassDef]:
    method = next((one for one in text.ancestors(line) if isinstance(one, libcst.FunctionDef)), None)
    kind = None if method is None else next(one for one in text.ancestors(method) if isinstance(one, _OWNERS))
    if method is None or not isinstance(kind, libcst.ClassDef) or method.decorators:
        raise Refused("the line stands in no plain method of a class")
    if any(text_of(base.value) != "object" for base in kind.bases) or kind.keywords or kind.decorators:
        raise Refused(f"`{kind.name.value}` has a base class or a decorator, which may know its attributes")
    return method, kind


_OWNERS = (libcst.ClassDef, libcst.FunctionDef, libcst.Module)


def refuse_watched(text: ProgramText, kind: libcst.ClassDef, name: str) -> None:
    if found := _WATCHED & names_in(text.module):
        raise Refused(f"`{min(found)}` may see how `{kind.name.value}` keeps its attributes")
    if text.calls("copy", "replace"):
        raise Refused("a copy of the object would share the list of its parts")
    strings = (one.value.strip("'\"") for one in text.nodes(libcst.SimpleString))
    if name in strings and {"getattr", "setattr", "delattr", "attrgetter"} & names_in(text.module):
        raise Refused(f"`{name}` is also found by its name as a string")
    defined = {one.name.value for one in matchers.findall(kind, matchers.FunctionDef())}  # type: ignore[attr-defined]
    if name in defined or any(uses(text, part, name) for part in kind.body.body if _is_simple(part)):
        raise Refused(f"`{name}` is an attribute of the class too")


def _is_simple(part: libcst.CSTNode) -> bool:
    return isinstance(part, libcst.SimpleStatementLine)


def _first_checks(
    text: ProgramText, method: libcst.FunctionDef, line: libcst.CSTNode, name: str, parts: str
) -> dict[libcst.CSTNode, Edit]:
    """What the method asks before it joins: ``self.name is None`` joins nothing. Raises `Refused` for other reads."""
    edits: dict[libcst.CSTNode, Edit] = {}
    for one in named(method.body, name):
        if lies_in(text, one, line) or _is_assigned(text, one):
            continue
        parent = next(text.ancestors(one))
        if text_of(one.value) != "self" or not _asks_for_none(parent, one):
            raise Refused(f"line {text.line_of(one)} reads `{name}` each time")
        edits[one] = lambda _: libcst.parse_expression(f"self.{parts}[0]")
    return edits


def _asks_for_none(node: libcst.CSTNode, asked: libcst.CSTNode) -> bool:
    if not isinstance(node, libcst.Comparison) or node.left is not asked or len(node.comparisons) != 1:
        return False
    right = node.comparisons[0]
    return isinstance(right.operator, (libcst.Is, libcst.IsNot)) and text_of(right.comparator) == "None"


def _refuse_other_owners(text: ProgramText, line: libcst.CSTNode, name: str) -> None:
    """Raise `Refused` if the tensor is changed in place, or begins as one that somebody else may change later."""
    refuse_changed_in_place(text, line, name)
    for one in named(text.module, name):
        if lies_in(text, one, line):
            continue
        if _is_assigned(text, one):
            value = _assigned_value(text, one)
            if value is None or not _is_new(value):
                raise Refused(f"line {text.line_of(one)} sets `{name}` to what somebody else may change later")


def refuse_changed_in_place(text: ProgramText, line: libcst.CSTNode, name: str) -> None:
    """Raise `Refused` if an attribute, or what it holds, is changed in place or deleted elsewhere than on the line."""
    for one in named(text.module, name):
        is_deleted = any(isinstance(parent, libcst.Del) for parent in text.ancestors(one))
        if not lies_in(text, one, line) and (mutates(text, one) or is_deleted):
            raise Refused(f"line {text.line_of(one)} changes `{name}` in place")


def named(within: libcst.CSTNode, name: str) -> list[libcst.Attribute]:
    found = matchers.findall(within, matchers.Attribute(attr=matchers.Name(name)))
    return [one for one in found if isinstance(one, libcst.Attribute)]


def _is_assigned(text: ProgramText, attribute: libcst.Attribute) -> bool:
    root: libcst.BaseExpression = attribute
    while isinstance(root, (libcst.Attribute, libcst.Subscript)):
        root = root.value
    parent = next(text.ancestors(attribute))
    is_last = not (isinstance(parent, (libcst.Attribute, libcst.Subscript)) and parent.value is attribute)
    return is_last and isinstance(root, libcst.Name) and is_set(text, root)


def _assigned_value(text: ProgramText, attribute: libcst.Attribute) -> libcst.BaseExpression | None:
    around = text.ancestors(attribute)
    target = next(around)
    owner = next(around)
    is_plain = isinstance(target, libcst.AssignTarget) and isinstance(owner, libcst.Assign) and len(owner.targets) == 1
    if isinstance(target, libcst.AnnAssign):
        return target.value
    return owner.value if is_plain and isinstance(owner, libcst.Assign) else None


def _is_new(value: libcst.BaseExpression) -> bool:
    is_made = isinstance(value, libcst.Call) and called_name(value) in _MAKING
    return is_made or text_of(value) == "None"


def _is_literal(value: libcst.BaseExpression) -> bool:
    value = value.expression if isinstance(value, libcst.UnaryOperation) else value
    return isinstance(value, libcst.Integer)
