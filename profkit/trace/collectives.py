"""What a trace says about a collective, in the event of its kernel or of the call that started it.

``record_param_comms`` and NCCL's kernels have these arguments since PyTorch 2.2 (``saveNcclMeta`` in
``torch/csrc/profiler/util.cpp``). A `Trace` keeps them as one text in its tables, as few events have any.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from profkit.trace.events import NONE

_MOST_RANKS = 1 << 20
_RANK_LIST = re.compile(r"\[\s*\d{1,9}(?:\s*,\s*\d{1,9})*\s*\]")
_CUT_LIST = re.compile(r"\[\s*(\d{1,9}(?:\s*,\s*\d{1,9})+)\s*,\s*\.\.\.\s*,\s*(\d{1,9})\s*\]")


class CollectiveArguments(Struct, frozen=True, array_like=True):
    """Empty or `NONE` for what the trace does not say. ``elements`` counts the rank's input, of type ``dtype``, and
    ``sequence`` the group's collectives. A message from one rank to another has a ``source`` or a ``target``."""

    operation: str = ""
    elements: int = NONE
    dtype: str = ""
    group: str = ""
    size: int = NONE
    ranks: str = ""
    description: str = ""
    first_rank: int = NONE
    rank_stride: int = NONE
    sequence: int = NONE
    source: int = NONE
    target: int = NONE

    @property
    def members(self) -> tuple[int, ...] | None:
        """The group's ranks, None if unknown. A list of more than 30 is abbreviated: ``[0, 8, 16, ..., 504]``. If its
        ranks are evenly spaced, the spacing or the stride gives the rest."""
        if _RANK_LIST.fullmatch(self.ranks):
            found = tuple(int(rank) for rank in self.ranks[1:-1].split(","))
            if self.size in (NONE, len(found)):
                return found
        if 0 < self.size <= _MOST_RANKS and self.first_rank >= 0 and (self.rank_stride > 0 or self.size == 1):
            return tuple(self.first_rank + self.rank_stride * i for i in range(self.size))
        cut = _CUT_LIST.fullmatch(self.ranks)
        if cut is not None and 0 < self.size <= _MOST_RANKS:
            known = [int(rank) for rank in cut[1].split(",")]
            found = tuple(known[0] + (known[1] - known[0]) * i for i in range(self.size))
            if found[: len(known)] == tuple(known) and found[-1] == int(cut[2]) and len(known) < self.size:
                return found
        return None


_decoder = msgspec.json.Decoder(CollectiveArguments)


def read_arguments(text: str) -> CollectiveArguments:
    """Read one of the trace's texts. A text from elsewhere that is none gives unknown arguments."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, ValueError):
        return CollectiveArguments()
