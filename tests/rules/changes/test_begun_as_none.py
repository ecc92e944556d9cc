"""What grows from None on: the first round becomes one of the parts, if it surely is the first."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

RULE = "growing-concatenation"
TEXT = """import torch
rows = torch.arange(6.0).view(3, 2)
def all_of(rows):
    out = None
    for row in rows:
        x = row[None] * 2
        out = x if out is None else torch.cat([out, x], dim=0)  # here
    return out
print(all_of(rows), all_of([]))
"""
LINE = "        out = x if out is None else torch.cat([out, x], dim=0)  # here\n"
BLOCK = """        if out is None:
            out = x
        else:
            out = torch.cat([out, x], dim=0)  # here
"""
OTHER_WAY = "        out = torch.cat((out, x)) if out is not None else x  # here\n"


@pytest.mark.parametrize("line", [LINE, BLOCK, OTHER_WAY])
def test_parts_are_collected_and_without_rounds_it_stays_none(line):
    text = TEXT.replace(LINE, line)
    made = changed(RULE, text)
    assert "    out_parts = []\n    for row in rows:\n        x = row[None] * 2\n        out_parts.append(x)" in made
    assert " if out_parts else None\n    return out\n" in made
    assert printed(made) == printed(text)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("out = None", "out = rows[:1]", "nothing shows that `out` is None"),
        ("out = None\n", "out = None\n    out = rows[:1]\n", "nothing shows that `out` is None"),
        ("out = None\n", "if len(rows):\n        out = None\n", "nothing shows that `out` is None"),
        ("out = x if", "out = x[:0] if", "is computed from it"),
        ("[out, x]", "[out, x + out[-1:]]", "is computed from it"),
        ("row[None] * 2\n", "row[None] * (2 if out is None else len(out))\n", "names `out` inside"),
        ("out is None", "out is None or len(out) > 1", "does not assign what it joins"),
        ("out is None", "len(rows) is None", "does not assign what it joins"),
    ],
)
def test_other_first_rounds_stay_as_they_are(old, new, reason):
    assert old in TEXT
    with pytest.raises(Refused, match=reason):
        changed(RULE, TEXT.replace(old, new))


def test_a_block_that_does_more_than_join_stays():
    for more in ("            print(x)\n            out = x\n", "            other = x\n"):
        with pytest.raises(Refused):
            changed(RULE, TEXT.replace(LINE, BLOCK.replace("            out = x\n", more)))
