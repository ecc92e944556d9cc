"""``profkit compare`` as its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.cli.compare import parse_percent
from profkit.core.errors import UsageError
from tests.diagnosis.compare.runs import around, write_run


def compare(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", "compare", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """A step of 10 ms before and 11 ms after."""
    return (
        write_run(tmp_path / "a", reference_step_ns=around(10)),
        write_run(tmp_path / "b", reference_step_ns=around(11)),
    )


def test_a_piped_report_is_plain_and_fits_80_columns(tmp_path: Path, sides: tuple[Path, Path]) -> None:
    result = compare("a", "b", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Worse: a step takes 11.0 ms instead of 9.98 ms, +10 %")
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("before", "after", "threshold", "status"),
    [("a", "b", "5%", 1), ("a", "b", "9.9", 1), ("a", "b", "11%", 0), ("b", "a", "5%", 0)],
)
def test_the_status_says_whether_the_step_became_longer(
    tmp_path: Path, sides: tuple[Path, Path], before: str, after: str, threshold: str, status: int
) -> None:
    assert compare(before, after, "--fail-on-regression", threshold, cwd=tmp_path).returncode == status


def test_json_goes_to_stdout_and_needs_neither_torch_nor_rich(tmp_path: Path, sides: tuple[Path, Path]) -> None:
    code = (
        "import sys\nfrom profkit.cli import group\n"
        "group(['compare', 'a', 'b', '--format', 'json'], standalone_mode=False)\n"
        "assert not {'torch', 'rich', 'tensorboard', 'psutil'} & set(sys.modules), set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = json.loads(result.stdout)
    assert printed["schema"] == "profkit.comparison/1"
    assert printed["step_time"]["verdict"] == "worse"


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["a", "absent"], "absent: no such file or directory"),
        (["a", "text"], "text"),
        (["a", "b", "--fail-on-regression", "much"], "much"),
        (["a", "b", "--fail-on-regression", "-5%"], "-5%"),
    ],
)
def test_bad_input_gives_one_line_and_status_2(
    tmp_path: Path, sides: tuple[Path, Path], arguments: list[str], cause: str
) -> None:
    (tmp_path / "text").write_text("no trace")
    result = compare(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.strip().splitlines()
    assert cause in line


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5", 0.05), (" 2.5 % ", 0.025), ("0", 0.0)])
def test_a_percentage_needs_no_percent_sign(text: str, share: float) -> None:
    assert parse_percent(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "nan", "inf", "-1%", "5 percent"])
def test_an_invalid_percentage_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="percentage"):
        parse_percent(text)


def test_comparing_two_programs_or_one_recording_twice_is_refused(tmp_path: Path) -> None:
    kinds = ("conv2d", "batch_norm", "relu", "linear"), ("embedding", "layer_norm", "gelu", "softmax")
    for name, called in zip("ab", kinds, strict=True):
        write_run(tmp_path / name, [(f"aten::{kind}", 200.0, "[[4]]") for kind in called])
    for sides, cause in (("ab", "different programs"), ("aa", "the same recording")):
        result = compare(*sides, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        (line,) = result.stderr.strip().splitlines()
        assert cause in line
    assert compare("a", "b", "--force", cwd=tmp_path).returncode == 0


def test_a_shared_comparison_names_no_folder_above_the_project(tmp_path: Path, sides: tuple[Path, Path]) -> None:
    arguments = [*sides, "--format", "html"]
    plain, shared = (compare(*arguments, *more, cwd=tmp_path).stdout for more in ((), ("--share", "--no-source")))
    assert str(tmp_path) in plain
    assert str(tmp_path) not in shared
    assert "11.0 ms" in shared
