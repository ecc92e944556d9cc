"""The search for unused parameters is not asked for."""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, without_argument
from profkit.rules.changes.refusing import Refused


def unused_parameter_search(text: ProgramText, finding: Finding) -> bytes:
    del finding  # it names the forward pass
    made = text.calls("DistributedDataParallel", "DDP")
    if len(made) != 1:
        raise Refused(f"{len(made) or 'no'} call{'s' * (len(made) != 1)} of `DistributedDataParallel` in that file")
    return text.replaced(made[0], without_argument(made[0], Argument("find_unused_parameters"), "True"))
