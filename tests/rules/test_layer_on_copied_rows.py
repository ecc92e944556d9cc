"""Layers on rows that were gathered or repeated: reported where there are at most half as many different ones."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import Facts, Need, Suspicion, missing_needs
from profkit.rules.layer_on_copied_rows import layer_on_copied_rows
from profkit.run.directory import CallSite, DataFlow, JoinedCopies, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
Call = tuple[str, list[Any], list[str], tuple[int, ...]]
"""An operator, its shapes, its plain values, and the makers of what it takes."""
SITE = CallSite("net.py", 9, "Net.forward", "messages = self.linear(torch.cat([x[source], x[target]], 1))")
NODES, EDGES, WIDTH = 100, 2000, 32
WEIGHT, BIAS, X, INDEX = -1, -2, -3, -4


def gather(maker: int = X, rows: int = NODES, width: int = WIDTH) -> Call:
    return "aten::index", [[rows, width], []], ["", ""], (maker, INDEX)


def linear(maker: int, rows: int = EDGES, width: int = WIDTH, results: int = WIDTH) -> Call:
    return "aten::linear", [[rows, width], [results, width], [results]], ["", "", ""], (maker, WEIGHT, BIAS)


def cat(left: int, right: int, widths: tuple[int, int] = (WIDTH, WIDTH), axis: str = "1") -> Call:
    return "aten::cat", [[[EDGES, widths[0]], [EDGES, widths[1]]], []], ["", axis], (left, right)


def recording(*calls: Call, copies: tuple[JoinedCopies, ...] = ()) -> Any:
    """A located step and two measured ones of 1000 µs: each call takes 100 µs, and 10 µs pass until the next."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 1000.0 * i, 1000))
        for number, (name, dims, values, _) in enumerate(calls):
            at = 1000.0 * i + 10 + 110 * number
            if i == 0:
                events.append(annotation(f"{CALL_MARK}{number}", at - 0.5, 101))
            events.append(op(name, at, 100, dims=dims, concrete=values))
        if i == 0:
            events.append(mark(0, 5, 110 * len(calls)))
    run = Run(flow=DataFlow(tuple(call[3] for call in calls), copies=copies))
    return facts_of(events, callsites=(SITE,), run=run)


def find(facts) -> list[Suspicion]:
    return list(layer_on_copied_rows.check(facts))


def test_a_layer_on_gathered_rows_is_reported_on_its_line():
    (found,) = find(recording(gather(), linear(0)))
    assert found.location is not None
    assert found.location.line == 9
    assert found.message == "1 layer a step multiplies rows that are copies: 2,000 made of at most 100."
    assert found.evidence == {"rows": 2000, "distinct_rows": 100, "share_left": 0.05}


def test_the_layer_keeps_the_share_of_the_distinct_rows():
    facts = recording(gather(), linear(0))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(95 / 1000, abs=1e-3)


def test_gathering_narrower_rows_takes_less_time():
    facts = recording(gather(), linear(0, results=WIDTH // 2))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((95 + 50) / 1000, abs=1e-3)


def test_where_gathering_wider_rows_takes_longer_than_the_layer_it_is_silent():
    """One and a half times as wide takes 50 µs more, of the 95 that the layer saves; twice as wide 100."""
    facts = recording(gather(), linear(0, results=WIDTH * 3 // 2))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((95 - 50) / 1000, abs=1e-3)
    assert find(recording(gather(), linear(0, results=2 * WIDTH))) == []


def test_both_ends_of_an_edge_side_by_side_are_two_layers_on_the_nodes():
    """The concatenation goes; adding the two parts takes 12 bytes for each of their 64,000 numbers: 80 µs."""
    facts = recording(gather(), gather(), cat(0, 1), linear(2, width=2 * WIDTH))
    (found,) = find(facts)
    assert found.evidence["share_left"] == 0.05
    assert "side by side" in found.fix
    saved = 95 + 100 - EDGES * WIDTH * 12 / 9.6e9 * 1e6
    assert predict_saving(facts, found.edit).fraction == pytest.approx(saved / 1000, abs=2e-3)


def test_a_concatenation_that_something_else_takes_stays():
    """Three quarters as wide: both gathers save 25 µs each, and adding the parts takes 60."""
    both = gather(), gather(), cat(0, 1), linear(2, width=2 * WIDTH, results=24)
    added = EDGES * 24 * 12 / 9.6e9 * 1e6
    for other, saved in ((-9, 95 + 50 + 100 - added), (2, 95 + 50 - added)):
        facts = recording(*both, ("aten::sum", [[EDGES, 2 * WIDTH]], [""], (other,)))
        assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(saved / 1000, abs=2e-3)


def test_differences_to_neighbours_beside_the_centre_are_followed_to_the_points():
    """`cat(x[index] - x.repeat, x.repeat)`, laid out anew, before a convolution of size 1."""
    facts = recording(
        gather(),
        ("aten::repeat", [[NODES, 1, WIDTH], []], ["", "[1, 20, 1]"], (X,)),
        ("aten::sub", [[EDGES, WIDTH], [EDGES, WIDTH], []], ["", "", "1"], (0, 1)),
        cat(2, 1),
        ("aten::contiguous", [[1, 2 * WIDTH, NODES, 20], []], ["", "0"], (3,)),
        (
            "aten::conv2d",
            [[1, 2 * WIDTH, NODES, 20], [WIDTH, 2 * WIDTH, 1, 1], [], [], [], [], []],
            ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"],
            (4, WEIGHT),
        ),
    )
    (found,) = find(facts)
    assert found.evidence == {"rows": 2000, "distinct_rows": 100, "share_left": 0.05}


def test_pairs_made_by_expanding_are_followed_to_the_things():
    def expand(shape: list[int]) -> Call:
        return "aten::expand", [shape, [], []], ["", "[50, 50, 32]", "False"], (X,)

    beside = "aten::cat", [[[50, 50, 32], [50, 50, 32]], []], ["", "-1"], (X, X)
    layer = "aten::linear", [[50, 50, 64], [8, 64], [8]], ["", "", ""], (2, WEIGHT, BIAS)
    (found,) = find(recording(expand([50, 1, 32]), expand([1, 50, 32]), beside, layer))
    assert (found.evidence["rows"], found.evidence["distinct_rows"]) == (2500, 50)


def test_rows_that_are_taken_twice_are_followed_once():
    doubled = "aten::add", [[EDGES, WIDTH], [EDGES, WIDTH], []], ["", "", "1"], (0, 0)
    (found,) = find(recording(gather(), doubled, linear(1)))
    assert found.evidence["share_left"] == 0.05


def test_a_call_that_takes_what_comes_later_is_damage():
    assert find(recording(gather(maker=1), linear(0))) == find(recording(gather(maker=0), linear(0))) == []


@pytest.mark.parametrize(("nodes", "reported"), [(1000, True), (1001, False), (2000, False), (50_000, False)])
def test_it_fires_where_at_most_half_as_many_rows_are_different(nodes: int, reported: bool):
    assert bool(find(recording(gather(rows=nodes), linear(0)))) is reported


def test_a_part_of_its_own_for_each_edge_counts_as_it_is():
    """Features of edges as wide as those of nodes leave more than half."""
    assert find(recording(gather(), cat(0, -9), linear(1, width=2 * WIDTH))) == []
    narrow = recording(gather(), cat(0, -9, (WIDTH, 8)), linear(1, width=WIDTH + 8))
    assert find(narrow)[0].evidence["share_left"] == pytest.approx((100 * 32 + 2000 * 8) / (2000 * 40))


def add(left: int, right: int, rows: int = EDGES) -> Call:
    return "aten::add", [[rows, WIDTH], [rows, WIDTH]], ["", ""], (left, right)


def test_edges_that_add_up_over_layers_count_once_beside_gathered_nodes():
    """A sum of edges, neither term of which is a copy: 2,000 rows of a third of the features, and 100, twice."""
    joined: Call = "aten::cat", [[[EDGES, WIDTH]] * 3, []], ["", "1"], (0, 1, 2)
    facts = recording(add(-6, -7), gather(), gather(), joined, linear(3, width=3 * WIDTH))
    (found,) = find(facts)
    assert found.evidence["share_left"] == pytest.approx((1 + 2 * NODES / EDGES) / 3, abs=1e-3)


def test_nodes_that_add_up_over_layers_are_the_source_of_what_is_gathered():
    facts = recording(add(-6, -7, NODES), gather(0), linear(1))
    (found,) = find(facts)
    assert found.evidence == {"rows": 2000, "distinct_rows": 100, "share_left": 0.05}


def test_a_sum_with_copies_in_one_term_is_followed_into_both():
    facts = recording(gather(), add(0, -6), linear(1))
    assert find(facts) == []  # the other term has a row for each


@pytest.mark.parametrize("name", ["aten::relu", "aten::layer_norm", "aten::softmax", "aten::dropout"])
def test_what_is_not_linear_between_copies_and_layer_ends_the_way(name: str):
    assert find(recording(gather(), (name, [[EDGES, WIDTH]], [""], (0,)), linear(1))) == []


def test_another_tensor_of_the_same_shape_is_not_what_was_gathered():
    assert find(recording(gather(), linear(-9))) == []


def test_features_that_are_repeated_are_no_copies_of_rows():
    tiled = "aten::repeat", [[2000, 16], []], ["", "[1, 2]"], (X,)
    assert find(recording(tiled, linear(0))) == []


def test_one_tensor_repeated_along_a_dimension_of_one_is_another_fault():
    repeated = "aten::repeat", [[NODES, 1, WIDTH], []], ["", "[1, 20, 1]"], (X,)
    layer = "aten::linear", [[NODES, 20, WIDTH], [32, WIDTH], [32]], ["", "", ""], (0, WEIGHT, BIAS)
    assert find(recording(repeated, layer)) == []


def upsampled(name: str, side: int, kernel: int = 1) -> Any:
    """A picture of 16 x 16 made one of that side, before a convolution."""
    small, large = [2, WIDTH, 16, 16], [2, WIDTH, side, side]
    resample: Call = (name, [small, [], [], []], ["", str([side, side]), "False", ""], (X,))
    convolve: Call = (
        "aten::conv2d",
        [large, [WIDTH, WIDTH, kernel, kernel], [], [], [], [], []],
        ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"],
        (0, WEIGHT),
    )
    return recording(resample, convolve)


@pytest.mark.parametrize(
    "name", ["aten::upsample_bilinear2d", "aten::upsample_nearest2d", "aten::_upsample_bilinear2d"]
)
def test_positions_between_others_are_sums_of_these(name: str):
    (found,) = find(upsampled(name, 64))
    assert found.message == "1 layer a step multiplies rows that are resampled: 8,192 made of at most 512."
    assert "before `interpolate`" in found.fix


@pytest.mark.parametrize(("side", "kernel"), [(16, 1), (8, 1), (20, 1), (64, 3)])
def test_pictures_that_hardly_grow_and_layers_that_look_at_neighbours_are_silent(side: int, kernel: int):
    assert find(upsampled("aten::upsample_bilinear2d", side, kernel)) == []


def test_a_convolution_that_looks_at_neighbours_is_silent():
    convolved = "aten::conv1d", [[1, WIDTH, EDGES], [32, WIDTH, 3], []], ["", "", "", "[1]"], (0, WEIGHT)
    assert find(recording(gather(), convolved)) == []


JOIN: Call = ("aten::cat", [[], []], ["", "0"], (X, X))
COPIES = (JoinedCopies(0, (1, 2 * WIDTH), EDGES, 4),)


@pytest.mark.parametrize(("copies", "reported"), [(COPIES, True), ((), False)])
def test_one_row_put_beside_each_other_row_needs_one_product(copies: tuple[JoinedCopies, ...], reported: bool):
    """The layer keeps little more than a third; the copies and their concatenation go."""
    calls = JOIN, cat(0, INDEX, (2 * WIDTH, WIDTH)), linear(1, width=3 * WIDTH, results=8)
    facts = recording(*calls, copies=copies)
    found = find(facts)
    assert bool(found) is reported
    if reported:
        assert "of the numbers in 2,000 rows, 67 % are repeated" in found[0].message
        assert 200 / 1000 < predict_saving(facts, found[0].edit).fraction < 270 / 1000


def test_one_row_joined_many_times_and_nothing_else_is_another_fault():
    assert find(recording(JOIN, linear(0, width=2 * WIDTH), copies=COPIES)) == []


def test_without_the_data_flow_nothing_is_found():
    facts = recording(gather(), linear(0))
    assert find(Facts(facts.trace, Run(), facts.callsites)) == []


def test_without_marked_lines_it_does_not_look():
    facts = recording(gather(), linear(0))
    assert missing_needs(facts, layer_on_copied_rows.needs) == []
    assert missing_needs(
        facts_of([step(0, 0, 100), op("aten::mm", 10, 5, dims=[[4, 8], [8, 8]])]), layer_on_copied_rows.needs
    ) == [Need.LINES]
