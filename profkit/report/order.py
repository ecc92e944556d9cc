"""The title above the findings, and what it leaves to be said about their order.

They rank by severity, then by gain. An uncertain gain makes a lesser severity, and growing memory comes before time. So
a finding further down may gain more than one above it, and then the title must not claim another order.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.core.units import format_share
from profkit.findings.larger import larger_below
from profkit.findings.values import Finding

LARGEST_FIRST = "What to change, the largest gain first"
SEVEREST_FIRST = "What to change, the most severe first"


def what_to_change(findings: Sequence[Finding]) -> str:
    """The title of the findings, given in the order in which they rank."""
    return SEVEREST_FIRST if any(larger_below(findings)) else LARGEST_FIRST


def order_note(findings: Sequence[Finding]) -> str:
    """Which finding may gain more time than one above it, and why it is not the first; empty if there is none."""
    most = max(larger_below(findings), key=lambda one: one[1], default=None)
    if most is None:
        return ""
    number, share, whole = most
    return (
        f"Number {number} may save more time ({format_share(share)} of the {whole}): severity also counts how sure a "
        "gain is, and memory that grows."
    )
