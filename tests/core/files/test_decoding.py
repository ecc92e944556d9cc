"""JSON of a file is what profkit could have written, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profkit.core.files.decoding import DAMAGE, decode_own


@pytest.mark.parametrize(
    "value",
    [
        {"a": [2**63 - 1, -(2**63), 10**18, 0.12345678901234567, 1e300]},
        {"1234567890123456789012345": "1234567890123456789012345"},
    ],
)
def test_numbers_of_64_bits_and_digits_in_text_are_read(value: object) -> None:
    assert decode_own(json.dumps(value).encode(), dict[str, Any]) == value


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30, 10**400])
def test_a_larger_number_anywhere_is_refused(number: int) -> None:
    with pytest.raises(DAMAGE, match="more than 64 bits"):
        decode_own(json.dumps({"a": [{"b": number}]}).encode(), dict[str, Any])


def test_more_bits_may_be_asked_for() -> None:
    assert decode_own(b'{"a": %d}' % 10**30, dict[str, Any], 512) == {"a": 10**30}
    with pytest.raises(DAMAGE, match="more than 512 bits"):
        decode_own(b'{"a": %d}' % 10**200, dict[str, Any], 512)


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"a": "\xed"}', b'{"a": ' + b"[" * 10**6])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(DAMAGE):
        decode_own(data, dict[str, Any])
