"""Batches that are longer than their rows, and how much less the operators would take."""

from __future__ import annotations

from math import hypot
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.rules.base import CannotLook, Kind, Need, Suspicion, missing_needs
from profkit.rules.padded_batch import padded_batch
from profkit.run.directory import CallSite, Compilation, Compiled, PaddedBatch, PaddedInput, Run, Unwatched
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]
ROWS, LENGTH, WIDTH = 4, 100, 8
STEP = 200
"""Microseconds."""
PADS = CallSite("data.py", 5, "collate", "ids = torch.zeros(len(rows), 100)")
CALLS = CallSite("train.py", 20, "train", "loss = model(ids)")


MANY = 999
"""Batches, beyond which a further one has hardly a longer row than all of them."""


def padded(longest: int, mean: float, later: int = MANY, **more: Any) -> PaddedInput:
    shape = more.pop("shape", (ROWS, LENGTH))
    known = {"name": "ids", "batch_dim": 0, "dim": len(shape) - 1, "kind": "ids", "is_left": False, "site": CALLS}
    batch = PaddedBatch(shape[-1], longest, mean, ROWS)
    return PaddedInput(shape=shape, batches=(batch,), later=(batch,) * later, **{**known, **more})  # type: ignore[arg-type]  # by name


SHORT = padded(longest=25, mean=20)


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(f"aten::{name}", at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def linear(at: float = 10, duration: float = 100) -> Json:
    return tensor_op("linear", at, duration, [ROWS, LENGTH, WIDTH], [WIDTH, WIDTH])


TINY = tensor_op("add", 2, 2, [1], [1])
"""The program's cheapest operator."""


def facts_with(*inputs: PaddedInput, part: list[Json] | None = None, callsites: Any = (), **run: Any):
    part = [linear()] if part is None else part
    events = [
        event
        for i in range(4)
        for event in (
            step(i, STEP * i, STEP),
            *({**one, "ts": one["ts"] + STEP * i} for one in [TINY, *part]),
        )
    ]
    return facts_of(
        [*events, *([mark(0, 5, 100)] if callsites else [])], run=Run(padding=inputs, **run), callsites=callsites
    )


def find(facts) -> list[Suspicion]:
    return list(padded_batch.check(facts))


def saved(facts) -> float:
    (found,) = find(facts)
    return predict_saving(facts, found.edit).fraction


def test_a_layer_takes_the_share_of_the_longest_row():
    facts = facts_with(SHORT)
    (found,) = find(facts)
    assert found.message.startswith("Batches (`ids`) are padded to 100 positions")
    assert found.evidence["longest_row"] == 25
    assert found.evidence["used_share"] == 0.2
    assert found.kind is None
    assert saved(facts) == pytest.approx(75 / STEP, abs=1e-3)


def batches_of(*longest: int) -> PaddedInput:
    """The first of these was in the recorded steps."""
    found, *later = (PaddedBatch(LENGTH, one, one / 2, ROWS) for one in longest)
    return replace(padded(longest[0], mean=1), batches=(found,), later=tuple(later))


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        pytest.param((20,), 20 * 3 / 4 + 100 / 4, id="of two batches one has the longest row"),
        pytest.param((20, 20, 20), 20 * 7 / 8 + 100 / 8, id="of four"),
        pytest.param((20, 60, 40), 40 * 7 / 8 + 100 / 8, id="those of the timed steps count alike"),
    ],
)
def test_a_batch_that_was_not_seen_may_have_a_longer_row(longest, expected):
    assert saved(facts_with(batches_of(*longest))) == pytest.approx((100 - expected) / STEP, abs=1e-3)


def test_a_table_takes_the_mean_of_the_squares():
    table = tensor_op("bmm", 10, 100, [8, LENGTH, 2], [8, 2, LENGTH])
    expected = (0.2**2 + 0.6**2 + 0.4**2) / 3 * 7 / 8 + 1 / 8
    assert saved(facts_with(batches_of(20, 60, 40), part=[table])) == pytest.approx(
        100 * (1 - expected) / STEP, abs=1e-3
    )


@pytest.mark.parametrize(
    ("longest", "off"),
    [
        pytest.param((20,), 0.25 * 80 / 60, id="one batch: by what was not seen"),
        pytest.param((10, 90), 2 * (3200**0.5 / 2**0.5) / (50 * 5 / 6), id="two that differ: by chance"),
        pytest.param((20,) * 1000, 0.0005, id="many alike: hardly"),
    ],
)
def test_the_fewer_batches_the_less_sure(longest, off):
    (found,) = find(facts_with(batches_of(*longest)))
    assert found.edit is not None
    assert found.edit.uncertainty == pytest.approx(hypot(0.2, off), abs=1e-3)


def test_the_lengths_of_later_batches_find_no_operators():
    """They are not those of the recorded steps: a layer may be as wide."""
    other = PaddedBatch(60, 20, 10, ROWS)
    facts = facts_with(replace(SHORT, later=(other,)), part=[linear(), tensor_op("relu", 120, 50, [ROWS, 60, WIDTH])])
    (found,) = find(facts)
    assert set(facts.trace.events.duration_ns[found.rows].tolist()) == {100_000}


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(tensor_op("bmm", 10, 100, [8, LENGTH, 2], [8, 2, LENGTH]), id="makes it"),
        pytest.param(tensor_op("softmax", 10, 100, [ROWS, 2, LENGTH, LENGTH]), id="takes it"),
        pytest.param(
            tensor_op("scaled_dot_product_attention", 10, 100, *[[ROWS, 2, LENGTH, 4]] * 3), id="is all of attention"
        ),
    ],
)
def test_a_table_of_all_pairs_of_positions_takes_the_square(table):
    assert saved(facts_with(SHORT, part=[table])) == pytest.approx(100 * (1 - 1 / 16) / STEP, abs=1e-3)


@pytest.mark.parametrize(
    ("other", "gone"),
    [
        pytest.param(tensor_op("mm", 110, 40, [ROWS * LENGTH, WIDTH], [WIDTH, WIDTH]), 30, id="flattened"),
        pytest.param(tensor_op("nll_loss", 110, 40, [ROWS * (LENGTH - 1), 9], [ROWS * (LENGTH - 1)]), 30, id="shifted"),
        pytest.param(tensor_op("mm", 110, 40, [ROWS, LENGTH], [LENGTH, LENGTH]), 30, id="rows by positions"),
        pytest.param(tensor_op("mm", 110, 40, [7, LENGTH], [LENGTH, LENGTH]), 0, id="a weight as wide"),
        pytest.param(tensor_op("relu", 110, 40, [ROWS, WIDTH]), 0, id="no positions"),
    ],
)
def test_an_operator_counts_if_its_tensors_hold_all_positions(other, gone):
    assert saved(facts_with(SHORT, part=[linear(), other])) == pytest.approx((75 + gone) / STEP, abs=1e-3)


def test_layers_behind_a_convolution_take_their_share():
    signal = padded(longest=25, mean=20, shape=(ROWS, 3, LENGTH), kind="values")
    layers = [
        tensor_op("conv1d", 10, 60, [ROWS, 3, LENGTH], [16, 3, 5]),
        tensor_op("relu", 80, 40, [ROWS, 16, LENGTH // 2]),
        tensor_op("linear", 130, 40, [ROWS, 16], [4, 16]),
    ]
    assert saved(facts_with(signal, part=layers)) == pytest.approx(75 / STEP, abs=1e-3)


def test_no_operator_takes_less_than_the_cheapest():
    short = tensor_op("relu", 120, 4, [ROWS, LENGTH])
    assert saved(facts_with(SHORT, part=[linear(), short])) == pytest.approx((75 + 2) / STEP, abs=1e-3)


def test_launches_on_a_device_stay():
    part = [
        linear(),
        runtime("cudaLaunchKernel", 12, 3, correlation=1),
        kernel("gemm", 20, 140, correlation=1),
        tensor_op("add", 112, 10, [1], [1]),
        runtime("cudaLaunchKernel", 114, 3, correlation=2),
        kernel("add", 170, 1, correlation=2),
        runtime("cudaDeviceSynchronize", 123, 50),
    ]
    events = [event for i in range(4) for event in (step(i, STEP * i, STEP), *_moved(part, STEP * i, i))]
    (found,) = find(facts_of(events, run=Run(padding=(SHORT,))))
    assert found.edit is not None
    assert found.edit.kept_ns.tolist() == [100_000] * 4
    assert found.edit.work_kept_ns.tolist() == pytest.approx([35_000] * 4, abs=100)


def _moved(events: list[Json], by: float, number: int) -> list[Json]:
    moved = []
    for event in events:
        arguments = dict(event["args"])
        if "correlation" in arguments:
            arguments["correlation"] += 10 * number
        moved.append({**event, "ts": event["ts"] + by, "args": arguments})
    return moved


def test_the_backward_pass_shrinks_too():
    events = []
    for i in range(4):
        node = op("autograd::engine::evaluate_function: AddmmBackward0", STEP * i + 115, 60, sequence=i)
        forward = tensor_op("linear", STEP * i + 10, 100, [ROWS, LENGTH, WIDTH], [WIDTH, WIDTH], sequence=i)
        events += [step(i, STEP * i, STEP), {**TINY, "ts": STEP * i + 2}, forward, node]
    facts = facts_of(events, run=Run(padding=(SHORT,)))
    assert saved(facts) == pytest.approx(160 * 0.75 / STEP, abs=1e-3)


@pytest.mark.parametrize(("longest", "reported"), [(90, 1), (91, 0)])
def test_a_tenth_must_be_removable(longest, reported):
    assert len(find(facts_with(padded(longest, mean=85)))) == reported


@pytest.mark.parametrize(("mean", "kinds"), [(75, [Kind.OPPORTUNITY]), (76, [])])
def test_rows_much_shorter_than_the_longest_are_an_opportunity(mean, kinds):
    assert [found.kind for found in find(facts_with(padded(longest=100, mean=mean)))] == kinds


def test_batches_of_similar_rows_are_a_tenth_longer_than_their_average():
    assert saved(facts_with(padded(longest=100, mean=50))) == pytest.approx(100 * (1 - 0.55) / STEP, abs=1e-3)


def test_sorting_three_rows_is_no_use():
    few = PaddedInput("ids", (3, LENGTH), 0, 1, "ids", False, (PaddedBatch(LENGTH, 100, 50, 3),), CALLS)
    assert find(facts_with(few)) == []


def test_operators_without_the_length_are_silent():
    assert find(facts_with(SHORT, part=[tensor_op("linear", 10, 100, [ROWS, 99, WIDTH], [WIDTH, WIDTH])])) != []
    assert find(facts_with(SHORT, part=[tensor_op("linear", 10, 100, [ROWS, 98, WIDTH], [WIDTH, WIDTH])])) == []


def test_a_batch_and_the_model_that_takes_it_without_its_last_position_are_one():
    given = padded(25, 20, name="", site=None, made=(PADS,))
    taken = padded(25, 20, shape=(ROWS, LENGTH - 1))
    (found,) = find(facts_with(given, taken))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("data.py", 5)
    assert [(line.file, line.line) for line in found.also] == [("train.py", 20)]


def test_batches_of_several_lengths_in_one_step_all_count():
    """As in gradient accumulation: each is padded to its own longest row."""
    both = PaddedInput(
        "ids", (ROWS, LENGTH), 0, 1, "ids", False, tuple(PaddedBatch(n, n, n / 2, ROWS) for n in (60, 100))
    )
    other = tensor_op("linear", 120, 50, [ROWS, 60, WIDTH], [WIDTH, WIDTH])
    facts = facts_with(both, part=[linear(), other])
    assert saved(facts) == pytest.approx(150 * (1 - 0.55) / STEP, abs=1e-3)


def test_two_lengths_are_two_findings():
    assert len(find(facts_with(SHORT, padded(50, 40, shape=(ROWS, 60), name="targets"), part=[
        linear(duration=80), tensor_op("relu", 100, 80, [ROWS, 60, WIDTH]),
    ]))) == 2  # fmt: skip


@pytest.mark.parametrize(
    "making",
    [
        pytest.param(op("aten::zeros", 7, 2, dims=[[]], concrete=[f"[{ROWS}, {LENGTH}]"]), id="filled"),
        pytest.param(op("aten::pad", 7, 2, dims=[[ROWS, 40], []], concrete=["", "[0, 60]"]), id="padded"),
    ],
)
def test_the_line_that_makes_the_tensor_leads(making):
    """The located step's first mark is around all of it."""
    facts = facts_with(SHORT, part=[making, linear()], callsites=(PADS,))
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("data.py", 5)


@pytest.mark.parametrize(
    ("run", "shape"),
    [
        pytest.param({}, (ROWS, 3, LENGTH, LENGTH), id="images"),
        pytest.param({"compiled": Compiled(compilations=(Compilation(0, None, 1),))}, (ROWS, LENGTH), id="compiled"),
    ],
)
def test_where_the_size_may_be_meant_it_is_an_opportunity(run, shape):
    part = [linear(), tensor_op("relu", 120, 20, list(shape))]
    (found,) = find(facts_with(padded(25, 20, shape=shape), part=part, **run))
    assert found.kind is Kind.OPPORTUNITY


def test_a_mask_is_more_certain_than_zeros():
    by_mask, by_values = (find(facts_with(padded(25, 20, kind=kind)))[0] for kind in ("mask", "values"))
    assert by_mask.confidence > by_values.confidence


def test_no_padding_is_silent():
    assert find(facts_with()) == []


def test_it_says_why_it_cannot_look():
    with pytest.raises(CannotLook, match="no batch was seen"):
        find(facts_of([step(0, 0, 100), linear()]))
    with pytest.raises(CannotLook, match="its 200 ms"):
        find(facts_of([step(0, 0, 100), linear()], run=Run(unwatched=(Unwatched("padding", "it used its 200 ms"),))))


def test_a_program_that_ran_under_profkit_is_not_told_to_run_under_profkit():
    recorded = Run(torch="2.13.0", step_signal="optimizer")
    with pytest.raises(CannotLook, match="none came from") as caught:
        find(facts_of([step(0, 0, 100), linear()], run=recorded))
    assert "under profkit" not in str(caught.value)
    with pytest.raises(CannotLook, match="under profkit"):
        find(facts_of([step(0, 0, 100), linear()]))


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::linear", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, padded_batch.needs)
