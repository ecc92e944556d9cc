"""A plan for a GPU against PyTorch's own counts on an H100."""

from __future__ import annotations

from torch import nn

from profkit.memory_planner.plan import InputSpec, PlanRequest
from profkit.memory_planner.training import Variant, train

PEAK, RESERVED = 3_541_538_304, 3_663_724_544
"""``allocated_bytes.all.peak`` and ``reserved_bytes.all.peak`` after three steps (PyTorch 2.11, CUDA 13)."""


class Tower(nn.Module):
    """The measured model: eight blocks; 8,192 rows in float32, Adam, the mean of the squared outputs as the loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)
        )

    def forward(self, data):
        for layer in self.layers:
            data = data + layer(data)
        return data.square()


def test_a_plan_equals_what_an_h100_measured_to_the_byte():
    request = PlanRequest("tests:Tower", 8192, (InputSpec((1024,)),), device="hopper")
    usage = train(Tower, request, Variant(8192, "fp32", "adam")).timeline.usage()
    assert usage.when == "backward"
    assert (usage.peak_bytes, usage.reserved_bytes) == (PEAK, RESERVED)
    assert usage.by_category["workspace"] == 2 * (32 << 20) + (1 << 20)
    assert usage.by_category["parameters"] == 268_599_296
    assert usage.by_category["optimizer state"] == 2 * 268_599_296
