"""The loader keeps its workers between epochs.

New workers cost a draw of PyTorch's random numbers. Without it, later epochs draw another order of the samples.
"""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import Argument, ProgramText, with_argument
from profkit.rules.changes.drawing import draws_order, draws_samples
from profkit.rules.changes.refusing import AltersNumbers


def workers_respawned(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "DataLoader")
    after = text.replaced(call, with_argument(call, Argument("persistent_workers"), "True"))
    if draws_order(call) or draws_samples(text):
        raise AltersNumbers("with workers that stay, later epochs draw other random numbers", after)
    return after
