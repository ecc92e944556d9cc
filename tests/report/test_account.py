"""How a saving comes about, in words: each figure is one that the account holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.findings.accounts import Account, TakenFrom, TakenOut
from profkit.findings.values import MEASURED_EVIDENCE, Diagnosis, Finding, Saving, Timing
from profkit.report import render
from profkit.report.account import render_accounts
from profkit.report.account_wording import account_rows, account_sentences

_ACCOUNT = Account(
    (
        TakenOut("aten::item", TakenFrom.HOST, 3, 600_000, 0),
        TakenOut("cudaStreamSynchronize", TakenFrom.WAIT, 1, 400_000, 0),
        TakenOut("reduce_kernel (MeanOps)", TakenFrom.DEVICE, 1.5, 200_000, 100_000),
        TakenOut("", TakenFrom.STRETCH, 1, 50_000, 10_000),
    ),
    step_ns=2_000_000,
    edited_ns=1_500_000,
    uncertainty=0.2,
    spread=0.03,
    more=2,
    more_ns=60_000,
)
_GPU = Timing(4, 2_200_000, "calls of step()", 2_100_000, 0.1, unprofiled_from="measured", bound_by="host")


@pytest.fixture
def explained(leak: Finding) -> Finding:
    return replace(leak, saving=Saving(525_000, 0.25, 0.19, 0.31), account=_ACCOUNT)


@pytest.fixture
def diagnosis(full_diagnosis: Diagnosis, explained: Finding) -> Diagnosis:
    return replace(full_diagnosis, timing=_GPU, findings=(explained,))


def known(diagnosis: Diagnosis, **changes: object) -> str:
    finding = replace(diagnosis.findings[0], account=replace(_ACCOUNT, **changes))
    return " ".join(account_sentences(diagnosis, finding))


def test_each_piece_says_whose_time_it_is() -> None:
    assert account_rows(_ACCOUNT) == [
        ("3 x aten::item", "600 µs", "0 ns"),
        ("the host's wait in cudaStreamSynchronize", "400 µs", "0 ns"),
        ("1.5 x reduce_kernel (MeanOps) on the device", "200 µs", "100 µs"),
        ("a stretch of the host's time, with all that runs in it", "50.0 µs", "10.0 µs"),
    ]


def test_the_sentences_lead_from_the_pieces_to_the_range(diagnosis: Diagnosis) -> None:
    assert " ".join(account_sentences(diagnosis, diagnosis.findings[0])) == (
        "2 other names would give back 60.0 µs more. "
        "Replayed, the step takes 1.50 ms instead of 2.00 ms, 25 % less. Of the 1.20 ms taken out, 700 µs give nothing "
        "back: host and device work side by side, and the longer of the two counts. "
        "Without the recording a step takes 2.10 ms (measured); 25 % of that are 525 µs. "
        "Likely 19 % to 31 %: the model may be off by 20 % of the saving either way and the measured steps differ by "
        "3.0 %."
    )


def test_what_gives_all_of_it_back_needs_no_reason(diagnosis: Diagnosis) -> None:
    assert "give nothing back" not in known(diagnosis, edited_ns=800_000)
    assert "give nothing back" in known(diagnosis, edited_ns=900_000)


def test_without_a_device_nothing_is_hidden_behind_one(diagnosis: Diagnosis) -> None:
    on_cpu = replace(diagnosis, timing=replace(_GPU, bound_by=None))
    assert "host and device" not in known(on_cpu)
    assert "other programs held the machine" in known(on_cpu)


def test_a_launch_waits_for_its_latest_rank(diagnosis: Diagnosis) -> None:
    assert "the latest counts" in known(diagnosis, taken=(TakenOut("rank 3", TakenFrom.RANK, 1, 900_000, 0),))


def test_a_part_of_a_joint_saving_says_so(diagnosis: Diagnosis) -> None:
    assert "40 % of what that gives back is this one's" in known(diagnosis, part=0.4)


def test_an_experiment_is_no_model(diagnosis: Diagnosis) -> None:
    measured = replace(diagnosis.findings[0], evidence={MEASURED_EVIDENCE: 0.5})
    assert "the rounds of the experiment differ by 20 %" in " ".join(account_sentences(diagnosis, measured))


def test_steps_that_do_not_differ_are_not_mentioned(diagnosis: Diagnosis) -> None:
    assert "differ" not in known(diagnosis, spread=0.0)


def test_a_busy_device_explains_a_wider_upper_end(diagnosis: Diagnosis, explained: Finding) -> None:
    wide = replace(explained, saving=Saving(525_000, 0.25, 0.19, 0.6))
    assert "hides how fast the host is" in " ".join(account_sentences(diagnosis, wide))
    assert "hides how fast the host is" not in known(diagnosis)


def test_the_text_ends_with_the_rules_model(diagnosis: Diagnosis, explained: Finding) -> None:
    text = render_accounts(diagnosis, [(1, explained)], {"retained-graph": ["The step is replayed", "without it."]})
    assert text.startswith("1. retained-graph, train.py:31\nCost: 525 µs per step")
    assert text.endswith("How retained-graph estimates\nThe step is replayed without it.\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_finding_without_a_predicted_time_says_so(diagnosis: Diagnosis, leak: Finding) -> None:
    assert "No time is predicted" in render_accounts(diagnosis, [(1, leak)], {})


def test_the_page_has_it_folded_and_escaped(diagnosis: Diagnosis, explained: Finding) -> None:
    hostile = replace(_ACCOUNT, taken=(TakenOut("<script>alert(1)</script>", TakenFrom.HOST, 1, 500_000, 0),))
    page = render(replace(diagnosis, findings=(replace(explained, account=hostile),)), "html")
    assert "<summary>How the saving comes about</summary>" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "How the saving comes about" not in render(replace(diagnosis, findings=()), "html")


def test_names_with_control_characters_stay_on_their_line(diagnosis: Diagnosis, explained: Finding) -> None:
    hostile = replace(_ACCOUNT, taken=(TakenOut("a\nb\x1b[31m", TakenFrom.HOST, 1, 500_000, 0),))
    text = render_accounts(diagnosis, [(1, replace(explained, account=hostile))], {})
    assert "\x1b" not in text
    assert "a b" in text or "a\\nb" in text
