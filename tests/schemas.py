"""The JSON Schemas of what profkit writes, published in docs/schemas.

    python -m tests.schemas

writes them anew from the values; a test compares them.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from profkit.findings.values import SCHEMA, Diagnosis
from profkit.run.directory import Run

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


def make_schemas() -> dict[str, str]:
    """The files, by name (JSON Schema 2020-12)."""
    values = {"diagnosis": (Diagnosis, SCHEMA), "run": (Run, Run().schema)}
    return {f"{name}.schema.json": _schema_of(kind, title) for name, (kind, title) in values.items()}


def _schema_of(kind: type, title: str) -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**head, **msgspec.json.schema(kind)}, indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in make_schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
