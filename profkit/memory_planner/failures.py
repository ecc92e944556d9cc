"""Why a plan failed: an operator needed a tensor's value, or the user's code raised an exception."""

from __future__ import annotations

import os
import textwrap
import traceback
from types import TracebackType

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from profkit.source.code import PROFKIT
from profkit.source.user_code import UserFiles

_NEED_DATA = (DataDependentOutputException, DynamicOutputShapeException)
_LONGEST = 160
"""Two lines on most terminals. The whole traceback is shown where it helps."""
_LIBRARIES = (os.path.dirname(str(torch.__file__)) + os.sep, PROFKIT)


def describe_missing_data(error: BaseException) -> str:
    """One line if an operator needed tensors with data; else empty."""
    if isinstance(error, _NEED_DATA):
        return (
            f"{_place(error.__traceback__)} needs the values of a tensor ({error.func}), and a plan has none: "
            "plan a model without that line, with fixed lengths and masks"
        )
    if isinstance(error, UnsupportedOperatorException):
        return (
            f"{_place(error.__traceback__)} calls {error.func}, which cannot be planned without a fake"
            " implementation: torch.library.register_fake adds one"
        )
    return ""


def _place(trace: TracebackType | None) -> str:
    """The innermost line of the user's code, else of a library other than PyTorch."""
    frames = traceback.extract_tb(trace)
    is_user = UserFiles()
    own = [one for one in frames if is_user[one.filename]]
    others = [one for one in frames if not one.filename.startswith(_LIBRARIES)]
    place = (own or others or list(frames))[-1]
    return f"{os.path.relpath(place.filename) if own else place.filename}:{place.lineno} in {place.name}"


def first_line(error: BaseException) -> str:
    """The first line of the message, cut at a word."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    cut = textwrap.shorten(first, _LONGEST, placeholder=" ...")
    return cut if cut != "..." else first[:_LONGEST]


def traceback_of(error: BaseException) -> str:
    """The traceback, beginning at the user's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_LIBRARIES) and _leads_out(trace.tb_next):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _leads_out(trace: TracebackType | None) -> bool:
    """Whether code outside PyTorch and profkit follows."""
    return any(not one.filename.startswith(_LIBRARIES) for one in traceback.extract_tb(trace))
