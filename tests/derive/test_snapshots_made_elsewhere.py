"""For memory snapshots made elsewhere the figures match `torch.cuda.memory_stats`, and each fault is found."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from profkit.derive.facts import Facts
from profkit.derive.memory.purposes import Purpose
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Diagnosis, VerdictKind
from profkit.patterns.allocator.lines import allocator_of
from profkit.patterns.allocator.purposes import purposes_of
from profkit.report import FORMATS, render

SITUATIONS = (
    "cache_not_fragmentation",
    "fragmented_small_between_large",
    "out_of_memory",
    "retained_graphs",
    "training_three_steps",
)
OTHERS = (
    "medium_128_inference_memory_snapshot",
    "medium_128_training_memory_snapshot",
    "mem_snapshot",
    "memory_forward_bf16_128",
    "memory_forward_fp32_128",
)
FOUND = {
    "cache_not_fragmentation": [],
    "fragmented_small_between_large": [("fragmentation", 22)],
    "out_of_memory": [("out-of-memory", 31)],
    "retained_graphs": [("retained-graph", 44)],
    "training_three_steps": [("activation-dominated-peak", 31)],
}
MB = 10**6


@lru_cache(maxsize=1)
def facts_of(path: Path) -> Facts:
    return read_facts(path)


@pytest.fixture
def corpus_facts(corpus: Path, name: str) -> Facts:
    folder = corpus / ("h100/snapshots" if name in SITUATIONS else "memory_snapshots")
    return facts_of(folder / f"{name}.pickle")


@pytest.fixture
def diagnosis(corpus_facts: Facts) -> Diagnosis:
    return diagnose(corpus_facts)


@pytest.mark.parametrize("name", SITUATIONS)
def test_totals_and_peaks_match_the_allocator_to_the_byte(corpus: Path, corpus_facts: Facts, name: str) -> None:
    stats = json.loads((corpus / "h100/snapshots/truth.json").read_text())[name]["stats"]
    use = allocator_of(corpus_facts).fullest
    assert {
        "allocated_bytes.all.current": use.allocated_bytes,
        "allocated_bytes.all.peak": use.peak_bytes,
        "reserved_bytes.all.current": use.reserved_bytes,
        "reserved_bytes.all.peak": use.reserved_peak_bytes,
        "inactive_split_bytes.all.current": use.inactive_split_bytes,
    }.items() <= stats.items()


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_fault_is_found_on_its_line(diagnosis: Diagnosis, name: str) -> None:
    assert [(one.rule, one.location and one.location.line) for one in diagnosis.findings] == FOUND[name]


@pytest.mark.parametrize("name", ["mem_snapshot"])
def test_attention_by_hand_is_named_where_its_tables_make_the_peak(diagnosis: Diagnosis) -> None:
    """A script that measures a `custom_scaled_dot_product_attention`: six tables of 537 MB are 99 % of its peak."""
    (finding,) = diagnosis.findings
    assert finding.location is not None
    assert (finding.rule, finding.location.line) == ("unfused-attention", 13)
    assert "6 tables of 537 MB" in finding.message


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "mem_snapshot"])
def test_snapshots_without_a_fault_have_no_findings(diagnosis: Diagnosis, name: str) -> None:
    assert diagnosis.findings == ()
    assert diagnosis.verdict is not None
    assert diagnosis.verdict.kind is VerdictKind.NOTHING_FOUND


@pytest.mark.parametrize("name", ["training_three_steps"])
def test_three_steps_with_adam_hold_the_calculated_bytes(corpus_facts: Facts, name: str) -> None:
    """Eight blocks of 1024-4096-1024 in float32, 8,192 rows; each keeps two hidden tensors and its result."""
    allocator = allocator_of(corpus_facts)
    parameters = 8 * 4 * (2 * 1024 * 4096 + 4096 + 1024)
    batch = 4 * 8192 * 1024
    parts = purposes_of(allocator, allocator.live_at_peak(allocator.fullest))
    assert parts[Purpose.PARAMETERS] == parameters
    assert parts[Purpose.OPTIMIZER_STATE] == 2 * parameters
    assert parts[Purpose.OWN] == batch + 512, "the batch and the loss"
    assert parts[Purpose.ACTIVATIONS] == pytest.approx(8 * (4 + 4 + 1) * batch, rel=0.02)
    held = purposes_of(allocator, allocator.allocations.is_held)
    assert held[Purpose.GRADIENTS] == parameters
    assert Purpose.UNKNOWN not in parts


@pytest.mark.parametrize("name", ["medium_128_training_memory_snapshot"])
def test_parameters_older_than_the_history_are_recognised_by_their_gradients(corpus_facts: Facts, name: str) -> None:
    allocator = allocator_of(corpus_facts)
    held = purposes_of(allocator, allocator.allocations.is_held)
    assert held[Purpose.PARAMETERS] == pytest.approx(held[Purpose.GRADIENTS], rel=0.001)
    assert held[Purpose.OPTIMIZER_STATE] == pytest.approx(2 * held[Purpose.GRADIENTS], rel=0.001)
    assert held[Purpose.EARLIER] < 20 * MB


@pytest.mark.parametrize("name", SITUATIONS + OTHERS)
def test_the_parts_of_the_peak_add_up_and_its_lines_stay_within_it(diagnosis: Diagnosis, name: str) -> None:
    (memory,) = diagnosis.memory
    assert sum(part.bytes for part in memory.parts) == memory.peak_bytes
    assert 0 < sum(line.bytes for line in memory.lines) <= memory.peak_bytes
    assert memory.allocated_bytes + memory.cached_bytes + memory.split_bytes == memory.reserved_bytes


@pytest.mark.parametrize("name", ["out_of_memory"])
@pytest.mark.parametrize("format_name", sorted(set(FORMATS) - {"memory-timeline"}))
def test_every_format_states_the_peak(diagnosis: Diagnosis, format_name: str, name: str) -> None:
    text = render(diagnosis, format_name)
    assert "2.48 GB was held" in text
    assert "step time" not in text
    assert " 0 ns" not in text


@pytest.mark.parametrize("name", ["retained_graphs"])
def test_the_verdict_is_about_memory(diagnosis: Diagnosis, name: str) -> None:
    assert diagnosis.verdict is not None
    assert diagnosis.verdict.text.startswith("1 fault makes memory grow by 302 MB")
