"""Loops of one's own that add tokens, and programs that only look like one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profkit.patterns.serving.token_passes import token_passes
from tests.traces import facts_of, op, step

Json = dict[str, Any]
WORDS, WIDTH = 1000, 64


def passes(
    ids: list[list[int]],
    scores: list[int] | None = None,
    draw: str = "aten::argmax",
    back: str = "aten::scaled_dot_product_attention",
) -> list[Json]:
    """For each shape of ids a lookup, a product, attention, and a draw, 1000 µs apart."""
    events: list[Json] = []
    for number, shape in enumerate(ids):
        at = 1000 * number
        events += [
            op("aten::embedding", at + 1, 10, dims=[[WORDS, WIDTH], shape]),
            op("aten::mm", at + 20, 500, dims=[[shape[0], WIDTH], [WIDTH, WORDS]]),
            *([op(back, at + 600, 50, dims=[[shape[0], 4, 1, 16]] * 3)] if back else []),
            op(draw, at + 800, 20, dims=[scores or [shape[0], WORDS], [], []]),
        ]
    return events


def test_a_loop_with_a_cache():
    found = token_passes(facts_of(passes([[4, 16], *([4, 1] for _ in range(5))])))
    assert found is not None
    assert (len(found), found.sequences, found.is_cached) == (4, 4, True)  # the first step is not measured
    assert np.diff(found.end_ns)[:2].tolist() == [1_000_000, 1_000_000]


@pytest.mark.parametrize("draw", ["aten::argmax", "aten::multinomial", "aten::topk", "aten::softmax"])
def test_what_draws(draw):
    assert token_passes(facts_of(passes([[2, 1]] * 4, draw=draw))) is not None


@pytest.mark.parametrize("back", ["aten::gru", "aten::softmax", "flash_attn::_flash_attn_forward", "vllm::mamba_mixer"])
def test_what_looks_back(back):
    assert token_passes(facts_of(passes([[2, 1]] * 4, back=back))) is not None


def test_a_window_that_slides():
    """nanoGPT crops the text to what the model can read, and draws at random."""
    found = token_passes(facts_of(passes([[1, 32]] * 5, draw="aten::multinomial")))
    assert found is not None
    assert found.length.tolist() == [32] * len(found)
    assert token_passes(facts_of(passes([[1, 32]] * 5))) is None


def read_before(count: int, draw: bool = False, only_first: bool = False) -> list[Json]:
    """A source of 30 tokens, which is read before each token or before the first alone; 500 µs before the pass."""
    events = passes([[4, 1]] * count)
    for number in range(1 if only_first else count):
        at = 1000 * number + 850
        events.append(op("aten::embedding", at, 10, dims=[[WORDS, WIDTH], [1, 30]]))
        events += [op("aten::argmax", at + 50, 5, dims=[[1, WORDS], [], []])] if draw else []
    return events


def test_what_is_read_for_each_token_belongs_to_the_passes():
    facts = facts_of(read_before(6))
    found = token_passes(facts)
    assert found is not None
    assert (len(found), found.beside) == (5, 30)
    assert (found.end_ns - facts.trace.events.start_ns[found.rows]).tolist() == [1_000_000] * 5


@pytest.mark.parametrize("more", [{"draw": True}, {"only_first": True}])
def test_a_prompt_between_passes_belongs_to_none(more):
    found = token_passes(facts_of(read_before(6, **more)))
    assert found is not None
    assert found.beside == 0


def test_a_flat_batch_of_one_token_each():
    found = token_passes(facts_of(passes([[6]] * 4)))
    assert found is not None
    assert found.sequences == 6


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (passes([[4, 16]] * 5), "whole texts, which do not grow"),
        (passes([[4, 1]] * 5, scores=[4, 10]), "ten classes"),
        (passes([[4, 1]] * 5, scores=[8, WORDS]), "other sequences"),
        (passes([[4, 1]] * 5, draw="aten::relu"), "no draw"),
        (passes([[4, 1]] * 2), "too few"),
        (passes([[256]] * 5, back=""), "things recommended to 256 users"),
    ],
)
def test_other_programs(events, why):
    assert token_passes(facts_of(events)) is None, why


def test_training_is_none():
    backward = op("autograd::engine::evaluate_function: MmBackward0", 5200, 20, sequence=3, tid=2)
    forward = op("aten::mm", 5100, 20, sequence=3, dims=[[4, WIDTH], [WIDTH, 8]])
    assert token_passes(facts_of([*passes([[4, 1]] * 5), forward, backward])) is None


def test_without_shapes():
    events = [{**event, "args": {}} for event in passes([[4, 1]] * 5)]
    assert token_passes(facts_of(events)) is None


def test_only_measured_steps_count():
    events = passes([[4, 1]] * 8)
    found = token_passes(facts_of([step(1, 4000, 2000), step(2, 6000, 2000), *events]))
    assert found is not None
    assert len(found) == 4
