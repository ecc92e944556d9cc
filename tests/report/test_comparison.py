"""A comparison as text, JSON and Markdown."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.compare.comparison import (
    Comparison,
    Difference,
    Fate,
    FindingMove,
    Move,
    Side,
    StepTime,
    Verdict,
)
from profkit.findings.values import Location, Severity
from profkit.report import render_comparison

WORSE = Comparison(
    before=Side(("traces/a",), ("python", "train.py"), "cpu", "2.13.0", 12_300_000, 13, 812.0),
    after=Side(("traces/b/1", "traces/b/2"), ("python", "train.py"), "cpu", "2.13.0", 13_100_000, 26, 830.0),
    differences=(Difference("torch", "2.13.0", "2.14.0"),),
    step_time=StepTime(
        Verdict.WORSE, 12_300_000, 13_100_000, 0.065, 0.031, 0.104, 0.05, "unprofiled steps", "t interval", 0.001
    ),
    operators=(
        Move("aten::mm", 1_230_000, 2_340_000, 2, 4),
        Move("aten::_scaled_dot_product_flash_attention_for_cpu_backward", 900_000, 700_000, 1, 1),
    ),
    lines=(Move("loss = loss + penalty(model)", 0, 900_000, 0, 12.5, Location("/x/train.py", 31, "step")),),
    findings=(
        FindingMove(
            Fate.NEW, "tensor-element-loop", Location("train.py", 31, "step"), None, Severity.MEDIUM, None, 0.07
        ),
        FindingMove(Fate.CHANGED, "input-bound", None, Severity.LOW, Severity.HIGH, 0.01, 0.2),
        FindingMove(Fate.GONE, "retained-graph", Location("train.py", 40, "step"), Severity.HIGH, None),
        FindingMove(Fate.UNKNOWN, "launch-bound", None, Severity.LOW, None, 0.01, None, "the recording holds no GPU"),
    ),
)

TEXT = """\
Worse: a step takes 13.1 ms instead of 12.3 ms, +6.5 % (95 % interval +3.1 % to
+10 %)
- 13 and 26 unprofiled steps of 3 runs; t interval
- operators per step: 812 before, 830 after
- an interval within 5 % either way counts as no difference

before  traces/a: python train.py, cpu, torch 2.13.0
after   traces/b/1 and 1 more: python train.py, cpu, torch 2.13.0

What differs besides the program's work
- torch: 2.13.0 before, 2.14.0 after

Operators that moved, per recorded step
                                               before    after    change   calls
aten::mm                                      1.23 ms  2.34 ms  +1.11 ms  2 -> 4
aten::_scaled_dot_product_flash_attention...   900 µs   700 µs   -200 µs       1

Lines that moved, per recorded step
                                          before   after   change      calls
train.py:31 loss = loss + penalty(model)    0 ns  900 µs  +900 µs  0 -> 12.5

Findings
- new: tensor-element-loop at train.py:31 (medium, 7.0 % of the step)
- changed: input-bound (low, 1.0 % of the step before; high, 20 % of the step
  after)
- gone: retained-graph at train.py:40 (high)
- not known: launch-bound: on one side the recording holds no GPU
"""


def test_the_text_begins_with_the_verdict_and_ends_with_the_findings() -> None:
    assert render_comparison(WORSE, "text") == TEXT
    assert str(WORSE) == TEXT


def test_no_line_of_the_comparison_is_too_wide() -> None:
    for width in (60, 80, 120):
        assert max(map(len, render_comparison(WORSE, "text", width=width).splitlines())) <= width


def test_only_the_verdict_is_coloured() -> None:
    text = render_comparison(WORSE, "text", color=True)
    assert text.startswith("\x1b[1;31mWorse")
    assert text.count("\x1b[0m") == 2
    assert "\x1b" not in text.split("+10 %)", 1)[1].removeprefix("\x1b[0m")


@pytest.mark.parametrize(
    ("verdict", "start"),
    [
        (Verdict.BETTER, "Better: a step takes 13.1 ms instead of 12.3 ms, +6.5 %"),
        (Verdict.NO_DIFFERENCE, "No difference: a step takes 12.3 ms before and 13.1 ms after"),
        (Verdict.INCONCLUSIVE, "Inconclusive: a step takes 12.3 ms before and 13.1 ms after"),
    ],
)
def test_each_verdict_has_its_sentence(verdict: Verdict, start: str) -> None:
    text = render_comparison(replace(WORSE, step_time=replace(WORSE.step_time, verdict=verdict)), "text")
    assert " ".join(text.split()).startswith(start)
    assert ("record several runs" in " ".join(text.split())) is (verdict is Verdict.INCONCLUSIVE)


def test_without_an_interval_none_is_stated() -> None:
    time = replace(WORSE.step_time, verdict=Verdict.INCONCLUSIVE, low=None, high=None, reasons=("too few steps",))
    text = render_comparison(replace(WORSE, step_time=time), "text")
    assert "interval" not in text.splitlines()[0]
    assert "- too few steps" in text


def test_the_ninth_operator_is_only_counted() -> None:
    many = tuple(Move(f"aten::op{i}", 0, 1_000_000, 0, 1) for i in range(10))
    text = render_comparison(replace(WORSE, operators=many), "text")
    assert "aten::op7" in text
    assert "aten::op8" not in text
    assert "and 2 more that moved less" in text


@pytest.mark.parametrize("format_name", ["text", "markdown", "html"])
def test_kernels_are_named_as_in_a_report(format_name: str) -> None:
    name = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(int)"
    shown = render_comparison(replace(WORSE, operators=(Move(name, 0, 1_000_000, 0, 1),)), format_name)
    assert "reduce_kernel (MeanOps)" in shown.replace("\\_", "_")
    assert "ReduceOp" not in shown


def test_json_contains_everything_and_can_be_read_back() -> None:
    assert msgspec.json.decode(render_comparison(WORSE, "json"), type=Comparison) == WORSE


def test_markdown_contains_the_same_and_escapes_text_from_recordings() -> None:
    hostile = replace(WORSE, operators=(Move("<b>|@you", 0, 1_000_000, 0, 1),), findings=())
    text = render_comparison(hostile, "markdown")
    assert text.startswith("## Worse: a step takes 13.1 ms instead of 12.3 ms, \\+6.5 %")
    assert "| \\<b\\>\\|@<!-- -->you | 0 ns | 1.00 ms | +1.00 ms | 0 -> 1 |" in text
    assert "### Findings" not in text


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="pdf: not a comparison format"):
        render_comparison(WORSE, "pdf")
