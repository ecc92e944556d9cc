"""Launches of several ranks: their traces, who they say they are, and the files around them damaged."""

from __future__ import annotations

import json
import marshal
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from profkit.core.errors import UnreadableInput
from profkit.diagnosis.launch.finding import find_places
from profkit.diagnosis.launch.launching import diagnose_ranks, gather
from profkit.diagnosis.launch.schedule import Done, do_at
from profkit.findings.values import Diagnosis
from profkit.run.directory import LAUNCH_FILE, RUN_FILE
from tests.diagnosis.launch.hostile_ranks import DAMAGES, _before, gloo, nccl
from tests.fuzzing import traces
from tests.fuzzing.hostile import NUMBERS, TEXTS, damage_bytes, damage_tree, json_of, pack
from tests.fuzzing.reports import check_reports
from tests.fuzzing.running import Files, Kind, Odd

_MOST_RANKS = 3
_STEPS = 4
_LARGE = {"a million lists in each other"}
"""Tested once; building it takes longer than reading a hundred others."""
_DAMAGES = [damage for name, damage in DAMAGES.items() if name not in _LARGE]
_NAMES = ("rank{}.json", "rank{}/a.pt.trace.json", "host_rank{}.1699.pt.trace.json", "h{}/rank-{}.json")


@cache
def seeds() -> tuple[tuple[dict[str, Any], ...], ...]:
    """The first steps of launches on CPUs and on GPUs."""
    found = []
    for make_one in (gloo, nccl):
        documents = [make_one(rank) for rank in range(_MOST_RANKS)]
        for document in documents:
            document["traceEvents"] = _before(_STEPS, document["traceEvents"])
        found.append(tuple(documents))
    return tuple(found)


def make(rng: random.Random) -> Files:
    documents = marshal.loads(marshal.dumps(rng.choice(seeds())[: rng.choice((2, 2, _MOST_RANKS))]))
    name = rng.choice(_NAMES)
    damaged = rng.sample(range(len(documents)), rng.choice((1, 1, 2)))
    files: dict[str, bytes | Odd] = {}
    for rank, document in enumerate(documents):
        place = name.format(rank, rank)
        files[place] = _damaged(rng, document) if rank in damaged else json.dumps(document).encode()
        if "/" in place and rng.random() < 0.7:
            run = {
                "trace": place.rpartition("/")[2],
                "identity": {"rank": rank, "world_size": 3, "launch": "abc", "host": "a"},
            }
            run["identity"] |= {"clock_offset_ns": 5, "clock_error_ns": 100}
            if rank in damaged and rng.random() < 0.6:
                _change_identity(rng, run)
            files[f"{place.rpartition('/')[0]}/{RUN_FILE}"] = json_of(rng, run)
    if rng.random() < 0.5:
        launch = {"launch": "abc", "launcher": "torchrun", "world_size": 3}
        damage_tree(rng, launch, rng.choice((0, 1, 3)))
        files[LAUNCH_FILE] = json_of(rng, launch)
    if rng.random() < 0.05:
        files[rng.choice(list(files))] = rng.choice(list(Odd))
    if rng.random() < 0.1:
        files["flight_recorder_rank_0"] = pickle.dumps(
            {"version": "2.4", "entries": [{"seq_id": 1, "state": "started"}]}
        )
    return files


def _change_identity(rng: random.Random, run: dict[str, Any]) -> None:
    if rng.random() < 0.3:
        damage_tree(rng, run, 2)
        return
    key = rng.choice(list(run["identity"]))
    is_text = isinstance(run["identity"][key], str)
    run["identity"][key] = rng.choice(TEXTS) if is_text else rng.choice([one for one in NUMBERS if type(one) is int])


def _damaged(rng: random.Random, document: dict[str, Any]) -> bytes:
    if rng.random() < 0.4:
        changed = rng.choice(_DAMAGES)(document)
        content = changed if isinstance(changed, bytes) else json_of(rng, changed)
    else:
        content = traces.damage(rng, document)
    if rng.random() < 0.2:
        damage_tree(rng, document.get("distributedInfo") or {}, 2)
        content = json_of(rng, document)
    content = damage_bytes(rng, content) if rng.random() < 0.05 else content
    return pack(rng, content) if rng.random() < 0.05 else content


def _one_by_one(work: Callable[[str], Any], places: Sequence[str]) -> Iterator[Done[Any]]:
    for number, place in enumerate(places):
        key = place, tuple(path.read_bytes() for path in _files_of(Path(place)))
        if key not in _DONE:
            if len(_DONE) > _MOST_DONE:
                _DONE.clear()
            _DONE[key] = do_at(work, number, place)
        yield Done(number, _DONE[key].value, _DONE[key].cause)


def _files_of(place: Path) -> list[Path]:
    """What a rank's table is made of: its trace, and the files beside it where it has a folder."""
    found = sorted(place.iterdir()) if place.is_dir() else [place]
    return [path for path in found if path.is_file()]


_DONE: dict[tuple[str, tuple[bytes, ...]], Done[Any]] = {}
"""What became of recordings, so that the sound ones of a launch are not read again and again."""
_MOST_DONE = 200


def read(folder: Path) -> Callable[[], Diagnosis]:
    places = find_places(str(folder))
    if not places:
        raise UnreadableInput(folder, "holds no ranks")
    gather(places, _one_by_one)
    return partial(_judge, folder)


def _judge(folder: Path) -> Diagnosis:
    return diagnose_ranks(str(folder)).diagnosis


KIND = Kind(
    "ranks",
    20_000,
    make,
    read,
    check_reports,
    judged_each=10,
    rendered_each=4,
    found=(
        "A mark with the number of a line that the run does not list ended in IndexError.",
        "A clock offset of more than 64 bits ended in OverflowError.",
    ),
)
