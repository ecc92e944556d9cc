"""Lines that take long for what they do, by calls and containers that the text names.

A list is searched from its start, an array that is joined to itself is copied whole, a row of a data frame is an object
of its own. One such line is no fault: it depends on how often it runs and how much it handles, which only a recording
shows. So they are only told of lines that take much of a step.

What a name holds is what the file assigns to it anywhere; a name to which it assigns several kinds of containers proves
nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from profkit.source import remark_kinds as kinds
from profkit.source.index import SourceFile
from profkit.source.syntax import FUNCTIONS, LOOPS, flat_targets, name_called

_LIST, _DEQUE, _OTHER = "list", "deque", "other"
_KIND_OF: Mapping[type[ast.expr], str] = {
    ast.List: _LIST,
    ast.ListComp: _LIST,
    ast.Set: _OTHER,
    ast.SetComp: _OTHER,
    ast.Dict: _OTHER,
    ast.DictComp: _OTHER,
    ast.JoinedStr: _OTHER,
    ast.Constant: _OTHER,
    ast.Tuple: _OTHER,
}
_KIND_OF_CALL = {
    **dict.fromkeys(("list", "sorted", "tolist", "readlines", "split", "splitlines"), _LIST),
    "deque": _DEQUE,
}
"""What else a call makes is not known."""
_SEARCHING = frozenset(("index", "remove", "count"))
_SHIFTING = frozenset(("pop", "insert"))
_JOINING = frozenset(("append", "concatenate", "vstack", "hstack", "stack", "column_stack", "concat", "insert"))
_OF_ARRAYS = frozenset(("np", "numpy", "pd", "pandas", "cp", "jnp"))
"""PyTorch's own are left out: `growing-concatenation` sees them in the recording."""
_READING: Mapping[str, frozenset[str]] = {
    "": frozenset(("open", "imread", "read_image", "read_csv", "loadtxt", "loadmat", "safe_load")),
    "np": frozenset(("load", "loadtxt", "genfromtxt", "fromfile")),
    "numpy": frozenset(("load", "loadtxt", "genfromtxt", "fromfile")),
    "pd": frozenset(("read_csv", "read_json", "read_parquet", "read_pickle", "read_feather", "read_excel")),
    "pandas": frozenset(("read_csv", "read_json", "read_parquet", "read_pickle", "read_feather", "read_excel")),
    "json": frozenset(("load", "loads")),
    "pickle": frozenset(("load", "loads")),
    "yaml": frozenset(("load", "safe_load", "full_load")),
    "torch": frozenset(("load",)),
    "Image": frozenset(("open",)),
    "cv2": frozenset(("imread", "imdecode")),
    "librosa": frozenset(("load",)),
    "torchaudio": frozenset(("load",)),
    "soundfile": frozenset(("read",)),
    "sf": frozenset(("read",)),
    "h5py": frozenset(("File",)),
}
"""By the module that the call names; empty for a plain name."""
_ROWS = frozenset(("iloc", "loc", "iat"))
_PLACE_OF_P = 3
"""Of the probabilities in ``numpy.random.choice(a, size, replace, p)``."""


class CostlyLine(Struct, frozen=True):
    """What a line does, as one of `profkit.source.remark_kinds`, and the first and the last line of the expression."""

    kind: str
    line: int
    until: int


def costly_lines(file: SourceFile) -> list[CostlyLine]:
    """The lines of the file that do so, in order, each once for each kind."""
    held = _containers(file.tree)
    found = {CostlyLine(kind, node.lineno, node.end_lineno or node.lineno) for kind, node in _walk(file.tree, held)}
    return sorted(found, key=lambda one: (one.line, one.kind))


def _walk(tree: ast.AST, held: Mapping[str, str]) -> Iterator[tuple[str, ast.expr]]:
    """What runs again and again: in a loop, or in a function, which may be called in every step. A local name of a
    function grows only in a loop."""
    left: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while left:
        node, repeats, loops = left.pop()
        if repeats:
            for kind, look in _KINDS.get(type(node), ()):
                if (where := look(node, held)) is not None and (loops or kind not in _GROWING or _stays(node)):
                    yield kind, where
        is_function = isinstance(node, FUNCTIONS)
        loops = not is_function and (loops or isinstance(node, LOOPS))
        repeats = repeats or loops or is_function
        left += ((child, repeats, loops) for child in ast.iter_child_nodes(node))


def _stays(node: ast.AST) -> bool:
    """Whether what the node assigns to outlives a call."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)


def _containers(tree: ast.AST) -> Mapping[str, str]:
    """By name, with its attributes, the one kind of container that the file assigns to it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, _BINDING) else []
        value = getattr(node, "value", None) or getattr(node, "default", None)
        for target in flat_targets(targets):
            if (name := _dotted(target)) and isinstance(value, ast.expr) and not _says_nothing(value, name):
                found.setdefault(name, set()).add(_container(value))
    return {name: next(iter(several)) for name, several in found.items() if len(several) == 1}


_BINDING = (ast.AnnAssign, ast.NamedExpr)


def _dotted(node: ast.AST) -> str:
    """``x`` or ``self.x``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _says_nothing(value: ast.expr, name: str) -> bool:
    """Of what the name holds: ``None``, or itself and more."""
    is_itself = isinstance(value, ast.BinOp) and _dotted(value.left) == name
    return is_itself or (isinstance(value, ast.Constant) and value.value is None)


def _container(value: ast.expr) -> str:
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult)):
        sides = {_container(value.left), _container(value.right)}
        return _LIST if _LIST in sides else _OTHER
    if isinstance(value, ast.Call):
        return _KIND_OF_CALL.get(name_called(value), _OTHER)
    return _KIND_OF.get(type(value), _OTHER)


def _is(node: ast.expr, kind: str, held: Mapping[str, str]) -> bool:
    return held.get(_dotted(node)) == kind


def _list_search(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:
    """``names.index(name)``, ``x in seen``."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node if _is(node.comparators[0], _LIST, held) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SEARCHING:
        return node if len(node.args) == 1 and _is(node.func.value, _LIST, held) else None
    return None


def _list_shift(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:
    """``queue.pop(0)``, ``queue.insert(0, x)``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    first = node.args[0]
    is_first = isinstance(first, ast.Constant) and first.value == 0 and first.value is not False
    return node if is_first and node.func.attr in _SHIFTING and _is(node.func.value, _LIST, held) else None


def _grown_array(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:  # noqa: ARG001  # as the others
    """``rows = np.append(rows, row)``, ``frame = pd.concat([frame, row])``, ``frame = frame.append(row)``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return None
    call, name = node.value, _dotted(node.targets[0])
    if not name or not isinstance(call.func, ast.Attribute) or call.func.attr not in _JOINING:
        return None
    joins = [part for one in call.args for part in (one.elts if isinstance(one, (ast.List, ast.Tuple)) else [one])]
    of_module = _dotted(call.func.value) in _OF_ARRAYS and name in map(_dotted, joins)
    return call if of_module or (call.func.attr == "append" and _dotted(call.func.value) == name) else None


def _grown_list(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:
    """``losses = losses + [loss]``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp) or len(node.targets) != 1:
        return None
    value, name = node.value, _dotted(node.targets[0])
    is_itself = bool(name) and isinstance(value.op, ast.Add) and _dotted(value.left) == name
    return value if is_itself and (isinstance(value.right, ast.List) or _is(value.left, _LIST, held)) else None


def _reading(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:  # noqa: ARG001
    """``np.load(path)``, ``json.loads(line)``, ``Image.open(path)``, ``open(path)``; not to write."""
    if not isinstance(node, ast.Call):
        return None
    of = _dotted(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    modes = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "mode")]
    writes = any(isinstance(one, ast.Constant) and set(str(one.value)) & set("wax+") for one in modes)
    is_written = name_called(node) in ("open", "File") and writes
    return node if name_called(node) in _READING.get(of, ()) and not is_written else None


def _deep_copy(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:  # noqa: ARG001
    return node if isinstance(node, ast.Call) and name_called(node) == "deepcopy" else None


def _whole_copy(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:
    """``self.rewards[:n].copy()``, ``np.copy(states)``; not of what is made in the line, as rows picked by number."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "copy":
        return None
    of_module = _dotted(node.func.value) in _OF_ARRAYS
    whole = node.args[0] if of_module and node.args else node.func.value
    while isinstance(whole, ast.Subscript) and _is_slice(whole.slice):
        whole = whole.value
    is_held = isinstance(whole, (ast.Name, ast.Attribute)) or _is_of_table(whole)
    return node if is_held and (of_module or not node.args) and held.get(_dotted(whole)) is None else None


def _is_slice(place: ast.expr) -> bool:
    return isinstance(place, ast.Slice) or (isinstance(place, ast.Tuple) and any(map(_is_slice, place.elts)))


def _is_of_table(node: ast.expr) -> bool:
    """``self.buffers["states"]``, ``self.buffers[key]``: an entry of a table that an object holds."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and not _is_slice(node.slice)


def _row_of_frame(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:  # noqa: ARG001
    """``frame.iloc[i]``, ``frame.iterrows()``, ``frame.apply(f, axis=1)``; not a slice of rows."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr in _ROWS:
        is_read = isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Slice)
        return node if is_read else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    by_row = any(one.arg == "axis" and ast.unparse(one.value) in ("1", "'columns'") for one in node.keywords)
    return node if node.func.attr == "iterrows" or (node.func.attr == "apply" and by_row) else None


def _draw_from_all(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:  # noqa: ARG001
    """``np.random.choice(n, few, replace=False)``, the old function, which shuffles all."""
    if not isinstance(node, ast.Call) or name_called(node) != "choice" or not isinstance(node.func, ast.Attribute):
        return None
    is_old = _dotted(node.func.value) in ("np.random", "numpy.random")
    return node if is_old and any(one.arg == "replace" and _is_false(one.value) for one in node.keywords) else None


def _weighted_draw(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:  # noqa: ARG001
    """``np.random.choice(n, few, p=weights)``, ``random.choices(rows, weights)``. With ``cum_weights`` nothing is
    summed up."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    given = {one.arg for one in node.keywords if not _is_none(one.value)}
    of_numpy = node.func.attr == "choice" and ("p" in given or len(node.args) > _PLACE_OF_P)
    of_python = node.func.attr == "choices" and ("weights" in given or len(node.args) > 1)
    return node if of_numpy or of_python else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _inside_deque(node: ast.AST, held: Mapping[str, str]) -> ast.expr | None:
    """``memory[i]`` or ``random.sample(memory, few)`` of a deque; its ends are near."""
    if isinstance(node, ast.Subscript) and _is(node.value, _DEQUE, held):
        is_end = ast.unparse(node.slice) in ("0", "-1")
        return None if is_end or not isinstance(node.ctx, ast.Load) else node
    if isinstance(node, ast.Call) and name_called(node) in ("sample", "choice", "choices") and node.args:
        return node if _is(node.args[0], _DEQUE, held) else None
    return None


_GROWING = (kinds.ARRAY_GROWN, kinds.LIST_GROWN)
_KINDS: Mapping[type[ast.AST], tuple[tuple[str, Callable[[ast.AST, Mapping[str, str]], ast.expr | None]], ...]] = {
    ast.Assign: ((kinds.ARRAY_GROWN, _grown_array), (kinds.LIST_GROWN, _grown_list)),
    ast.Compare: ((kinds.LIST_SEARCH, _list_search),),
    ast.Subscript: ((kinds.ROW_OF_FRAME, _row_of_frame), (kinds.INSIDE_DEQUE, _inside_deque)),
    ast.Call: (
        (kinds.LIST_SEARCH, _list_search),
        (kinds.LIST_SHIFT, _list_shift),
        (kinds.FILE_READ, _reading),
        (kinds.DEEP_COPY, _deep_copy),
        (kinds.WHOLE_COPY, _whole_copy),
        (kinds.ROW_OF_FRAME, _row_of_frame),
        (kinds.DRAW_FROM_ALL, _draw_from_all),
        (kinds.WEIGHTED_DRAW, _weighted_draw),
        (kinds.INSIDE_DEQUE, _inside_deque),
    ),
}
COSTLY_KINDS = frozenset(kind for looks in _KINDS.values() for kind, _ in looks)
"""All that a line may be found to do."""
