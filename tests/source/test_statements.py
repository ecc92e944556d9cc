"""What a statement's text says that it reads, changes and adds to."""

from __future__ import annotations

import ast

import pytest

from profkit.source.statements import Effect, derived_names, effect_of


def _effect(line: str) -> Effect:
    return effect_of(ast.parse(line).body[0])


def _some(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("h = a * x", Effect(assigns=_some("h"), renews=_some("h"), reads=_some("a", "x"))),
        ("h: Tensor = x", Effect(assigns=_some("h"), renews=_some("h"), reads=_some("x"))),
        ("a, (b, *c) = x", Effect(assigns=_some("a", "b", "c"), renews=_some("a", "b", "c"), reads=_some("x"))),
        ("h[i] = x", Effect(assigns=_some("h"), reads=_some("x"))),
        ("self.h = x", Effect(assigns=_some("self"), reads=_some("x"))),
        ("h, self.last = x", Effect(assigns=_some("h", "self"), reads=_some("x"))),
        ("h *= self.g", Effect(assigns=_some("h"), reads=_some("self", "self.g"))),
        ("h += x", Effect(assigns=_some("h"), gathers=_some("h"), reads=_some("x"))),
        ("h = h + x", Effect(assigns=_some("h"), renews=_some("h"), gathers=_some("h"), reads=_some("h", "x"))),
        ("h = x - h", Effect(assigns=_some("h"), renews=_some("h"), reads=_some("h", "x"))),
        (
            "self.out.append(x)",
            Effect(
                acts_on=_some("self"),
                gathers=_some("self.out"),
                reads=_some("self", "self.out", "self.out.append", "x"),
            ),
        ),
        ("for x in xs: pass", Effect(assigns=_some("x"), reads=_some("xs"))),
        ("return h", Effect(reads=_some("h"))),
        ("pass", Effect()),
    ],
)
def test_an_effect_tells_apart_what_is_renewed_changed_and_added_to(line, effect):
    assert _effect(line) == effect


def test_a_method_of_a_view_acts_on_what_it_is_a_view_of():
    assert _effect("h[i].view(-1).copy_(x)").changes == {"h"}
    assert _effect("copy(x)").changes == set()


def test_names_are_derived_through_several_statements_in_any_order():
    lines = ("z = y", "y = x.exp()", "other = 1", "table[i] = z")
    assert derived_names({"x"}, map(_effect, lines)) == {"x", "y", "z", "table"}
