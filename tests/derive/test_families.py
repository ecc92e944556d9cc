"""Operators by what they do."""

from __future__ import annotations

import pytest

from profkit.derive.families import ELEMENTWISE, MATRIX, VIEW, base_name, operators_of, writes_in_place
from tests.traces import annotation, op, trace_of


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("aten::add", "add"),
        ("aten::add_", "add"),
        ("aten::_softmax", "_softmax"),
        ("aten::__and__", "__and__"),
        ("mylib::add", ""),
        ("Torch-Compiled Region: 0/0", ""),
    ],
)
def test_the_base_of_a_name_has_no_namespace_and_no_in_place_underscore(name, base):
    assert base_name(name) == base


@pytest.mark.parametrize(
    ("name", "is_in_place"),
    [("aten::add_", True), ("fill_", True), ("aten::add", False), ("aten::__and__", False), ("aten::_softmax", False)],
)
def test_one_underscore_behind_a_name_says_that_it_writes_into_its_input(name, is_in_place):
    assert writes_in_place(name) is is_in_place


def test_no_operator_belongs_to_two_families():
    assert not ELEMENTWISE & MATRIX
    assert not ELEMENTWISE & VIEW
    assert not MATRIX & VIEW


def test_only_operators_belong_to_a_family():
    trace = trace_of([op("aten::add_", 0, 1), annotation("aten::add", 2, 1), op("aten::mm", 4, 1), op("aten::t", 6, 1)])
    assert operators_of(trace, ELEMENTWISE).tolist() == [True, False, False, False]
    assert operators_of(trace, ELEMENTWISE, MATRIX).tolist() == [True, False, True, False]
    assert operators_of(trace).tolist() == [False] * 4
