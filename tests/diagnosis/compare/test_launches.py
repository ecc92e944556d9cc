"""Which recordings a side of a comparison has if several ranks were recorded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from profkit.diagnosis.compare.recorded import find_recordings
from profkit.run.directory import RankIdentity, Run


def _launch(directory: Path, *, light: tuple[bool, ...]) -> Path:
    for rank, is_light in enumerate(light):
        folder = directory / f"rank{rank}"
        folder.mkdir(parents=True)
        trace = folder / "host_1.2.pt.trace.json"
        trace.write_text('{"traceEvents": []}')
        run = Run(trace=trace.name, identity=RankIdentity(rank, len(light)), is_light=is_light)
        (folder / "run.json").write_bytes(msgspec.json.encode(run))
    return directory


@pytest.mark.parametrize(("light", "chosen"), [((False, False), 0), ((True, False), 1), ((True, True), 0)])
def test_the_ranks_of_a_launch_are_not_repetitions(tmp_path: Path, light: tuple[bool, ...], chosen: int):
    assert find_recordings(_launch(tmp_path, light=light)) == [tmp_path / f"rank{chosen}"]


def test_several_launches_are_repetitions(tmp_path: Path):
    launches = [_launch(tmp_path / name, light=(False, False)) for name in ("launch", "launch-2")]
    assert find_recordings(tmp_path) == [launch / "rank0" for launch in launches]
