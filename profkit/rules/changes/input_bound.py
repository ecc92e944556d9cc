"""The loader gets the workers that a step needs.

Workers that stay would skip a draw of PyTorch's random numbers in each later epoch, whose samples would come in another
order. They are asked for only where workers draw other numbers anyway, or the order is not drawn.
"""

from __future__ import annotations

import re

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, with_argument
from profkit.rules.changes.drawing import draws_order, draws_samples
from profkit.rules.changes.refusing import AltersNumbers, Refused

_WORKERS = re.compile(r"\bnum_workers=(\d+)")
_PINNED = "pin_memory=True"


def input_bound(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    needed = _WORKERS.search(finding.fix)
    if needed is None:
        raise Refused("more workers would not help: a batch itself has to become cheaper")
    call = text.call_at(finding.location.line, "DataLoader")
    changed = with_argument(call, Argument("num_workers", 5), needed[1])
    draws = draws_samples(text)
    if draws or not draws_order(call):
        changed = with_argument(changed, Argument("persistent_workers"), "True")
    if _PINNED in finding.fix:
        changed = with_argument(changed, Argument("pin_memory", 7), "True")
    after = text.replaced(call, changed)
    if draws:
        raise AltersNumbers("the workers draw other random numbers for the samples than the program itself", after)
    return after
