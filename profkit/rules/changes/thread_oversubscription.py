"""As many threads as the finding counts CPUs."""

from __future__ import annotations

import re

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, with_argument
from profkit.rules.changes.refusing import Refused

_CPUS = re.compile(r"torch\.set_num_threads\((\d+)\)")


def thread_oversubscription(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    needed = _CPUS.search(finding.fix)
    if needed is None:
        raise Refused("how many threads are enough is not known")
    call = text.call_at(finding.location.line, "set_num_threads")
    return text.replaced(call, with_argument(call, Argument("num_threads", 0), needed[1]))
