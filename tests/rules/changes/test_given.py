"""Meters, whose callers decide whether tensors or numbers are kept."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import changed, expect

METER = """
    import torch
    class Meter:
        def update(self, {given}):
            {line}  # here
    for x in data:
        loss = criterion(f(x))
        loss.backward()
        {calls}
"""
GUARDED = "value.detach() if torch.is_tensor(value) else value"


def meter(given: str, line: str, calls: str) -> str:
    return METER.format(given=given, line=line, calls=calls)


@pytest.mark.parametrize(
    ("given", "calls", "kept"),
    [
        ("value", "m.update(loss)", "value.detach()"),
        ("value", "m.update(loss); m.update(value=loss)", "value.detach()"),
        ("value", "m.update(loss); m.update(0.5)", GUARDED),
        ("value", "m.update(loss); m.update(loss.item())", GUARDED),
        ("value", "m.update(accuracy(x))", GUARDED),  # which may be either
        ("value", "pass", GUARDED),  # it is called from another file
        ("value", "m.update(*both)", GUARDED),
        ("value: torch.Tensor", "m.update(y)", "value.detach()"),
        ("value: float", "m.update(y)", GUARDED),
        ("key, value", "m.update('a', loss)", "value.detach()"),
        ("key, value", "m.update('a', len(x)); m.update('b', loss)", GUARDED),
    ],
)
def test_a_value_that_may_be_a_number_is_asked_what_it_is(given, calls, kept):
    before = meter(given, "self.all.append(value)", calls)
    assert changed("retained-graph", before) == expect(before).replace("append(value)", f"append({kept})")


def test_numbers_by_their_names_are_asked_one_by_one():
    before = """
        def update(self, **values):
            for name, value in values.items():
                self.meters[name].append(value)  # here
    """
    after = 'append(value.detach() if hasattr(value, "detach") else value)'
    assert changed("retained-graph", before) == expect(before).replace("append(value)", after)
    own = before.replace("values.items()", "self.losses.items()")
    assert changed("retained-graph", own) == expect(own).replace("append(value)", "append(value.detach())")


@pytest.mark.parametrize(
    ("given", "line", "calls", "after"),
    [
        ("value, n=1", "self.sum += value * n", "m.update(loss, len(x)); m.update(0.5)", f"({GUARDED}) * n"),
        ("value, n=1", "self.sum += value * n", "m.update(loss, len(x))", "(value * n).detach()"),
        ("value", "self.sum += value * self.n", "m.update(loss); m.update(0.5)", f"({GUARDED}) * self.n"),
    ],
)
def test_a_sum_of_what_may_be_numbers(given, line, calls, after):
    before = meter(given, line, calls)
    kept = line.partition("+= ")[2]
    assert changed("retained-graph", before) == expect(before).replace(kept, after)


def test_what_a_module_gets_is_a_tensor():
    before = "class A(nn.Module):\n    def forward(self, x):\n        self.seen.append(x)  # here\n"
    assert changed("retained-graph", before) == before.replace("(x)  #", "(x.detach())  #")
    hook = before.replace("forward", "hook")
    assert 'x.detach() if hasattr(x, "detach") else x' in changed("retained-graph", hook)


def test_of_two_that_may_be_numbers_neither_is_guessed():
    with pytest.raises(Refused, match="is decided by who calls the function"):
        changed("retained-graph", meter("value, weight", "self.sum += value * weight", "pass"))
