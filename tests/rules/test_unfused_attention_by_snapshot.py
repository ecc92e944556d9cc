"""Attention written out, as a memory snapshot alone shows it, and what only looks alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import Suspicion
from profkit.rules.unfused_attention import unfused_attention
from tests.snapshots import BACKWARD, MIB, TORCH, Frame, Recording, facts_of_snapshot, in_model, moving, snapshot_of
from tests.traces import facts_of, op

BASE = 1 << 40
CALL: Frame = (f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")
SOFTMAX: Frame = (f"{TORCH}/nn/functional.py", 2100, "softmax")
HOOK: Frame = (f"{TORCH}/overrides.py", 1741, "handle_torch_function")
WATCH: Frame = ("/opt/checkout/profkit/collect/tensors/recomputation.py", 279, "__torch_function__")
MODULE: list[Frame] = [SOFTMAX, (f"{TORCH}/nn/modules/activation.py", 1500, "forward"), CALL]
LINEAR: list[Frame] = [(f"{TORCH}/nn/modules/linear.py", 134, "forward"), CALL]
CPP: Frame = ("??", 0, "torch::unwind::unwind()")
Piece = tuple[int, list[Frame]]


def found_in(facts: Facts) -> list[Suspicion]:
    assert unfused_attention.by_snapshot is not None
    return list(unfused_attention.by_snapshot(facts))


def passes(pieces: Sequence[Piece], layers: int = 3, weight: int = 1, backward: int = 0) -> Recording:
    """A model of as many layers, each of which allocates these pieces (MiB and stack) and keeps them for the backward
    pass, which allocates ``backward`` MiB for a moment and a gradient as large as the ``weight``."""
    recording = Recording()
    recording.put(BASE, weight * MIB, moving())
    place = BASE
    kept = []
    for _ in range(layers):
        for size, stack in pieces:
            place += 1000 * MIB
            recording.put(place, size * MIB, stack)
            kept.append(place)
    place += 1000 * MIB
    if backward:
        recording.put(place, backward * MIB, BACKWARD)
        recording.free(place, BACKWARD)
    recording.put(place + 900 * MIB, weight * MIB, BACKWARD)
    for address in kept:
        recording.free(address, BACKWARD)
    return recording


def by_copies(table: int = 128, query: int = 4, key: int = 4, end: Sequence[int] = (4, 4)) -> list[Piece]:
    """`softmax(q @ k.T) @ v` where heads do not lie together: copies of two inputs, the product and the softmax, a copy
    and the result."""
    line: Callable[[int], list[Frame]] = in_model
    first = [(query, line(31)), (key, line(31)), (table, line(31))]
    return [*first, (table, line(32)), *((size, line(32)) for size in end)]


def by_name(*softmax: Frame, product: list[Frame] | None = None, function: str = "forward") -> list[Piece]:
    """The same without copies, where the softmax is a function of Python."""

    def line(number: int, *inner: Frame) -> list[Frame]:
        own = [("/home/me/model.py", number, function)] if function != "forward" else []
        return [*inner, *own, *in_model(30 if own else number)]

    return [(128, product or line(31)), (128, line(32, *softmax)), (4, line(33))]


def test_tables_between_copies_of_two_inputs_and_a_result_as_large():
    (found,) = found_in(facts_of_snapshot(passes(by_copies(), backward=128)))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("/home/me/model.py", 31)
    assert [place.line for place in found.also] == [32]
    assert found.evidence["tables_at_the_peak"] == 7, "two of each layer, and one in the backward pass"
    assert found.size_bytes == (7 * 128 - 1) * MIB, "without them the peak comes later, when there is a gradient"
    assert found.confidence == 0.6
    assert found.message.startswith(
        "Attention seems to be written out here (only the sizes tell so): 7 tables of 134 MB"
    )


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(by_copies(query=4, key=8, end=(8, 4)), id="queries and keys of unlike length"),
        pytest.param(by_copies(table=8, end=(8, 4, 4)), id="tables twice as large as an input"),
        pytest.param(by_copies(end=(128, 128, 4, 4)), id="more passes over the table"),
        pytest.param([(size, [WATCH, *stack]) for size, stack in by_copies()], id="recorded under profkit"),
        pytest.param([(size, [CPP, *stack]) for size, stack in by_copies()], id="with frames of C++"),
    ],
)
def test_other_forms_of_the_same(pieces):
    layers = 3 if max(size for size, _ in pieces) > 8 else 40
    assert len(found_in(facts_of_snapshot(passes(pieces, layers)))) == 1


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([(128, in_model(31)), (128, in_model(32)), (4, in_model(32))], id="a feed-forward layer by hand"),
        pytest.param([(128, [*LINEAR, *in_model(31)]), (128, in_model(32))], id="a layer and its activation"),
        pytest.param(by_copies(end=(4, 2)), id="a result that is smaller than the queries"),
        pytest.param(by_copies(end=(4,)), id="a loss over all pairs, as large as an input"),
        pytest.param(by_copies(table=7, end=(7, 7, 4, 4)), id="not twice as large as an input"),
        pytest.param([*by_copies(table=64), (256, in_model(40))], id="something else is largest"),
    ],
)
def test_what_is_not_attention_is_silent(pieces):
    layers = 3 if max(size for size, _ in pieces) > 8 else 40
    assert found_in(facts_of_snapshot(passes(pieces, layers))) == []


@pytest.mark.parametrize(("weight", "is_told"), [(5, True), (4, False), (8, False)])
def test_copies_that_may_be_of_a_weight_are_none_of_keys(weight, is_told):
    """Under autocast a product copies its input and its weight, in half of their precision."""
    assert bool(found_in(facts_of_snapshot(passes(by_copies(), weight=weight)))) is is_told


@pytest.mark.parametrize(
    "softmax",
    [(SOFTMAX,), (SOFTMAX, HOOK, WATCH, SOFTMAX), tuple(MODULE), (("/home/me/nn.py", 5, "custom_softmax"),)],
    ids=["functional", "under a mode", "a module", "their own"],
)
def test_a_softmax_that_the_stacks_name(softmax):
    (found,) = found_in(facts_of_snapshot(passes(by_name(*softmax))))
    assert found.location is not None
    assert found.location.line == 31
    assert [place.line for place in found.also] == [32]
    assert found.confidence == 0.8
    assert "a stack names the softmax" in found.message


@pytest.mark.parametrize(
    ("pieces", "layers", "is_told"),
    [
        pytest.param(by_name(SOFTMAX), 1, False, id="a single table may be a loss over all pairs"),
        pytest.param(by_name(SOFTMAX, function="self_attention"), 1, True, id="unless its function is named attention"),
        pytest.param(by_name((f"{TORCH}/nn/functional.py", 2300, "log_softmax")), 3, False, id="log_softmax"),
        pytest.param(
            by_name(SOFTMAX, product=[*LINEAR, *in_model(31)]), 3, False, id="a router's scores are a layer's"
        ),
        pytest.param(by_name(SOFTMAX)[:2], 3, False, id="no product behind it"),
        pytest.param(by_name(SOFTMAX)[1:], 3, False, id="no product before it"),
    ],
)
def test_only_a_softmax_between_two_products_is_attention(pieces, layers, is_told):
    pieces = [(2 * size, stack) for size, stack in pieces]
    assert bool(found_in(facts_of_snapshot(passes(pieces, layers)))) is is_told


def test_backward_tables_count_only_if_nothing_else_is_as_large():
    pieces = [*by_copies(), (128, [*LINEAR, *in_model(40)])]
    (found,) = found_in(facts_of_snapshot(passes(pieces, backward=128)))
    assert found.evidence["tables_at_the_peak"] == 6


def test_below_a_peak_of_256_mib_the_rule_is_silent():
    assert found_in(facts_of_snapshot(passes(by_copies(table=16), layers=3))) == []


def test_without_a_history_nothing_is_known_of_the_order():
    assert found_in(facts_of_snapshot(passes(by_copies()), with_history=False)) == []
    assert found_in(facts_of_snapshot(Recording())) == []


def test_a_trace_shows_the_formula_itself():
    facts = Facts(facts_of([op("aten::mm", 1, 9)]).trace, snapshot=snapshot_of(passes(by_copies())))
    assert found_in(facts) == []
