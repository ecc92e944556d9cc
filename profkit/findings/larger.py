"""Which findings may gain more than one of a higher severity, which stands above them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profkit.findings.values import LOW_FROM, Finding

_STEP, _RUN = "step", "run"


def larger_below(findings: Sequence[Finding]) -> Iterator[tuple[int, float, str]]:
    """The number of each finding that saves notably more than one above it of a higher severity, its share and of what.
    They are given in the order in which they rank.

    Shares of different wholes are not compared. But what shortens the steps shortens the run by no greater share.
    """
    for at, one in enumerate(findings):
        share, whole = _share(one)
        above = [_share(other) for other in findings[:at] if other.severity.rank < one.severity.rank]
        if any(whole in {of, _RUN if of == _STEP else of} and share - less >= LOW_FROM for less, of in above):
            yield at + 1, share, whole


def _share(finding: Finding) -> tuple[float, str]:
    """What it saves and of what; a finding that frees memory alone saves nothing of the step."""
    return (0.0, _STEP) if finding.saving is None else (finding.saving.fraction, finding.saving.whole)
