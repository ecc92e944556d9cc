"""The rules that judge by the roofline say nothing about healthy recordings of other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.diagnosis.pipeline import read_facts
from profkit.rules import all_rules
from profkit.rules.base import CannotLook, Facts, Rule, missing_needs
from profkit.savings.roofline.launches import roofline_of

RULES = (
    "few-tiles",
    "skinny-product",
    "slow-convolution",
    "slow-attention",
    "scattered-experts",
    "slow-elementwise",
    "slow-scatter",
    "bandwidth-bound-optimizer",
)
HEALTHY = (
    "h100/runs/clean_convnet/pitfall",
    "h100/runs/clean_transformer/pitfall",
    "h100/runs/attention_by_hand/fix",
    "h100/runs/conv_nchw_bf16/fix",
    "h100/runs/float64_on_gpu/fix",
    "h100/runs/gpu_fed_by_slow_loader/fix",
    "h100/runs/kv_cache_cat/fix",
    "h100/runs/log_every_tenth_step/pitfall",
    "h100/runs/many_small_copies/fix",
    "h100/runs/misaligned_vocabulary/fix",
    "h100/runs/no_tf32/fix",
    "h100/runs/pageable_transfer/fix",
    "h100/scripts/generate_tokens",
    "h100/scripts/gpt2_train",
    "h100/scripts/resnet50_fakedata",
    "h100/scripts/vit_clean",
    "kineto/bert_small_h100.json.gz",
    "kineto/bert_small_mi300x.json.gz",
    "kineto/qwen_prefill_h100.json.gz",
    "kineto/recsys_graphed_v100.json.gz",
    "kineto/resnet50_workers4_v100.pt.trace.json.gz",
    "kineto/resnet_healthy_v100.pt.trace.json.gz",
    "kineto/sam_amg_optimised_a100.json.gz",
    "kineto/vllm_graphs_mi300x.json.gz",
    "kineto/part_batch_sweep_a100/batch_128.json",
)
COUNTED = {
    "h100/runs/clean_convnet/pitfall": (0.99, 0.31),
    "h100/runs/clean_transformer/pitfall": (0.92, 0.39),
    "h100/scripts/gpt2_train": (0.97, 0.54),
    "h100/scripts/vit_clean": (0.90, 0.31),
}
"""The least share of the device's work that is counted, and the utilisation."""


def _said(rule: Rule, facts: Facts) -> list[str]:
    try:
        return [] if missing_needs(facts, rule.needs) else [found.message for found in rule.check(facts)]
    except CannotLook:
        return []


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_recordings_are_silent(corpus: Path, name: str):
    facts = read_facts(corpus / name)
    assert {rule: said for rule in RULES if (said := _said(all_rules()[rule], facts))} == {}


@pytest.mark.parametrize("name", COUNTED)
def test_most_of_the_devices_work_is_counted(corpus: Path, name: str):
    least, utilisation = COUNTED[name]
    found = roofline_of(read_facts(corpus / name))
    assert found is not None
    assert found.counted >= least
    assert found.utilisation == pytest.approx(utilisation, abs=0.01)
