"""Models that read the whole text again for each new token, and what looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.missing_kv_cache import missing_kv_cache
from profkit.run.directory import CallSite, Rates, Run
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
BATCH, WIDTH, HEADS, WORDS = 2, 32, 4, 500
PASS = 200
"""Microseconds from one call of the model to the next."""
SITES = (
    CallSite("write.py", 9, "write", "scores = model(tokens)"),
    CallSite("model.py", 4, "Model.forward", "x = self.tokens(tokens)"),
)


def find(facts) -> list[Suspicion]:
    return list(missing_kv_cache.check(facts))


def floats(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(name, at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def sdpa(at: float, queries: int, keys: int, causal: bool = True, batch: int = BATCH) -> Json:
    heads = [[batch, HEADS, queries, 8], [batch, HEADS, keys, 8], [batch, HEADS, keys, 8]]
    return floats(
        "aten::scaled_dot_product_attention",
        at,
        20,
        *heads,
        [],
        [],
        [],
        [],
        [],
        concrete=["", "", "", "", "0.", str(causal), "", "False"],
    )


def by_hand(at: float, length: int, masked: bool = True) -> list[Json]:
    scores = [BATCH, HEADS, length, length]
    mask = [floats("aten::masked_fill", at, 5, scores, [1, 1, length, length], [])] if masked else []
    return [*mask, floats("aten::softmax", at + 6, 5, scores, [], [])]


def draw(at: float, name: str = "argmax") -> Json:
    return floats(f"aten::{name}", at, 5, [BATCH, WORDS], [], [])


def called(at: float, new: int, length: int, batch: int = BATCH, **more: Any) -> list[Json]:
    """A pass over ``new`` tokens that attend to ``length``: the products take 60 µs, the attention 20 µs."""
    return [
        op("aten::embedding", at, 5, dims=[[WORDS, WIDTH], [batch, new]], types=["float", "long int"], **more),
        floats("aten::linear", at + 10, 60, [batch, new, WIDTH], [3 * WIDTH, WIDTH], [3 * WIDTH]),
        sdpa(at + 80, new, length, batch=batch),
    ]


def three_steps(lengths: list[int], each_pass: Callable[[float, int], list[Json]], drawn: bool = True, **more: Any):
    """Steps that each call the model for texts of these lengths, and draw a token after each pass."""
    size = PASS * len(lengths) + 100
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, size * i, size))
        for k, length in enumerate(lengths):
            at = size * i + 10.0 + PASS * k
            events += [*each_pass(at, length), *([draw(at + 120)] if drawn else [])]
    return facts_of(events, **more)


def writing(lengths: list[int], cached: bool = False, drawn: bool = True, **more: Any):
    return three_steps(lengths, lambda at, length: called(at, 1 if cached else length, length, **more), drawn)


def test_what_works_on_all_tokens_takes_the_share_of_the_new_one():
    facts = writing(list(range(10, 20)))
    (found,) = find(facts)
    assert found.evidence == {"passes_per_step": 10, "longest": 19}
    # of each product the 15 µs of its call stay and one n-th of the others; of what are all alike nothing is known
    saved = sum(45 * (1 - 1 / n) + (20 - 15) * (1 - 1 / n) for n in range(10, 20))
    assert predict_saving(facts, found.edit).fraction == pytest.approx(saved / (10 * PASS + 100), rel=0.01)


@pytest.mark.parametrize(("calls", "reported"), [(8, 1), (7, 0)])
def test_eight_tokens_in_a_row_are_the_least(calls, reported):
    assert len(find(writing(list(range(10, 10 + calls))))) == reported


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(lambda: writing(list(range(10, 20)), cached=True), id="a cache: one query, more and more keys"),
        pytest.param(lambda: writing(list(range(10, 20)), drawn=False), id="scores of texts, nothing is drawn"),
        pytest.param(lambda: writing([10, 14, 9, 12, 17, 11, 19, 10, 13, 15]), id="texts of many lengths"),
        pytest.param(lambda: writing([64] * 10), id="a window that slides at its full length"),
        pytest.param(lambda: writing(list(range(10, 30, 2))), id="two tokens more each time"),
    ],
)
def test_other_passes_are_silent(facts):
    assert find(facts()) == []


def recurrent(
    lengths: list[int], *, batch_first: bool = True, bidirectional: bool = False, drawn: bool = True, **more: Any
):
    """The same with a recurrent layer, which takes 100 µs."""

    def each_pass(at: float, length: int) -> list[Json]:
        given = [BATCH, length, WIDTH] if batch_first else [length, BATCH, WIDTH]
        dims = [given, [1, BATCH, WIDTH], [[96, WIDTH], [96, WIDTH], [96], [96]], [], [], [], [], [], []]
        options = ["True", "1", "0.", "False", str(bidirectional), str(batch_first)]
        return [
            op("aten::embedding", at, 5, dims=[[WORDS, WIDTH], [BATCH, length]], types=["float", "long int"]),
            op("aten::gru", at + 10, 100, dims=dims, types=["float"] * 3, concrete=["", "", "", *options]),
        ]

    return three_steps(lengths, each_pass, drawn, **more)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_recurrent_layer_that_begins_again_takes_the_share_of_the_new_token(batch_first):
    facts = recurrent(list(range(10, 20)), batch_first=batch_first)
    (found,) = find(facts)
    assert "a recurrent layer reads all tokens again" in found.message
    assert "out, state = self.rnn(x, state)" in found.fix
    saved = sum(85 * (1 - 1 / n) for n in range(10, 20))
    assert predict_saving(facts, found.edit).fraction == pytest.approx(saved / (10 * PASS + 100), rel=0.01)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(lambda: recurrent(list(range(10, 20)), bidirectional=True), id="both directions"),
        pytest.param(lambda: recurrent(list(range(10, 20)), drawn=False), id="states of texts, nothing is drawn"),
        pytest.param(lambda: recurrent([1] * 10), id="the new token alone"),
        pytest.param(lambda: recurrent([10, 14, 9, 12, 17, 11, 19, 10, 13, 15]), id="texts of many lengths"),
    ],
)
def test_other_recurrences_are_silent(facts):
    assert find(facts()) == []


def test_a_recurrent_layer_takes_at_least_the_time_to_read_its_weights():
    """24.6 kB at 0.5 GB/s take 49 µs, longer than the new token's share of the time."""
    facts = recurrent(list(range(10, 20)), run=Run(rates=Rates("cpu", 0.5e9, {})))
    (found,) = find(facts)
    kept_us = 6144 * 4 / 0.5e3
    assert predict_saving(facts, found.edit).fraction == pytest.approx(
        10 * (100 - kept_us) / (10 * PASS + 100), rel=0.01
    )


@pytest.mark.parametrize(
    ("batch", "scores", "reported"),
    [
        pytest.param(1, [WORDS], 1, id="the scores of the one sequence"),
        pytest.param(1, [WORDS - 1], 0, id="other numbers"),
        pytest.param(BATCH, [WORDS], 0, id="one token for two sequences"),
    ],
)
def test_scores_of_one_sequence_may_have_one_dimension(batch, scores, reported):
    """`model(tokens)[0, -1].topk(5)`"""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 2000 * i, 2000))
        for k in range(10):
            at = 2000.0 * i + PASS * k
            events += [*called(at, 10 + k, 10 + k, batch), floats("aten::topk", at + 110, 5, scores, [])]
    assert len(find(facts_of(events))) == reported


def test_a_curriculum_in_training_is_silent():
    events: list[Json] = []
    for i in range(8):
        at = 400.0 * i
        node = op("autograd::engine::evaluate_function: EmbeddingBackward0", at + 200, 20, sequence=i)
        events += [step(i, at, 400), *called(at + 10, 10 + i, 10 + i, sequence=i), draw(at + 120), node]
    assert find(facts_of(events)) == []
    without_backward = [event for event in events if "Backward" not in event["name"]]
    assert len(find(facts_of(without_backward))) == 1


@pytest.mark.parametrize(("masked", "reported"), [(True, 1), (False, 0)])
def test_attention_written_by_hand_counts_with_a_mask_over_the_whole_length(masked, reported):
    """Without one the old tokens would see the new, and each of their values would change."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 2000 * i, 2000))
        for k in range(9):
            at = 2000.0 * i + 10 + PASS * k
            events += [*called(at, 10 + k, 10 + k)[:2], *by_hand(at + 80, 10 + k, masked), draw(at + 110)]
    assert len(find(facts_of(events))) == reported


def test_an_encoder_that_is_not_causal_is_silent():
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 2000 * i, 2000))
        for k in range(9):
            at = 2000.0 * i + 10 + PASS * k
            events += [*called(at, 10 + k, 10 + k)[:2], sdpa(at + 80, 10 + k, 10 + k, causal=False), draw(at + 110)]
    assert find(facts_of(events)) == []


@pytest.mark.parametrize(("more", "reported"), [(1, 1), (0, 0)])
def test_where_each_call_is_a_step_what_is_allocated_tells_the_length(more, reported):
    """Only the first step has shapes and lines; the others have none, and allocate for one token more each."""
    events: list[Json] = []
    for i in range(5):
        at, length = 400.0 * i, 10 + (i + 3) * more if i else 10
        events.append(step(i, at, 400))
        passed = [*called(at + 20, length, length), draw(at + 150)]
        if i:
            passed = [{**event, "args": {}} for event in passed]
        else:
            events += [mark(0, at + 15, 110), mark(1, at + 18, 20)]
        events += [*passed, memory(at + 22, 4 * BATCH * WIDTH * length, 64)]
    found = find(facts_of(events, callsites=SITES))
    assert [(each.location.line, each.evidence["longest"]) for each in found if each.location] == [(9, 17)] * reported


def each_call_a_step(later_us: list[float]):
    """Steps of 400 µs with one pass over 10 to 14 tokens each; 80 µs of it shrink to one token's part."""
    events: list[Json] = []
    for i in range(5):
        at = 400.0 * i
        passed = [*called(at + 20, 10 + i, 10 + i), draw(at + 150)]
        events += [step(i, at, 400), *passed, memory(at + 22, 4 * BATCH * WIDTH * (10 + i), 64)]
    run = Run(reference_step_ns=(400_000,) * 8, later_step_ns=tuple(int(1000 * us) for us in later_us))
    return facts_of(events, run=run)


def text_of(tokens: int) -> list[float]:
    """Microseconds: each token makes a pass 4 µs longer."""
    return [440.0 + 4 * i for i in range(tokens)]


@pytest.mark.parametrize(
    ("later", "mean"),
    [
        pytest.param(text_of(256), 440 + 4 * 127.5, id="a text"),
        pytest.param(text_of(128) * 4, 440 + 4 * 63.5, id="texts in a row: the first shows the growth"),
    ],
)
def test_over_steps_that_get_longer_with_the_text_the_share_is_larger(later, mean):
    plain, (found,) = find(each_call_a_step([]))[0], find(facts := each_call_a_step(later))
    recorded = predict_saving(facts, plain.edit).fraction
    assert found.evidence["later_step_ns"] == pytest.approx(mean * 1000, rel=0.01)
    expected = 1 - (1 - recorded) * 400 / mean
    assert predict_saving(facts, found.edit).fraction == pytest.approx(expected, abs=0.005)
    assert f"take {mean / 400:.1f} times as long on average" in found.message


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([], id="none"),
        pytest.param([900.0] * 256, id="a busy machine"),
        pytest.param(text_of(63), id="few"),
        pytest.param(text_of(256)[::-1], id="shorter and shorter"),
    ],
)
def test_steps_that_do_not_grow_leave_the_share_of_the_recorded_ones(later):
    plain, (found,) = find(each_call_a_step([]))[0], find(facts := each_call_a_step(later))
    assert predict_saving(facts, found.edit).fraction == predict_saving(facts, plain.edit).fraction
    # 45.8 of 400 µs go, so 91.6 of 445.8 in texts twice as long
    assert predict_saving(facts, plain.edit).fraction * 400 == pytest.approx(45.8, abs=0.1)
    assert found.message.endswith("Over texts twice as long a cache would save about 21 % of a step.")


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::embedding", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, missing_kv_cache.needs)
