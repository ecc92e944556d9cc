"""What recording costs a program: beside bare torch.profiler where steps are recorded, beside nothing elsewhere.

    python tests/benchmarks/bench_overhead.py [--rounds 30] [--windows 24] [--between 2000] [--threads 1] [--device cpu]

Four programs, small ones first, in one process, by turns. **Recorded steps**: four with ``profkit.profile`` against
four with torch.profiler and the same flags (operators and memory; no shapes, as in profkit's measured steps), each step
timed by itself; what profkit does between two steps, after some of which it looks at what the program's names hold, is
a row of its own, in milliseconds, and start and stop of the profilers are left out.

**Steps outside the window**: those of a profkit.profile that waits for its first recorded step, the ends of steps
included, and those after its last, each against steps without any profiler. A round's ratio is that of two medians
taken one after the other, and which of the two goes first changes from round to round; printed are the median of
the rounds' ratios and its 95 % interval by bootstrap, as a Markdown table.

With ``--device cuda`` the programs run on the GPU, and every step that is timed is waited for, under profkit and beside
it alike; torch.profiler is detached after its steps, or it would slow down all that comes later.

**A day with one window an hour** is simulated: one process, ``--windows`` recordings one after another, each asked for
with SIGUSR1, and many unrecorded steps between them; what the process holds after each is printed. It is no day long.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import platform
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from small_programs import Step, programs
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

import profkit
from profkit.collect.recorder.profiler import profile
from profkit.collect.sessions.detaching import detach, detachable
from profkit.run.plan import Plan, Subject

STEPS = 4
BEFORE = 3
"""Steps timed without the profiler; one of them passes between the located step and the measured ones."""
SHORT_NS, MORE_ROUNDS = 5_000_000, 6
"""Of steps so short only four are recorded a round, of which each scatters by a tenth: so many times the rounds."""
OUTSIDE_S = 0.4
OUTSIDE = (20, 400)
"""How long unrecorded steps are timed a round, which cost no recording, and how many at least and at most."""
RESAMPLES = 2000


def timed(step: Step) -> int:
    wait_for_gpu()
    begun = time.perf_counter_ns()
    step()
    wait_for_gpu()
    return time.perf_counter_ns() - begun


def wait_for_gpu() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def by_torch(step: Step) -> list[int]:
    """Steps inside torch.profiler, with the flags of profkit's measured ones."""
    on_gpu = torch.cuda.is_initialized()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with detachable():
        with torch_profile(activities=activities, profile_memory=True):
            took = [timed(step) for _ in range(STEPS)]
        if on_gpu:
            detach()
    return took


def by_profkit(step: Step, directory: Path, pauses: list[int]) -> list[int]:
    """The measured steps of a recording, after the others that it has; how long the pauses between them took joins
    ``pauses``."""
    plan = Plan(wait=BEFORE, warmup=1, active=STEPS + 1, prologue=False)
    took = []
    with profile.planned(fresh(directory), plan, Subject()) as recording:
        for _ in range(BEFORE + 1):
            step()
            recording.step()
        for _ in range(STEPS):
            took.append(timed(step))
            begun = time.perf_counter_ns()
            recording.step()
            pauses.append(time.perf_counter_ns() - begun)
        assert not recording.is_over
    return took


def outside(step: Step) -> range:
    """So many steps as are timed where nothing is recorded."""
    return range(min(OUTSIDE[1], max(OUTSIDE[0], round(OUTSIDE_S * 1e9 / timed(step)))))


def unprofiled(step: Step) -> list[int]:
    return [timed(step) for _ in outside(step)]


def before_the_window(step: Step, directory: Path) -> list[int]:
    """Steps that pass while profkit waits for the first one that it is to record, as with ``--at-step``."""
    plan = Plan(at_step=10 * OUTSIDE[1], prologue=False, steps_from="optimizer")
    with profile.planned(fresh(directory), plan, Subject()):
        return [timed(step) for _ in outside(step)]


def after_the_window(step: Step, directory: Path) -> list[int]:
    plan = Plan(wait=0, warmup=0, active=1, after=0, prologue=False, steps_from="optimizer")
    with profile.planned(fresh(directory), plan, Subject()) as recording:
        step()
        assert recording.is_over
        step()
        return [timed(step) for _ in outside(step)]


def fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def ratios(rounds: int, first: Callable[[], list[int]], second: Callable[[], list[int]]) -> list[float]:
    """Of each round, the first's median over the second's."""
    found = []
    for number in range(rounds):
        gc.collect()
        if number % 2:
            above, below = first(), second()
        else:
            below, above = second(), first()
        found.append(statistics.median(above) / statistics.median(below))
    return found


def interval(values: list[float], seed: random.Random) -> tuple[float, float]:
    medians = sorted(statistics.median(seed.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]


def print_overhead(rounds: int, device: str, directory: Path) -> None:
    pauses: list[int] = []

    def recorded(step: Step) -> list[int]:
        return by_profkit(step, directory, pauses)

    comparisons: tuple[tuple[str, str, Callable[[Step], list[int]], Callable[[Step], list[int]]], ...] = (
        ("recorded step", "1.03x torch.profiler", recorded, by_torch),
        ("before the window", "1.01x no profiler", lambda step: before_the_window(step, directory), unprofiled),
        ("after the window", "1.01x no profiler", lambda step: after_the_window(step, directory), unprofiled),
        ("noise: unprofiled twice", "", unprofiled, unprofiled),
    )
    print("| program | steps | ratio | 95 % interval | goal: at most |")
    print("|---|---|---|---|---|")
    seed = random.Random(0)
    for name, step in programs(device):
        pauses.clear()
        for _ in range(20):
            step()
        for what, goal, first, second in comparisons:
            times = MORE_ROUNDS if first is recorded and timed(step) < SHORT_NS else 1
            found = ratios(times * rounds, functools.partial(first, step), functools.partial(second, step))
            low, high = interval(found, seed)
            ratio = statistics.median(found)
            print(f"| {name} | {what} | {ratio:.3f}x | {low:.3f} to {high:.3f} | {goal} |", flush=True)
        pause_ms = [pause / 1e6 for pause in pauses]
        low, high = interval(pause_ms, seed)
        pause = f"{statistics.median(pause_ms):.1f} ms | {low:.1f} to {high:.1f}"
        print(f"| {name} | pause between recorded steps | {pause} | |")


def print_memory(windows: int, between: int, device: str, directory: Path) -> None:
    _, step = next(programs(device))
    held = []
    with profkit.profile(directory / "first", limit_s=5.0) as recording:
        for window in range(windows):
            while not recording.is_over:
                step()
            for _ in range(between):
                step()
            held.append(psutil.Process().memory_info().rss / 1e6)
            if window + 1 < windows:
                os.kill(os.getpid(), signal.SIGUSR1)
                step()
    assert len(recording.directories) == windows
    settled = held[len(held) // 4 :]
    print(f"\n{windows} windows, {between} unrecorded steps after each (a simulated day): MB held after each")
    print(" ".join(f"{mb:.0f}" for mb in held))
    print(f"growth from the first quarter's end to the last window: {settled[-1] - settled[0]:+.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--between", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch.profiler writes a line of its own for each start and stop
    torch.set_num_threads(options.threads)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs" if hasattr(os, "getloadavg") else ""
    place = "CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{place}, {versions}, {options.threads} thread(s), {load}\n")
    with tempfile.TemporaryDirectory() as temporary:
        if options.rounds:
            print_overhead(options.rounds, options.device, Path(temporary) / "run")
        if options.windows:
            print_memory(options.windows, options.between, options.device, Path(temporary))


if __name__ == "__main__":
    sys.exit(main())
