"""What the looks at a whole run cost, by turns in one process, and how large an account gets.

    python -m tests.benchmarks.bench_looks [--turns 30]

Each turn runs steps of about 10 ms for two seconds without and with a watch, in changing order. The second table feeds
a watch with looks as of a week, at the lines of a program with many functions, and tells the size of its file. The last
line is a run whose disk is full.

    python -m tests.benchmarks.bench_looks --shares

tells how far looks lead astray: of a loop of pure Python, a short operator and a long one, the shares of the time by
clocks, and those of the looks.
"""

from __future__ import annotations

import argparse
import inspect
import random
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from profkit.collect.whole_run.watch import RunWatch
from profkit.run.directory import ACCOUNT_FILE
from profkit.run.whole_run import StackActivity, load_account

_TURN_S = 2.0
_LINES = 20_000


def steps_of(seconds: float, model: nn.Module, batch: torch.Tensor) -> list[float]:
    """The CPU time of the process in each step."""
    optimizer, took, until = torch.optim.SGD(model.parameters(), lr=0.01), [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        begun = time.process_time()
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        took.append(time.process_time() - begun)
    return took


def compare(turns: int) -> tuple[float, float, float]:
    """Medians of the CPU seconds of a step, bare and watched, and the median of the ratio of both by turns."""
    torch.set_num_threads(1)
    model, batch = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))), torch.randn(192, 512)
    pairs = []
    for turn in range(turns):
        took = {}
        for watched in (True, False) if turn % 2 else (False, True):
            with tempfile.TemporaryDirectory() as folder:
                watch = RunWatch(lambda folder=folder: Path(folder), (Path(__file__).parent,))
                watch._looked_ns = 40 * 10**9  # twenty times a second
                watch._origin_ns -= watch._looked_ns
                if watched:
                    watch.start()
                took[watched] = statistics.mean(steps_of(_TURN_S, model, batch))
                watch.finish()
        pairs.append((took[False], took[True]))
    ratios = [watched / bare for bare, watched in pairs]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs), statistics.median(ratios)


def look_us(depth: int, looks: int = 3000) -> float:
    """The CPU time of a look at a stack of so many frames, in microseconds."""
    if depth > 1:
        return look_us(depth - 1, looks)
    with tempfile.TemporaryDirectory() as folder:
        watch = RunWatch(lambda: Path(folder), (Path(__file__).parent,))
        begun = time.thread_time()
        for _ in range(looks):
            watch._look()
        return (time.thread_time() - begun) / looks * 1e6


def grow(looks: int, directory: Path) -> tuple[int, int]:
    """Bytes of the file, and kilobytes that the process grew by, after so many looks at changing lines, two in a
    second."""
    watch = RunWatch(lambda: directory, (Path(__file__).parent,))
    code, chance = grow.__code__, random.Random(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for look in range(1, looks + 1):
        lines = tuple((code, chance.randrange(_LINES)) for _ in range(6))
        seen = watch._entry((StackActivity.OTHER, lines))
        now_ns = look * 500_000_000
        seen.time_ns, seen.looks, seen.last_ns = seen.time_ns + 500_000_000, seen.looks + 1, now_ns
        watch._columns.add(now_ns - 500_000_000, now_ns, seen.number)
        watch._memory.look(now_ns)
    watch._looked_ns = looks * 500_000_000
    watch._save()
    assert len(load_account(directory).columns) <= 600
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return (directory / ACCOUNT_FILE).stat().st_size, grown


def count_up(times: int) -> int:
    total = 0
    for number in range(times):
        total += number * number % 7
    return total


def shares(times: int, seconds: float = 6.0) -> dict[str, tuple[float, float]]:
    """By clocks and by looks, for each of the three."""
    short, long, took = torch.randn(64, 64), torch.randn(700, 700), Counter[str]()
    lines = dict.fromkeys(range(*_lines_of(count_up)), "Python")
    with tempfile.TemporaryDirectory() as folder:
        watch = RunWatch(lambda: Path(folder), (Path(__file__).parent,))
        watch.start()
        until = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < until:
            count_up(times)
            counted = time.perf_counter()
            short @ short  # short
            multiplied = time.perf_counter()
            long @ long  # long
            ended = time.perf_counter()
            took.update({"Python": counted - begun, "short": multiplied - counted, "long": ended - multiplied})
        watch.finish()
        account = load_account(Path(folder))
    seen = Counter[str]()
    for stack in account.stacks:
        site = account.places[stack.places[-1]].site if stack.places else None
        if site is not None:
            seen[lines.get(site.line, site.source.rpartition("# ")[2])] += stack.time_ns
    known = {name: seen[name] for name in took}
    return {name: (took[name] / took.total(), known[name] / sum(known.values())) for name in took}


def _lines_of(function: Callable[..., object]) -> tuple[int, int]:
    lines, first = inspect.getsourcelines(function)
    return first, first + len(lines)


def on_a_full_disk() -> str:
    """What a watch does if its file cannot be written: ``/dev/full`` is always full."""
    with tempfile.TemporaryDirectory() as folder:
        watch = RunWatch(lambda: Path("/dev/full"), (Path(folder),))
        watch._due_ns = 0
        watch.start()
        time.sleep(0.5)
        looks = sum(seen.looks for seen in watch._stacks.values())
        watch.finish()
        return f"{looks} looks went on; the program saw nothing"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--shares", action="store_true")
    options = parser.parse_args()
    if options.shares:
        torch.set_num_threads(1)
        print("| Python's turns | what | of the time | of the looks |\n|---|---|---|---|")
        for count in (2_000, 20_000, 200_000):
            for what, (by_clock, by_looks) in shares(count).items():
                print(f"| {count:,} | {what} | {by_clock:.1%} | {by_looks:.1%} |", flush=True)
        raise SystemExit
    print("| frames | a look | of the time, at twenty a second |\n|---|---|---|")
    for frames in (10, 40, 160):
        took_us = look_us(frames)
        print(f"| {frames} | {took_us:.0f} µs | {took_us * 20 / 1e6:.2%} |")
    print()
    bare, watched, ratio = compare(options.turns)
    print(f"| CPU time of a step, bare | watched | ratio by turns |\n|---|---|---|\n| {bare * 1e3:.2f} ms | ", end="")
    print(f"{watched * 1e3:.2f} ms | {ratio:.4f} |\n\n| looks | account.json | more memory |\n|---|---|---|")
    for count in (10_000, 100_000, 1_000_000):
        with tempfile.TemporaryDirectory() as root:
            size, more = grow(count, Path(root))
            print(f"| {count:,} | {size / 1e3:.0f} kB | {more / 1e3:.1f} MB |")
    print(f"\nfull disk: {on_a_full_disk()}")
