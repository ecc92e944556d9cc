"""Runs that take turns by slices of time: each finds what it would find alone."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.diagnosis.fixing import slices
from profkit.diagnosis.fixing.results import compare_results
from profkit.diagnosis.fixing.slices import can_take_slices, run_by_slices
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Run, Seen, Stage, TooLong

linux = pytest.mark.skipif(sys.platform != "linux", reason="only there it is known how much memory is free")
_ENOUGH_MS = 20_000
PROGRAM = b"""
import os, torch
print(os.getcwd(), __file__)
here = os.path.dirname(os.path.abspath(__file__))
for number in range(30):
    for _ in range(200):
        torch.ones(64, 64) @ torch.ones(64, 64)
    with open(os.path.join(here, "count.txt"), "a") as file:  # by its absolute path
        file.write(f"{number} {WHICH}\\n")
    assert os.path.exists("count.txt")  # by its relative one
print(sum(1 for _ in open("count.txt")))
"""


def stage_of(tmp_path: Path, program: bytes = PROGRAM) -> Stage:
    folder, stages = (tmp_path / "program").resolve(), (tmp_path / "stage").resolve()
    folder.mkdir()
    stages.mkdir()
    (folder / "train.py").write_bytes(program.replace(b"WHICH", b"'old'"))
    return Stage(Tree(folder, folder), Program("train.py"), stages)


@linux
@pytest.mark.slow
def test_each_finds_its_own_folder_at_the_path_that_it_would_have_alone(tmp_path):
    stage, changed = stage_of(tmp_path), {Path("train.py"): PROGRAM.replace(b"WHICH", b"'new'")}
    alone = stage.run({}, 60.0)
    first, other, second = run_by_slices([(stage, {}), (stage, changed), (stage, {})], 60.0)
    assert (first.status, first.errors, first.by_slices) == (0, "", True)
    assert [one.output for one in (first, other, second)] == [alone.output] * 3
    assert str(stage.copy) in first.output
    assert first.output.endswith("30\n")
    assert compare_results([alone], [first, second]).is_same
    assert {*other.written["count.txt"].text.split()[1::2]} == {"new"}
    assert {*first.written["count.txt"].text.split()[1::2]} == {"old"}
    again, _ = run_by_slices([(stage, {}), (stage, changed)], 60.0)  # nothing of the last pair is in the way
    assert again.output == first.output


@linux
@pytest.mark.slow
def test_stops_are_no_part_of_a_run_and_nothing_is_left_running(tmp_path, monkeypatch):
    groups, stops = [], []
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda group, sign: (groups.append(group), stops.append(sign), kill(group, sign)))
    runs = run_by_slices([(stage_of(tmp_path), {})] * 2, 60.0)
    assert len(stops) > 4
    for run in runs:
        assert run.seen.idle_ns < run.seen.run_ns  # what it was stopped is as long as the run itself
    for group in {*groups}:
        with pytest.raises(ProcessLookupError):
            kill(group, 0)


@linux
def test_runs_that_do_not_end_are_ended(tmp_path):
    stage = stage_of(tmp_path, b"import torch\nwhile True: pass\n")
    with pytest.raises(TooLong, match="a run did not end within 1 s"):
        run_by_slices([(stage, {}), (stage, {})], 1.0)


@pytest.mark.parametrize(("waited", "since"), [(0, 100), (7, 107), (5000, 1000)])
def test_until_a_waiting_run_gets_a_processor_to_stop_it_waits_and_does_not_stand(tmp_path, monkeypatch, waited, since):
    stage = stage_of(tmp_path)
    stage.copy.mkdir()
    counts, times = iter([(0, 5), (0, 5 + waited)]), iter([100, 1000])  # sent, and seen to stand
    monkeypatch.setattr(slices._Side, "_counts", lambda _: next(counts))
    monkeypatch.setattr(slices.time, "perf_counter_ns", lambda: next(times))
    for name in ("killpg", "waitid"):
        monkeypatch.setattr(os, name, lambda *_: None)
    with slices._side((stage, {}), 0) as side:
        side._process = SimpleNamespace(pid=1)
        side.stop()
        assert side._since_ns == since
    assert not stage.copy.exists()  # the path is free for another


ENDLESS = """
import sys
from pathlib import Path
from profkit.diagnosis.fixing.slices import run_by_slices
from profkit.diagnosis.fixing.trees import Tree
from profkit.diagnosis.fixing.turns import Program, Stage
here = Path(sys.argv[1])
stage = Stage(Tree(here / "program", here / "program"), Program("train.py"), here / "stage")
run_by_slices([(stage, {}), (stage, {})], 60.0)
"""


@linux
def test_no_stopped_run_is_left_when_profkit_itself_is_killed(tmp_path):
    stage_of(tmp_path, b"import os\nopen('pid', 'w').write(str(os.getpid()))\nwhile True: pass\n")
    files = [tmp_path / "stage" / "program" / "pid", tmp_path / "stage" / "side0" / "copy" / "pid"]
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path.resolve())]) as process:
        seen: set[str] = set()
        while len(seen) < len(files):
            assert process.poll() is None
            os.sched_yield()
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # a turn may take it away between two looks
                    seen |= {file.read_text()} - {""}
        begun = [os.pidfd_open(int(one)) for one in seen]
        process.kill()
    for one in begun:
        waiting = select.poll()
        waiting.register(one, select.POLLIN)
        assert waiting.poll(_ENOUGH_MS)  # it has ended
        os.close(one)


BUSY = Run(0, "", "", Seen(run_ns=1000, idle_ns=100, peak_bytes=250), {}, {})


@pytest.mark.parametrize(
    ("seen", "can"),
    [
        (BUSY.seen, True),
        (Seen(run_ns=1000, idle_ns=101, peak_bytes=250), False),  # it waits for something
        (Seen(run_ns=1000, peak_bytes=250), False),  # nothing is known of it
        (Seen(run_ns=1000, idle_ns=0, peak_bytes=251), False),  # too large for two
        (Seen(run_ns=1000, idle_ns=0), False),
        (Seen(run_ns=1000, idle_ns=0, peak_bytes=1, device_peak_bytes=1), False),  # a device does not stop
    ],
)
def test_only_busy_programs_without_a_device_and_with_memory_for_both_take_slices(tmp_path, monkeypatch, seen, can):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 4 kB\nMemAvailable: 1 kB\n")  # 1,024 bytes, of which half may be taken
    monkeypatch.setattr(slices, "_MEMORY", info)
    one = replace(BUSY, seen=Seen(run_ns=1000, idle_ns=0, peak_bytes=262))
    assert can_take_slices([replace(BUSY, seen=seen), one]) is can
    assert not can_take_slices([])
    info.unlink()
    assert not can_take_slices([BUSY, BUSY])
