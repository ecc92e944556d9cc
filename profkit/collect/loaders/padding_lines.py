"""The lines of the program that pad the batches of a DataLoader."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from profkit.run.directory import CallSite
from profkit.source.attributes import attributes_of
from profkit.source.code import function_name, source_file, source_line

_PADS = re.compile(r"\w*pad\w*\(|\bpadding\s*=|\bmax_length\s*=|[\"'](?:input_)?max_length[\"']", re.IGNORECASE)
"""Calls that pad, such as ``pad_sequence`` and ``F.pad``, and what a tokenizer takes."""
_MAKES = re.compile(r"\b(?:zeros|full|ones|empty|new_zeros|new_full|zeros_like|full_like|resize_?)\(")
"""What makes an array for the rows to be written into."""
_MOST_LINES = 200
"""Of a function. In a longer one the first line that looks like padding may well be another."""


def find_padding_lines(iterator: Any, is_user: Mapping[str, bool]) -> tuple[CallSite, ...]:
    """The line that pads in the ``collate_fn`` of this loader's iterator, or else where its dataset makes a row; none
    if neither is the program's own or their text does not show it."""
    known = attributes_of(iterator)
    makers = known.get("_collate_fn"), getattr(type(known.get("_dataset")), "__getitem__", None)
    codes = [code for maker in makers for code in _codes_of(maker, is_user)]
    lines = [(code, line) for code in codes if (line := _find_padding_line(code))]
    return tuple(site_at(code, line) for code, line in lines[:1])


def site_at(code: CodeType, line: int) -> CallSite:
    """That line of the code."""
    file = source_file(code)
    return CallSite(file, line, function_name(code), source_line(file, line))


def _codes_of(maker: Any, is_user: Mapping[str, bool]) -> Iterator[CodeType]:
    """The code of a function of the program, and of those of its module that it calls."""
    function = _function_in(maker)
    if function is None or not is_user[function.__code__.co_filename]:
        return
    yield function.__code__
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and is_user[called.__code__.co_filename]:
            yield called.__code__


def _function_in(maker: Any) -> FunctionType | None:
    """The function that a call of ``maker`` runs, if that is written in Python."""
    while isinstance(maker, functools.partial | MethodType):
        maker = maker.func if isinstance(maker, functools.partial) else maker.__func__
    if not isinstance(maker, FunctionType) and not isinstance(maker, type):
        maker = vars(type(maker)).get("__call__")
    return maker if isinstance(maker, FunctionType) else None


def _find_padding_line(code: CodeType) -> int:
    """The number of the line that pads, or else of the first that makes an array to fill; 0 if there is none."""
    lines = sorted({line for _, _, line in code.co_lines() if line is not None})[:_MOST_LINES]
    texts = [(line, linecache.getline(source_file(code), line)) for line in lines]
    for pattern in (_PADS, _MAKES):
        for line, text in texts:
            if pattern.search(text) and not text.lstrip().startswith("def "):
                return line
    return 0
