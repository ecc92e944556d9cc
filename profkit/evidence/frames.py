"""What the names of recorded Python frames say, and whose code these are."""

from __future__ import annotations

import re

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


def is_library(file: str) -> bool:
    """Whether a file is not the user's code, by its path."""
    return _LIBRARY.search(file) is not None
