"""The published JSON Schemas."""

from __future__ import annotations

import json

import pytest

from tests.schemas import FOLDER, make_schemas

PINNED = {
    "diagnosis.schema.json": {"run", "timing", "findings", "skipped", "health"},
    "run.schema.json": set(),
}


@pytest.mark.parametrize(("name", "text"), make_schemas().items())
def test_a_published_schema_is_up_to_date(name: str, text: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == text, "run python -m tests.schemas"


@pytest.mark.parametrize(("name", "required"), PINNED.items())
def test_exactly_the_keys_of_the_contract_are_required(name: str, required: set[str]) -> None:
    schema = json.loads(make_schemas()[name])
    value = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert set(value.get("required", [])) == required
