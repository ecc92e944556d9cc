"""What the code of a file leaves behind besides its result: nothing, if the text proves it.

Everything that the code does must be known to be harmless. It writes only to its own variables. It calls only functions
of the file that do the same, what ``harmless.py`` lists, and models and losses: those made from the file's own classes,
whose ``forward`` is read too, or a library's. Anything else may print, log, save or draw random numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from profkit.source.harmless import BUILTINS, COLLECTING, HARMLESS
from profkit.source.syntax import FUNCTIONS, last_name, name_called

_INNER = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
_SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete)
_DEEPEST = 4
_SETS_MODE = frozenset(("eval", "train"))
_COMPUTING = ("torch.", "numpy.")
_PURE_MODULES = ("copy.", "itertools.", "json.dumps", "math.", "sklearn.metrics.")
"""Modules in which each function only computes, and functions of others."""
_NEW_VALUES = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp, ast.Constant)
_NEW_LISTS = frozenset(("dict", "list", "set", "sorted"))
"""Functions whose result belongs to who called them."""
_NEW_ARRAYS = frozenset(("array", "empty", "full", "ones", "zeros"))
"""What they return belongs to who called them."""
_CLOCKS = frozenset(("time.time", "time.perf_counter", "time.monotonic"))
_LIBRARIES = frozenset(("torch", "numpy", "torchvision", "torch_geometric", "transformers", "timm"))
"""Their models and losses leave nothing behind in evaluation mode."""
_ACCUMULATE = frozenset(("torchmetrics", "ignite", "evaluate"))
"""Their metrics keep what they are called with."""
_CALLED_BY_MODULES = ("forward", "__call__")
_HOOKS = "register_forward_"


class SideEffects:
    """Judges the code of one file by what the file defines, imports and assigns. Calls of other files' functions that
    ``is_allowed`` count as harmless."""

    def __init__(self, tree: ast.Module, is_allowed: Callable[[ast.Call], bool] = lambda _: False) -> None:
        self._is_allowed = is_allowed
        nodes = list(ast.walk(tree))
        definitions = [node for node in nodes if isinstance(node, FUNCTIONS)]
        names = [node.name for node in definitions]
        self._functions = {node.name: node for node in definitions if names.count(node.name) == 1}
        self._several = set(names) - set(self._functions)
        self._forwards = [node for node in definitions if node.name in _CALLED_BY_MODULES]
        self._classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        self._imported = dict(_imports(nodes))
        methods = [node for node in nodes if isinstance(node, ast.Attribute)]
        self._models = {last_name(node.value) for node in methods if node.attr in _SETS_MODE} - {""}
        self._has_hooks = any(node.attr.startswith(_HOOKS) for node in methods)
        self._values: dict[str, list[ast.expr]] = {}
        for node in nodes:
            for name, value in self._given(node):
                self._values.setdefault(name, []).append(value)

    def function_called(self, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The only function of the file that ``f(…)`` or ``self.f(…)`` can mean."""
        is_own = isinstance(call.func, ast.Name) or (
            isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "self"
        )
        return self._functions.get(name_called(call)) if is_own else None

    def function_named(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The only function or method of the file with this name."""
        return self._functions.get(name)

    def models_may_keep_what_they_get(self) -> bool:
        """Whether calling a model of the file, or a metric that it imports, may leave something behind."""
        accumulates = any(name.partition(".")[0] in _ACCUMULATE for name in self._imported.values())
        return accumulates or self._has_hooks or not all(self.leaves_nothing(one.body) for one in self._forwards)

    def leaves_nothing(self, body: Iterable[ast.stmt], depth: int = 0) -> bool:
        """Whether the text proves that these statements leave nothing behind."""
        nodes = [node for statement in body for node in ast.walk(statement)]
        own = {
            last_name(target)
            for node in nodes
            if isinstance(node, ast.Assign) and _is_new(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        } | self._new_arrays(nodes)
        return depth <= _DEEPEST and all(self._is_harmless(node, own, depth) for node in nodes)

    def _new_arrays(self, nodes: list[ast.AST]) -> set[str]:
        """The names that only stand for arrays which these statements make."""
        made, others = set[str](), set[str]()
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                full_name = self._full_name(node.value.func) if isinstance(node.value, ast.Call) else ""
                is_new = full_name.startswith(_COMPUTING) and full_name.rpartition(".")[2] in _NEW_ARRAYS
                (made if is_new else others).add(node.targets[0].id)
        return made - others

    def _is_harmless(self, node: ast.AST, own: set[str], depth: int) -> bool:
        if isinstance(node, (*_INNER, *_SUSPENDS)):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript):
            return isinstance(node.ctx, ast.Load) or (isinstance(node, ast.Subscript) and _is_of(node, own))
        if isinstance(node, ast.AugAssign):
            target = node.target
            return (isinstance(target, ast.Name) and target.id in own) or _is_of(target, own)
        return not isinstance(node, ast.Call) or self._is_harmless_call(node, own, depth)

    def _is_harmless_call(self, call: ast.Call, own: set[str], depth: int) -> bool:
        name, full_name = name_called(call), self._full_name(call.func)
        if name not in self._functions and name not in self._several and self._is_allowed(call):
            return True
        if any(keyword.arg == "out" for keyword in call.keywords) or name in self._several:
            return False
        if full_name:
            return _is_harmless_import(full_name) or (name == "dropout" and _is_off_in_evaluation(call))
        if name in self._functions:
            return self.leaves_nothing(self._functions[name].body, depth + 1)
        if isinstance(call.func, ast.Attribute):
            return _is_harmless_method(call.func, own, self._models) or self._are_models(name)
        return name in BUILTINS or self._are_models(name)

    def _full_name(self, called: ast.expr) -> str:
        """``torch.nn.functional.relu`` of ``F.relu``; empty if it is not imported."""
        parts: list[str] = []
        while isinstance(called, ast.Attribute):
            parts.append(called.attr)
            called = called.value
        source = self._imported.get(called.id, "") if isinstance(called, ast.Name) else ""
        return ".".join((source, *reversed(parts))) if source else ""

    def _given(self, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        """The names, attributes and arguments to which a node gives values."""
        if isinstance(node, ast.Assign):
            yield from ((last_name(target), node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield last_name(node.target), node.value
        elif isinstance(node, ast.Call) and (function := self.function_called(node)) is not None:
            arguments = function.args.args[isinstance(node.func, ast.Attribute) :]
            yield from ((argument.arg, value) for argument, value in zip(arguments, node.args, strict=False))
            yield from ((word.arg, word.value) for word in node.keywords if word.arg)

    def _are_models(self, name: str, known: frozenset[str] = frozenset()) -> bool:
        """Whether everything that the file assigns to a name, or to an attribute or argument of that name, is made by
        its own classes or by libraries. ``known`` names stand for the same thing."""
        known |= {name}
        values = [value for value in self._values.get(name, ()) if last_name(value) not in known]
        return bool(values) and all(self._is_model(value, known) for value in values)

    def _is_model(self, value: ast.expr, known: frozenset[str]) -> bool:
        if name := last_name(value):
            return self._are_models(name, known)
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute) and value.func.attr in HARMLESS | _SETS_MODE:
            moved = value.func.value  # `model.to(device)`
            return last_name(moved) in known or self._is_model(moved, known)
        calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
        return all(name_called(call) in BUILTINS | HARMLESS or self._makes_models(call) for call in calls)

    def _makes_models(self, call: ast.Call) -> bool:
        library = self._full_name(call.func).partition(".")[0]
        return library in _LIBRARIES or getattr(call.func, "id", "") in self._classes


def _is_new(value: ast.expr) -> bool:
    """``[]``, ``[0] * 9``, ``list(range(9))``."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Mult) and (_is_new(value.left) or _is_new(value.right))
    is_list = isinstance(value, ast.Call) and getattr(value.func, "id", "") in _NEW_LISTS
    return is_list or isinstance(value, _NEW_VALUES)


def _is_of(node: ast.expr, own: set[str]) -> bool:
    """``table[i, j]`` of a name that is one's own."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in own


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names that imports bind, and what they stand for; a leading dot stands for a file of the program."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = "." if node.level else str(node.module)
            yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)


def _is_harmless_import(full_name: str) -> bool:
    computes = full_name.startswith(_COMPUTING) and full_name.rpartition(".")[2] in HARMLESS
    return computes or full_name in _CLOCKS or full_name.startswith(_PURE_MODULES)


def _is_off_in_evaluation(dropout: ast.Call) -> bool:
    """``dropout(x, training=self.training)``."""
    return any(word.arg == "training" and getattr(word.value, "attr", "") == "training" for word in dropout.keywords)


def _is_harmless_method(method: ast.Attribute, own: set[str], models: set[str]) -> bool:
    if isinstance(method.value, ast.Constant):
        return True  # of a text in the program, such as `", ".join(…)`
    if method.attr in COLLECTING:
        return getattr(method.value, "id", "") in own
    return method.attr in _SETS_MODE if last_name(method.value) in models else method.attr in HARMLESS
