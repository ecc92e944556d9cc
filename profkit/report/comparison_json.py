"""A comparison as JSON: write it and read it back."""

from __future__ import annotations

from pathlib import Path

import msgspec

from profkit.comparing.values import SCHEMA, Comparison
from profkit.errors import UnreadableInput
from profkit.report.json import to_json


def render_json(comparison: Comparison) -> str:
    """The whole comparison as JSON, with the key ``schema``."""
    return to_json(comparison)


def parse_json(data: bytes, path: Path | str = "comparison.json") -> Comparison:
    """The comparison that `render_json` wrote. Raises `UnreadableInput`, naming ``path``, for anything else."""
    try:
        comparison = msgspec.json.decode(data, type=Comparison)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(path, f"is not a comparison that profkit wrote: {error}") from error
    if comparison.schema != SCHEMA:
        raise UnreadableInput(path, f"has the schema {comparison.schema!r:.80}; this profkit reads {SCHEMA!r}")
    return comparison
