"""Kineto traces: times, ids, lanes, names, shapes and bytes damaged, alone and together."""

from __future__ import annotations

import gzip
import json
import marshal
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Diagnosis
from profkit.patterns.time.shares import time_shares
from profkit.run.directory import CallSite, Run
from profkit.savings.edits import Edit
from profkit.savings.replay import replay
from profkit.trace.limits import memory_limit
from profkit.trace.reading import read_trace
from tests.fuzzing.hostile import TEXTS, damage_bytes, damage_tree, json_of, pack
from tests.fuzzing.reports import check_reports
from tests.fuzzing.running import Files, Kind
from tests.traces import (
    Json,
    annotation,
    kernel,
    mark,
    memcpy,
    memory,
    memset,
    op,
    python,
    runtime,
    step,
    thread_name,
)
from tests.traces import json_of as trace_json

LARGEST_EVENTS = 250
"""Of a recording that is damaged: more take longer to judge, and show nothing else."""
LARGEST_BYTES = 400_000
_CORPUS_SHARE = 0.1
_WITHOUT_SHARING = 2
"""The version of marshal's format that writes a value as often as it is held."""
_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


@dataclass(frozen=True)
class Seed:
    """A sound trace, and what its run directory would say besides."""

    name: str
    document: Json
    run: Run = field(default_factory=Run)
    callsites: tuple[CallSite, ...] = ()


# The seeds


def _training_step(number: int, at: float, stacks: bool, located: bool) -> Iterator[Json]:
    """A step of 1 ms: a batch, a forward and a backward pass, an optimizer and a read, on two streams."""
    base = 100 * number
    yield step(number, at, 990)
    yield annotation(_LOADER, at + 5, 60, external=base)
    if stacks:
        yield python("train.py(10): main", at, 990)
        yield python("train.py(20): forward", at + 70, 300)
        yield python("torch/autograd/profiler.py(700): __enter__", at + 2, 3)
    if located:
        yield mark(0, at + 70, 300)
        yield mark(1, at + 380, 300)
        yield mark(2, at + 700, 280)
    yield op("aten::to", at + 66, 4, external=base + 1, dims=[[8, 64]], types=["float"])
    yield runtime("cudaMemcpyAsync", at + 67, 2, correlation=base + 1, external=base + 1)
    yield memcpy(
        "Memcpy HtoD (Pageable -> Device)",
        at + 69,
        6,
        correlation=base + 1,
        external=base + 1,
        stream=20,
        size_bytes=2048,
    )
    products = [(72 + 50 * i, base + 2 + i, 10 + i) for i in range(2)]
    for offset, external, sequence in products:
        dims, types = [[8, 64], [64, 64]], ["float", "float"]
        yield op("aten::linear", at + offset, 40, external=external, dims=dims, types=types, sequence=sequence)
        yield op("aten::mm", at + offset + 4, 30, external=external + 20, dims=dims, types=types, sequence=sequence)
        yield from launch("ampere_sgemm_32x32_nn", at + offset + 8, 25, external + 20)
        yield memory(at + offset + 2, 2048, 4096 * external, device_type=1)
    for offset, external, sequence in reversed(products):
        back = at + 380 + offset
        yield op(_BACKWARD, back, 45, external=external + 40, sequence=sequence, tid=2)
        yield op(
            "aten::mm",
            back + 4,
            30,
            external=external + 44,
            dims=[[64, 8], [8, 64]],
            types=["float", "float"],
            sequence=sequence,
            tid=2,
        )
        yield from launch("ampere_sgemm_32x32_tn", back + 8, 30, external + 44, tid=2, stream=20)
        yield memory(back + 9, -2048, 4096 * external, device_type=1, tid=2)
    yield annotation("Optimizer.step#Adam.step", at + 700, 200, external=base + 70)
    for i in range(3):
        yield op("aten::addcdiv_", at + 705 + 30 * i, 20, external=base + 71 + i, dims=[[64, 64]], types=["float"])
        yield from launch("vectorized_elementwise_kernel", at + 708 + 30 * i, 5, base + 71 + i)
    yield op("aten::item", at + 910, 60, external=base + 80, dims=[[]], types=["float"])
    yield op("aten::_local_scalar_dense", at + 911, 58, external=base + 81, dims=[[]], types=["float"])
    yield runtime("cudaMemcpyAsync", at + 912, 3, correlation=base + 81, external=base + 81)
    yield memcpy("Memcpy DtoH (Device -> Pinned)", at + 930, 2, correlation=base + 81, external=base + 81, size_bytes=4)
    yield runtime("cudaStreamSynchronize", at + 916, 50, correlation=base + 82, external=base + 81)


def launch(name: str, at: float, lasting: float, external: int, *, tid: int = 1, stream: int = 7) -> list[Json]:
    """A launch and its kernel, 10 µs later."""
    return [
        runtime("cudaLaunchKernel", at, 5, correlation=external, external=external, tid=tid),
        kernel(name, at + 10, lasting, correlation=external, external=external, stream=stream),
    ]


def _graph_step(number: int, at: float) -> Iterator[Json]:
    """A step that launches a captured graph of eight kernels, a fill and a collective, and waits for all."""
    yield annotation(f"step {number}", at, 900)
    yield op("aten::copy_", at + 5, 10, external=1000 + number, dims=[[8], [8]], types=["float", "float"])
    yield runtime("cudaGraphLaunch", at + 20, 15, correlation=500 + number)
    yield memset(at + 38, 2, correlation=500 + number)
    for i in range(8):
        yield kernel(f"triton_poi_fused_add_{i % 3}", at + 42 + 20 * i, 18, correlation=500 + number)
    yield op("nccl:all_reduce", at + 450, 20, external=1100 + number, dims=[[1000]], types=["float"])
    yield runtime("cudaLaunchKernelExC", at + 455, 6, correlation=600 + number, external=1100 + number)
    yield kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 470, 200, correlation=600 + number, stream=30)
    yield runtime("cudaEventRecord", at + 462, 1, correlation=650 + number)
    yield runtime("cudaStreamWaitEvent", at + 464, 1, correlation=660 + number)
    yield runtime("cudaDeviceSynchronize", at + 480, 400, correlation=700 + number)


def _parallel_pass(number: int, at: float) -> Iterator[Json]:
    """A forward and a backward pass under DistributedDataParallel; every second one is followed by the optimizer."""
    base = 5000 + 50 * number
    yield annotation("DistributedDataParallel.forward", at, 200)
    scores = [[2, 4, 16, 8], [2, 4, 8, 16]]
    for i, name in enumerate(("aten::bmm", "aten::div", "aten::softmax", "aten::_softmax", "aten::bmm", "aten::add")):
        yield op(name, at + 10 + 30 * i, 25, external=base + i, dims=scores, types=["double", "double"], sequence=i)
        yield from launch("dgemm_kernel", at + 12 + 30 * i, 20, base + i)
    for i in range(3):
        begin = at + 220 + 40 * i
        yield op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", begin, 30, tid=2)
        yield op("torch::autograd::AccumulateGrad", begin + 1, 8, tid=2)
        yield op("aten::add_", begin + 2, 5, external=base + 20 + i, dims=[[64], [64]], types=["float", "float"], tid=2)
        yield from launch("add_kernel", begin + 3, 4, base + 20 + i, tid=2)
        yield op("c10d::allreduce_", begin + 12, 6, external=base + 30 + i, tid=2)
        yield from launch("ncclKernel_AllReduce", begin + 13, 20, base + 30 + i, tid=2, stream=30)
    if number % 2:
        yield annotation("Optimizer.step#SGD.step", at + 400, 60)
        yield op("aten::_foreach_add_", at + 405, 20, external=base + 40, dims=[[64], [64]], types=["float", "float"])
        yield from launch("multi_tensor_apply_kernel", at + 408, 9, base + 40)


def _seeds() -> Iterator[Seed]:
    names = [thread_name(1, "python"), thread_name(2, "pt_autograd_0")]
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}]
    for stacks, located in ((False, False), (True, False), (False, True)):
        events = [each for i in range(3) for each in _training_step(i, 1000 * i, stacks, located and i == 0)]
        sites = tuple(CallSite("train.py", 10 + i, "main", f"line {i}") for i in range(3)) if located else ()
        run = Run(step_signal="optimizer", reference_step_ns=(800_000, 820_000)) if located else Run()
        yield Seed(
            f"training{'-stacks' * stacks}{'-located' * located}",
            _document([*names, *events], deviceProperties=properties, record_shapes=1),
            run,
            sites,
        )
    late = [each for i in range(4) for each in _graph_step(i, 4.5e12 + 1000 * i)]
    yield Seed("graphs", _document(late, deviceProperties=properties, distributedInfo={"rank": 0, "world_size": 8}))
    plain = [
        each
        for i in range(4)
        for each in _training_step(i, 1000 * i, False, False)
        if "ProfilerStep" not in each["name"]
    ]
    yield Seed("without-marks", _document(plain))
    passes = [each for i in range(6) for each in _parallel_pass(i, 500 * i)]
    yield Seed("parallel", _document(passes, distributedInfo={"rank": 1, "world_size": 2}))
    host = [each for i in range(3) for each in _training_step(i, 1000 * i, True, False) if each["pid"] != 0]
    yield Seed("without-kernels", _document(host, with_stack=1))


def _document(events: list[Json], **top_level: Any) -> Json:
    document: Json = json.loads(trace_json(events, **top_level))
    return document


@lru_cache(maxsize=1)
def seeds() -> tuple[Seed, ...]:
    return tuple(_seeds())


def corpus_seeds(directory: Path | None) -> tuple[Seed, ...]:
    """The first events in time of recordings made elsewhere; none where there are none."""
    patterns = ("kineto/*.json*", "kineto/*/*.json*", "h100/runs/*/*.json.gz")
    paths = sorted(path for each in patterns for path in directory.glob(each)) if directory else []
    found = []
    for path in paths:
        if path.stat().st_size > LARGEST_BYTES:
            continue
        content = path.read_bytes()
        document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        if "traceEvents" not in document:  # a diagnosis beside its trace
            continue
        timed = [event for event in document["traceEvents"] if event.get("ph") in ("X", "i") and "ts" in event]
        timed = sorted(timed, key=lambda event: float(event["ts"]))[:LARGEST_EVENTS]
        found.append(Seed(path.name, {**document, "traceEvents": timed}))
    return tuple(found)


# The damage

_NUMBERS = (0, -1, 1, -(10**6), 10**9, 10**15, 2**63 - 1, 2**64, 1e308, 0.001, *map(float, ("nan", "inf", "-inf")))
_OF_OTHER_TYPES = (None, "", "7", "main", True, [], [[]], {}, {"a": 1}, 1.5, -7, "\u2028", "NaN", "0x10")
_LISTS = ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")
_DAMAGED_LISTS = (
    [],
    [[]],
    [[0]],
    [[-1, 5]],
    [[2**40, 2**40]],
    [[[3], [4]]],
    "[[4]]",
    [None],
    ["float"] * 40,
    [["float"]],
    {"a": []},
    [[4, "x"]],
    7,
    "",
    ["double", ""],
    ["c10::BFloat16"],
    ["[1]", "None"],
)
Events = list[Json]
Mutation = Callable[[random.Random, Events], Events]


def _some(rng: random.Random, events: Events) -> Events:
    """A few events, or nearly all of one kind."""
    if rng.random() < 0.4:
        category = rng.choice(events).get("cat")
        return [event for event in events if event.get("cat") == category and rng.random() < 0.9] or events[:1]
    return rng.sample(events, min(len(events), rng.choice((1, 2, 5, 20))))


def _set_times(rng: random.Random, events: Events) -> Events:
    for event in _some(rng, events):
        key = rng.choice(("ts", "dur"))
        event[key] = rng.choice((*_NUMBERS, *_OF_OTHER_TYPES))
    return events


def _move(rng: random.Random, events: Events) -> Events:
    by = rng.choice((-1000.0, -50.0, -0.001, 0.5, 20.0, 5000.0, 1e7))
    for event in _some(rng, events):
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] += by
    return events


def _stretch(rng: random.Random, events: Events) -> Events:
    by = rng.choice((0, 0.1, 3, 50, 1e4, -1))
    for event in _some(rng, events):
        if isinstance(event.get("dur"), (int, float)):
            event["dur"] *= by
    return events


def _swap_times(rng: random.Random, events: Events) -> Events:
    for one in _some(rng, events):
        other, key = rng.choice(events), rng.choice(("ts", "dur"))
        one[key], other[key] = other.get(key, 0), one.get(key, 0)
    return events


def _change_ids(rng: random.Random, events: Events) -> Events:
    """Correlations, ids of operators and sequences: missing, doubled, of another type."""
    key = rng.choice(("correlation", "External id", "Sequence number", "Fwd thread id"))
    for event in _some(rng, events):
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            continue
        how = rng.randrange(3)
        if how == 0:
            arguments.pop(key, None)
        elif how == 1:
            of_another = rng.choice(events).get("args")
            arguments[key] = of_another.get(key, 0) if isinstance(of_another, dict) else 0
        else:
            arguments[key] = rng.choice((*_NUMBERS, *_OF_OTHER_TYPES))
    return events


def _change_lanes(rng: random.Random, events: Events) -> Events:
    key, value = rng.choice(("pid", "tid", "stream", "device")), rng.choice((*_OF_OTHER_TYPES, 0, 1, 7, 2**63))
    for event in _some(rng, events):
        if key in ("pid", "tid"):
            event[key] = value
        elif isinstance(event.get("args"), dict):
            event["args"][key] = value
    return events


def _drop(rng: random.Random, events: Events) -> Events:
    gone = {id(event) for event in _some(rng, events)}
    return [event for event in events if id(event) not in gone] or events


def _drop_steps(rng: random.Random, events: Events) -> Events:
    word = rng.choice(("ProfilerStep", "Optimizer", "DataLoader", "profkit", "cuda", "aten"))
    return [event for event in events if word not in str(event.get("name"))] or events


def _repeat(rng: random.Random, events: Events) -> Events:
    again = [json.loads(json.dumps(event)) for event in _some(rng, events)]
    return [*events, *again]


def _shuffle(rng: random.Random, events: Events) -> Events:
    rng.shuffle(events)
    return events


def _cut_in_time(rng: random.Random, events: Events) -> Events:
    times = [event["ts"] for event in events if isinstance(event.get("ts"), (int, float))]
    at = rng.choice(times) if times else 0
    before = rng.random() < 0.5
    kept = [event for event in events if not isinstance(event.get("ts"), (int, float)) or (event["ts"] < at) == before]
    return kept or events


def _rename(rng: random.Random, events: Events) -> Events:
    name = (
        rng.choice(events).get("name")
        if rng.random() < 0.8
        else rng.choice((*_OF_OTHER_TYPES, *TEXTS, "ProfilerStep#-1", "profkit.line#99999"))
    )
    for event in _some(rng, events):
        event["name"] = name
    return events


def _change_category(rng: random.Random, events: Events) -> Events:
    other = rng.choice(events).get("cat")
    category = rng.choice((other, "kernel", "cuda_runtime", "cpu_op", "mtia_ccp_events", "", None, 7))
    for event in _some(rng, events):
        event["cat"] = category
    return events


def _damage_lists(rng: random.Random, events: Events) -> Events:
    key = rng.choice(_LISTS)
    for event in _some(rng, events):
        if isinstance(event.get("args"), dict):
            event["args"][key] = rng.choice(_DAMAGED_LISTS)
    return events


def _damage_memory(rng: random.Random, events: Events) -> Events:
    key = rng.choice(("Bytes", "Addr", "Device Type", "Total Allocated", "bytes"))
    for event in events:
        if isinstance(event.get("args"), dict) and key in event["args"] and rng.random() < 0.5:
            event["args"][key] = rng.choice((*_NUMBERS, *_OF_OTHER_TYPES))
    return events


def _damage_shape(rng: random.Random, events: Events) -> Events:
    """The event itself: no arguments, another phase, not an event at all."""
    for event in _some(rng, events):
        how = rng.randrange(3)
        if how == 0:
            event["args"] = rng.choice(_OF_OTHER_TYPES)
        elif how == 1:
            event["ph"] = rng.choice(("X", "i", "B", "E", "M", "", None, 3))
        else:
            event.clear()
    return events


def _plant(rng: random.Random, events: Events) -> Events:
    """Names that mean something to a reader of reports, in front of or behind what they were."""
    for event in _some(rng, events):
        name, text = str(event.get("name")), rng.choice(TEXTS)
        place = f"{text}(7): {text}"  # a Python frame
        event["name"] = rng.choice((text, name + text, text + name, place if event.get("tid") else text))
    return events


def _damage_any(rng: random.Random, events: Events) -> Events:
    damage_tree(rng, events, rng.choice((1, 2, 5, 20)))
    return events


MUTATIONS: tuple[Mutation, ...] = (
    _plant,
    _damage_any,
    _set_times,
    _move,
    _stretch,
    _swap_times,
    _change_ids,
    _change_lanes,
    _drop,
    _drop_steps,
    _repeat,
    _shuffle,
    _cut_in_time,
    _rename,
    _change_category,
    _damage_lists,
    _damage_memory,
    _damage_shape,
)


def damage(rng: random.Random, document: Json) -> bytes:
    """The trace with one to four kinds of damage, some of it damaged as bytes or compressed."""
    copied: Json = marshal.loads(marshal.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        events = copied.get("traceEvents")
        if not isinstance(events, list) or not events or not all(isinstance(event, dict) for event in events):
            break
        # Events that share a part after one mutation must not come to hold each other by the next.
        copied["traceEvents"] = marshal.loads(marshal.dumps(rng.choice(MUTATIONS)(rng, events), _WITHOUT_SHARING))
    if rng.random() < 0.2:
        top = {key: value for key, value in copied.items() if key != "traceEvents" or rng.random() < 0.1}
        damage_tree(rng, top, rng.choice((1, 3)))
        copied = {"traceEvents": copied["traceEvents"], **top}
    content = json_of(rng, copied)
    content = damage_bytes(rng, content) if rng.random() < 0.15 else content
    return pack(rng, content) if rng.random() < 0.1 else content


# What becomes of them


@cache
def all_seeds() -> tuple[Seed, ...]:
    beside = Path(__file__).parents[3] / "shared" / "corpus"
    corpus = Path(os.environ.get("PROFKIT_CORPUS") or beside)
    return (*seeds(), *corpus_seeds(corpus if corpus.is_dir() else None))


def make(rng: random.Random) -> Files:
    """A damaged trace; of a recording made elsewhere for some, where there are any."""
    own, elsewhere = seeds(), all_seeds()[len(seeds()) :]
    chosen = rng.choice(elsewhere if elsewhere and rng.random() < _CORPUS_SHARE else own)
    name = rng.choice(("trace.json", "trace.json", "a.pt.trace.json", "trace.json.gz", "trace"))
    return {name: damage(rng, chosen.document)}


def read(folder: Path) -> Callable[[], Diagnosis]:
    (path,) = folder.iterdir()
    return partial(judge, Facts(read_trace(path, limit_bytes=memory_limit())))


def judge(facts: Facts) -> Diagnosis:
    """Derive every fact, replay the step as it is, and let every rule look."""
    assert sum(time_ns for _, time_ns in time_shares(facts)) >= 0
    derive(facts)
    return diagnose(facts)


def derive(facts: Facts) -> None:
    facts.lines, facts.waits, facts.memory, facts.operators, facts.loading, facts.optimizing  # noqa: B018  # computed once
    facts.launches, facts.updates, facts.overhead  # noqa: B018
    result = replay(facts, Edit())
    assert abs(result.edited_ns - result.recorded_ns) <= 0.02 * max(result.recorded_ns, 1)


KIND = Kind(
    "traces",
    100_000,
    make,
    read,
    check_reports,
    judged_each=10,
    rendered_each=3,
    found=(
        "A key with a lone surrogate beside the events ended in UnicodeEncodeError.",
        "Events that are read singly cost 0.3 ms each, minutes for a large trace with one damaged event.",
        "unattributed-time divided by zero where no step takes any time.",
        "Truth values in the shape of an input ended in TypeError.",
        "A line of the report could begin like a workflow command of GitHub Actions.",
        "A line's number without a line in the list of lines ended in IndexError for an optimizer's steps.",
        "Sizes of memory that no integer of 64 bits holds together broke the picture of memory.",
    ),
)
