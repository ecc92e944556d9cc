"""What a method makes anew in each call, of attributes that only ``__init__`` sets, is made there and kept.

It becomes a plain attribute, not a buffer: a buffer would change its type and device with the module, and what the
method made did not.
"""

from __future__ import annotations

import libcst

from profkit.rules.changes.alive import refuse_alive
from profkit.rules.changes.base import Edit, ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import called_in, is_set, lies_in, mutated, names_in, scope_of, uses, variables_in
from profkit.rules.changes.sharing import refuse_declared

_HIDDEN = ("setattr", "exec", "eval", "vars")
"""Functions by which an attribute may be set whose name is in no code."""
_LATER = frozenset(("bias", "buffers", "device", "dtype", "is_cuda", "parameters", "state_dict", "weight"))
"""What is another once a module is moved, or its weights are loaded."""
_OF_NUMBERS = frozenset(("dict", "float", "int", "len", "list", "max", "min", "range", "round", "sqrt", "sum", "tuple"))
"""Functions whose result is no module and no tensor that a checkpoint may change later."""


def kept_by_object(text: ProgramText, statement: libcst.SimpleStatementLine) -> bytes:
    """The text in which ``name = value`` of a method becomes ``self.name = value`` at the end of ``__init__``."""
    method = scope_of(text, statement)
    part = statement.body[0]
    if not isinstance(method, libcst.FunctionDef) or next(text.ancestors(statement)) is not method.body:
        raise Refused("the line stands in no loop of its function")
    assert isinstance(part, libcst.Assign)
    target = part.targets[0].target
    assert isinstance(target, libcst.Name)
    init = _init_beside(text, method)
    _refuse_read(text, method, init, part.value)
    named = uses(text, method, target.value)
    if [one for one in named if is_set(text, one)] != [target] or mutated(text, method, {target.value}):
        raise Refused(f"`{target.value}` changes in the function")
    if any(one.attr.value == target.value for one in text.nodes(libcst.Attribute)):
        raise Refused(f"something has an attribute `{target.value}` already")
    kept = f"self.{target.value} = {text_of(part.value)}"
    edits: dict[libcst.CSTNode, Edit] = {
        one: lambda _: libcst.parse_expression(f"self.{target.value}") for one in named
    }
    edits[statement] = lambda _: libcst.RemoveFromParent()
    edits[init.body] = lambda block: block.with_changes(body=[*block.body, text.parsed(kept)])
    return text.edited(edits)


def only_call(text: ProgramText, statement: libcst.SimpleStatementLine) -> libcst.SimpleStatementLine | None:
    """The line ``name = function(…)`` that alone calls the function of the file around a line; None if there is no
    such. The function must give the same each time."""
    function = scope_of(text, statement)
    if not isinstance(function, libcst.FunctionDef) or scope_of(text, function) is not text.module:
        return None
    calls = [one for one in text.calls(function.name.value) if isinstance(one.func, libcst.Name)]
    line = next(text.ancestors(calls[0])) if len(calls) == 1 else None
    is_named = len(uses(text, text.module, function.name.value)) == 2  # where it is defined, and where it is called
    if not is_named or not isinstance(line, libcst.Assign) or not isinstance(line.targets[0].target, libcst.Name):
        return None
    around = next(text.ancestors(line))
    if len(line.targets) > 1 or not isinstance(around, libcst.SimpleStatementLine) or len(around.body) > 1:
        return None
    refuse_alive(function)
    own = {
        name for name in variables_in(text, function) if any(is_set(text, one) for one in uses(text, function, name))
    }
    _refuse_moving(text, variables_in(text, function) - own)
    return around


def _init_beside(text: ProgramText, method: libcst.FunctionDef) -> libcst.FunctionDef:
    """The ``__init__`` of the method's class."""
    kind = scope_of(text, method)
    if not isinstance(kind, libcst.ClassDef) or not method.params.params or method.decorators:
        raise Refused("the line stands in no loop of its function")
    if method.params.params[0].name.value != "self" or kind.decorators:
        raise Refused(f"`{kind.name.value}` has decorators, or its method no `self`")
    inits = [
        one for one in text.nodes(libcst.FunctionDef) if one.name.value == "__init__" and scope_of(text, one) is kind
    ]
    if len(inits) != 1 or not isinstance(inits[0].body, libcst.IndentedBlock) or text.holds(inits[0], libcst.Return):
        raise Refused(f"`{kind.name.value}` has no plain `__init__` that could make it once")
    return inits[0]


def _refuse_read(
    text: ProgramText, method: libcst.FunctionDef, init: libcst.FunctionDef, value: libcst.BaseExpression
) -> None:
    """Raise `Refused` if a value needs more than attributes that only ``__init__`` sets, and names of the file that
    stay what they are."""
    if later := _LATER & names_in(value):
        raise Refused(f"`{min(later)}` may be another once the object is made")
    for call in text.calls(*_HIDDEN):
        if isinstance(call.func, libcst.Name):
            raise Refused(f"line {text.line_of(call)} may set attributes whose names are in no code")
    for name in sorted(variables_in(text, value) - {"self"}):
        if any(is_set(text, one) for one in uses(text, method, name)):
            raise Refused(f"`{name}`, which it reads, is known in the call alone")
    _refuse_moving(text, variables_in(text, value) - {"self"})
    for one in uses(text, value, "self"):
        _refuse_attribute(text, init, one)


def _refuse_moving(text: ProgramText, names: set[str]) -> None:
    """Raise `Refused` for variables of the file that may have another value later."""
    for name in sorted(names):
        refuse_declared(text, name)
        top = [one for one in uses(text, text.module, name) if scope_of(text, one) is text.module]
        if sum(is_set(text, one) for one in top) > 1:
            raise Refused(f"`{name}`, which it reads, is set at several places")


def _refuse_attribute(text: ProgramText, init: libcst.FunctionDef, this: libcst.Name) -> None:
    """Raise `Refused` unless ``__init__`` alone sets what is read of ``self``, and it is neither called nor trained."""
    inner: libcst.CSTNode = this
    chain = list[libcst.Attribute]()
    for around in text.ancestors(this):
        if isinstance(around, libcst.Call) and around.func is inner:
            raise Refused(f"`{text_of(around.func)}` is called, which may do more than compute")
        if not isinstance(around, libcst.Attribute):
            break
        chain.append(around)
        inner = around
    if not chain:
        raise Refused("it reads all of `self`")
    first, *others = [one.attr.value for one in chain]
    places = [one for one in text.nodes(libcst.Attribute) if one.attr.value == first and _sets(text, one)]
    if len(places) != 1 or not lies_in(text, places[0], init) or text_of(places[0]) != f"self.{first}":
        raise Refused(f"`self.{first}`, which it reads, is not set by `__init__` alone")
    if any(one.attr.value in others and _sets(text, one) for one in text.nodes(libcst.Attribute)):
        raise Refused(f"`{text_of(chain[-1])}`, which it reads, is set elsewhere, too")
    line = next(one for one in text.ancestors(places[0]) if isinstance(one, libcst.SimpleStatementLine))
    if called_in(line) - _OF_NUMBERS:
        raise Refused(f"`self.{first}`, which it reads, may be a tensor or a module that changes")


def _sets(text: ProgramText, attribute: libcst.Attribute) -> bool:
    """``self.x = …``, ``self.x += …``, ``self.x[i] = …``, ``self.x.fill_(0)``, ``del self.x``."""
    inner: libcst.CSTNode = attribute
    for around in text.ancestors(attribute):
        if isinstance(around, (libcst.AssignTarget, libcst.AugAssign, libcst.AnnAssign)):
            return around.target is inner
        if isinstance(around, (libcst.Del, libcst.NamedExpr)):
            return True
        if isinstance(around, libcst.Call):
            return around.func is inner and called_name(around).endswith("_")
        if not isinstance(around, (libcst.Subscript, libcst.Attribute, libcst.Element, libcst.Tuple, libcst.List)):
            return False
        if isinstance(around, (libcst.Subscript, libcst.Attribute)) and around.value is not inner:
            return False
        inner = around
    return False
