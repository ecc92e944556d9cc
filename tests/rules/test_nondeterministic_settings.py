"""Programs that ask for equal runs and do not get them, and programs that do not ask."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Facts, Severity, Suspicion
from profkit.rules.nondeterministic_settings import nondeterministic_settings
from profkit.run.directory import CallSite, Remark, Run
from profkit.source.randomness.seeds import NUMPY, PYTHON, TORCH
from profkit.source.remark_kinds import DRAWS, SEEDS
from tests.traces import facts_of, kernel, op, runtime, step


def find(facts: Facts) -> list[Suspicion]:
    return list(nondeterministic_settings.check(facts))


def program(seeds: tuple[str, ...] = (), draws: tuple[str, ...] = ()) -> Facts:
    """Seeds stand at lines from 1 on, draws at lines from 11 on."""
    kinds = [*(SEEDS[whose] for whose in seeds), *(DRAWS[whose] for whose in draws)]
    lines = [*range(1, len(seeds) + 1), *range(11, len(draws) + 11)]
    remarks = tuple(Remark(kind, CallSite("a.py", line, "f")) for kind, line in zip(kinds, lines, strict=True))
    return facts_of([step(0, 0, 100), op("aten::mm", 5, 50)], run=Run(torch="2.13.0", remarks=remarks))


def test_what_is_drawn_without_a_seed_while_another_is_seeded_is_reported():
    (found,) = find(program((TORCH,), (TORCH, NUMPY, PYTHON)))
    assert found.severity is Severity.INFO
    assert found.message.startswith(
        "Two runs differ: the random numbers of NumPy and Python's random are drawn without a seed, at "
    )
    assert "`numpy.random.seed(0)` and `random.seed(0)`" in found.fix
    assert [place.line for place in found.places.all()] == [12, 13, 1]


@pytest.mark.parametrize(
    ("seeds", "draws"),
    [
        pytest.param((), (TORCH, NUMPY), id="nothing is seeded: nobody asks for equal runs"),
        pytest.param((TORCH, NUMPY), (TORCH, NUMPY), id="all that is drawn is seeded"),
        pytest.param((TORCH,), (TORCH,), id="the others are not drawn"),
        pytest.param((TORCH,), (), id="nothing is drawn"),
    ],
)
def test_programs_that_do_not_ask_or_that_get_it_are_silent(seeds, draws):
    assert find(program(seeds, draws)) == []


def on_gpu(operator: str = "aten::scatter_add_", **flags: Any) -> Facts:
    events = []
    for at in range(3):
        events += [step(at, 100 * at, 100), op(operator, 100 * at + 5, 20)]
        events += [runtime("cudaLaunchKernel", 100 * at + 8, 5, correlation=at + 1)]
        events += [kernel("scatter", 100 * at + 15, 30, correlation=at + 1)]
    return facts_of(events, run=Run(torch="2.13.0", flags=flags))


def test_benchmark_contradicts_deterministic():
    (found,) = find(on_gpu("aten::mm", cudnn_deterministic=True, cudnn_benchmark=True))
    assert "`torch.backends.cudnn.benchmark` is on beside" in found.message
    assert find(on_gpu("aten::mm", cudnn_deterministic=True, cudnn_benchmark=False)) == []
    assert find(on_gpu("aten::mm", cudnn_deterministic=False, cudnn_benchmark=True)) == []


def test_operators_without_an_order_are_named_if_somebody_asks_for_one():
    (found,) = find(on_gpu(cudnn_deterministic=True, deterministic_algorithms=False))
    assert "aten::scatter_add_ still adds up in no fixed order" in found.message
    assert len(found.rows) == 3
    assert find(on_gpu(cudnn_deterministic=True, deterministic_algorithms=True)) == []
    assert find(on_gpu(cudnn_deterministic=False, deterministic_algorithms=False)) == []
    assert find(on_gpu("aten::index_select", cudnn_deterministic=True, deterministic_algorithms=False)) == []


def test_a_trace_from_elsewhere_does_not_say_what_the_program_sets():
    with pytest.raises(CannotLook, match="run the program under profkit"):
        find(facts_of([step(0, 0, 100), op("aten::mm", 5, 50)]))
