"""Advice on a line that takes much time: what fits its text and what it calls."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.derive.facts import Facts
from profkit.patterns.time.advice import _ADVICE, advice_on
from profkit.rules.unattributed_time import unattributed_time
from profkit.run.directory import CallSite, Remark, Run
from profkit.source import remark_kinds as kinds
from profkit.source.costly_lines import COSTLY_KINDS
from profkit.trace.events import no_trace
from tests.traces import facts_of, op, stacks_of, step

SITE = CallSite("train.py", 5, "main", "place = names.index(name)")


def facts(*remarks: Remark) -> Facts:
    return Facts(no_trace(), Run(torch="2.13", remarks=remarks))


def test_each_kind_of_line_has_advice():
    assert set(_ADVICE) == COSTLY_KINDS


@pytest.mark.parametrize(("line", "is_known"), [(4, False), (5, True), (7, True), (8, False)])
def test_the_advice_is_for_the_lines_of_the_expression(line, is_known):
    advice = advice_on(facts(Remark(kinds.LIST_SEARCH, SITE, 7)), "train.py", line)
    assert (advice is not None) is is_known
    assert advice_on(facts(Remark(kinds.LIST_SEARCH, SITE, 7)), "other.py", line) is None


@pytest.mark.parametrize(
    ("kind", "callee", "fits"),
    [
        (kinds.LIST_SEARCH, "", True),
        (kinds.LIST_SEARCH, "names.index", True),
        (kinds.LIST_SEARCH, "index.load", False),
        (kinds.DRAW_FROM_ALL, "np.random.choice", True),
        (kinds.WEIGHTED_DRAW, "Random.choices", True),
        (kinds.WEIGHTED_DRAW, "np.searchsorted", False),
        (kinds.LIST_SEARCH, "json.loads", False),
        (kinds.DEEP_COPY, "copy.deepcopy", True),
        (kinds.DEEP_COPY, "Image.resize", False),
        (kinds.WHOLE_COPY, "….copy", True),
        (kinds.WHOLE_COPY, "np.mean", False),
        (kinds.ROW_OF_FRAME, "_LocationIndexer.__getitem__", True),
        (kinds.FILE_READ, "ImageFile.load", True),
        (kinds.FILE_READ, "numpy.mean", False),
    ],
)
def test_a_line_that_spends_its_time_in_something_else_gets_none(kind, callee, fits):
    assert (advice_on(facts(Remark(kind, SITE)), "train.py", 5, callee) is not None) is fits


def test_text_of_a_tensor_shows_by_what_is_called():
    advice = advice_on(facts(), "train.py", 5, "Tensor.__format__")
    assert advice is not None
    assert advice.does == "The line makes text of a tensor."


def test_a_line_with_two_habits_gets_the_advice_that_fits():
    both = facts(Remark(kinds.DEEP_COPY, SITE), Remark(kinds.FILE_READ, SITE))
    advice = advice_on(both, "train.py", 5, "json.load")
    assert advice is _ADVICE[kinds.FILE_READ]


def test_unattributed_time_says_what_its_line_does():
    events = [event for i in range(3) for event in (step(i, 2000 * i, 2000), op("aten::mm", 2000 * i, 1000))]
    stacks = stacks_of((SITE,), {(0,): 45})
    stacks = replace(stacks, stacks=tuple(replace(one, callee="") for one in stacks.stacks))
    for remarks in ((), (Remark(kinds.LIST_SEARCH, SITE),)):
        run = Run(torch="2.13", remarks=remarks)
        (found,) = unattributed_time.check(facts_of(events, run=run, callsites=(SITE,), stacks=stacks))
        assert ("searches a list" in found.message) is bool(remarks)
        assert ("`set`" in found.fix) is bool(remarks)
