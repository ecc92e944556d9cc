"""The pytest plugin in a user's pytest."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

import profkit
from profkit.run.directory import RUN_FILE, load_run
from tests.forks import Forks
from tests.recordings import Recordings, all_code

STEPS = """
    import sys
    import pytest
    import torch

    VALUES = torch.rand(2000)

    def faulty_step():
        total = torch.zeros(())
        for i in range(len(VALUES)):
            total = total + VALUES[i]  # the fault
        return total

    def fine_step():
        return VALUES.sum()

    def record(profkit_session, step):
        with profkit_session(wait=1, active=2) as prof:
            for _ in range(8):
                step()
                prof.step()
        return prof

    @pytest.mark.profkit(severity="high")
    def test_fault(profkit_session):
        record(profkit_session, faulty_step)

    @pytest.mark.profkit(severity="low", forbid=["tensor-element-loop"])
    @pytest.mark.filterwarnings("error")
    def test_healthy(profkit_session):
        assert record(profkit_session, fine_step).diagnosis.timing.steps == 2

    @pytest.mark.profkit(forbid="host-sync-in-step")
    def test_other_rule(profkit_session):
        record(profkit_session, faulty_step)

    @pytest.mark.profkit(forbid=["host-sync-in-step"])
    def test_remark_of_the_rule(profkit_session):
        record(profkit_session, lambda: [fine_step().item() for _ in range(20)])

    @pytest.mark.profkit
    @pytest.mark.parametrize("step", [faulty_step, fine_step])
    def test_mark_alone(step):
        for _ in range(8):
            step()

    class TestUnmarked:
        def test_it(self, profkit_session):
            diagnosis = record(profkit_session, faulty_step).diagnosis
            assert "tensor-element-loop" in [finding.rule for finding in diagnosis.findings]

    @pytest.mark.profkit(severity="low")
    def test_own_failure(profkit_session):
        with profkit_session():
            faulty_step()
            raise KeyError("mine")

    @pytest.mark.profkit
    def test_nothing(profkit_session):
        with profkit_session():
            pass

    @pytest.mark.profkit(forbid=["launch-bound"])
    def test_cannot_look(profkit_session):
        record(profkit_session, fine_step)

    @pytest.mark.profkit(severity="high", baseline="baselines")
    def test_failing_with_baseline(profkit_session):
        record(profkit_session, faulty_step)
"""
MARKS = {
    'forbid=["tensor-elemnt-loop"]': "no rule is called 'tensor-elemnt-loop'; the nearest is tensor-element-loop",
    'severity="worst"': "severity must be one of high, medium, low: not 'worst'",
    "max_regression=0.1": "max_regression needs a baseline to compare with",
    'baseline="b", max_regression="5%"': "max_regression must be a share such as 0.05: not '5%'",
    "severty='low'": "by name: not ['severty']",
    "'low'": "by name: not ['low']",
}
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(forks: Forks, tmp_path: Path) -> Run:
    """Writes and runs a test file; returns the exit status and output of pytest."""
    return lambda body, *arguments: run_pytest(forks, tmp_path, body, *arguments)


def run_pytest(forks: Forks, directory: Path, body: str, *arguments: str) -> tuple[int, str]:
    (directory / "test_it.py").write_text(dedent(body))
    ended = forks.run("tests.integrations.running:pytest_main", arguments, directory)
    return ended.returncode, ended.stdout + ended.stderr


@dataclass(frozen=True)
class Outcome:
    """A run of `STEPS` and `MARKS`: its directory, its output, and the failure messages by test name."""

    directory: Path
    output: str
    failures: dict[str, str]


@pytest.fixture
def tests(recordings: Recordings) -> Outcome:
    marked = [f"@pytest.mark.profkit({mark})\ndef test_mark_{n}(): fine_step()\n" for n, mark in enumerate(MARKS)]
    options = ("--junitxml=results.xml", "--profkit-update-baseline")
    body = dedent(STEPS) + "\n".join(marked)
    files = {"pytest.ini": "[pytest]\n", "test_it.py": body}  # else pytest would use this checkout's settings
    kept = recordings.fork("tests.integrations.running:pytest_main", options, reads=all_code(), writes=files)
    cases = ElementTree.parse(kept.directory / "results.xml").iter("testcase")
    failures = {case.attrib["name"]: "".join(found.itertext()) for case in cases for found in case.iter("failure")}
    return Outcome(kept.directory, kept.ended.stdout + kept.ended.stderr, failures)


def test_exactly_the_tests_over_their_limits_fail(tests: Outcome) -> None:
    assert set(tests.failures) == {
        "test_fault",
        "test_remark_of_the_rule",
        "test_mark_alone[faulty_step]",
        "test_own_failure",
        "test_nothing",
        "test_failing_with_baseline",
        *(f"test_mark_{n}" for n in range(len(MARKS))),
    }
    assert " 5 passed" in tests.output


def test_a_failure_shows_the_line_and_the_fix(tests: Outcome) -> None:
    output = tests.failures["test_fault"]
    source = (tests.directory / "test_it.py").read_text().splitlines()
    line = source.index("        total = total + VALUES[i]  # the fault") + 1
    # Each element is also read again in each step, which is worth about a tenth of it: high on some runs.
    assert re.match(r"profkit: [12] findings? that this test forbids\nhigh tensor-element-loop: ", output), output
    assert f"test_it.py:{line} in faulty_step" in output
    assert "total = total + VALUES[i]  # the fault" in output
    assert "\n  fix    Vectorise the loop" in output
    (report,) = re.findall(r"^report: (.+)$", output, re.MULTILINE)
    assert Path(report).is_file()
    assert "in _check" not in tests.output, "no frame of profkit is shown"


def test_a_forbidden_rule_fails_the_test_even_for_information(tests: Outcome) -> None:
    assert "host-sync-in-step: " in tests.failures["test_remark_of_the_rule"]


def test_the_own_failure_of_a_test_comes_first(tests: Outcome) -> None:
    assert "KeyError: 'mine'" in tests.failures["test_own_failure"]


def test_a_test_without_a_recording_never_passes(tests: Outcome) -> None:
    assert "nothing was recorded" in tests.failures["test_nothing"]


def test_a_rule_that_could_not_look_is_a_warning(tests: Outcome) -> None:
    assert "ProfkitWarning: profkit: launch-bound could not look: the recording holds no work of a GPU" in tests.output


@pytest.mark.parametrize("number", range(len(MARKS)))
def test_an_invalid_mark_fails_the_test(number: int, tests: Outcome) -> None:
    output = tests.failures[f"test_mark_{number}"]
    assert output.startswith("pytest.mark.profkit: ")
    assert list(MARKS.values())[number] in output


def test_a_failing_test_stores_no_baseline(tests: Outcome) -> None:
    assert not (tests.directory / "baselines").exists()


def test_recordings_lie_in_the_directory_of_pytest_named_after_the_test(tests: Outcome) -> None:
    names = {path.name for path in tests.directory.iterdir()}
    assert names <= {"pytest.ini", "test_it.py", "results.xml", "basetemp", "__pycache__"}
    (found,) = tests.directory.glob("basetemp/profkit*/test_it-TestUnmarked-test_it")
    assert load_run(found).target == "test_it.py::TestUnmarked::test_it"


ONE = ("-k", "test_step and 8")
SLEEPY = """
    import types
    import pytest
    import torch
    from profkit.collect.boundaries import choice
    from profkit.collect.recorder import recorder
    from profkit.collect.sessions import device_moments

    slept_ns = [0]  # the clock: a busy machine makes no step longer
    clock = types.SimpleNamespace(perf_counter_ns=lambda: slept_ns[0])
    choice.time = recorder.time = device_moments.time = clock

    @pytest.mark.profkit(baseline="baselines", max_regression=0.05)
    @pytest.mark.parametrize("size", [8, 16])
    def test_step(size, profkit_session):
        with profkit_session(wait=6, active=1) as prof:
            for _ in range(14):
                slept_ns[0] += {milliseconds} * 1_000_000
                torch.rand(size) * 2
                prof.step()
"""


def median_ms(directory: Path) -> float:
    return statistics.median(load_run(directory).reference_step_ns) / 1e6


def sleepy(milliseconds: int) -> str:
    return SLEEPY.format(milliseconds=milliseconds)


@pytest.fixture(scope="module")
def stored(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with baselines of both tests."""
    directory = tmp_path_factory.mktemp("stored")
    status, output = run_pytest(forks, directory, sleepy(3), "--profkit-update-baseline")
    assert status == 0, output
    return directory / "baselines"


@pytest.fixture
def baselines(stored: Path, tmp_path: Path) -> Path:
    """The baselines, beside the test file that will be run."""
    return Path(shutil.copytree(stored, tmp_path / "baselines"))


def test_a_baseline_is_a_run_directory_for_each_test(stored: Path) -> None:
    assert sorted(path.name for path in stored.iterdir()) == ["test_it-test_step-16", "test_it-test_step-8"]
    for directory in stored.iterdir():
        assert load_run(directory).target is not None
        assert profkit.diagnose(directory).timing.steps == 1
        assert not (directory / "report.html").exists()


def test_without_a_baseline_the_test_fails_and_says_how_to_store_one(run: Run, tmp_path: Path) -> None:
    status, output = run(sleepy(3), *ONE)
    assert status == 1
    assert f"there is no baseline at {tmp_path}/baselines/test_it-test_step-8: " in output
    assert "`pytest --profkit-update-baseline` stores this run as one" in output
    assert not (tmp_path / "baselines").exists()


def test_a_step_slower_than_its_baseline_fails(baselines: Path, run: Run) -> None:
    status, output = run(sleepy(60))
    assert status == 1
    assert " 2 failed" in output, output
    assert "a step takes longer than in the baseline, by 5.0 % or more and by more than the noise" in output
    assert "Worse: a step takes" in output


def test_a_baseline_is_replaced_on_request(baselines: Path, run: Run) -> None:
    status, output = run(sleepy(20), "--profkit-update-baseline", *ONE)
    assert status == 0, output
    assert median_ms(baselines / "test_it-test_step-8") == 20
    assert median_ms(baselines / "test_it-test_step-16") == 3


def test_a_step_no_slower_than_its_baseline_passes(baselines: Path, run: Run) -> None:
    status, output = run(sleepy(3), *ONE)
    assert status == 0, output


def test_a_baseline_from_another_machine_is_a_warning(baselines: Path, run: Run) -> None:
    for directory in baselines.iterdir():
        saved = json.loads((directory / RUN_FILE).read_text())
        saved["host"]["processor"] = "another processor"
        (directory / RUN_FILE).write_text(json.dumps(saved))
    status, output = run(sleepy(20), *ONE)
    assert status == 0
    assert "not compared, the baseline comes from another machine: processor another processor against" in output


def test_steps_under_a_tracer_are_not_compared(baselines: Path, run: Run) -> None:
    status, output = run("import sys\nsys.settrace(lambda *_: None)\n" + dedent(sleepy(20)), *ONE)
    assert status == 0
    assert "a debugger or a coverage tool slows the steps down" in output


def test_only_a_run_directory_is_replaced_by_a_baseline(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "baselines" / "test_it-test_step-8" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    status, output = run(sleepy(2), "--profkit-update-baseline", *ONE)
    assert status == 1
    assert "exists but is not a run, so it is not replaced" in output
    assert mine.read_text() == "mine"


def test_pytest_runs_without_the_plugin(run: Run) -> None:
    status, output = run("def test_nothing(): pass", "-p", "no:profkit")
    assert (status, "1 passed" in output) == (0, True), output


def test_the_mark_and_the_fixture_explain_themselves(run: Run) -> None:
    status, output = run("", "--markers", "--strict-markers")
    assert status == 0
    assert "@pytest.mark.profkit(*, forbid=()" in output


def test_loading_the_pytest_plugin_imports_nothing_heavy() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import profkit.integrations.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plugin = ["profkit.core", "profkit.core.printing", "profkit.integrations", "profkit.integrations.pytest_plugin"]
    registry = ["profkit.collect", "profkit.collect.recorder", "profkit.collect.recorder.diagnosis"]
    assert result.stdout.split() == ["profkit", *registry, *plugin]


def test_the_package_names_the_plugin() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nprofkit = "profkit.integrations.pytest_plugin"\n' in project
