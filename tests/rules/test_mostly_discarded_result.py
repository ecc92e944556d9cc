"""Tensors that are computed whole and cut, and tensors of which most is read."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.patterns.used.parts import mostly_unused
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.mostly_discarded_result import mostly_discarded_result
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
WHOLE = [64, 32, 64]
"""131,072 elements."""
STEP = 200
END = str(2**63 - 1)


def find(facts) -> list[Suspicion]:
    return list(mostly_discarded_result.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def cut(at: float, dim: int, begin: int, end: int, shape: list[int] = WHOLE, name: str = "slice") -> Json:
    given = ["", str(dim), str(begin), *([] if name == "select" else [str(end), "1"])]
    return tensor_op(name, at, 2, shape, *[[]] * (len(given) - 1), concrete=given)


def steps_of(*events: Json, before: tuple[Json, ...] = ()) -> list[Json]:
    """Four steps of 200 µs with these events, and the cheapest operator of the program, of 2 µs."""
    cheapest = tensor_op("neg", 190, 2, [4])
    return [
        *before,
        *(
            event
            for i in range(4)
            for event in (
                step(i, STEP * i, STEP),
                *({**event, "ts": event["ts"] + STEP * i} for event in (*events, cheapest)),
            )
        ),
    ]


MUL = tensor_op("mul", 10, 100, WHOLE, [])


def test_a_tensor_of_which_a_slice_takes_a_quarter_takes_a_quarter_of_its_time():
    facts = facts_of(steps_of(MUL, cut(112, 0, 0, 16)))
    (found,) = find(facts)
    assert found.evidence == {"used_share": 0.25, "elements": 64 * 32 * 64}
    assert found.message.startswith(
        "1 operator a step computes a tensor of 64 x 32 x 64 elements, of which only 25 % is used, a slice."
    )
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.75 * 100 / STEP, abs=1e-3)


def test_slices_along_several_dimensions_leave_their_product():
    facts = facts_of(steps_of(MUL, cut(112, 1, 0, 8), cut(115, 2, 0, 16, [64, 8, 64])))
    assert [part.used for part in mostly_unused(facts)] == [1 / 16] * 4


def test_what_makes_the_tensor_that_it_works_on_goes_with_it():
    copied = tensor_op("repeat", 10, 50, [1, 32, 64], [], concrete=["", "[64, 1, 1]"])
    facts = facts_of(steps_of(copied, tensor_op("mul", 62, 40, WHOLE, []), cut(112, 0, 0, 16)))
    (found,) = find(facts)
    assert found.count == 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.75 * 90 / STEP, abs=1e-3)


def test_what_something_else_takes_too_does_not_go_with_it():
    """The copy is summed besides."""
    copied = tensor_op("repeat", 10, 30, [1, 32, 64], [], concrete=["", "[64, 1, 1]"])
    summed = tensor_op("sum", 42, 10, WHOLE)
    facts = facts_of(steps_of(copied, summed, tensor_op("mul", 62, 40, WHOLE, []), cut(112, 0, 0, 16)))
    assert [found.count for found in find(facts)] == [1]


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param([cut(112, 0, 5, 0, name="select")], id="a selection"),
        pytest.param([cut(112, 0, 48, 16, name="narrow")], id="narrow"),
        pytest.param([cut(112, 0, -16, int(END))], id="the last ones"),
        pytest.param([cut(112, -3, 0, 16)], id="a dimension counted from the end"),
        pytest.param([cut(112, 0, 0, 16), cut(115, 0, 16, 32)], id="two slices that read half"),
    ],
)
def test_other_ways_to_take_a_part_are_found(cuts):
    assert len(mostly_unused(facts_of(steps_of(MUL, *cuts)))) == 4


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([MUL, cut(112, 0, 0, 33)], id="more than half is read"),
        pytest.param([MUL, *(cut(112 + 3 * i, 0, 16 * i, 16 * i + 16) for i in range(4))], id="slice by slice"),
        pytest.param([MUL, cut(112, 0, 0, 16), tensor_op("sum", 120, 9, WHOLE)], id="it is read whole besides"),
        pytest.param([MUL, tensor_op("sum", 112, 9, WHOLE)], id="nothing cuts it"),
        pytest.param([MUL], id="nobody knows what takes it"),
        pytest.param([tensor_op("mul_", 10, 100, WHOLE, []), cut(112, 0, 0, 16)], id="written in place"),
        pytest.param([tensor_op("dropout", 10, 100, WHOLE, []), cut(112, 0, 0, 16)], id="random numbers"),
        pytest.param([tensor_op("softmax", 10, 100, WHOLE, []), cut(112, 0, 0, 16)], id="elements depend on others"),
        pytest.param([MUL, tensor_op("slice", 112, 2, WHOLE, [], [], [], [])], id="how much is cut is not known"),
        pytest.param([MUL, tensor_op("cat", 112, 9, WHOLE, WHOLE), cut(130, 0, 0, 16)], id="joined with another"),
    ],
)
def test_tensors_that_are_read_or_may_be_are_silent(events):
    assert find(facts_of(steps_of(*events))) == []


@pytest.mark.parametrize(("rows", "found"), [(32, 1), (31, 0)])
def test_small_tensors_are_not_looked_at(rows, found):
    """65,536 elements are the least."""
    shape = [rows, 32, 64]
    events = steps_of(tensor_op("mul", 10, 100, shape, []), cut(112, 0, 0, 8, shape))
    assert len(mostly_unused(facts_of(events))) == 4 * found


def test_an_operator_takes_at_least_as_long_as_the_cheapest():
    """2 of 100 µs, although a 64th is used."""
    facts = facts_of(steps_of(MUL, cut(112, 0, 0, 1)))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(98 / STEP, abs=1e-3)


def test_the_backward_pass_shrinks_too():
    forward = {**MUL, "args": {**MUL["args"], "Sequence number": 7}}
    node = op("autograd::engine::evaluate_function: MulBackward0", 130, 40, sequence=7, tid=1)
    facts = facts_of(steps_of(forward, cut(112, 0, 0, 16), node))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction > 0.75 * 100 / STEP


def test_the_line_that_computes_leads_and_the_one_that_cuts_follows():
    sites = (CallSite("model.py", 34, "mask", "mask = whole * lowest"), CallSite("model.py", 35, "mask", "mask[:n]"))
    events = [MUL, cut(112, 0, 0, 16)]
    located = [step(0, 0, STEP), mark(0, 5, 106), mark(1, 111, 5), *events]
    later = [{**event, "ts": event["ts"] + STEP} for event in steps_of(*events)]
    for number, event in enumerate(event for event in later if event["name"].startswith("ProfilerStep")):
        event["name"] = f"ProfilerStep#{number + 1}"
    (found,) = find(facts_of([*located, *later], callsites=sites))
    assert [place.line for place in found.places.all()] == [34, 35]


def test_it_needs_shapes_and_is_a_fault():
    assert mostly_discarded_result.kind is Kind.FAULT
    facts = facts_of([step(0, 0, STEP), op("aten::mul", 10, 100)])
    assert missing_needs(facts, mostly_discarded_result.needs) == [Need.SHAPES]


def test_several_of_one_line_are_one_finding():
    """Each step makes two such tensors, of which different parts are used."""
    other = [32, 32, 128]
    again = (tensor_op("mul", 70, 50, other, []), cut(122, 0, 0, 16, other))
    facts = facts_of(steps_of(tensor_op("mul", 10, 50, WHOLE, []), cut(62, 0, 0, 16), *again))
    (found,) = find(facts)
    assert found.count == 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx((0.75 + 0.5) * 50 / STEP, abs=1e-3)


def test_what_may_be_the_input_of_the_next_one_is_left_alone():
    """The second operator takes a tensor of that shape: the first one's result, for all that the trace says."""
    again = (tensor_op("mul", 70, 50, WHOLE, []), cut(122, 0, 0, 16))
    facts = facts_of(steps_of(tensor_op("mul", 10, 50, WHOLE, []), cut(62, 0, 0, 16), *again))
    assert [found.count for found in find(facts)] == [1]


SQUARE = [512, 512]


@pytest.mark.parametrize(
    ("taken", "reported"),
    [
        pytest.param(tensor_op("diagonal", 100, 2, SQUARE, [], [], [], concrete=["", "0", "0", "1"]), 1, id="diagonal"),
        pytest.param(
            tensor_op("diagonal", 100, 2, SQUARE, [], [], [], concrete=["", "0", "-2", "-1"]), 1, id="negative"
        ),
        pytest.param(tensor_op("diag", 100, 2, SQUARE, [], concrete=["", "0"]), 1, id="diag"),
        pytest.param(tensor_op("trace", 100, 2, SQUARE), 1, id="trace"),
        pytest.param(tensor_op("diagonal", 100, 2, SQUARE, [], [], [], concrete=["", "1", "0", "1"]), 0, id="another"),
        pytest.param(tensor_op("sum", 100, 2, SQUARE), 0, id="all"),
    ],
)
def test_a_product_of_all_pairs_of_which_the_diagonal_is_read_is_reported(taken, reported):
    product = tensor_op("mm", 10, 60, [512, 64], [64, 512])
    squashed = tensor_op("sigmoid", 75, 20, SQUARE)
    found = find(facts_of(steps_of(product, squashed, taken)))
    assert len(found) == reported
    for suspicion in found:
        assert suspicion.count == 2
        assert "`(a * b).sum(-1)`" in suspicion.fix
        facts = facts_of(steps_of(product, squashed, taken))
        assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((80 - 2 * 2) / STEP, abs=1e-3)


def test_the_diagonal_of_a_chain_of_products_needs_all_but_the_last():
    """Each of its numbers takes a whole row of what comes before."""
    products = (tensor_op("mm", 10 + 40 * turn, 38, SQUARE, SQUARE) for turn in range(2))
    facts = facts_of(steps_of(*products, tensor_op("trace", 100, 2, SQUARE)))
    (found,) = find(facts)
    assert found.count == 1
    assert predict_saving(facts, found.edit).fraction == pytest.approx((38 - 2) / STEP, abs=5e-3)


def test_a_product_that_something_else_reads_too_is_silent():
    product = tensor_op("mm", 10, 60, [512, 64], [64, 512])
    diagonal = tensor_op("diagonal", 100, 2, SQUARE, [], [], [], concrete=["", "0", "0", "1"])
    assert find(facts_of(steps_of(product, diagonal, tensor_op("logsumexp", 104, 20, SQUARE)))) == []


LAYER = [64, 32, 128]
"""What a linear layer makes of WHOLE: 262,144 elements."""


def conv(at: float, duration: float, given: list[int], channels: int, kernel: int = 1, padding: int = 0) -> Json:
    """A convolution over `kernel` positions."""
    weight = [channels, given[1], kernel]
    values = ["", "", "", "[1]", f"[{padding}]", "[1]", "1"]
    return tensor_op("conv1d", at, duration, given, weight, *[[]] * 5, concrete=values)


def linear(at: float, duration: float, given: list[int], to: int) -> Json:
    return tensor_op("linear", at, duration, given, [to, given[-1]], [to])


def used_of(*events: Json) -> list[tuple[float, int]]:
    """The used share and the duration of each operator of a step that makes too much."""
    facts = facts_of(steps_of(*events))
    rows = {(part.used, int(row)) for part in mostly_unused(facts) for row in part.rows}
    end_ns, start_ns = facts.tree.end_ns, facts.trace.events.start_ns
    return sorted({(used, int(end_ns[row] - start_ns[row]) // 1000) for used, row in rows})


def test_what_layers_before_the_cut_one_make_is_not_needed_either():
    """A layer, an activation, a layer of another width, and a slice of the positions."""
    events = linear(10, 20, WHOLE, 128), tensor_op("relu", 32, 10, LAYER), linear(44, 30, LAYER, 64)
    assert used_of(*events, cut(80, 1, 24, 32)) == [(0.25, 10), (0.25, 20), (0.25, 30)]


def test_the_last_position_of_the_last_layer_is_left_to_discarded_logits():
    events = linear(10, 20, WHOLE, 128), tensor_op("relu", 32, 10, LAYER), linear(44, 30, LAYER, 64)
    assert used_of(*events, cut(80, 1, -1, 32, name="select")) == [(1 / 32, 10), (1 / 32, 20)]


def test_skip_connections_are_walked_through_with_the_share_of_each():
    """Each of three layers gives its last positions to a sum, of which the last 8 are read."""
    x, y, z = [4, 64, 1024], [4, 64, 896], [4, 64, 768]
    events = [
        conv(10, 9, [4, 32, 1024], 64),
        cut(20, 2, -896, int(END), x),
        conv(23, 8, [4, 32, 896], 64),
        tensor_op("add", 32, 3, y, y, []),
        cut(36, 2, -768, int(END), y),
        conv(39, 7, [4, 32, 768], 64),
        tensor_op("add", 47, 4, z, z, []),
        tensor_op("relu", 52, 5, z),
        conv(58, 6, z, 128),
        cut(66, 2, -8, int(END), [4, 128, 768]),
    ]
    found = used_of(*events)
    assert [took for _, took in found] == [9, 3, 8, 4, 5, 6, 7]
    assert found[0][0] == pytest.approx(8 / 1024)
    assert found[-1][0] == pytest.approx(8 / 768)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([tensor_op("sum", 34, 4, LAYER)], id="something else reads it whole"),
        pytest.param([tensor_op("softmax", 34, 4, LAYER)], id="its positions depend on others"),
        pytest.param([tensor_op("slice", 34, 1, LAYER, [], [], [], [])], id="a slice of it is read besides"),
    ],
)
def test_a_layer_whose_result_is_needed_whole_is_not_walked_over(between):
    events = linear(10, 20, WHOLE, 128), *between, linear(44, 30, LAYER, 64)
    assert used_of(*events, cut(80, 1, 24, 32)) == [(0.25, 30)]


def test_a_cut_along_the_features_ends_at_the_layer_that_mixes_them():
    events = linear(10, 20, WHOLE, 128), tensor_op("relu", 32, 10, LAYER), linear(44, 30, LAYER, 64)
    assert used_of(*events, cut(80, 2, 0, 16)) == [(0.25, 30)]


def test_a_convolution_over_neighbours_needs_more_than_the_part():
    given = [4, 32, 1024]
    wide = conv(44, 30, [4, 64, 1024], 64, kernel=3, padding=1)
    assert used_of(conv(10, 20, given, 64), wide, cut(80, 2, 0, 128, [4, 64, 1024])) == []


def test_random_numbers_and_writing_in_place_end_the_walk():
    first, last = linear(10, 20, WHOLE, 128), linear(44, 30, LAYER, 64)
    for name in ("dropout", "relu_"):
        assert used_of(first, tensor_op(name, 32, 10, LAYER), last, cut(80, 1, 24, 32)) == [(0.25, 30)]


TABLE = [64, 4096]
"""262,144 numbers, a mebibyte."""


def picked(at: float, size_bytes: int, *, freed: float = 90, name: str = "index") -> tuple[Json, ...]:
    """An indexing whose result takes that much memory until it is freed, and another piece for the time it runs."""
    made = memory(at + 1, size_bytes, 1), memory(freed, -size_bytes, 1)
    return (*made, memory(at + 1.2, 4096, 2), memory(at + 1.6, -4096, 2), tensor_op(name, at, 2, TABLE, []))


def steps_picking(*events: Json) -> list[Json]:
    return steps_of(linear(10, 60, [64, 128], 4096), tensor_op("tanh", 72, 20, TABLE), *events)


@pytest.mark.parametrize("name", ["index", "index_select"])
def test_what_an_index_picks_is_told_by_the_memory_of_its_result(name):
    """A layer for 4,096 items, of which 64 are picked."""
    facts = facts_of(steps_picking(*picked(94, 64 * 64 * 4, freed=120, name=name)))
    (found,) = find(facts)
    assert found.message == (
        "2 operators a step compute a tensor of 64 x 4,096 elements, of which only 1.6 % is used, picked by index."
    )
    assert found.fix.startswith("Pick first: compute for the indices alone.")
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.373, abs=0.001)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(picked(94, 64 * 4096 * 4, freed=120), id="all are picked, in another order"),
        pytest.param(picked(94, 64 * 2049 * 4, freed=120), id="more than half"),
        pytest.param([*picked(94, 64 * 64 * 4, freed=120), tensor_op("sum", 98, 9, TABLE)], id="read whole besides"),
        pytest.param([tensor_op("index", 94, 2, TABLE, [])], id="no memory was recorded"),
        pytest.param(picked(94, 64 * 64 * 4, freed=120, name="gather"), id="each row picks others"),
    ],
)
def test_picks_of_most_or_of_nobody_knows_how_much_are_silent(events):
    assert find(facts_of(steps_picking(*events))) == []


def test_a_sum_of_which_little_is_picked_goes_with_what_it_adds():
    """Each of 64 x 4,096 numbers is a sum of three products, and 64 of them are picked."""
    pairs = [*TABLE, 3]
    summed = tensor_op("sum", 72, 20, pairs, [], [], concrete=["", "[-1]", "False"])
    facts = facts_of(steps_of(tensor_op("mul", 10, 60, pairs, [3]), summed, *picked(94, 64 * 4, freed=120)))
    assert {part.shape for part in mostly_unused(facts)} == {tuple(TABLE), tuple(pairs)}
    (found,) = find(facts)
    assert found.count == 2


PAIRS = [400, 320]
"""Of four samples with a hundred rows each, and of the targets of all."""
TARGETS = (70, 80, 90, 80)


def matched(*own: int, sizes: tuple[int, ...] = TARGETS, between: tuple[Json, ...] = ()) -> list[Json]:
    """Distances and a product with a number take 80 µs of 200. Each piece of the table gives up a sample's rows."""
    table = [
        tensor_op("cdist", 10, 50, [400, 4], [320, 4], [], []),
        tensor_op("mul", 62, 30, PAIRS, []),
        *between,
        tensor_op("view", 100, 2, PAIRS, [], concrete=["", "[4, 100, -1]"]),
        tensor_op("split_with_sizes", 104, 2, [4, 100, 320], [], [], concrete=["", "", "-1"]),
    ]
    picks = [
        tensor_op("select", 110 + 3 * at, 2, [4, 100, size], [], [], concrete=["", "0", str(sample)])
        for at, (sample, size) in enumerate(zip(own, sizes, strict=True))
    ]
    return steps_of(*table, *picks)


def test_a_table_of_all_samples_of_which_each_reads_its_own_block():
    facts = facts_of(matched(0, 1, 2, 3))
    (found,) = find(facts)
    assert found.evidence == {"used_share": 0.25, "elements": 400 * 320}
    assert "2 operators a step compute a tensor of 400 x 320 elements" in found.message
    assert found.message.endswith("of which only 25 % is used, a block for each sample.")
    assert "with its own targets alone" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.75 * 80 / STEP, abs=1e-3)


def test_numbers_of_each_pair_that_are_added_up_are_a_table_too():
    squared = tensor_op("pow", 94, 2, [*PAIRS, 4], []), tensor_op("sum", 97, 2, [*PAIRS, 4], [], concrete=["", "[-1]"])
    (found,) = find(facts_of(matched(0, 1, 2, 3, between=squared)))
    assert found.message.startswith("4 operators a step compute")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(matched(1, 0, 2, 3), id="another sample's rows"),
        pytest.param(
            matched(0, 1, 2, 3, between=(tensor_op("sum", 94, 3, PAIRS, [], concrete=["", "[1]"]),)),
            id="added up over all targets",
        ),
        pytest.param(matched(0, 1, 2, sizes=(70, 80, 90)), id="not all samples"),
        pytest.param(matched(0, 1, 2, 3, sizes=(70, 80, 90, 70)), id="targets that nobody reads"),
        pytest.param(matched(0, 1, 2, 3, between=(tensor_op("argmin", 94, 3, PAIRS, []),)), id="read whole"),
    ],
)
def test_tables_that_are_read_beyond_the_own_blocks_are_silent(events):
    assert find(facts_of(events)) == []
