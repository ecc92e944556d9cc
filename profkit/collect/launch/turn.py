"""``python -m profkit.collect.launch.turn OPTIONS -- ARGS`` runs a user's program once, timed and not recorded.

`profkit fix` runs a program before and after a change by turns in this way. The file ``--result`` then holds what the
two are compared by: how long the run took from the import of torch on, without the loading of further libraries, when
each optimizer's step ended, how long the main thread had waited for a busy processor until then, the peak memory, how
many backward nodes are alive, whether random numbers came from a seed, where generators were made without one, which
files the program was loaded from, and how many backward passes there were, with the losses of the first.
``parameters.npz`` beside it holds the optimizers' parameters at their first step and at the end, how long each one's
gradient is in that step, and how long it is at most in some. What no optimizer trains is there, too: statistics of
batches, averages of weights.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import mmap
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from profkit.collect.launch.loads import Loads
from profkit.collect.launch.main_module import split_command
from profkit.collect.launch.passes import Passes
from profkit.collect.launch.unrecorded import run_unrecorded
from profkit.collect.launch.unseeded import Entropy
from profkit.collect.machine.page_faults import count_crowded_ns
from profkit.collect.program.clocks import time

_MOST_OPTIMIZERS = 8
"""A search over settings makes hundreds, and who holds them holds their models."""
_MOST_NUMBERS = 1 << 24
"""Of each optimizer, 64 MB as float32; beyond that evenly spaced ones are kept."""
_FIRST_LOOK = 4
"""Steps until what is alive is counted for the first time; then at the 8th, the 16th and so on, as it takes a while."""
_MOST_NODES = 1 << 18
"""Of an autograd graph: counting them takes a tenth of a second, and a graph as long shows that it grows."""
_READINGS = 5
"""Who has just got a CPU keeps it for a millisecond or more, so the second is enough as a rule."""
_DEVICES = ("cuda", "xpu")
_PARENT_ENDS = 1
"""`prctl` (2): the signal that a process gets when its parent ends (``PR_SET_PDEATHSIG``), stopped or not."""
_KIB = 1024
"""Linux gives ``ru_maxrss`` in these."""


class Stopped:
    """How long this process has been stopped so far, while another had the processor: who stops it keeps the
    nanoseconds in a file of eight bytes. Without one it never is."""

    def __init__(self, file: str | None) -> None:
        self._memory: mmap.mmap | None = None
        if file is not None:
            _end_with_parent()
            with open(file, "rb") as opened:
                self._memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)

    def read_ns(self) -> int:
        return 0 if self._memory is None else int.from_bytes(self._memory[:], "little")


def _end_with_parent() -> None:
    """Whoever stops this process may be ended itself, and nobody else would let it go on or end it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_ENDS, signal.SIGKILL)


class Turn:
    """What is seen of one run."""

    def __init__(self, result: Path, seed: int | None, folders: Sequence[str], stopped: str | None = None) -> None:
        self._result, self._seed, self._stopped = result, seed, Stopped(stopped)
        self._process = os.getpid()
        self._begun_ns = 0
        self._step_ns: list[int] = []
        self._computed_ns, self._crowded_before_ns = 0, 0
        self._aside_ns, self._crowded_aside_ns = 0, 0
        self._thread = threading.get_native_id()
        self._crowded_ns: list[int] = []
        self._graph_nodes: list[int] = []
        self._optimizers: list[Any] = []
        self._starts: list[list[Any]] = []
        self._gradients: list[list[float]] = []
        self._longest: list[list[float]] = []
        self._stepped: list[int] = []
        self._modules: list[Any] = []
        self._drawn_from: dict[str, str] = {}
        self._entropy = Entropy(os.getcwd(), seed)
        self._passes = Passes(self._find_modules)
        self._loads = Loads(folders, self._clocks)

    def begin(self) -> None:
        """PyTorch was imported."""
        from torch.optim import optimizer

        if self._seed is not None:
            _set_seeds(self._seed)
        optimizer.register_optimizer_step_pre_hook(self._before_step)
        optimizer.register_optimizer_step_post_hook(self._after_step)
        self._drawn_from.update(_random_states())
        self._entropy.watch()
        self._passes.watch()
        self._loads.watch()
        self._begun_ns, self._crowded_before_ns = self._clocks()
        self._crowded_aside_ns, self._computed_ns = self._crowded_before_ns, time.thread_time_ns()

    def _clocks(self) -> tuple[int, int]:
        """The time without that in which the process was stopped, and how long the main thread has waited until then,
        without what this file itself does aside.

        A wait between the readings, longer than many a step, would be in one of them alone: they are taken again.
        """
        for _ in range(_READINGS):
            before = count_crowded_ns(self._thread) or 0, self._stopped.read_ns()
            now_ns = time.perf_counter_ns()
            if before == (count_crowded_ns(self._thread) or 0, self._stopped.read_ns()):
                break
        crowded_ns, stopped_ns = before
        return now_ns - stopped_ns, crowded_ns - self._crowded_aside_ns

    def _own_clocks(self) -> tuple[int, int]:
        """The same without what was done aside, and without the time that libraries took to load."""
        now_ns, crowded_ns = self._clocks()
        return now_ns - self._aside_ns - self._loads.taken_ns, crowded_ns - self._loads.crowded_ns

    def end(self) -> None:
        """The program is over, by itself or by an error. A fork of it says nothing."""
        if os.getpid() != self._process or not self._begun_ns:
            return
        ended_ns, crowded_ns = self._own_clocks()
        states = _random_states()
        content = {
            "run_ns": ended_ns - self._begun_ns,
            "crowded_ns": crowded_ns,
            "idle_ns": self._idle_ns(),
            "step_ns": self._step_ns,
            "step_crowded_ns": self._crowded_ns,
            "computes_elsewhere_s": _elsewhere_s(),
            "graph_nodes": self._graph_nodes,
            "peak_bytes": peak_bytes(),
            "device_peak_bytes": device_peak_bytes(),
            "random_states": states,
            "drawn": sorted(name for name, state in states.items() if self._drawn_from.get(name) != state),
            "unseeded": self._entropy.places,
            "files": sorted({file for module in [*sys.modules.values()] if (file := _file_of(module))}),
            "optimizers": len(self._optimizers),
            "passes": self._passes.count,
            "losses": self._passes.losses(),
        }
        self._find_modules()
        self._save_parameters()
        self._result.write_text(json.dumps(content), encoding="utf-8")

    def _idle_ns(self) -> int:
        """How long the main thread neither computed nor waited for a busy processor."""
        now_ns, crowded_ns = self._clocks()
        crowded_ns += self._crowded_aside_ns - self._crowded_before_ns
        return max(0, now_ns - self._begun_ns - crowded_ns - (time.thread_time_ns() - self._computed_ns))

    def _find_modules(self) -> None:
        if os.getpid() == self._process:
            self._modules = self._modules or _outermost_modules()

    def _before_step(self, stepping: Any, *_: Any) -> None:
        if os.getpid() != self._process:
            return
        number = next((at for at, one in enumerate(self._optimizers) if stepping is one), len(self._optimizers))
        if number == _MOST_OPTIMIZERS:
            return
        if number == len(self._optimizers):
            self._optimizers.append(stepping)
            self._starts.append(_numbers_of(stepping))
            self._gradients.append(_gradient_lengths(stepping))
            self._longest.append(self._gradients[-1])
            self._stepped.append(0)
            self._find_modules()
        self._stepped[number] += 1
        if self._stepped[number] > 1 and self._stepped[number] & (self._stepped[number] - 1) == 0:
            self._look_at_gradients(number)

    def _look_at_gradients(self, number: int) -> None:
        """At the second step of an optimizer, the fourth, the eighth and so on: a parameter may get its first gradient
        late."""
        begun_ns, crowded_ns = self._own_clocks()
        seen = _gradient_lengths(self._optimizers[number])
        pairs = zip(self._longest[number], seen, strict=False)  # a group of parameters may have come
        self._longest[number] = [*(max(pair) for pair in pairs), *seen[len(self._longest[number]) :]]
        now_ns, waited_ns = self._own_clocks()
        self._aside_ns += now_ns - begun_ns
        self._crowded_aside_ns += waited_ns - crowded_ns

    def _after_step(self, *_: Any) -> None:
        ended_ns, crowded_ns = self._own_clocks()
        self._step_ns.append(ended_ns)
        self._crowded_ns.append(crowded_ns)
        steps = len(self._step_ns)
        if steps >= _FIRST_LOOK and steps & (steps - 1) == 0:
            self._graph_nodes.append(_count_graph_nodes())
            now_ns, waited_ns = self._own_clocks()
            self._aside_ns += now_ns - ended_ns
            self._crowded_aside_ns += waited_ns - crowded_ns

    def _save_parameters(self) -> None:
        import numpy as np

        arrays: dict[str, Any] = {}
        for number, (stepped, starts) in enumerate(zip(self._optimizers, self._starts, strict=True)):
            for name, values in (("start", starts), ("end", _numbers_of(stepped))):
                arrays.update((f"{name}.{number}.{place:06d}", value) for place, value in enumerate(values))
            arrays[f"gradients.{number}"] = np.array(self._gradients[number])
            arrays[f"longest.{number}"] = np.array(self._longest[number])
        trained = {id(one) for stepped in self._optimizers for group in stepped.param_groups for one in group["params"]}
        arrays.update(_state_of(self._modules, trained))
        with suppress(OSError):
            np.savez(self._result.with_name("parameters.npz"), **arrays)


def _elsewhere_s() -> float:
    """Processor seconds of the program's other threads, and of its children that have ended."""
    used = os.times()
    return time.process_time() - time.thread_time() + used.children_user + used.children_system


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the command line names and end as it ends."""
    options = _parse(sys.argv[1:] if arguments is None else list(arguments))
    script = [] if options.module else [os.path.dirname(os.path.abspath(options.target))]
    turn = Turn(Path(options.result).absolute(), options.seed, [os.getcwd(), *script], options.stopped)
    try:
        run_unrecorded(options.target, options.arguments, turn.begin, is_module=options.module)
    finally:
        turn.end()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m profkit.collect.launch.turn")
    parser.add_argument("--result", required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--stopped", metavar="FILE")
    parser.add_argument("--module", action="store_true")
    return split_command(parser, arguments)


def _numbers_of(optimizer: Any) -> list[Any]:
    """Copies of an optimizer's parameters as NumPy arrays; empty ones for those that have no numbers to read."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    total = sum(one.numel() for one in parameters if hasattr(one, "numel"))
    return [_numbers(one, max(1, -(-total // _MOST_NUMBERS))) for one in parameters]


def _numbers(parameter: Any, stride: int) -> Any:
    import numpy as np
    import torch

    try:
        with torch.no_grad():
            value = torch.view_as_real(parameter) if parameter.is_complex() else parameter
            flat = value.detach().reshape(-1)[::stride]
            return flat.to(device="cpu", dtype=torch.float32, copy=True).numpy()
    except Exception:  # a sparse, sharded or meta tensor: the parent says that it was not compared
        return np.zeros(0, dtype=np.float32)


def _outermost_modules() -> list[Any]:
    """The modules that are part of no other."""
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        found = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inner = {id(part) for one in found for part in one.__dict__.get("_modules", {}).values()}
    return [one for one in found if id(one) not in inner]


def _state_of(modules: Sequence[Any], trained: Set[int]) -> dict[str, Any]:
    """The buffers and untrained parameters of modules, by class and name: ``state.…``, and ``count.…`` for integers.
    Of several of a class the sum is kept, as nothing tells which is which."""
    total, found = 0, dict[str, Any]()
    for module in modules:
        with suppress(Exception):  # a module that is not whole, a name that is no text
            for name, value in (*module.named_parameters(), *module.named_buffers()):
                total += value.numel()
                if id(value) in trained or total > _MOST_NUMBERS or value.is_complex():
                    continue
                numbers = value.detach().to(device="cpu").double().numpy()
                kind = "state" if value.is_floating_point() else "count"
                key = f"{kind}.{type(module).__name__}.{name}.{'x'.join(map(str, numbers.shape))}"
                found[key] = found[key] + numbers if key in found else numbers.copy()
    return found


def _gradient_lengths(optimizer: Any) -> list[float]:
    """The norm of each parameter's gradient; 0 without one, and no number where it cannot be read."""
    return [_gradient_length(one) for group in optimizer.param_groups for one in group["params"]]


def _gradient_length(parameter: Any) -> float:
    import torch

    try:
        gradient = parameter.grad
        if gradient is None:
            return 0.0
        dense = gradient.coalesce().values() if gradient.is_sparse else gradient
        with torch.no_grad():
            return float(torch.linalg.vector_norm(dense.detach()))
    except Exception:  # a sharded or meta tensor
        return float("nan")


def _count_graph_nodes() -> int:
    """The backward nodes that living tensors keep. Objects are only asked for their type: a proxy would run code."""
    import torch

    graph: Any = torch.Tensor.grad_fn  # the descriptor: a subclass may have an attribute of its own
    with torch._C.DisableTorchFunctionSubclass():
        tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
        waiting = [node for one in tensors if (node := graph.__get__(one)) is not None]
    seen = set(waiting)
    while waiting and len(seen) < _MOST_NODES:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen)


def _set_seeds(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)  # the state that programs draw from
    torch.manual_seed(seed)


def _random_states() -> dict[str, str]:
    """A hash of each generator's state, by who offers it."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    states = {"torch": torch.random.get_rng_state().numpy().tobytes(), "random": repr(random.getstate()).encode()}
    if numpy is not None and hasattr(numpy, "random"):
        states["numpy"] = repr(
            [part if isinstance(part, str | int | float) else part.tobytes() for part in numpy.random.get_state()]
        ).encode()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}


def peak_bytes() -> int:
    """The most memory that this process held; 0 where the system does not say."""
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (_KIB if sys.platform != "darwin" else 1)
    return 0


def device_peak_bytes() -> int:
    """The most memory on devices that compute beside the processor; 0 if the program used none."""
    kinds = [getattr(sys.modules["torch"], name, None) for name in _DEVICES]
    used = [one for one in kinds if one is not None and one.is_initialized()]
    return sum(one.max_memory_allocated(device) for one in used for device in range(one.device_count()))


def _file_of(module: object) -> str:
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else ""


if __name__ == "__main__":
    main()
