"""The loader gets the workers that a step needs."""

from __future__ import annotations

import re

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, with_argument
from profkit.rules.changes.refusing import Refused

_WORKERS = re.compile(r"\bnum_workers=(\d+)")
_PINNED = "pin_memory=True"


def input_bound(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    needed = _WORKERS.search(finding.fix)
    if needed is None:
        raise Refused("more workers would not help: a batch itself has to become cheaper")
    call = text.call_at(finding.location.line, "DataLoader")
    changed = with_argument(call, Argument("num_workers", 5), needed[1])
    changed = with_argument(changed, Argument("persistent_workers"), "True")
    if _PINNED in finding.fix:
        changed = with_argument(changed, Argument("pin_memory", 7), "True")
    return text.replaced(call, changed)
