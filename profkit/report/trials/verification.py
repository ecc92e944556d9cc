"""The output of `profkit verify`: each scenario's predicted and measured effect, side by side."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from profkit.core.processor import processor_name
from profkit.core.units import format_count
from profkit.diagnosis.verify import Proof, Share
from profkit.trace.events import Float64s

_NONE = "-"
_HEAD = ("scenario", "kind", "predicted", "measured", "verdict")
_WIDTHS = (len("silence"), len("-100 % (-100 to 100)"), len("-100 % (-100 to 100)"), 0)
"""Of the columns behind the names, before their rows are known."""


def render_verification(proofs: Sequence[Proof], format_name: str) -> str:
    """The results as ``text``, ``json`` or ``markdown``. Shares are of the pitfall's step time or peak memory."""
    names = [proof.name for proof in proofs]
    parts = (render_beginning(names, format_name), *(render_row(one, names, format_name) for one in proofs))
    return "\n".join([*filter(None, parts), render_end(proofs, format_name)])


def render_beginning(names: Sequence[str], format_name: str) -> str:
    """What stands above the rows of scenarios with these names, before any of them is known."""
    if format_name == "markdown":
        title = ["# What the scenarios show", "", f"`profkit verify --all --markdown`, {_machine()}.", ""]
        return "\n".join([*title, f"| {' | '.join(_HEAD)} |", "|---|---|---|---|---|"])
    return _aligned(_HEAD, names) if format_name == "text" else ""


def render_row(proof: Proof, names: Sequence[str], format_name: str) -> str:
    """The row of one scenario, which can be shown while others still run. JSON has none: it is one value."""
    if format_name == "markdown":
        return f"| {' | '.join(_cells(proof))} |"
    return _aligned(_cells(proof), names) if format_name == "text" else ""


def render_end(proofs: Sequence[Proof], format_name: str) -> str:
    """What stands below the rows, and in JSON everything."""
    if format_name == "json":
        return json.dumps({"scenarios": [asdict(proof) for proof in proofs]}, indent=2)
    if format_name == "text":
        return "\n".join(["", *_summary(proofs)])
    note = [
        "",
        "Shares of the pitfall's step time (time) or of its peak memory (memory); the measured ones with a",
        "95 % bootstrap interval, the predicted ones with profkit's own range. Silence: a control, in which",
        "nothing is to be reported.",
        "",
    ]
    return "\n".join([*note, *(f"- {line}" for line in _summary(proofs))])


def _aligned(cells: Sequence[str], names: Sequence[str]) -> str:
    widths = (max(map(len, (*names, _HEAD[0]))), *_WIDTHS)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(proof: Proof) -> tuple[str, ...]:
    return proof.name, proof.kind, _share(proof.predicted), _share(proof.measured), proof.verdict


def _share(share: Share | None) -> str:
    if share is None:
        return _NONE
    return f"{100 * share.fraction:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"


def _summary(proofs: Sequence[Proof]) -> list[str]:
    """How many scenarios hold, and how far off the predicted times are."""
    run = [proof for proof in proofs if proof.was_run]
    holding = sum(proof.holds for proof in run)
    lines = [f"{holding} of {format_count(len(run), 'scenario')} hold"]
    pairs = [
        (proof.predicted.fraction, proof.measured.fraction)
        for proof in run
        if proof.kind == "time" and proof.predicted and proof.measured
    ]
    if len(pairs) > 1:
        predicted, measured = np.array(pairs).T
        error = np.abs(predicted - measured)
        median, most = 100 * np.median(error), 100 * np.percentile(error, 90)
        lines.append(
            f"time: |predicted - measured| of {len(pairs)} scenarios: median {median:.1f} %, 90th percentile "
            f"{most:.1f} % of the step; rank correlation {rank_correlation(predicted, measured):.2f}"
        )
    return lines


def rank_correlation(left: Float64s, right: Float64s) -> float:
    """Spearman's: the correlation of the ranks. It needs no correction for ties, which measured times do not have."""
    ranks = np.stack([np.argsort(np.argsort(values)) for values in (left, right)]).astype(np.float64)
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def _machine() -> str:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    date = datetime.now(timezone.utc).date().isoformat()
    machine = f"{processor_name()}, {os.cpu_count()} CPUs, one thread each"
    return f"{date}, {machine}, Python {platform.python_version()}, torch {torch}"
