"""A file of a program as a concrete syntax tree, in which one thing is changed and all else stays byte for byte.

Everything that parses with libcst is here, so the changes themselves are short.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import libcst
from libcst import matchers
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from profkit.rules.changes.refusing import Refused

_PLAIN = (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)
"""What can take ``.detach()`` without parentheses."""


_Node = TypeVar("_Node", bound=libcst.CSTNode)
Edit = Callable[[Any], Any]
"""What becomes of a node, whose parts have been changed already: a node, or libcst's sentinel for several or none."""


class Argument:
    """An argument of a call by its name; by its place too, where it may be passed without the name."""

    def __init__(self, name: str, position: int | None = None) -> None:
        self.name, self.position = name, position

    def find(self, call: libcst.Call) -> libcst.Arg | None:
        """The argument as it is passed now."""
        for number, given in enumerate(call.args):
            named = given.keyword.value if given.keyword is not None else None
            if named == self.name or (named is None and number == self.position):
                return given
        return None


class ProgramText:
    """The syntax tree of a file. Raises `Refused` if it is not read as Python, or not written back as it was."""

    def __init__(self, raw: bytes) -> None:
        try:
            parse_quietly(raw)
            module = libcst.parse_module(raw)
            is_whole = module.bytes == raw
        except (libcst.ParserSyntaxError, SyntaxError, LookupError, RecursionError, ValueError, MemoryError) as error:
            raise Refused(f"the file could not be read as Python ({type(error).__name__})") from None
        if not is_whole:
            raise Refused("the file would not be written back byte for byte")
        wrapper = MetadataWrapper(module)
        self.module = wrapper.module
        self._ranges = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    def replaced(self, before: libcst.CSTNode, after: libcst.CSTNode) -> bytes:
        """The file with one node in place of another."""
        changed = self.module.deep_replace(before, after)
        assert isinstance(changed, libcst.Module)
        return changed.bytes

    def edited(self, edits: Mapping[libcst.CSTNode, Edit]) -> bytes:
        """The file with several nodes changed, also inside one another."""
        return self.module.visit(_Editing(edits)).bytes

    def parsed(self, source: str) -> libcst.SimpleStatementLine | libcst.BaseCompoundStatement:
        """A new statement, with the line ends and the indentation of the file."""
        return libcst.parse_statement(source, config=self.module.config_for_parsing)

    def ancestors(self, node: libcst.CSTNode) -> Iterator[libcst.CSTNode]:
        """The nodes around a node, the innermost first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def line_of(self, node: libcst.CSTNode) -> int:
        """Where a node begins."""
        first: int = self._ranges[node].start.line
        return first

    def column_of(self, node: libcst.CSTNode) -> int:
        """How many characters stand before it on its line."""
        first: int = self._ranges[node].start.column
        return first

    def nodes(self, kind: type[_Node]) -> list[_Node]:
        """All nodes of a kind, in the order of the text."""
        return [node for node in self._ranges if isinstance(node, kind)]

    def covers(self, node: libcst.CSTNode, line: int) -> bool:
        """Whether a line is part of a node."""
        where: CodeRange = self._ranges[node]
        return where.start.line <= line <= where.end.line

    def calls(self, *names: str) -> list[libcst.Call]:
        """All calls of functions that are called by one of these names, in any module."""
        return [node for node in self._ranges if isinstance(node, libcst.Call) and called_name(node) in names]

    def call_at(self, line: int, *names: str) -> libcst.Call:
        """The only call of one of these functions that a line is part of."""
        found = self.calls_at(line, *names)
        if len(found) != 1:
            words = " or ".join(f"`{name}`" for name in names)
            raise Refused(f"{len(found) or 'no'} call{'s' * (len(found) != 1)} of {words} on that line")
        return found[0]

    def calls_at(self, line: int, *names: str) -> list[libcst.Call]:
        """The calls of these functions that a line is part of."""
        return [call for call in self.calls(*names) if self.covers(call, line)]

    def statement_at(self, line: int) -> libcst.SimpleStatementLine:
        """The simple statement that a line is part of, if it is alone there."""
        lines = (node for node in self._ranges if isinstance(node, libcst.SimpleStatementLine))
        found = [node for node in lines if self.covers(node, line)]
        if len(found) != 1 or len(found[0].body) != 1:
            raise Refused("the line is not one plain statement")
        return found[0]

    def without(self, statement: libcst.SimpleStatementLine) -> bytes:
        """The file without a statement; the only one of a block becomes ``pass``. Comments above stay."""
        block = self._parents[statement]
        if isinstance(block, libcst.IndentedBlock) and len(block.body) == 1:
            return self.replaced(statement, statement.with_changes(body=[libcst.Pass()]))
        where = self._ranges[statement]
        raw = self.module.bytes.splitlines(keepends=True)
        return b"".join(raw[: where.start.line - 1] + raw[where.end.line :])

    def holds(self, node: libcst.CSTNode, *kinds: type[libcst.CSTNode]) -> bool:
        """Whether one of these kinds of nodes is part of a node."""
        found = matchers.findall(node, matchers.MatchIfTrue(lambda one: isinstance(one, kinds)))
        return bool(found)

    def imported_as(self, name: str) -> str | None:
        """What an import at the top of the file calls a module: ``import a.b``, ``import a.b as n``, ``from a import
        b``."""
        lines = (line for line in self.module.body if isinstance(line, libcst.SimpleStatementLine))
        for part in (part for line in lines for part in line.body):
            if isinstance(part, (libcst.Import, libcst.ImportFrom)) and not isinstance(part.names, libcst.ImportStar):
                module = getattr(part, "module", None)
                within = f"{text_of(module)}." if module is not None else ""
                found = [alias for alias in part.names if within + text_of(alias.name) == name]
                if found:
                    return found[0].evaluated_alias or text_of(found[0].name)
        return None

    def last_import(self) -> libcst.SimpleStatementLine:
        """The last import at the top of the file."""
        lines = [line for line in self.module.body if isinstance(line, libcst.SimpleStatementLine)]
        found = [line for line in lines if isinstance(line.body[0], (libcst.Import, libcst.ImportFrom))]
        if not found:
            raise Refused("the file has no import at its top")
        return found[-1]

    def known_as(self, name: str) -> str:
        """How the file can write a dotted name with the imports that it has: ``nn.functional`` or ``F``."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            alias = self.imported_as(".".join(parts[:length]))
            if alias is not None:
                return ".".join((alias, *parts[length:]))
        raise Refused(f"the file does not import {parts[0]}")


@lru_cache(maxsize=1)
def program_text(raw: bytes) -> ProgramText:
    """The tree of a file; that of the last one is kept, because a file often has several findings."""
    return ProgramText(raw)


def parse_quietly(raw: bytes) -> None:
    """Raise what Python raises for what is no Python, or is nested too deeply: libcst's parser would end the
    process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the program, such as an invalid escape
        compile(raw, "<file>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)


class _Editing(libcst.CSTTransformer):
    def __init__(self, edits: Mapping[libcst.CSTNode, Edit]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        edit = self._edits.get(original_node)
        return updated_node if edit is None else edit(updated_node)


def called_name(call: libcst.Call) -> str:
    """``append`` for ``self.losses.append(x)``; empty if it has no name."""
    function = call.func
    if isinstance(function, libcst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, libcst.Name) else ""


def text_of(node: libcst.CSTNode) -> str:
    """The source of a node."""
    return libcst.Module(body=[]).code_for_node(node)


def elements_of(row: libcst.Tuple | libcst.List) -> list[libcst.BaseExpression]:
    """The elements, if none stands for several: ``a, *b`` raises `Refused`."""
    if any(isinstance(one, libcst.StarredElement) for one in row.elements):
        raise Refused(f"`{text_of(row)}` does not show how many elements it has")
    return [one.value for one in row.elements]


def refuse_hidden_arguments(call: libcst.Call) -> None:
    """Raise `Refused` for ``f(*given, **options)``: what it is called with does not show."""
    if any(given.star for given in call.args):
        raise Refused("the call takes arguments that the line does not show")


def with_argument(call: libcst.Call, argument: Argument, value: str) -> libcst.Call:
    """The call with the argument set to the source ``value``. One that was passed must be a literal."""
    refuse_hidden_arguments(call)
    given, new = argument.find(call), libcst.parse_expression(value)
    if given is None:
        return call.with_changes(args=_appended(call.args, argument.name, new))
    if not isinstance(given.value, (libcst.Name, libcst.Integer, libcst.SimpleString)) or _is_variable(given.value):
        raise Refused(f"`{argument.name}` is `{text_of(given.value)}`, which may have a reason")
    changed = [one.with_changes(value=new) if one is given else one for one in call.args]
    return call.with_changes(args=changed)


def without_argument(call: libcst.Call, argument: Argument, value: str) -> libcst.Call:
    """The call without the argument, which must be the literal ``value`` now and be passed by its name."""
    refuse_hidden_arguments(call)
    given = argument.find(call)
    if given is None or given.keyword is None or text_of(given.value) != value:
        raise Refused(f"the line does not say `{argument.name}={value}`")
    kept = [one for one in call.args if one is not given]
    if not kept:
        return call.with_changes(args=[], whitespace_before_args=libcst.SimpleWhitespace(""))
    if given is call.args[-1]:
        kept[-1] = kept[-1].with_changes(comma=given.comma, whitespace_after_arg=given.whitespace_after_arg)
    return call.with_changes(args=kept)


def detached(value: libcst.BaseExpression) -> libcst.BaseExpression:
    """``value.detach()``."""
    if isinstance(value, (libcst.Tuple, libcst.List, libcst.Dict, libcst.Set)):
        raise Refused("several values are kept at once: the line does not say which of them carry a graph")
    if isinstance(value, libcst.Call) and called_name(value) in ("detach", "item", "tolist"):
        raise Refused("the value is detached already")
    return followed_by(value, "detach")


def followed_by(value: libcst.BaseExpression, method: str, *arguments: libcst.Arg) -> libcst.Call:
    """``value.method(…)``, with parentheses where they are needed."""
    is_plain = isinstance(value, _PLAIN) or bool(value.lpar)
    inner = value if is_plain else value.with_changes(lpar=[libcst.LeftParen()], rpar=[libcst.RightParen()])
    return libcst.Call(libcst.Attribute(inner, libcst.Name(method)), arguments)


def with_new_argument(call: libcst.Call, name: str, value: str) -> libcst.Call:
    """The call with one more argument, which it must not have yet."""
    return call.with_changes(args=_appended(call.args, name, libcst.parse_expression(value)))


def _is_variable(value: libcst.BaseExpression) -> bool:
    return isinstance(value, libcst.Name) and value.value not in ("True", "False", "None")


def _appended(given: Sequence[libcst.Arg], name: str, value: libcst.BaseExpression) -> list[libcst.Arg]:
    """One more argument, set off as those before it are."""
    equal = libcst.AssignEqual(libcst.SimpleWhitespace(""), libcst.SimpleWhitespace(""))
    new = libcst.Arg(value, keyword=libcst.Name(name), equal=equal)
    if not given:
        return [new]
    *others, last = given
    plain = libcst.Comma(whitespace_after=libcst.SimpleWhitespace(" "))
    between = _without_comment(others[-1].comma) if others and isinstance(others[-1].comma, libcst.Comma) else plain
    ends = {"comma": last.comma, "whitespace_after_arg": last.whitespace_after_arg}
    before = last.with_changes(comma=between, whitespace_after_arg=libcst.SimpleWhitespace(""))
    return [*others, before, new.with_changes(**ends)]


def _without_comment(comma: libcst.Comma) -> libcst.Comma:
    """A comment behind one argument is not about the next."""
    after = comma.whitespace_after
    if not isinstance(after, libcst.ParenthesizedWhitespace):
        return comma
    return comma.with_changes(
        whitespace_after=after.with_changes(first_line=libcst.TrailingWhitespace(), empty_lines=[])
    )
