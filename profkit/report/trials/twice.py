"""Two runs of a program in words: the same bits, or the first tensor that differs and where to look."""

from __future__ import annotations

from textwrap import fill

from profkit.core.units import format_count
from profkit.diagnosis.twice import FirstDifference, Twice
from profkit.report.wording import printable

_WIDTH = 80
"""Columns, as reports have where they are piped."""
_SEEDS = "`torch.manual_seed(0)`, `numpy.random.seed(0)` and `random.seed(0)`"
_CAUSES = {
    "parameter at the start": f"The model begins differently. Seed all random numbers before it is made: {_SEEDS}.",
    "input": "The data differ: their order, what augments them, or what the program draws. Seed with "
    f"{_SEEDS}, give the DataLoader `generator=torch.Generator().manual_seed(0)`, and seed its workers by "
    "`worker_init_fn`.",
    "output": "The same input gives another output. An operator of the forward pass has no fixed order, or draws "
    "random numbers without a seed, as dropout does. `torch.use_deterministic_algorithms(True)` names such operators.",
    "gradient": "The output is the same, and the backward pass is not. "
    "`torch.use_deterministic_algorithms(True)` names operators whose backward pass has no fixed order.",
    "parameter": "The gradients are the same: the optimizer, or what the program does to the parameters, differs.",
    "": "The runs call other things, or in another order: look for what depends on time, files or random numbers.",
}


def render_twice(twice: Twice) -> str:
    """The report of ``profkit verify SCRIPT --twice``."""
    if not twice.tensors:
        return "Cannot judge: no module was called and no optimizer stepped, so there is nothing to compare."
    seen = f"{format_count(twice.tensors, 'tensor')} of {format_count(twice.steps, 'step')}"
    if twice.first is None:
        return f"The same bits in both runs: {seen} were compared."
    lines = (_name(twice.first), _CAUSES[twice.first.kind], f"Compared: {seen}.")
    return "\n".join(fill(line, _WIDTH, break_on_hyphens=False) for line in lines)


def _name(first: FirstDifference) -> str:
    if not first.kind:
        return f"The runs differ from step {first.step} on: they compute different things."
    others = f" and {format_count(first.others, 'other')} of its kind" if first.others else ""
    return f"The runs differ first in step {first.step}: {first.kind} {printable(first.name)}{others}."
