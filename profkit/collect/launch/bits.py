"""``python -m profkit.collect.launch.bits --result=FILE -- SCRIPT ARGS`` runs a script once and notes the bits of its
tensors.

`profkit verify SCRIPT --twice` runs a script twice in this way. The file then has a line for each tensor that was seen,
in the order of the program: what parameters are at the start, what goes into and comes out of the outermost module
calls, and at each optimizer's step the gradients, and the parameters after it. A line has the step, what the tensor is,
its name and a digest of its bits.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from profkit.collect.launch.main_module import split_command
from profkit.collect.launch.unrecorded import run_unrecorded

_MOST_STEPS = 200
"""Each reads all parameters. What differs in none of so many steps hardly comes from how tensors are computed."""
_DIGEST_BYTES = 8
"""Two of a million digests are equal by chance once in ten million runs."""


class Bits:
    """What is seen of one run."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._process = os.getpid()
        self._steps = 0
        self._outermost: Any = None
        self._started: set[int] = set()
        self._names: dict[int, str] = {}

    def begin(self) -> None:
        """PyTorch was imported."""
        from torch.nn.modules import module
        from torch.optim import optimizer

        module.register_module_forward_pre_hook(self._before_call)
        module.register_module_forward_hook(self._after_call)
        optimizer.register_optimizer_step_pre_hook(self._before_step)
        optimizer.register_optimizer_step_post_hook(self._after_step)

    def _before_call(self, called: Any, given: Any) -> None:
        if self._outermost is None and not self._is_over:
            self._outermost = called
            self._note_starts(called.named_parameters())
            self._note("input", type(called).__name__, given)

    def _after_call(self, called: Any, _: Any, result: Any) -> None:
        if called is self._outermost:
            self._outermost = None
            self._note("output", type(called).__name__, result)

    def _before_step(self, stepping: Any, *_: Any) -> None:
        self._outermost = None
        if self._is_over:
            return
        parameters = list(self._parameters(stepping))
        self._note_starts(parameters)
        for name, parameter in parameters:
            self._note("gradient", name, parameter.grad)

    def _after_step(self, stepping: Any, *_: Any) -> None:
        if not self._is_over:
            for name, parameter in self._parameters(stepping):
                self._note("parameter", name, parameter)
            self._steps += 1
            self._file.flush()

    def _note_starts(self, parameters: Iterable[tuple[str, Any]]) -> None:
        for name, parameter in parameters:
            if id(parameter) not in self._started:
                self._started.add(id(parameter))
                self._note("parameter at the start", name, parameter)

    @property
    def _is_over(self) -> bool:
        return self._steps >= _MOST_STEPS or os.getpid() != self._process

    def _parameters(self, stepping: Any) -> Iterator[tuple[str, Any]]:
        parameters = [one for group in stepping.param_groups for one in group["params"]]
        if any(id(one) not in self._names for one in parameters):
            self._names.update(_named_parameters())
        for number, one in enumerate(parameters):
            yield self._names.get(id(one), f"number {number}"), one

    def _note(self, kind: str, name: str, value: Any) -> None:
        for tensor in _tensors_in(value):
            json.dump([self._steps, kind, name, _digest(tensor)], self._file)
            self._file.write("\n")


def _named_parameters() -> dict[int, str]:
    """By identity, each parameter's longest name: that from the outermost module."""
    import torch

    names: dict[int, str] = {}
    for one in gc.get_objects():
        if isinstance(one, torch.nn.Module):
            for name, parameter in one.named_parameters():
                names[id(parameter)] = max(names.get(id(parameter), ""), name, key=len)
    return names


def _tensors_in(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)


def _digest(tensor: Any) -> str:
    """Of the tensor's shape and bits; of one whose bits cannot be read, of its shape."""
    import torch

    read = hashlib.blake2b(str((tuple(tensor.shape), tensor.dtype)).encode(), digest_size=_DIGEST_BYTES)
    if tensor.layout == torch.strided and not tensor.is_quantized:
        bits = tensor.detach().resolve_conj().reshape(-1).cpu().contiguous().view(torch.uint8)
        read.update(memoryview(bits.numpy()))
    return read.hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script that the command line names and end as it ends."""
    parser = argparse.ArgumentParser(prog="python -m profkit.collect.launch.bits")
    parser.add_argument("--result", required=True)
    options = split_command(parser, sys.argv[1:] if arguments is None else list(arguments))
    with Path(options.result).absolute().open("w", encoding="utf-8") as file:
        run_unrecorded(options.target, options.arguments, Bits(file).begin)


if __name__ == "__main__":
    main()
