"""Parts have turns: one that fails or runs out of its time does not end the others, and each result is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gpu.archives import Archives, unpack
from tests.gpu.machine import Machine
from tests.gpu.results import Results
from tests.gpu.rows import Part, PartFailed, Row
from tests.gpu.schedule import run


class Clock:
    """Time passes when a part works."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Run:
    def __init__(self, folder: Path) -> None:
        self.output, self.work, self.clock = folder / "output", folder / "work", Clock()
        self.output.mkdir()
        self.work.mkdir()
        self.machine = Machine("cpu", self.work)
        self.closed: list[str] = []

    def part(self, name: str, share: float, count: int, each_s: float, fails_at: int = -1, ends_at: int = -1) -> Part:
        """``count`` rows of ``each_s`` seconds."""

        def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
            try:
                for number in range(count):
                    self.clock.seconds += each_s
                    if number == fails_at:
                        raise PartFailed("no room")
                    if number == ends_at:
                        raise SystemExit(143)
                    yield Row(name, str(number))
            finally:
                self.closed.append(name)

        return Part(name, "", share, rows)

    def go(self, *parts: Part, seconds: float = 100.0) -> bool:
        results, archives = Results(self.output, {}), Archives(self.output, {})
        return run(parts, self.machine, results, archives, seconds, self.clock)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        told = json.loads((self.output / "results.json").read_text())["rows"]
        return [(row["part"], row["name"], row["outcome"]) for row in told if row["part"] != "the run"]

    @property
    def order(self) -> list[str]:
        return [f"{part}{name}" for part, name, _ in self.rows]


@pytest.fixture
def made(tmp_path) -> Run:
    return Run(tmp_path)


def test_what_a_part_has_not_done_in_its_share_goes_on_after_the_others(made):
    assert made.go(made.part("a", 0.2, 4, 10), made.part("b", 0.2, 3, 10))
    assert made.order == ["a0", "a1", "b0", "b1", "a2", "a3", "b2"]
    assert made.clock.seconds == 70


def test_the_run_ends_with_the_time_ten_seconds_kept_for_packing(made):
    assert made.go(made.part("a", 0.5, 99, 10), made.part("b", 0.1, 99, 10))
    assert made.order == ["a0", "a1", "a2", "a3", "a4", "b0", "a5", "a6", "a7"]
    assert made.clock.seconds == 90
    assert made.closed == ["b", "a"]


def test_time_that_a_part_does_not_use_is_the_others(made):
    assert made.go(made.part("a", 0.9, 1, 1), made.part("b", 0.1, 99, 10))
    assert len(made.rows) == 10


def test_a_part_that_fails_does_not_end_the_others(made):
    assert not made.go(made.part("a", 0.5, 3, 1, fails_at=1), made.part("b", 0.5, 2, 1))
    assert made.rows == [
        ("a", "0", "done"),
        ("a", "the part itself", "failed: PartFailed: no room"),
        ("b", "0", "done"),
        ("b", "1", "done"),
    ]


def test_what_the_end_of_the_time_breaks_off_has_not_failed(made):
    assert made.go(made.part("a", 0.5, 3, 45, fails_at=1))
    assert made.rows == [("a", "0", "done"), ("a", "the part itself", "could not: the time was over")]


def test_a_request_to_end_loses_nothing(made):
    with pytest.raises(SystemExit):
        made.go(made.part("a", 0.5, 3, 1, ends_at=2))
    assert made.order == ["a0", "a1"]
    assert made.closed == ["a"]


def test_recordings_are_packed_as_they_come_and_those_without_room_are_named(made):
    def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
        for name in ("small", "large"):
            file = machine.work / name
            file.write_bytes(bytes(range(256)) * (1 if name == "small" else 40))
            yield Row("a", name, recordings={f"g/{name}": file})
            assert not file.exists()

    results, archives = Results(made.output, {}), Archives(made.output, {}, count=1, size_bytes=450)
    assert run([Part("a", "", 0.5, rows)], made.machine, results, archives, 100, made.clock)
    assert [str(one) for one in unpack(made.output / "recordings-1.tar.gz", made.work / "out").files] == ["g/small"]
    assert json.loads((made.output / "results.json").read_text())["left_out"] == ["g/large"]
    assert "- g/large" in (made.output / "results.md").read_text()


def test_a_recording_that_cannot_be_packed_is_named(made):
    def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
        yield Row("a", "x", recordings={"g/absent": machine.work / "absent"})

    assert made.go(Part("a", "", 0.5, rows))
    assert made.rows == [("a", "x", "done")]
    assert json.loads((made.output / "results.json").read_text())["left_out"] == ["g/absent"]
    assert "g/absent: cannot be packed: FileNotFoundError" in (made.output / "log.txt").read_text()


def test_a_later_row_of_the_same_name_replaces_the_earlier_one(tmp_path):
    results = Results(tmp_path, {"gpu": "one"})
    results.add(Row("a", "x", figures={"ratio": 1.5, "ratio from": 1.0}))
    results.add(Row("a", "y", "could not: it needs a GPU"))
    results.add(Row("a", "z", "could not: it needs a GPU"))
    results.add(Row("a", "x", "off | by far", {"ratio": 1.25, "bytes": 1234567, "holds": True}))
    assert (
        (tmp_path / "results.md").read_text()
        == """\
# What a machine with a GPU showed

- gpu: one

## a

| what | ratio | bytes | holds | outcome |
| --- | --- | --- | --- | --- |
| x | 1.25 | 1,234,567 | True | off \\| by far |

- could not: it needs a GPU: y, z
"""
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "results.json", "results.md"]
