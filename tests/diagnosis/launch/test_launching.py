"""Handwritten traces of several ranks, diagnosed together: each step ends with an all-reduce that all wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli.diagnose import command
from profkit.core.errors import UnreadableInput, UsageError
from profkit.diagnosis.launch.finding import find_ranks
from profkit.diagnosis.launch.launching import diagnose_ranks, gather
from profkit.diagnosis.launch.schedule import Done, do_at
from profkit.findings.values import Diagnosis, LaunchSummary
from profkit.run.directory import REPORT_FILE
from tests.traces import annotation, json_of, op, step

STEP_US, SEND_US, STEPS = 100_000, 5_000, 4
DAY_US = 86_400_000_000


def trace_of_rank(rank: int, work_us: Sequence[float], *, world: int = 3, late_us: float = 0, size: int = 256) -> bytes:
    """Steps of a rank that works and then waits for the rank that works longest."""
    events = []
    for number, own_us in enumerate(work_us):
        at = late_us + number * STEP_US
        call = op(
            "c10d::allreduce_",
            at + own_us,
            2,
            dims=[[[size]], [], [], [], [], []],
            concrete=["", "", "", "", "False", "-1"],
        )
        ran = annotation("gloo:all_reduce", at + own_us + 1, STEP_US - own_us - 2, tid=9)
        ran["args"] |= {"Input Dims": [[size]], "Input type": ["float"]}
        events += [step(number, at, STEP_US), op("aten::mm", at, own_us), call, ran]
    return json_of(events, distributedInfo={"backend": "gloo", "rank": rank, "world_size": world})


def _write(folder: Path, traces: Iterable[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, trace in enumerate(traces):
        (folder / f"rank{rank}.json").write_bytes(trace)
    return folder


def _uneven(**changed: Any) -> list[bytes]:
    """Rank 1 works 60 ms longer than the others. Of those, the last begins a little later in each step."""
    slow, quick = STEP_US - SEND_US, STEP_US - SEND_US - 60_000
    return [
        trace_of_rank(0, [quick] * STEPS),
        trace_of_rank(1, [slow] * STEPS, **changed),
        trace_of_rank(2, [quick + 500] * STEPS),
    ]


def _launch(diagnosis: Diagnosis) -> LaunchSummary:
    assert diagnosis.launch is not None
    return diagnosis.launch


def test_the_late_rank_is_named_and_its_recording_is_judged(tmp_path: Path):
    found = diagnose_ranks(str(_write(tmp_path / "job", _uneven())))
    launch = _launch(found.diagnosis)
    assert (launch.world_size, launch.shown_rank, launch.notes) == (3, 1, ())
    late = launch.ranks[1]
    assert (late.late_steps, late.cause, late.is_by_chance) == (STEPS, "compute", False)
    assert late.caused_ns == pytest.approx(59_750_000, rel=0.01)  # the median of 60 and 59.5 ms
    assert all(one.caused_ns == 0 and one.is_by_chance for one in (launch.ranks[0], launch.ranks[2]))
    assert found.path == tmp_path / "job" / "rank1.json"
    straggler = next(one for one in found.diagnosis.findings if one.rule == "straggler")
    assert straggler.saving is not None
    assert straggler.saving.fraction == pytest.approx(0.6, abs=0.02)


def test_ranks_that_are_links_out_of_the_folder_are_left_out_and_named(tmp_path: Path):
    folder = _write(tmp_path / "job", _uneven())
    (folder / "rank2.json").rename(tmp_path / "elsewhere.json")
    (folder / "rank2.json").symlink_to(tmp_path / "elsewhere.json")
    launch = _launch(profkit.diagnose(folder))
    assert [rank.rank for rank in launch.ranks] == [0, 1]
    assert "1 link out of the folder not followed: rank2.json" in launch.notes


def test_for_even_ranks_the_report_says_that_nobody_is_late(tmp_path: Path):
    even = [trace_of_rank(rank, [40_000 + 100 * ((rank + number) % 3) for number in range(STEPS)]) for rank in range(3)]
    diagnosis = profkit.diagnose(_write(tmp_path, even))
    assert [one.rule for one in diagnosis.findings if one.rule == "straggler"] == []
    assert all(one.is_by_chance for one in _launch(diagnosis).ranks)


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("rank3.json", b'{"traceEvents": [{"ph": "X", "name": "a"', "rank3.json"),
        ("rank3.json", b"no trace", "not read"),
        ("rank3.json", trace_of_rank(0, [10_000] * STEPS), "rank 0"),
        ("rank3.json", trace_of_rank(3, [10_000] * STEPS, world=64), "64"),
        ("rank3.json", trace_of_rank(3, [10_000] * STEPS, size=7), "rank3.json"),
    ],
    ids=["cut off", "no trace", "the same rank twice", "another world", "another job"],
)
def test_a_hostile_rank_only_adds_a_note(tmp_path: Path, name: str, content: bytes, note: str):
    alone = _launch(profkit.diagnose(_write(tmp_path / "alone", _uneven())))
    folder = _write(tmp_path / "beside", _uneven())
    (folder / name).write_bytes(content)
    beside = _launch(profkit.diagnose(folder))
    figures = [
        [(one.rank, one.late_steps, one.caused_ns, one.waited_ns) for one in launch.ranks[:3]]
        for launch in (alone, beside)
    ]
    assert figures[0] == figures[1]
    assert beside.shown_rank == alone.shown_rank
    assert any(note in text for text in beside.notes)


def test_a_clock_wrong_by_a_day_changes_nothing(tmp_path: Path):
    right, wrong = (
        _launch(profkit.diagnose(_write(tmp_path / name, _uneven(late_us=late_us))))
        for name, late_us in (("right", 0), ("wrong", DAY_US))
    )
    assert [one.caused_ns for one in right.ranks] == [one.caused_ns for one in wrong.ranks]


def test_an_impossible_rank_is_left_out_with_a_note_unless_its_name_gives_it(tmp_path: Path):
    for number, trace in enumerate(_uneven()):
        (tmp_path / f"node_{number}.1.pt.trace.json").write_bytes(trace)
    (tmp_path / "node_3.1.pt.trace.json").write_bytes(trace_of_rank(-3, [10_000] * STEPS))
    launch = _launch(profkit.diagnose(tmp_path))
    assert [one.rank for one in launch.ranks] == [0, 1, 2]
    assert launch.notes == (f"{tmp_path}/node_3.1.pt.trace.json: it does not say which rank it is; it is left out",)


def test_if_no_recording_can_be_read_that_is_the_error(tmp_path: Path):
    folder = _write(tmp_path, [b"nothing", b"nothing"])
    with pytest.raises(UnreadableInput, match="none of 2 recordings could be read"):
        diagnose_ranks(str(folder))


def test_ranks_without_collectives_are_no_launch(tmp_path: Path):
    alone = [json_of([step(number, number * 100, 100) for number in range(4)]) for _ in range(2)]
    with pytest.raises(UnreadableInput, match=r"none of 2 recordings fits others: .*it holds no collective"):
        diagnose_ranks(str(_write(tmp_path, alone)))


def test_a_folder_without_ranks_is_named(tmp_path: Path):
    with pytest.raises(UnreadableInput, match="holds no recordings of several ranks"):
        diagnose_ranks(str(tmp_path))


@pytest.mark.parametrize("on", ["spark", "ray://", "ray:", ""])
def test_an_invalid_cluster_is_refused(tmp_path: Path, on: str):
    with pytest.raises(UsageError, match="give ray"):
        diagnose_ranks(str(_write(tmp_path, _uneven())), on)


def test_machines_may_finish_in_any_order(tmp_path: Path):
    places = [str(path) for path in find_ranks(_write(tmp_path, _uneven()))]

    def backwards(work: Any, asked: Sequence[str]) -> Iterator[Done[Any]]:
        yield from (do_at(work, number, asked[number]) for number in reversed(range(len(asked))))

    result: list[tuple[int, int]] = []
    found = gather(places, backwards, lambda done, total: result.append((done, total)))
    assert [table.identity.rank for table in found.launch.tables] == [0, 1, 2]
    assert result == [(1, 3), (2, 3), (3, 3)]


def test_the_command_writes_beside_the_ranks_and_names_the_late_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("profkit.core.memory_reuse.stop_collecting_garbage", lambda: None)  # this process goes on
    folder = _write(tmp_path / "job", _uneven())
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, ["job"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Rank 1 is late in 4 of 4 steps" in " ".join(result.stdout.split())
    assert "who waits for whom" in (folder / REPORT_FILE).read_text(encoding="utf-8").lower()
