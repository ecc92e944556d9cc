"""Only recordings of one program are compared, and not a recording with itself."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import profkit
from profkit.core.errors import UsageError
from profkit.diagnosis.compare.comparison import Verdict
from profkit.run.directory import CALLSITES_FILE, RUN_FILE, CallSite, Run, save
from tests.diagnosis.compare.runs import LONG, RUN, STEPS, Operators, events_of, write_run
from tests.traces import json_of, mark, op, step

DIMS = "[[64,64],[64,64]]"
CONVOLUTION, ATTENTION, FIXED = (
    tuple((f"aten::{name}", 100.0, DIMS) for name in names.split())
    for names in (
        "conv2d batch_norm relu linear cross_entropy",
        "embedding layer_norm gelu linear softmax",
        "conv2d hardswish relu linear nll_loss dropout",
    )
)
BODY = ("loss = model(x).sum()", "loss.backward()", "y = x * 2", "z = y.relu()", "w = z.mean()")


def write_trace(path: Path, operators: Operators) -> Path:
    path.write_bytes(json_of(events_of([operators] * STEPS)))
    return path


def write_script(directory: Path, name: str, lines: tuple[str, ...]) -> Path:
    """A recorded script. Each of its lines calls one operator."""
    directory.mkdir()
    events = []
    for number in range(STEPS):
        at = number * LONG
        events.append(step(number, at, LONG))
        for site in range(len(lines)):
            events += [mark(site, at + 10 + 100 * site, 90), op("aten::mul", at + 20 + 100 * site, 50)]
    (directory / "a.pt.trace.json").write_bytes(json_of(events))
    save(directory, CALLSITES_FILE, [CallSite(name, number, "main", text) for number, text in enumerate(lines, 1)])
    save(directory, RUN_FILE, run_of(name))
    return directory


def run_of(name: str) -> Run:
    return replace(RUN, target=name)


@pytest.mark.parametrize(("other", "refused"), [(ATTENTION, True), (FIXED, False)])
def test_traces_without_a_run_are_told_apart_by_their_kinds_of_operators(
    tmp_path: Path, other: Operators, refused: bool
) -> None:
    a, b = write_trace(tmp_path / "a.json", CONVOLUTION), write_trace(tmp_path / "b.json", other)
    if not refused:
        profkit.compare(a, b)
        return
    with pytest.raises(UsageError, match=r"different programs, .*a.json and .*b.json: 1 of 5 kinds of operators"):
        profkit.compare(a, b)
    assert profkit.compare(a, b, force=True).operators


def test_programs_with_few_kinds_of_operators_are_compared_even_if_all_differ(tmp_path: Path) -> None:
    a, b = write_trace(tmp_path / "a.json", CONVOLUTION[:3]), write_trace(tmp_path / "b.json", ATTENTION[:3])
    assert profkit.compare(a, b).operators


def test_the_variants_of_a_scenario_are_one_program_whatever_they_call(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", CONVOLUTION, target="norm-by-hand", variant="pitfall")
    b = write_run(tmp_path / "b", ATTENTION, target="norm-by-hand", variant="fix")
    assert profkit.compare(a, b).operators


def test_scripts_of_the_same_name_are_one_program_only_if_their_lines_call_the_same(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", CONVOLUTION, target="vision/main.py")
    b = write_run(tmp_path / "b", FIXED, target="/elsewhere/main.py")
    assert profkit.compare(a, b).operators
    c = write_run(tmp_path / "c", ATTENTION, target="language/main.py")
    with pytest.raises(UsageError, match=r"a \(main.py\) and .*c \(main.py\): 1 of 5 kinds of operators"):
        profkit.compare(a, c)


def test_a_copy_of_a_script_is_the_same_program(tmp_path: Path) -> None:
    a = write_script(tmp_path / "a", "train.py", BODY)
    b = write_script(tmp_path / "b", "train_faster.py", (*BODY[:3], "z = F.silu(y)", BODY[4]))
    (difference,) = profkit.compare(a, b).differences
    assert (difference.what, difference.before, difference.after) == ("program", "train.py", "train_faster.py")


def test_scripts_of_two_names_that_share_the_usual_lines_are_two_programs(tmp_path: Path) -> None:
    a = write_script(tmp_path / "a", "train.py", BODY)
    b = write_script(tmp_path / "b", "gan.py", ("f = generator(noise)", "r = critic(x)", BODY[1], "d = r - f"))
    with pytest.raises(UsageError, match=r"a \(train.py\) and .*b \(gan.py\): 1 of 8 lines that call operators are"):
        profkit.compare(a, b)
    found = profkit.compare(a, b, force=True)
    assert "program" in [difference.what for difference in found.differences]


def test_the_same_recording_twice_is_not_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    with pytest.raises(UsageError, match="a is the same recording before and after"):
        profkit.compare(run, run, force=True)


def test_a_link_to_a_recording_is_the_same_recording(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.json", CONVOLUTION)
    (tmp_path / "b.json").symlink_to(trace)
    with pytest.raises(UsageError, match=r"a.json and .*b.json are the same recording before and after"):
        profkit.compare(trace, tmp_path / "b.json")


def test_a_recording_that_stands_on_both_sides_is_refused(tmp_path: Path) -> None:
    for name in ("1", "2"):
        write_run(tmp_path / "a" / name)
    with pytest.raises(UsageError, match="is the same recording"):
        profkit.compare(tmp_path / "a", tmp_path / "a" / "2")


def test_a_copy_of_a_recording_can_be_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    assert profkit.compare(run, shutil.copytree(run, tmp_path / "b")).verdict is Verdict.NO_DIFFERENCE
