"""What tests of several rules need."""

from __future__ import annotations

import pytest


@pytest.fixture
def cheap_handing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which workers hand over batches for next to nothing: the tests' times are far shorter than those of
    programs."""
    monkeypatch.setattr("profkit.rules.input_bound._TENSOR_NS", 0)
    monkeypatch.setattr("profkit.rules.input_bound._PAGE_NS", 250)
