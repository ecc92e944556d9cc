"""Which lines switch anomaly mode on: calls and options that are not plainly off, not mere names."""

from __future__ import annotations

import ast

import pytest

from profkit.source.settings import anomaly_mode_setters


@pytest.mark.parametrize(
    "source",
    [
        "torch.autograd.set_detect_anomaly(True)",
        "torch.autograd.set_detect_anomaly(args.debug)",
        "torch.autograd.set_detect_anomaly(True, check_nan=False)",
        "with torch.autograd.detect_anomaly():\n    step()",
        "from torch.autograd import detect_anomaly as on\nTrainer(detect_anomaly=True)",
        "trainer = L.Trainer(\n    max_epochs=3,\n    detect_anomaly=options.debug,\n)",
        "options = dict(detect_anomaly=True)",
        "options = {'clip': 1.0,\n    'detect_anomaly': True}",
    ],
)
def test_a_line_that_may_switch_anomaly_mode_on_is_found(source):
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "detect_anomaly" in text and "import" not in text)
    assert anomaly_mode_setters(ast.parse(source)) == [line]


@pytest.mark.parametrize(
    "source",
    [
        "torch.autograd.set_detect_anomaly(False)",
        "torch.autograd.set_detect_anomaly(mode=False)",
        "Trainer(detect_anomaly=False)",
        "Trainer(detect_anomaly=None)",
        "options = {'detect_anomaly': False, **others}",
        "detect_anomaly = True",
        "find_anomaly(True)",
    ],
)
def test_a_line_that_does_not_switch_it_on_is_left_out(source):
    assert anomaly_mode_setters(ast.parse(source)) == []
