"""What the names of recorded Python frames say, and whose code these are."""

from __future__ import annotations

import re

import numpy as np

from profkit.derive.facts import Facts, derived_once
from profkit.run import CallSite
from profkit.trace.events import Bools, Category, Rows

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d{1,9})\): (?P<function>.+)$", re.DOTALL)
_LIBRARY = re.compile(
    r"(^|/)(torch|site-packages|dist-packages|lib/python[\d.]+|triton|runpy)(/|\.py|$)|^<"
    r"|(^|/)torchinductor_[^/]*/"
    r"|^(numpy|PIL|cv2|scipy|pandas|decord|av|imageio|tqdm|torchvision/(transforms|io|datasets))(/|\.py$)"
    r"|^(threading|queue|multiprocessing|concurrent|asyncio|selectors|contextlib|functools|importlib|pickle)(/|\.py$)"
)
"""PyTorch strips from a file's path what it shares with ``sys.path``. Of the standard library's names, and of those of
packages that read and prepare data, those count that programs do not give to their own files. `torch.compile` writes to
a directory ``torchinductor_<user>``."""


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
    """The recorded frames of the user's code; derived once."""
    frames: Bools = facts.trace.events.category == Category.PYTHON
    return frames & facts.trace.where_name(is_user_frame) if frames.any() else frames


def commonest_function(facts: Facts, frames: Rows) -> CallSite | None:
    """The function that most of these frames are of, `NONE` among them left out. Its line is that of the ``def``, which
    is all that a recording made elsewhere can give."""
    names = facts.trace.events.name_code[frames[frames >= 0]]
    frame = parse_frame(facts.trace.names[int(np.bincount(names).argmax())]) if names.size else None
    return CallSite(*frame) if frame else None


def is_library(file: str) -> bool:
    """Whether a file is not the user's code, by its path."""
    return _LIBRARY.search(file) is not None
