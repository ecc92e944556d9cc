"""A fix names what the recorded PyTorch has; where that is not known, from which release on it is there."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.releases import has_release, note_since
from profkit.run.directory import Run
from tests.traces import facts_of, op

NOW = 1_790_857_026_000_000_000
"""What newer traces count from; older ones say nothing of it."""


def recorded(torch: str | None = None, base_ns: int | None = None) -> Facts:
    top_level = {} if base_ns is None else {"baseTimeNanoseconds": base_ns}
    return facts_of([op("aten::mm", 0, 5)], run=Run(torch=torch), **top_level)


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ("2.4.0", True),
        ("2.11.0+cu130", True),
        ("2.3.1", False),
        ("1.13.1", False),
        ("3.0.0a0", True),
        (None, None),
        ("a nightly", None),
    ],
)
def test_the_release_is_compared_as_numbers(torch, expected):
    assert has_release(recorded(torch), (2, 4)) is expected


def test_a_key_of_newer_traces_shows_the_oldest_release_that_it_can_be():
    assert has_release(recorded(base_ns=NOW), (2, 3)) is True
    assert has_release(recorded(base_ns=NOW), (2, 4)) is None
    assert has_release(recorded(), (2, 0)) is None
    assert has_release(recorded("1.13.1", base_ns=NOW), (2, 0)) is False


def test_what_is_there_needs_no_note():
    assert note_since(recorded("2.4.0"), (2, 4)) == ""
    assert note_since(recorded(base_ns=NOW), (2, 0)) == ""


def test_what_may_not_be_there_is_told_from_when_on():
    assert note_since(recorded(), (2, 4)) == " (from torch 2.4 on)"
    assert note_since(recorded("1.13.1"), (2, 0)) == " (from torch 2.0 on, this was recorded with 1.13)"
    assert note_since(recorded(), (2, 4), "`foreach=True`") == " (from torch 2.4 on, before that `foreach=True`)"
