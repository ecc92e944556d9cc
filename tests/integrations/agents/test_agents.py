"""What the tools for agents do, without the protocol."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from profkit.core.errors import ProfkitError, UsageError
from profkit.diagnosis.fixing.proving import Fixes
from profkit.findings.values import Diagnosis, Finding, Kind, Location, RunSummary, Severity, Timing
from profkit.integrations.agents import read_skill
from profkit.integrations.agents.work import Workplace, one_page, paged
from profkit.report.agent import MOST_CHARACTERS, agent_pages

RECORDED = Path(__file__).parents[3] / "traces" / "recorded" / "nvidia-h200" / "cpu-tensor-then-cuda" / "pitfall"


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    root = tmp_path / "project"
    shutil.copytree(RECORDED, root / "traces" / "run")
    return Workplace(root)


def test_nothing_outside_of_the_folder_is_seen(place, tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (place.root / "link.json").symlink_to(tmp_path / "secret.json")
    for path in ("../secret.json", str(tmp_path / "secret.json"), "link.json"):
        with pytest.raises(UsageError, match=r"lies outside of .*; start `profkit mcp` in the folder that holds it"):
            place.inside(path)
        with pytest.raises(UsageError, match="lies outside of"):
            place.diagnose(path, (), print)
    with pytest.raises(UsageError, match="lies outside of"):
        place.explain("../secret.json")
    with pytest.raises(UsageError, match="`list_runs` names the recordings"):
        place.inside("traces/other")


def test_the_recordings_are_listed_and_diagnosed(place):
    (listed,) = place.list_runs()
    assert "traces/run  " in listed
    name = listed.split()[0]
    told: list[str] = []
    first, *_ = place.diagnose(name, (), told.append)
    assert first.startswith("verdict: ")
    assert "host-created-tensor" in first
    assert len(first) <= MOST_CHARACTERS
    assert told == ["reading the recording"]
    assert "host-created-tensor" in place.explain(name)[0]
    with pytest.raises(UsageError, match="arguments are for a script only"):
        place.diagnose(name, ("--epochs",), told.append)


def test_a_rule_is_explained_or_not_known(place):
    assert place.explain("retained-graph")[0].startswith("retained-graph (fault)\n")
    with pytest.raises(ProfkitError, match="no rule is called 'retained'"):
        place.explain("retained")


def test_only_a_script_is_fixed_and_only_who_may_write_writes(place):
    with pytest.raises(UsageError, match=r"on a script\.py"):
        place.fix("traces/run", "", (), None, False, 1.0, print)
    with pytest.raises(UsageError, match="this server only reads"):
        place.write(Fixes(place.root, (), {}, {}))


def test_what_held_is_written_inside_of_the_folder_only(place):
    file = place.root / "train.py"
    file.write_bytes(b"a\n")
    may = Workplace(place.root, may_write=True)
    assert may.write(Fixes(place.root, (), {Path("train.py"): b"a\n"}, {Path("train.py"): b"b\n"})) == "train.py"
    assert file.read_bytes() == b"b\n"
    outside = place.root.parent
    (outside / "other.py").write_bytes(b"a\n")
    with pytest.raises(UsageError, match=r"other\.py: lies outside of"):
        may.write(Fixes(outside, (), {Path("other.py"): b"a\n"}, {Path("other.py"): b"b\n"}))
    assert may.write(Fixes(place.root, (), {}, {})) == "nothing: no change held"


def test_long_answers_come_in_pages():
    text = "".join(f"line {number}\n" for number in range(3000)) + "x" * 10_000
    pages = paged(text)
    assert "".join(pages) == text
    assert all(len(one_page(pages, number)) <= MOST_CHARACTERS for number in range(1, len(pages) + 1))
    assert one_page(pages, 1).endswith(f"page 1 of {len(pages)}, ask for page=2\n")
    assert one_page(["all"], 1) == "all"
    for number in (0, len(pages) + 1):
        with pytest.raises(ProfkitError, match="there is no page"):
            one_page(pages, number)


def test_the_skill_names_commands_that_there_are():
    import profkit.cli

    skill = read_skill()
    assert skill.startswith("---\nname: profkit\ndescription: ")
    named = {line.split()[1] for line in skill.replace("`", "\n").splitlines() if line.startswith("profkit ")}
    known = set(profkit.cli.group.list_commands(None))  # type: ignore[arg-type]
    assert named <= known


@pytest.mark.parametrize("name", ["no\0name", "x" * 5000, "loop"])
def test_a_name_that_is_none_is_refused_in_words(place, name):
    (place.root / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="is no name of a file"):
        place.inside(name)
    with pytest.raises(ProfkitError, match="no rule is called"):
        place.explain(name)


def test_a_broken_recording_does_not_hide_the_others(place):
    for number, content in enumerate((b"{broken", b"\xff\x00", b'{"command": 5}')):
        (place.root / f"run{number}").mkdir()
        (place.root / f"run{number}" / "run.json").write_bytes(content)
    (listed,) = place.list_runs()
    assert "traces/run  " in listed


def test_what_could_not_be_written_is_said_before_it_is_proven(place):
    script = place.root / "train.py"
    script.write_text("a = 1\n")
    with pytest.raises(UsageError, match="this server only reads"):
        place.refuse_unsaved("train.py")
    may = Workplace(place.root, may_write=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place.root)]
    for command in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    may.refuse_unsaved("train.py")
    script.write_text("a = 2\n")
    with pytest.raises(UsageError, match="not committed"):
        may.refuse_unsaved("train.py")


def test_a_long_line_leaves_room_for_what_follows_the_patch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = f"losses.append({'x' * 20_000})"
    (tmp_path / "t.py").write_text(f"{source}\n")
    found = Finding("retained-graph", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", Location("t.py", 1, "main", source))
    run = RunSummary(("python", "t.py", "y" * 9000), None, None, None, None)
    (page,) = agent_pages(Diagnosis(run, Timing(0, 0, "optimizer"), (found,), {"graph-break": "why"}, ()), tmp_path)
    assert "(2 more lines)\nprove: " in page
    assert page.endswith("not looked at: graph-break: why\n")
