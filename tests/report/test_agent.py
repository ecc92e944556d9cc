"""The report for an agent: what it holds, how long it is, and what it must not show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profkit.findings.values import Diagnosis, Finding, Kind
from profkit.report.agent import MOST_CHARACTERS, agent_pages, render_agent


@pytest.fixture
def at_home(tmp_path: Path, leak: Finding) -> Finding:
    """The finding in a file that exists."""
    assert leak.location is not None
    file = tmp_path / "train.py"
    file.write_text("for x in data:\n    loss = f(x)\n    losses.append(loss)\n")
    return replace(leak, location=replace(leak.location, file=str(file), line=3))


def started(diagnosis: Diagnosis, *command: str, findings: tuple[Finding, ...]) -> Diagnosis:
    return replace(diagnosis, run=replace(diagnosis.run, command=command), findings=findings)


def test_a_finding_has_its_line_its_patch_and_its_proof(full_diagnosis, at_home, tmp_path):
    diagnosis = started(full_diagnosis, "python", "train.py", "--name", "a b", findings=(at_home,))
    (page,) = agent_pages(diagnosis, tmp_path)
    assert page.startswith("verdict: ")
    assert (
        "\n1. high fault retained-graph, 90 % certain\nat: train.py:3 in train_step\ncode: losses.append(loss)\n"
        in page
    )
    assert "\ncost: 5.30 ms per step (43 % of the step; likely 30 to 50 %); memory grows by 4.00 MB per step\n" in page
    assert (
        "\nchange, not proven yet:\n--- a/train.py\n+++ b/train.py\n@@ -1,3 +1,3 @@\n for x in data:\n"
        "     loss = f(x)\n-    losses.append(loss)\n+    losses.append(loss.detach())\n"
        "prove: profkit fix train.py --select retained-graph -- --name 'a b'\n"
    ) in page
    assert "\nnot looked at: " in page


def test_a_module_is_proven_as_one_and_another_launcher_by_comparing(full_diagnosis, at_home, tmp_path):
    module = started(full_diagnosis, "python", "-m", "package.train", findings=(at_home,))
    assert "prove: profkit fix -m package.train --select retained-graph\n" in agent_pages(module, tmp_path)[0]
    other = started(full_diagnosis, "torchrun", "train.py", findings=(at_home,))
    assert "prove: record again after it, then profkit compare\n" in agent_pages(other, tmp_path)[0]


def test_what_only_unsafe_tries_is_said(full_diagnosis, at_home, tmp_path):
    chance = replace(at_home, kind=Kind.OPPORTUNITY)
    (page,) = agent_pages(started(full_diagnosis, "python", "train.py", findings=(chance,)), tmp_path)
    assert "changes numbers: it may alter the numbers that the program computes\n" in page
    assert "prove: profkit fix train.py --select retained-graph --unsafe\n" in page


def test_without_a_change_the_advice_and_the_reason_stand_there(full_diagnosis, at_home, leak, tmp_path):
    assert at_home.location is not None
    library = replace(at_home.location, file=str(tmp_path / "site-packages" / "train.py"))
    elsewhere = replace(at_home.location, file="/etc/hosts")
    for finding, reason in (
        (replace(at_home, location=None), "no single line of the program is at fault"),
        (replace(at_home, location=library), "the line is not part of the program's own folder"),
        (replace(at_home, location=elsewhere), "the line is not part of the program's own folder"),
        (replace(at_home, location=replace(at_home.location, line=2)), "the line is no longer what was recorded"),
        (leak, "the line is no longer what was recorded"),
    ):
        (page,) = agent_pages(replace(full_diagnosis, findings=(finding,)), tmp_path)
        assert f"no change by profkit: {reason}\n" in page
        assert "advice: Append the number, not the graph: losses.append(loss.detach())\n" in page


def test_many_long_findings_come_in_pages_of_2000_tokens(full_diagnosis, at_home, tmp_path):
    long = replace(at_home, message="long words " * 200, fix="much advice " * 300)
    diagnosis = replace(full_diagnosis, findings=(long,) * 30, skipped={f"rule-{n}": f"reason {n}" for n in range(99)})
    pages = agent_pages(diagnosis, tmp_path)
    assert len(pages) > 2
    assert all(len(page) <= MOST_CHARACTERS for page in pages)
    assert sum(page.count("retained-graph, 90 % certain") for page in pages) == 30
    assert len(render_agent(diagnosis)) <= MOST_CHARACTERS


def test_nothing_to_change_is_said(full_diagnosis, tmp_path):
    (page,) = agent_pages(replace(full_diagnosis, findings=()), tmp_path)
    assert "\nfindings: none worth a change\n" in page


def test_text_of_a_recording_stays_on_its_line(full_diagnosis, hostile_finding, tmp_path):
    (page,) = agent_pages(replace(full_diagnosis, findings=(hostile_finding,)), tmp_path)
    assert "\x1b" not in page
    assert "\n1. " in page
