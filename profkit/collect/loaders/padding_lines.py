"""The lines of the program that pad the batches of a DataLoader."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any

from profkit.run.directory import CallSite
from profkit.source.attributes import attributes_of, names_of
from profkit.source.code import function_name, source_file, source_line

_REST = re.compile(r"[\w\])]\s*-\s*(?:len\(|\w[\w.]*\.(?:shape\[|size\(|numel\())")
"""What a row, or a batch, lacks of a fixed length: ``size - len(row)``."""
_PADS = re.compile(r"\w*pad\w*\(|\bpadding\s*=|\bmax_length\s*=|[\"'](?:input_)?max_length[\"']", re.IGNORECASE)
"""Calls that pad, such as ``pad_sequence`` and ``F.pad``, and what a tokenizer takes."""
_MAKES = re.compile(r"\b(?:zeros|full|ones|empty|new_zeros|new_full|zeros_like|full_like|resize_?)\(")
"""What makes an array for the rows to be written into."""
_MOST_LINES = 200
"""Of a function. In a longer one the first line that looks like padding may well be another."""
_MOST_CALLED = 16
"""Functions that a ``collate_fn`` calls. One that calls more does not only put rows together."""


def find_padding_lines(iterator: Any, is_user: Mapping[str, bool]) -> tuple[CallSite, ...]:
    """The line that pads in the ``collate_fn`` of this loader's iterator, or else where its dataset makes a row; none
    if neither is the program's own or their text does not show it."""
    known = attributes_of(iterator)
    makers = known.get("_collate_fn"), getattr(type(known.get("_dataset")), "__getitem__", None)
    for maker in makers:
        codes = list(islice(_codes_of(maker, is_user), _MOST_CALLED))
        for pattern in (_REST, _PADS, _MAKES):
            for code in codes:
                if line := _find_line(code, pattern):
                    return (site_at(code, line),)
    return ()


def site_at(code: CodeType, line: int) -> CallSite:
    """That line of the code."""
    file = source_file(code)
    return CallSite(file, line, function_name(code), source_line(file, line))


def _codes_of(maker: Any, is_user: Mapping[str, bool]) -> Iterator[CodeType]:
    """The code of a function of the program, and of those that it calls by their names: of its module, of the function
    around it, or of its object's class."""
    function = _function_in(maker)
    if function is None or not is_user[function.__code__.co_filename]:
        return
    yield function.__code__
    for called in (*_around(function), *_beside(maker, function)):
        if isinstance(called, FunctionType) and is_user[called.__code__.co_filename]:
            yield called.__code__


def _around(function: FunctionType) -> Iterator[object]:
    """What the names of a function mean in its module, and in the function in which it was made."""
    yield from map(function.__globals__.get, _names_in(function.__code__))
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell: its variable is not set yet
            yield cell.cell_contents


def _beside(maker: Any, function: FunctionType) -> Iterator[object]:
    """The methods of an object that is called, or whose method is, as far as their names are in the function."""
    held = maker.__self__ if isinstance(maker, MethodType) else maker
    kind = held if isinstance(held, type) else type(held)
    if kind is not FunctionType:
        yield from map(names_of(kind).get, _names_in(function.__code__))


def _names_in(code: CodeType) -> list[str]:
    """What a function names, also in its comprehensions."""
    return [name for part in _parts(code) for name in part.co_names]


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _parts(inner)


def _function_in(maker: Any) -> FunctionType | None:
    """The function that a call of ``maker`` runs, if that is written in Python."""
    while isinstance(maker, functools.partial | MethodType):
        maker = maker.func if isinstance(maker, functools.partial) else maker.__func__
    if not isinstance(maker, FunctionType) and not isinstance(maker, type):
        maker = vars(type(maker)).get("__call__")
    return maker if isinstance(maker, FunctionType) else None


def _find_line(code: CodeType, pattern: re.Pattern[str]) -> int:
    """The number of the first line of this pattern; 0 if there is none."""
    lines = {line for part in _parts(code) for _, _, line in part.co_lines() if line is not None}
    for line in sorted(lines)[:_MOST_LINES]:
        text = linecache.getline(source_file(code), line)
        if pattern.search(text) and not text.lstrip().startswith("def "):
            return line
    return 0
