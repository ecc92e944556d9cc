"""The report as Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profkit.findings.values import Change, Diagnosis, Finding, TimeShare, Timing
from profkit.report.markdown import render_markdown

FULL = """\
## 1 fault costs 43 % (30 to 50) of the step: retained-graph at train.py:31

### What to change, the largest gain first

An opportunity also changes numerics or structure.

#### `retained-graph` (high)

The list \\`losses\\` keeps the graph of every step alive.

```python
losses.append(loss)
```

- where: `train.py:31 in train_step`
- seen: 5 times
- cost: 5.30 ms per step (43 % of the step; likely 30 to 50 %); memory grows by 4.00 MB per step
- also at: `train.py:44 in evaluate`
- confidence: 90 %

Fix:

```
Append the number, not the graph:
    losses.append(loss.detach())
```

#### `launch-bound` (medium, opportunity)

The operators are small.

- where: `/home/user/models/network.py in forward (defined at line 12; the calling line was not recorded)`
- gain: 1.00 ms per step (8.0 % of the step)
- confidence: 60 %

Fix: torch.compile(model)

### For your information

- `zero-filled-gradients`: Gradients are filled with zeros.

### Not looked at

- the recording holds no GPU: `fragmentation`, `pageable-transfer`

### The recording

- The trace was cut off: 3 of 8 steps are missing.
- command: `python train.py`
- device: `cpu`
- torch: `2.13.0`
- Python: `3.11.2`
- steps: `5 steps of 12.3 ms (median), found from the profiler's step marks, 11.0 ms without the profiler, \
recording added 12 %`

### Where the step's time went

| part | time per step | share |
| --- | ---: | ---: |
| forward | 9.00 ms | 73 % |
| unexplained | 300 µs | 2.4 % |
"""


def test_the_report_begins_with_the_verdict_and_ends_with_the_shares_of_the_time(full_diagnosis: Diagnosis) -> None:
    assert render_markdown(full_diagnosis) == FULL


def test_an_empty_diagnosis_is_one_heading(empty_diagnosis: Diagnosis) -> None:
    assert render_markdown(empty_diagnosis) == "## Cannot judge: the recording holds no steps to measure\n"


def test_text_outside_code_contains_no_markup_or_mention(full_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    text = render_markdown(replace(full_diagnosis, findings=(hostile_finding,), health=(hostile_finding.message,)))
    prose = re.sub(r"(?s)(`{3,}).*?\n\1\n|(?<!\\)(`+)(?!`).*?[^`]\2(?!`)", "", text)
    assert "\\<script\\>" in prose
    assert not re.search(r"(?<!\\)[<\[](?!!-- -->)", prose)
    assert not re.search(r"@(?!<!-- -->)", prose)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("- a", "\\- a"),
        ("12. a", "12\\. a"),
        ("3) a", "3\\) a"),
        ("=== a", "\\=== a"),
        ("a - b = 12. 3) 4", "a - b = 12. 3) 4"),
        ("12.5 ms", "12.5 ms"),
    ],
)
def test_text_that_begins_like_a_list_or_below_a_title_stays_text(full_diagnosis, leak, message, shown) -> None:
    text = render_markdown(replace(full_diagnosis, findings=(replace(leak, message=message),)))
    assert f"\n{shown}\n" in text


def test_code_with_backticks_gets_a_longer_fence(full_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    lines = render_markdown(replace(full_diagnosis, findings=(hostile_finding,))).splitlines()
    start = lines.index("````")
    assert lines[start + 1] == "```"
    assert lines[start + 4] == "````"


@pytest.mark.parametrize(("places", "counted"), [(4, "1 more place"), (5, "2 more places")])
def test_further_places_after_the_third_are_only_counted(
    full_diagnosis: Diagnosis, leak: Finding, places: int, counted: str
) -> None:
    also = tuple(replace(leak.also[0], line=line) for line in range(1, places + 1))
    text = render_markdown(replace(full_diagnosis, findings=(replace(leak, also=also),)))
    assert text.count("- also at: ") == 3
    assert f"- and {counted}\n" in text


_SHARES = (TimeShare("device: computing", 7_900_000, 0.371), TimeShare("idle: launching work", 13_400_000, 0.629))


@pytest.mark.parametrize("shares", [(), _SHARES])
def test_the_limit_of_the_step_comes_before_the_shares_of_its_time(clean_diagnosis: Diagnosis, shares) -> None:
    timing = Timing(5, 21_300_000, "", shares=shares)
    text = render_markdown(replace(clean_diagnosis, timing=timing))
    bound = "The host bounds the step: launching work 13.4 ms; the device works 7.90 ms of 21.3 ms"
    assert (f"### Where the step's time went\n\n{bound}\n" in text) is bool(shares)
    assert ("| part |" in text) is bool(shares)


def test_a_fix_with_a_changed_line_is_shown_as_a_diff(full_diagnosis: Diagnosis, leak: Finding) -> None:
    change = Change("train.py", 31, "losses.append(loss)", "losses.append(loss.detach())")
    text = render_markdown(replace(full_diagnosis, findings=(replace(leak, change=change),)))
    assert "```diff\n- losses.append(loss)\n+ losses.append(loss.detach())\n```" in text
