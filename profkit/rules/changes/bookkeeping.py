"""Methods that only keep books, such as an average's ``update``: they may be called later, in the same order.

That holds if it is a list, or the class is in the file and its method only computes with its own attributes; and if
nobody looks at them in between.
"""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import Loop, assigned_value, is_set, lies_in, names_in, scope_of, uses

_COUNTING = frozenset(("abs", "append", "float", "int", "len", "max", "min", "round", "sqrt", "log", "exp"))
"""What such a method may call."""
_PLAIN = (
    libcst.Assign,
    libcst.AnnAssign,
    libcst.AugAssign,
    libcst.Expr,
    libcst.Pass,
    libcst.Return,
)
_LEAVING = (libcst.Return, libcst.Raise, libcst.Yield, libcst.Await, libcst.Del)
_WATCHED = frozenset(("__setattr__", "__getattr__", "__getattribute__", "__slots__"))
_CONCURRENT = ("threading", "concurrent", "multiprocessing", "asyncio")
Path = tuple[tuple[str, str], ...]


def refuse_other_work(text: ProgramText, loop: Loop, call: libcst.Call) -> None:
    """Raise `Refused` unless calling the method behind the loop, not in each round, is seen by nobody."""
    assert isinstance(call.func, libcst.Attribute)
    kind = None if called_name(call) == "append" else _class_of(text, called_name(call))
    if kind is None:
        _refuse_no_list(text, call, call.func.value)
    else:
        _refuse_more_than_books(text, kind, called_name(call))
    refuse_concurrent(text)
    if inner := matchers.findall(loop.body, matchers.MatchIfTrue(lambda one: isinstance(one, _LEAVING))):
        raise Refused(f"line {text.line_of(next(iter(inner)))} may leave the loop, or changes what exists")
    _refuse_tried(text, loop, call)
    _refuse_another_object(text, loop, call.func.value)
    _refuse_called_readers(text, loop, kind, path_of(call.func.value))


def refuse_concurrent(text: ProgramText) -> None:
    """Raise `Refused` if the file imports what runs two of its functions at once."""
    imports = [*text.nodes(libcst.Import), *text.nodes(libcst.ImportFrom)]
    if found := [name for name in _CONCURRENT if any(name in names_in(one) for one in imports)]:
        raise Refused(f"with `{found[0]}` somebody else may look at it at any time")


def path_of(value: libcst.CSTNode) -> Path:
    """``self.meters["loss"]`` as its parts. Raises `Refused` for what is computed, or found by a variable."""
    if isinstance(value, libcst.Name):
        return (("name", value.value),)
    if isinstance(value, libcst.Attribute):
        return (*path_of(value.value), ("attribute", value.attr.value))
    if isinstance(value, libcst.Subscript) and len(value.slice) == 1:
        index = value.slice[0].slice
        if isinstance(index, libcst.Index) and isinstance(index.value, (libcst.SimpleString, libcst.Integer)):
            return (*path_of(value.value), ("item", text_of(index.value)))
    raise Refused(f"nothing shows which object `{text_of(value)}` is")


def others_in(text: ProgramText, loop: Loop, call: libcst.Call) -> list[libcst.Name]:
    """Where the loop may mean the same object, besides the call itself."""
    assert isinstance(call.func, libcst.Attribute)
    own = path_of(call.func.value)
    found = [name for name in uses(text, loop, own[0][1]) if not lies_in(text, name, call)]
    return [name for name in found if not _is_elsewhere(text, name, own)]


def _is_elsewhere(text: ProgramText, name: libcst.Name, own: Path) -> bool:
    """Whether what is named begins with another attribute or key: ``self.model`` is not ``self.losses``."""
    chain: libcst.CSTNode = name
    for parent in text.ancestors(name):
        if not isinstance(parent, (libcst.Attribute, libcst.Subscript)) or parent.value is not chain:
            break
        chain = parent
        try:
            path = path_of(chain)
        except Refused:
            return False
        here, there = path[-1], own[len(path) - 1] if len(path) <= len(own) else path[-1]
        if here[0] != there[0]:
            return False
        if here != there:
            return True
    return False


def _class_of(text: ProgramText, method: str) -> libcst.ClassDef:
    found = [one for one in text.nodes(libcst.ClassDef) if _method(one, method) is not None]
    if len(found) != 1:
        raise Refused(f"{len(found) or 'no'} class{'es' * (len(found) != 1)} in the file with a method `{method}`")
    kind = found[0]
    if any(text_of(base.value) != "object" for base in kind.bases) or kind.keywords:
        raise Refused(f"`{kind.name.value}` has a base class, which may do more")
    if any("dataclass" not in text_of(one.decorator) for one in kind.decorators) or _WATCHED & _defined(kind):
        raise Refused(f"`{kind.name.value}` has attributes of its own kind")
    if not text.calls(kind.name.value):
        raise Refused(f"the file makes no `{kind.name.value}`")
    return kind


def _refuse_more_than_books(text: ProgramText, kind: libcst.ClassDef, name: str) -> None:
    method = _method(kind, name)
    assert method is not None
    if method.decorators or method.asynchronous is not None:
        raise Refused(f"`{name}` of `{kind.name.value}` is not a plain method")
    if any("setter" in text_of(one) for one in matchers.findall(kind, matchers.Decorator())):
        raise Refused(f"`{kind.name.value}` has attributes of its own kind")
    small = matchers.findall(method.body, matchers.MatchIfTrue(lambda one: isinstance(one, libcst.BaseSmallStatement)))
    large = matchers.findall(
        method.body, matchers.MatchIfTrue(lambda one: isinstance(one, libcst.BaseCompoundStatement))
    )
    calls = [one for one in matchers.findall(method.body, matchers.Call()) if isinstance(one, libcst.Call)]
    other = [one for one in small if not isinstance(one, _PLAIN)]
    other += [one for one in large if not isinstance(one, libcst.If)]
    other += [one for one in calls if called_name(one) not in _COUNTING or _is_own(one.func)]
    other += [one for one in small if not _sets_own(one)]
    if other:
        raise Refused(f"line {text.line_of(other[0])} of `{name}` does more than keep books")


def _sets_own(part: libcst.CSTNode) -> bool:
    """Whether what a statement sets are local variables and attributes of ``self``."""
    targets: list[libcst.CSTNode] = [one.target for one in part.targets] if isinstance(part, libcst.Assign) else []
    targets += [part.target] if isinstance(part, (libcst.AugAssign, libcst.AnnAssign)) else []
    nested = [one.elements for one in targets if isinstance(one, libcst.Tuple)]
    flat = [one for one in targets if not isinstance(one, libcst.Tuple)]
    flat += [element.value for elements in nested for element in elements]
    return all(isinstance(one, libcst.Name) or _is_own(one) for one in flat)


def _is_own(value: libcst.CSTNode) -> bool:
    return isinstance(value, libcst.Attribute) and text_of(value.value) == "self"


def _refuse_another_object(text: ProgramText, loop: Loop, place: libcst.BaseExpression) -> None:
    """Raise `Refused` if the loop sets the variable anew, or the object has a second name."""
    root = path_of(place)[0][1]
    if any(is_set(text, one) for one in uses(text, loop, root)):
        raise Refused(f"`{root}` is set inside of the loop")
    scope = scope_of(text, loop)
    for part in text.nodes(libcst.Assign):
        is_alias = text_of(part.value) == text_of(place) or (root != "self" and text_of(part.value) == root)
        if is_alias and scope_of(text, part) is scope:
            raise Refused(f"line {text.line_of(part)} gives `{text_of(place)}` a second name")


def _refuse_tried(text: ProgramText, loop: Loop, call: libcst.Call) -> None:
    """Raise `Refused` if an exception of the call or the loop is caught: what stands behind the loop is left out."""
    function = next((one for one in text.ancestors(loop) if isinstance(one, libcst.FunctionDef)), None)
    for tried in (*text.nodes(libcst.Try), *text.nodes(libcst.TryStar)):
        if lies_in(text, call, tried) or (function is not None and function.name.value in names_in(tried.body)):
            raise Refused(f"line {text.line_of(tried)} goes on if an exception ends the loop")
    if function is not None and any("suppress" in names_in(one) for one in text.nodes(libcst.With)):
        raise Refused("`suppress` goes on if an exception ends the loop")


def _refuse_no_list(text: ProgramText, call: libcst.Call, place: libcst.BaseExpression) -> None:
    """Raise `Refused` unless a list is all that the place ever holds: ``self.losses``, ``history["loss"]``."""
    path = path_of(place)
    is_item = path[-1][0] == "item"
    holder = text_of(place.value) if is_item and isinstance(place, libcst.Subscript) else text_of(place)
    made = assigned_value(text, holder, call)
    if is_item and isinstance(made, libcst.Dict):
        items = (one for one in made.elements if isinstance(one, libcst.DictElement))
        made = next((one.value for one in items if text_of(one.key) == path[-1][1]), made)
    if text_of(made) not in ("[]", "list()", *(("defaultdict(list)", "collections.defaultdict(list)") * is_item)):
        raise Refused(f"nothing shows that `{text_of(place)}` is a list")


def _refuse_called_readers(text: ProgramText, loop: Loop, kind: libcst.ClassDef | None, path: Path) -> None:
    """Raise `Refused` if a function that the loop may call reads the books, of whatever object."""
    first, books = path[0][1], {path[-1][1]}
    if kind is not None:
        own = (one for one in matchers.findall(kind, matchers.Attribute()) if isinstance(one, libcst.Attribute))
        books |= {one.attr.value for one in own if _is_own(one)} | _defined(kind)
    called: list[libcst.FunctionDef | libcst.Lambda] = [*_called_from(text, loop, kind), *text.nodes(libcst.Lambda)]
    for function in called:
        for one in matchers.findall(function.body, matchers.Attribute()):
            assert isinstance(one, libcst.Attribute)
            parent = next(text.ancestors(one))
            is_called = isinstance(parent, libcst.Call) and parent.func is one
            if one.attr.value in books and not is_called:
                raise Refused(f"line {text.line_of(one)}, which the loop may call, reads `{one.attr.value}`")
        if uses(text, function.body, first) and first != "self":
            raise Refused(f"line {text.line_of(function)}, which the loop may call, reads `{first}`")


def _called_from(text: ProgramText, loop: Loop, kind: libcst.ClassDef | None) -> list[libcst.FunctionDef]:
    """The functions of the file whose names the loop names, and so on; and those that Python calls by itself."""
    functions = [one for one in text.nodes(libcst.FunctionDef) if not lies_in(text, one, kind)]
    known: list[libcst.FunctionDef] = []
    names = names_in(loop.body)
    while True:
        new = [one for one in functions if one not in known and _is_called(text, one, names)]
        if not new:
            return known
        known += new
        names |= {name for one in new for name in names_in(one.body)}


def _is_called(text: ProgramText, function: libcst.FunctionDef, names: set[str]) -> bool:
    name = function.name.value
    if name == "__init__":
        around = next(one for one in text.ancestors(function) if isinstance(one, (libcst.ClassDef, libcst.Module)))
        return isinstance(around, libcst.ClassDef) and around.name.value in names
    return name in names or name in ("forward", "training_step") or name.startswith("__")


def _method(kind: libcst.ClassDef, name: str) -> libcst.FunctionDef | None:
    found = [one for one in kind.body.body if isinstance(one, libcst.FunctionDef) and one.name.value == name]
    return found[0] if len(found) == 1 else None


def _defined(kind: libcst.ClassDef) -> set[str]:
    methods = {one.name.value for one in kind.body.body if isinstance(one, libcst.FunctionDef)}
    return methods | {name for name in _WATCHED if name in names_in(kind)}
