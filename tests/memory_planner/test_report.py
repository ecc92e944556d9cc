"""A memory plan as text, word for word."""

from __future__ import annotations

import json

from msgspec.structs import replace

from profkit.memory_planner.plan import CUDA_CONTEXT_BYTES, Change, MemoryPlan, PlanRequest, Usage
from profkit.memory_planner.report import render_memory_plan

GB = 10**9
BEFORE = Usage(
    10 * GB,
    "backward",
    {"parameters": 2 * GB, "activations": 8 * GB, "buffers": 0},
    {"forward": 9 * GB, "backward": 10 * GB, "optimizer step": 4 * GB},
    11 * GB,
)
HALF = Usage(5 * GB, "backward", {"parameters": 2 * GB, "activations": 3 * GB}, {"backward": 5 * GB}, 6 * GB)
PLAN = MemoryPlan(
    target="models:Net",
    model="Net",
    parameters=500_000_000,
    request=PlanRequest("models:Net", 128, fits_bytes=8 * GB),
    usage=BEFORE,
    largest_batch=90,
    largest=HALF,
    changes=(
        Change("checkpointing", None, "the model has no repeated blocks"),
        Change("8-bit optimizer state", BEFORE, computed=True, numerics=True),
        Change("accumulation over 2 micro-batches of 64", HALF),
    ),
    notes=("kernels' own memory is not known",),
)


def test_the_whole_text():
    assert (
        render_memory_plan(PLAN, "text")
        == """\
Net at batch 128: 11.8 GB of GPU memory, 10.0 GB at the peak, in the backward
pass
500,000,000 parameters; adamw; all in float32

parameters         2.00 GB     20 %
activations        8.00 GB     80 %
peaks: forward 9.00 GB, backward 10.0 GB, optimizer step 4.00 GB

11.8 GB decides whether it fits: PyTorch's allocator reserves about 11.0 GB for
the peak, and the CUDA context takes about 770 MB.
The largest batch that fits into 8.00 GB is 90: 6.77 GB.

What a change would give                    peak  less    needs  fits
accumulation over 2 micro-batches of 64  5.00 GB  50 %  6.77 GB   yes
8-bit optimizer state * ~                10.0 GB   0 %  11.8 GB    no
- checkpointing: not planned: the model has no repeated blocks
* changes numerics; ~ sizes computed, not planned by a run

What is left out
- kernels' own memory is not known
"""
    )


def test_a_plan_for_a_cpu_has_neither_segments_nor_context():
    on_cpu = replace(
        PLAN,
        usage=replace(BEFORE, reserved_bytes=0, when="optimizer step"),
        changes=(),
        request=replace(PLAN.request, fits_bytes=0, device="cpu"),
    )
    text = render_memory_plan(on_cpu, "text")
    assert text.startswith("Net at batch 128: 10.0 GB at the peak, in the optimizer step\n")
    assert "reserves" not in text
    assert on_cpu.usage.needed_bytes() == 10 * GB
    assert BEFORE.needed_bytes() == 11 * GB + CUDA_CONTEXT_BYTES


def test_an_unknown_largest_batch_and_a_missing_one_are_distinguished():
    assert "The largest batch for 8.00 GB could not be found." in render_memory_plan(
        replace(PLAN, largest_batch=None, largest=None), "text"
    )
    assert "Not even one sample fits into 8.00 GB." in render_memory_plan(
        replace(PLAN, largest_batch=0, largest=None), "text"
    )


def test_names_from_the_users_code_cannot_control_a_terminal():
    text = render_memory_plan(replace(PLAN, model="\x1b[2J" + "x" * 500), "text")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_container_is_named_by_the_function_that_built_it():
    built = replace(PLAN, model="Sequential", request=replace(PLAN.request, target="models.py:make_net"))
    assert render_memory_plan(built, "text").startswith("the Sequential of make_net() at batch 128: ")


def test_a_long_reason_is_cut_at_a_word():
    refused = replace(PLAN, changes=(Change("checkpointing", None, "there is no row of blocks in " * 20),))
    text = render_memory_plan(refused, "text")
    assert len(text) < 1000
    assert " ...\n" in text


def test_json_contains_the_whole_plan():
    read = json.loads(render_memory_plan(PLAN, "json"))
    assert (read["schema"], read["usage"]["peak_bytes"]) == ("profkit.memory-plan/1", 10 * GB)
    assert read["changes"][0] == {
        "name": "checkpointing",
        "usage": None,
        "computed": False,
        "numerics": False,
        "refused": "the model has no repeated blocks",
    }
