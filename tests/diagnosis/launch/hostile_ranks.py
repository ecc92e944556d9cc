"""Ways to damage the recording of one rank of a launch."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tests.traces import annotation, kernel, op, runtime, step

Json = dict[str, Any]
Damage = Callable[[Json], Json | bytes]
RANKS, STEPS, FIRST_STEP = 4, 6, 5
DAY_NS = 86_400 * 10**9
_BASE_NS = 1_730_000_000_000_000_000
_SIZES = (256, 4096)
_LATE = 1
"""The rank that the others wait for, by 20 ms in each step."""


def documents(make: Callable[[int], Json] | None = None) -> list[Json]:
    return [(make or gloo)(rank) for rank in range(RANKS)]


def _spent(rank: int, number: int, part: int) -> float:
    """Work in microseconds: 10 to 13 ms, varying by step and part, and more for the late rank."""
    vary = (7 * rank + 5 * number + 3 * part + rank * number) % 11
    return 10_000 + 270 * vary + (20_000 if rank == _LATE and part == 0 else 0)


def _parts(rank: int) -> Iterator[tuple[int, int, float, float, float]]:
    """Step, part, start and end of the rank's own work, and the end of the collective after it."""
    at = 20_000.0
    for number in range(STEPS):
        for part in range(2):
            asked = [at + _spent(each, number, part) for each in range(RANKS)]
            over = max(asked) + 1_500 + 400 * part
            yield number, part, at, asked[rank], over
            at = over + 100


def _steps(rank: int) -> Iterator[Json]:
    parts = list(_parts(rank))
    for (number, _, begin, _, _), (_, _, _, _, end) in zip(parts[::2], parts[1::2], strict=True):
        yield step(FIRST_STEP + number, begin - 20, end - begin + 60)


def gloo(rank: int) -> Json:
    """On a CPU: the recording has neither groups nor numbers."""
    events = list(_steps(rank))
    for _, part, begin, asked, over in _parts(rank):
        size = _SIZES[part]
        call = op(
            "c10d::allreduce_", asked, 8, dims=[[[size]], [], [], [], [], []], concrete=["", "", "", "", "False", "-1"]
        )
        ran = annotation("gloo:all_reduce", asked + 4, over - asked - 4 + rank, tid=9)
        ran["args"] |= {"Input Dims": [[size]], "Input type": ["float"]}
        events += [op("aten::mm", begin + 20, asked - begin - 20), call, ran]
    return _document(rank, "gloo", events)


def nccl(rank: int) -> Json:
    """On a GPU: each kernel has arguments with the sizes, the group and the number of its collective."""
    events = list(_steps(rank))
    for at, (_number, part, begin, asked, over) in enumerate(_parts(rank)):
        arguments = {
            "Collective name": "allreduce",
            "In msg nelems": _SIZES[part],
            "Out msg nelems": _SIZES[part],
            "Group size": RANKS,
            "dtype": "Float",
            "Process Group Name": "0",
            "Seq": 40 + at,
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(RANKS))),
        }
        ran = kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            asked,
            over - asked + rank,
            correlation=900 + at,
            stream=9,
        )
        ran["args"] |= arguments
        params = op("record_param_comms", begin + 60, 30)
        params["args"] |= arguments
        events += [
            op("aten::mm", begin + 20, 20),
            runtime("cudaLaunchKernel", begin + 25, 5, correlation=100 + at),
            kernel("gemm", begin + 30, asked - begin - 30, correlation=100 + at),
            op("c10d::allreduce_", begin + 50, 50),
            params,
            annotation("nccl:all_reduce", begin + 65, 20),
            runtime("cudaLaunchKernel", begin + 70, 5, correlation=900 + at),
            ran,
            runtime("cudaStreamSynchronize", begin + 120, over + rank + 10 - begin - 120, correlation=2_000 + at),
        ]
    return _document(rank, "nccl", events)


def _document(rank: int, backend: str, events: list[Json]) -> Json:
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": RANKS, "ranks": list(range(RANKS))}]
    info = {"backend": backend, "rank": rank, "world_size": RANKS, "pg_count": 1, "pg_config": groups}
    return {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": _BASE_NS, "traceEvents": events}


def packed(document: Json | bytes) -> bytes:
    if isinstance(document, bytes):
        return document
    return gzip.compress(json.dumps(document).encode(), 1)


# The damage: each function gets its own copy


def _timed(change: Callable[[float, float], tuple[Any, Any]]) -> Damage:
    """Change the start and the length of each event that has them."""

    def damage(document: Json) -> Json:
        for event in document["traceEvents"]:
            if "ts" in event and "dur" in event:
                event["ts"], event["dur"] = change(float(event["ts"]), float(event["dur"]))
        return document

    return damage


def _named(change: Callable[[str], Any]) -> Damage:
    def damage(document: Json) -> Json:
        for event in document["traceEvents"]:
            event["name"] = change(event["name"])
        return document

    return damage


def _step_named(change: Callable[[int], str]) -> Damage:
    def name(old: str) -> str:
        return change(int(old.partition("#")[2])) if old.startswith("ProfilerStep#") else old

    return _named(name)


def _argued(change: Callable[[Json], Any]) -> Damage:
    def damage(document: Json) -> Json:
        for event in document["traceEvents"]:
            if isinstance(event.get("args"), dict):
                event["args"] = change(event["args"])
        return document

    return damage


def _with(key: str, change: Callable[[Any], Any]) -> Damage:
    """Change the value of an argument wherever it occurs."""
    return _argued(lambda args: {**args, key: change(args[key])} if key in args else args)


def _info(**arguments: Any) -> Damage:
    def damage(document: Json) -> Json:
        document["distributedInfo"] = {**document["distributedInfo"], **arguments}
        return document

    return damage


def _later_by(time_ns: int) -> Damage:
    return lambda document: {**document, "baseTimeNanoseconds": document["baseTimeNanoseconds"] + time_ns}


def _events(change: Callable[[list[Json]], list[Json]]) -> Damage:
    def damage(document: Json) -> Json:
        return {**document, "traceEvents": change(document["traceEvents"])}

    return damage


def _raw(change: Callable[[bytes], bytes], *, unpacked: bool = False) -> Damage:
    def damage(document: Json) -> bytes:
        return change(json.dumps(document).encode() if unpacked else packed(document))

    return damage


def _shuffled(events: list[Json]) -> list[Json]:
    return random.Random(7).sample(events, len(events))


def _groups(*ranks: Sequence[int]) -> list[Json]:
    return [{"pg_name": str(at), "pg_size": len(one), "ranks": list(one)} for at, one in enumerate(ranks)]


def _before(steps: int, events: list[Json]) -> list[Json]:
    ends = sorted(one["ts"] + one["dur"] for one in events if one["name"].startswith("ProfilerStep"))[steps - 1]
    return [one for one in events if one.get("ts", 0) + one.get("dur", 0) <= ends]


def _nested(document: Json) -> bytes:
    text = json.dumps(document).encode()
    return text.replace(b'"args": {', b'"args": {"Input Dims": ' + b"[" * 10**6 + b"]" * 10**6 + b", ", 1)


def _of_another_run(document: Json) -> Json:
    """The same program at another time: no collective took as long as in this launch."""
    varied = random.Random(3)
    at, shift = 0.0, 0.0
    for event in sorted(document["traceEvents"], key=lambda one: float(one["ts"])):
        if event["name"].startswith("ProfilerStep"):
            at += varied.uniform(0, 16_000)
        shift = at
        event["ts"] += shift
    return document


_MARKUP = '<script>alert("1")</script>\x1b[31m[b]\r\n'
DAMAGES: dict[str, Damage] = {
    # the bytes
    "empty": _raw(lambda content: b""),
    "gzip cut off": _raw(lambda content: content[: len(content) * 2 // 3]),
    "text cut off": _raw(lambda content: content[: len(content) // 2], unpacked=True),
    "random bytes": _raw(lambda content: random.Random(1).randbytes(20_000)),
    "random bytes inside": _raw(lambda c: c[: len(c) // 2] + random.Random(1).randbytes(900) + c[len(c) // 2 :]),
    "holes in the text": _raw(lambda c: c[:3000] + b"\0" * 2000 + c[5000:], unpacked=True),
    "the file twice in itself": _raw(lambda content: content * 2),
    "the text twice in itself": _raw(lambda content: content * 2, unpacked=True),
    "no trace": _raw(lambda content: b"<!DOCTYPE html><html></html>"),
    "a million lists in each other": _nested,
    # times
    "times negated": _timed(lambda ts, dur: (-ts, dur)),
    "times mirrored": _timed(lambda ts, dur: (10**7 - ts - dur, dur)),
    "times x 1e6": _timed(lambda ts, dur: (ts * 1e6, dur * 1e6)),
    "starts x 1e6": _timed(lambda ts, dur: (ts * 1e6, dur)),
    "nanoseconds for microseconds": _timed(lambda ts, dur: (ts * 1e3, dur * 1e3)),
    "seconds for milliseconds": _timed(lambda ts, dur: (ts / 1e3, dur / 1e3)),
    "a clock half as fast": _timed(lambda ts, dur: (ts / 2, dur / 2)),
    "a clock faster by a tenth": _timed(lambda ts, dur: (ts * 1.1, dur * 1.1)),
    "no number": _timed(lambda ts, dur: (float("nan"), dur)),
    "no lengths": _timed(lambda ts, dur: (ts, float("nan"))),
    "infinite": _timed(lambda ts, dur: (float("inf"), float("inf"))),
    "huge": _timed(lambda ts, dur: (2**63 + int(ts), int(dur))),
    "one moment": _timed(lambda ts, dur: (20_000, 0)),
    "lengths negated": _timed(lambda ts, dur: (ts, -dur)),
    "lengths x 1000": _timed(lambda ts, dur: (ts, dur * 1000)),
    "lengths of nothing": _timed(lambda ts, dur: (ts, 0)),
    "times as text": _timed(lambda ts, dur: (str(ts), str(dur))),
    "times at random": _events(
        lambda events: [{**one, "ts": random.Random(at).uniform(0, 5e5)} for at, one in enumerate(events)]
    ),
    "a day late": _later_by(DAY_NS),
    "a day early": _later_by(-DAY_NS),
    "a year late": _later_by(365 * DAY_NS),
    "a year early": _later_by(-365 * DAY_NS),
    "before 1970": lambda document: {**document, "baseTimeNanoseconds": -(10**18)},
    "no moment to count from": lambda document: {**document, "baseTimeNanoseconds": "x"},
    "a huge moment to count from": lambda document: {**document, "baseTimeNanoseconds": 2**70},
    # events
    "events shuffled": _events(_shuffled),
    "events doubled": _events(lambda events: [*events, *events]),
    "a third of the events lost": _events(lambda events: _shuffled(events)[: len(events) * 2 // 3]),
    "no events": _events(lambda events: []),
    "ended after one step": _events(partial(_before, 1)),
    "ended after two steps": _events(partial(_before, 2)),
    "ended after four steps": _events(partial(_before, 4)),
    "no steps": _events(lambda events: [one for one in events if not one["name"].startswith("ProfilerStep")]),
    "no collectives": _events(
        lambda events: [one for one in events if "all" not in one["name"].lower() and "comms" not in one["name"]]
    ),
    "steps of later numbers": _step_named(lambda number: f"ProfilerStep#{number + 100}"),
    "steps numbered one too high": _step_named(lambda number: f"ProfilerStep#{number + 1}"),
    "steps numbered backwards": _step_named(lambda number: f"ProfilerStep#{20 - number}"),
    "steps of one number": _step_named(lambda number: "ProfilerStep#7"),
    "steps of huge numbers": _step_named(lambda number: f"ProfilerStep#{10**30 + number}"),
    # names
    "markup for names": _named(lambda name: _MARKUP),
    "markup behind names": _named(lambda name: name + _MARKUP),
    "markup around names": _named(lambda name: _MARKUP + name + _MARKUP),
    "no names": _named(lambda name: ""),
    "numbers for names": _named(lambda name: 7),
    "every name a collective's": _named(lambda name: "gloo:all_reduce"),
    # who it is
    "rank -3": _info(rank=-3),
    "rank 10**9": _info(rank=10**9),
    "rank 10**30": _info(rank=10**30),
    "rank true": _info(rank=True),
    "rank 3.5": _info(rank=3.5),
    "rank as text": _info(rank="3"),
    "no rank": _info(rank=None),
    "the rank of another": _info(rank=2),
    "a rank beyond the last": _info(rank=7),
    "another world": _info(world_size=64),
    "world of -1": _info(world_size=-1),
    "world of 10**30": _info(world_size=10**30),
    "world as text": _info(world_size="4"),
    "no information": lambda document: {**document, "distributedInfo": [1, 2]},
    # groups
    "groups of other ranks": _info(pg_config=_groups([7, 8, 9])),
    "groups of two": _info(pg_config=_groups([0, 1], [2, 3], [0, 3], [1, 2])),
    "groups of none": _info(pg_config=_groups([0], [1], [2], [3])),
    "one group of two": _info(pg_config=_groups([0, 3])),
    "no list of groups": _info(pg_config={"a": 1}),
    "other members": _with("Process Group Ranks", lambda ranks: "[0, 3]"),
    "members that are none": _with("Process Group Ranks", lambda ranks: "[-1, 99999999999, x]"),
    "another group": _with("Process Group Name", lambda name: "17"),
    "a huge group": _with("Group size", lambda size: 10**12),
    "numbers shifted by one": _with("Seq", lambda number: number + 1),
    "numbers shifted by a step": _with("Seq", lambda number: number + 2),
    "one number": _with("Seq", lambda number: 5),
    "huge numbers": _with("Seq", lambda number: 2**80 + number),
    # sizes and arguments
    "a thousand times the bytes": lambda document: _with(
        "Input Dims", lambda dims: [[256_000]] if len(dims) == 1 else [[[256_000]], [], [], [], [], []]
    )(_with("In msg nelems", lambda size: size * 1000)(document)),
    "no arguments": _argued(lambda args: {}),
    "lists for arguments": _argued(lambda args: [1, 2]),
    "arguments of other types": _argued(lambda args: {key: {"a": [None]} for key in args}),
    "arguments as text": _argued(lambda args: dict.fromkeys(args, "[b]x")),
    # another job
    "of another run": _of_another_run,
    "of another program": lambda document: _with("In msg nelems", lambda size: 7)(
        _with("Input Dims", lambda dims: [[7]] if len(dims) == 1 else [[[7]], [], [], [], [], []])(document)
    ),
}
