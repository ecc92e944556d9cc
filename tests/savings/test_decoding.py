"""What a pass has to read."""

from __future__ import annotations

from profkit.patterns.serving.token_passes import token_passes
from profkit.run.directory import Rates, Run
from profkit.savings.decoding import Floor, decode_floor
from tests.traces import facts_of, op

RATES = Rates("cpu of a test", 1e9, {})


def _floor(run: Run | None = None, **changed: object) -> Floor | None:
    """Four passes of a layer: a weight of 64 x 256 in bfloat16, and attention to 50 tokens in 2 heads of 32."""
    events = []
    for number in range(4):
        at = 1000 * number
        heads = [1, 2, 50, 32]
        events += [
            op("aten::embedding", at + 1, 10, dims=[[1000, 64], [1, 1]]),
            op("aten::linear", at + 20, 100, dims=[[1, 1, 64], [256, 64], []], types=["c10::BFloat16"] * 2 + [""]),
            op("aten::addmm", at + 30, 80, dims=[[256], [1, 64], [64, 256]], types=["c10::BFloat16"] * 3),
            op(
                "aten::scaled_dot_product_attention",
                at + 200,
                50,
                dims=[[1, 2, 1, 32], heads, heads],
                types=["c10::BFloat16"] * 3,
            ),
            op("aten::argmax", at + 800, 20, dims=[[1, 1000], [], []]),
        ]
    facts = facts_of([{**event, **changed} for event in events], run=run)
    passes = token_passes(facts)
    return None if passes is None else decode_floor(facts, passes)


def test_weights_once_and_the_cache():
    """`linear` around `addmm` counts once: 32 KiB of weights; keys and values are 2 x 6.25 KiB."""
    assert _floor() == Floor(weight_bytes=32_768, cache_bytes=12_800, ns=0)


def test_the_time_is_that_of_the_memory():
    assert _floor(Run(rates=RATES)) == Floor(32_768, 12_800, 45_568)
