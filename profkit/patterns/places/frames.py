"""What the names of recorded Python frames say, and whose code they are."""

from __future__ import annotations

import re

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.run.directory import CallSite
from profkit.trace.events import Bools, Category, Rows

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d{1,9})\): (?P<function>.+)$", re.DOTALL)
_OWN = re.compile(r"(^|/)profkit/((collect|core|run|source|integrations|cli)/(\w+/)*\w+|__init__|__main__)\.py$")
"""profkit's own files, wherever it is installed: they stand in the stacks of the program that they record. Only the
rooms that run there count, because a program may lie in a folder of that name too."""
_LIBRARY = re.compile(
    r"(^|/)(torch|site-packages|dist-packages|lib/python[\d.]+|triton|runpy)(/|\.py|$)|^<"
    r"|(^|/)torchinductor_[^/]*/"
    r"|^(numpy|PIL|cv2|scipy|pandas|decord|av|imageio|tqdm|torchvision/(transforms|io|datasets))(/|\.py$)"
    r"|^(threading|queue|multiprocessing|concurrent|asyncio|selectors|contextlib|functools|importlib|pickle)(/|\.py$)"
)
"""PyTorch strips from a file's path what it shares with ``sys.path``. Of the standard library, and of packages that
read and prepare data, only names that programs do not use for their own files count. `torch.compile` writes to a
directory ``torchinductor_<user>``."""

_PACKAGE = re.compile(r"(^|/)(site|dist)-packages/(?!(torch|triton|profkit)/)")


def parse_frame(name: str) -> tuple[str, int, str] | None:
    """``train.py(12): main`` → file, line of the ``def``, function; None for built-in functions."""
    match = _FRAME.match(name)
    return (match["file"], int(match["line"]), match["function"]) if match else None


def is_user_frame(name: str) -> bool:
    """Whether it is a function of the user's code."""
    frame = parse_frame(name)
    return frame is not None and not is_library(frame[0])


@derived_once
def user_frames(facts: Facts) -> Bools:
    """The recorded frames of the user's code."""
    frames: Bools = facts.trace.events.category == Category.PYTHON
    return frames & facts.trace.where_name(is_user_frame) if frames.any() else frames


def commonest_function(facts: Facts, frames: Rows) -> CallSite | None:
    """The function of most of these frames, without `NONE` among them. Its line is that of the ``def``: a recording
    made elsewhere shows no more."""
    names = facts.trace.events.name_code[frames[frames >= 0]]
    frame = parse_frame(facts.trace.names[int(np.bincount(names).argmax())]) if names.size else None
    return CallSite(*frame) if frame else None


def is_library(file: str) -> bool:
    """Whether a file, by its path, is not the user's code."""
    return _LIBRARY.search(file) is not None or is_profkits(file)


def is_profkits(file: str) -> bool:
    """Whether a file, by its path, is profkit's own."""
    return _OWN.search(file) is not None


def is_package(file: str) -> bool:
    """Whether a file, by its path, belongs to an installed package other than PyTorch, such as a library of models."""
    return _PACKAGE.search(file) is not None
