"""Functions that give the same each time: the text with one call, or the reason why there is none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.rules.changes import Refused, changed_file
from tests.fixes.cases import MARK
from tests.rules.changes.test_changes import finding

ONCE = "Call it once, before the loop or where its object is made."
EACH_STEP = "`{}` is called 3 times a step with the arguments of the step before, and gave an equal result each time."
WITHIN = "`{}` is called 3 times a step with the arguments of an earlier call of the step, and gave an equal result."


def once(text: str, callee: str, message: str = EACH_STEP, fix: str = ONCE) -> str:
    line = next(at for at, one in enumerate(text.splitlines(), 1) if f"{callee.rpartition('.')[2]}(" in one)
    found = replace(finding("repeated-call", line, fix), message=message.format(callee), evidence={"callee": callee})
    return changed_file(text.encode(), found).decode()


@pytest.mark.parametrize(("message", "indent"), [(EACH_STEP, 4), (WITHIN, 8)])
def test_the_scenarios_table_is_made_once_or_once_a_step(message, indent):
    text = Path("scenarios/repeated_call.py").read_text(encoding="utf-8")
    before, pitfall = text[: text.index("def pitfall")], text[text.index("def pitfall") : text.index("def fix")]
    number = next(at for at, one in enumerate(text.splitlines(), 1) if MARK.search(one))
    said = message.format("filters")
    found = replace(finding("repeated-call", number, ONCE), message=said, evidence={"callee": "filters"})
    after = changed_file(text.encode(), found).decode()
    made = f"{' ' * indent}filters_result = filters(BINS, BANDS)\n"
    row = "    for i in range(STEPS):\n" if indent == 4 else "        yield torch.stack(\n"
    expected = pitfall.replace("sample, filters(BINS, BANDS))", "sample, filters_result)").replace(row, made + row, 1)
    assert after == before + expected + text[text.index("def fix") :]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "for x in xs:\n    table = make_table(n)\n    f(x, table)\n",
            "table = make_table(n)\nfor x in xs:\n    f(x, table)\n",
        ),
        (
            "for e in es:\n\tfor x in xs:\n\t\tf(x, make_table(n))  # why\n",
            "table = make_table(n)\nfor e in es:\n\tfor x in xs:\n\t\tf(x, table)  # why\n",
        ),
        (
            "@g\r\ndef fit(n):\r\n    for e in es:\r\n        f(e, m.make_table(n))\r\n",
            "@g\r\ndef fit(n):\r\n    table = m.make_table(n)\r\n    for e in es:\r\n        f(e, table)\r\n",
        ),
        (
            "for n in ns:\n    for x in xs:\n        f(x, make_table(n))\n",
            "for n in ns:\n    table = make_table(n)\n    for x in xs:\n        f(x, table)\n",
        ),
    ],
)
def test_a_call_moves_before_the_loops_that_repeat_it(before, after):
    assert once(before, "make_table") == after


def test_of_calls_of_one_step_only_the_innermost_loop_is_known():
    text = "for e in es:\n    for x in xs:\n        f(x, make_table(n))\n"
    after = "for e in es:\n    table = make_table(n)\n    for x in xs:\n        f(x, table)\n"
    assert once(text, "make_table", WITHIN) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("y = [f(make(x)) for x in xs]\n", "`x`, which it reads, is another in each round"),
        (
            "for x in xs:\n    n += 1\n    f(make(n))\n",
            "no loop around the line repeats the call with all that it reads",
        ),
        ("for x in xs:\n    if x:\n        f(make(n))\n", "no loop around the line repeats the call with all that it"),
        ("for x in xs:\n    y = make(n) if x else x\n", "a condition decides how often it is called"),
        ("while any(f(make(n)) for x in xs):\n    g()\n", "a condition decides how often it is called"),
        ("for x in xs:\n    f(lambda: make(n))\n", "no loop around the line repeats the call with all that it reads"),
        ("f(make(n))\n", "no loop around the line repeats the call with all that it reads as it was"),
        ("for x in xs:\n    make(n).add_(x)\n", "line 2 changes the result in place"),
        ("for x in xs:\n    f(make(rand(2)))\n", "the line calls `rand`, which gives something else each time"),
        ("def g():\n    global n\nfor x in xs:\n    f(make(n))\n", "line 2 shares `n` with another function"),
        ("for x in xs:\n    f(make(n), make(n))\n", "2 calls of `make` on that line"),
        ("for x in xs:\n    y = make(n)\n    y.append(x)\n", "`y` changes in the loop"),
    ],
)
def test_a_call_that_may_give_something_else_stays(text, why):
    with pytest.raises(Refused, match="^" + re.escape(why)):
        once(text, "make")


def test_what_a_function_makes_for_itself_stays_there():
    with pytest.raises(Refused, match=r"^the function would have to be given what it makes: whoever calls it decides"):
        once("table = make(n)\n", "make", fix="Make it once, before the loop over these calls, and pass it on.")
