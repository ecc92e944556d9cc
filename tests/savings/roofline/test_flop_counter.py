"""Operations by recorded shapes beside those of PyTorch's own counter, on small models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from profkit.collect.sessions.kineto import quiet_log
from profkit.diagnosis.pipeline import read_facts
from profkit.savings.roofline.demand import PRODUCTS
from profkit.savings.roofline.models import demand_of, has_model

Run = Callable[[], Any]


def _train(model: nn.Module, *shape: int) -> Run:
    inputs = torch.randn(*shape, requires_grad=True)

    def run() -> None:
        out = model(inputs)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    return run


def _infer(model: nn.Module, *shape: int) -> Run:
    inputs = torch.randn(*shape)

    def run() -> None:
        with torch.no_grad():
            model(inputs)

    return run


def _multiply(call: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Run:
    tensors = [torch.randn(shape, dtype=dtype) for shape in shapes]
    return lambda: call(*tensors)


def _written_out(run: Run) -> Run:
    """Attention of single products: the counter does not know the fused one of a CPU."""

    def written_out() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            run()

    return written_out


class _Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep, self.wide = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(8, 16, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return (self.deep(image) * torch.sigmoid(self.wide(image))).flatten(1)


_LAYER = {"dim_feedforward": 64, "batch_first": True, "dropout": 0.0}
MODELS: dict[str, Callable[[], Run]] = {
    "linear": lambda: _train(nn.Linear(32, 64), 16, 32),
    "linear-without-bias": lambda: _train(nn.Linear(32, 64, bias=False), 16, 32),
    "linear-3d": lambda: _train(nn.Linear(32, 64), 4, 6, 32),
    "mlp": lambda: _train(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 5)), 12, 24),
    "mlp-inference": lambda: _infer(nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 5)), 12, 24),
    "bilinear-form": lambda: _multiply(torch.matmul, (3, 7, 16), (16, 5)),
    "mm": lambda: _multiply(torch.mm, (33, 17), (17, 9)),
    "mm-bfloat16": lambda: _multiply(torch.mm, (33, 17), (17, 9), dtype=torch.bfloat16),
    "bmm": lambda: _multiply(torch.bmm, (4, 33, 17), (4, 17, 9)),
    "addmm": lambda: _multiply(torch.addmm, (9,), (33, 17), (17, 9)),
    "baddbmm": lambda: _multiply(torch.baddbmm, (4, 33, 9), (4, 33, 17), (4, 17, 9)),
    "einsum": lambda: _multiply(lambda a, b: torch.einsum("bij,bjk->bik", a, b), (4, 33, 17), (4, 17, 9)),
    "conv1d": lambda: _train(nn.Conv1d(6, 12, 5, padding=2), 4, 6, 40),
    "conv2d": lambda: _train(nn.Conv2d(6, 12, 3, padding=1), 4, 6, 20, 20),
    "conv2d-stride": lambda: _train(nn.Conv2d(6, 12, 3, stride=2), 4, 6, 21, 21),
    "conv2d-dilation": lambda: _train(nn.Conv2d(6, 12, 3, dilation=3), 4, 6, 21, 21),
    "conv2d-same": lambda: _train(nn.Conv2d(6, 12, 3, padding="same"), 4, 6, 20, 20),
    "conv2d-inference": lambda: _infer(nn.Conv2d(6, 12, (1, 7), padding=(0, 3)), 4, 6, 20, 20),
    "conv2d-groups": lambda: _infer(nn.Conv2d(8, 12, 3, groups=4), 4, 8, 20, 20),
    "conv2d-depthwise": lambda: _infer(nn.Conv2d(8, 8, 3, padding=1, groups=8), 4, 8, 20, 20),
    "conv3d": lambda: _train(nn.Conv3d(3, 6, 3), 2, 3, 9, 9, 9),
    "conv-transpose1d": lambda: _train(nn.ConvTranspose1d(6, 4, 4, stride=2), 2, 6, 11),
    "conv-transpose2d": lambda: _train(nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1, output_padding=1), 2, 6, 9, 9),
    "branches": lambda: _train(_Branches(), 3, 8, 14, 14),
    "multi-head": lambda: _written_out(_train(nn.TransformerEncoderLayer(32, 4, **_LAYER), 3, 12, 32)),
    "encoder": lambda: _written_out(
        _train(nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, **_LAYER), 2), 3, 12, 32)
    ),
    "rnn-cell": lambda: _train(nn.RNNCell(12, 20), 8, 12),
    "lstm-cell": lambda: _train(nn.LSTMCell(12, 20), 8, 12),
    "classifier": lambda: _train(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)), 4, 3, 8, 8
    ),
}


def _by_shapes(run: Run, path: Path) -> float:
    """The operations of all products, each at the innermost call that is understood."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with quiet_log(), torch.profiler.profile(activities=cpu, record_shapes=True) as prof:
        run()
    prof.export_chrome_trace(str(path))
    facts = read_facts(path)
    trace, events = facts.trace, facts.trace.events
    found = {}
    for row in trace.where_name(has_model).nonzero()[0].tolist():
        codes = (events.dims_code[row], events.types_code[row], events.concrete_code[row])
        demand = demand_of(trace.name_of(row), *(trace.text_of(int(code)) for code in codes))
        if demand is not None and demand.kind in PRODUCTS:
            found[row] = demand
    inner = facts.tree.nearest_ancestor(trace.mask_of(list(found)))
    return sum(demand.operations for row, demand in found.items() if row not in set(inner[list(found)].tolist()))


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_those_of_the_flop_counter(name: str, tmp_path: Path):
    run = MODELS[name]()
    with FlopCounterMode(display=False) as counter:
        run()
    assert counter.get_total_flops() > 0
    assert _by_shapes(run, tmp_path / "trace.json") == counter.get_total_flops()


def test_the_gradients_of_groups_have_the_operations_of_the_forward_pass_each(tmp_path: Path):
    """The counter counts the gradient of a weight in groups as if there were none."""
    layer = nn.Conv2d(8, 12, 3, groups=4)
    forward = _by_shapes(_infer(layer, 4, 8, 20, 20), tmp_path / "forward.json")
    assert _by_shapes(_train(layer, 4, 8, 20, 20), tmp_path / "both.json") == 3 * forward


_QUERY, _KEY, _VALUE = (3, 8, 24, 16), (3, 8, 40, 16), (3, 8, 40, 12)


def _texts(*shapes: tuple[int, ...], causal_at: int, is_causal: bool = False) -> tuple[str, str, str]:
    values = [""] * (causal_at + 1)
    values[causal_at] = str(is_causal)
    more = causal_at + 1 - len(shapes)
    dims = [list(shape) for shape in shapes] + [[]] * more
    return json.dumps(dims), json.dumps(["float"] * len(shapes) + [""] * more), json.dumps(values)


@pytest.mark.parametrize(
    ("name", "causal_at"),
    [
        ("aten::scaled_dot_product_attention", 5),
        ("aten::_scaled_dot_product_flash_attention", 4),
        ("aten::_scaled_dot_product_efficient_attention", 6),
        ("aten::_scaled_dot_product_cudnn_attention", 6),
    ],
)
def test_attention_has_the_counters_operations(name: str, causal_at: int):
    demand = demand_of(name, *_texts(_QUERY, _KEY, _VALUE, causal_at=causal_at))
    assert demand is not None
    assert demand.operations == sdpa_flop_count(_QUERY, _KEY, _VALUE)


def test_the_backward_pass_of_attention_has_the_counters_operations():
    out = (*_QUERY[:3], _VALUE[-1])
    name = "aten::_scaled_dot_product_flash_attention_backward"
    demand = demand_of(name, *_texts(out, _QUERY, _KEY, _VALUE, out, causal_at=11))
    assert demand is not None
    assert demand.operations == sdpa_backward_flop_count(out, _QUERY, _KEY, _VALUE)


def test_a_causal_mask_leaves_out_what_the_counter_counts():
    square = (3, 8, 24, 16)
    demand = demand_of(
        "aten::scaled_dot_product_attention", *_texts(square, square, square, causal_at=5, is_causal=True)
    )
    assert demand is not None
    assert demand.operations == sdpa_flop_count(square, square, square) * 25 / 48


def _flash(causal: str, window: str) -> float | None:
    """Operations of 4 queries over 10 keys in FlashAttention's own function; None if they are not known."""
    dims = json.dumps([[1, 4, 1, 8], [1, 10, 1, 8], [1, 10, 1, 8]])
    values = json.dumps(["", "", "", "0.", "1.", causal, window, window])
    demand = demand_of("flash_attn::_flash_attn_forward", dims, json.dumps(["c10::Half"] * 3), values)
    return None if demand is None else demand.operations


def test_the_last_query_of_flash_attention_sees_the_last_key():
    """Queries see 7, 8, 9 and 10 keys, and each pair has 2 * (8 + 8) operations."""
    assert _flash("False", "-1") == 40 * 32
    assert _flash("True", "-1") == 34 * 32


def test_a_window_of_flash_attention_is_not_understood():
    assert _flash("True", "2") is None
