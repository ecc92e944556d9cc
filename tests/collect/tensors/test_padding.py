"""The batches of a program, looked at while it runs, unnoticed."""

from __future__ import annotations

import gc
import linecache
import weakref
from collections import UserDict, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from profkit.collect.loaders import padding_lines
from profkit.collect.recorder.profiler import profile
from profkit.collect.tensors import further_padding, padding
from profkit.run.directory import PaddedInput, load_run

ROWS, SIZE, STEPS = 4, 40, 12
LENGTHS = (5, 9, 12, 7)


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    """Another test of this process may have compiled something."""
    monkeypatch.setattr(padding, "is_compiler_used", lambda: False)


class Reader(nn.Module):
    """Reads ids, from whatever holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, ids: Any, keep: Tensor | None = None) -> Tensor:
        tokens = ids if isinstance(ids, Tensor) else ids["ids"] if not isinstance(ids, Held) else ids.ids
        hidden = self.head(self.embedding(tokens))
        return (hidden if keep is None else hidden * keep[..., None]).mean()


@dataclass
class Held:
    ids: Tensor


def make_ids(size: int = SIZE, lengths: Iterable[int] = LENGTHS) -> Tensor:
    return torch.stack([nn.functional.pad(torch.randint(1, 100, (n,)), (0, size - n)) for n in lengths])


def to_fixed_size(rows: list[Tensor]) -> dict[str, Tensor]:
    joined = pad_sequence(rows, batch_first=True)
    return {"ids": nn.functional.pad(joined, (0, SIZE - joined.shape[1]))}


def watch(directory: Path, train: Callable[[], object], steps: int = STEPS) -> tuple[PaddedInput, ...] | None:
    with profile(directory, warmup=1, active=2) as recording:
        for _ in range(steps):
            train()
            recording.step()
    return load_run(directory).padding


@pytest.mark.parametrize(
    ("give", "names"),
    [
        pytest.param(lambda model, ids: model(ids), ["ids"], id="by position"),
        pytest.param(lambda model, ids: model(ids=ids, keep=ids != 0), ["ids", "keep"], id="by name"),
        pytest.param(lambda model, ids: model({"ids": ids}), ["ids"], id="in a dict"),
        pytest.param(lambda model, ids: model(UserDict(ids=ids)), ["ids"], id="in a mapping like BatchEncoding"),
        pytest.param(lambda model, ids: model(Held(ids)), ["ids"], id="in an object"),
        pytest.param(lambda model, ids: nn.Sequential(model)(ids), ["input"], id="inside another module"),
    ],
)
def test_what_enters_the_model_is_looked_at(tmp_path, give, names):
    model = Reader()
    found = watch(tmp_path, lambda: give(model, make_ids()))
    assert found is not None
    assert [one.name for one in found] == names
    assert {(batch.length, batch.longest) for one in found for batch in one.batches} == {(SIZE, 12)}
    assert all(one.site is not None and "model" in one.site.source for one in found)


def test_a_batch_of_a_loader_names_the_line_that_pads(tmp_path):
    rows = [torch.randint(1, 100, (LENGTHS[i % ROWS],)) for i in range(ROWS * STEPS)]
    batches = iter(DataLoader(rows, ROWS, collate_fn=to_fixed_size))  # type: ignore[arg-type]  # a list will do
    found = watch(tmp_path, lambda: next(batches)["ids"].sum())
    assert found is not None
    (one,) = found
    assert [site.source for site in one.made] == [
        'return {"ids": nn.functional.pad(joined, (0, SIZE - joined.shape[1]))}'
    ]
    assert one.site is None
    assert [batch.longest for batch in one.batches] == [12, 12]  # of the first and the located step


def make_closure() -> Callable[[list[Tensor]], Tensor]:
    def filled(row: Tensor) -> list[int]:
        return row.tolist() + [0] * (SIZE - len(row))  # in a closure

    return lambda rows: torch.tensor([filled(row) for row in rows])


class Collator:
    def __call__(self, rows: list[Tensor]) -> Tensor:
        return torch.stack([self.filled(row) for row in rows])

    def filled(self, row: Tensor) -> Tensor:
        added = SIZE - row.size(0)  # in a method
        return torch.cat([row, row.new_zeros(added)])


def filled_in_place(rows: list[Tensor]) -> Tensor:
    ids = torch.zeros(len(rows), SIZE, dtype=torch.long)  # in a tensor
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    return ids


@pytest.mark.parametrize(
    ("collate", "where"),
    [(make_closure(), "in a closure"), (Collator(), "in a method"), (filled_in_place, "in a tensor")],
)
def test_the_line_is_found_wherever_the_rows_are_put_together(collate, where):
    rows = [torch.randint(1, 100, (length,)) for length in LENGTHS]
    loader = iter(DataLoader(rows, ROWS, collate_fn=collate))  # type: ignore[arg-type]  # a list will do
    (site,) = padding_lines.find_padding_lines(loader, defaultdict(lambda: True))
    assert linecache.getline(__file__, site.line).rstrip().endswith(f"# {where}")


def test_full_batches_are_not_padded(tmp_path):
    model = Reader()
    assert watch(tmp_path, lambda: model(torch.randint(1, 100, (ROWS, SIZE)))) == ()


def test_without_batches_nothing_is_known(tmp_path):
    weights = torch.randn(8, 8)
    assert watch(tmp_path, lambda: weights @ weights) is None


def test_what_is_computed_inside_the_model_is_not_looked_at(tmp_path):
    """The first layer makes padding of negative numbers."""
    hidden = -torch.rand(ROWS, SIZE, 2)
    for row, length in zip(hidden, LENGTHS, strict=True):
        row[:length] = torch.rand(length, 2)
    model = nn.Sequential(nn.ReLU(), nn.Identity())
    assert watch(tmp_path, lambda: model(hidden)) == ()


def test_the_program_draws_the_same_random_numbers(tmp_path):
    model = Reader()

    def run(with_profiler: bool) -> list[float]:
        torch.manual_seed(0)
        drawn: list[float] = []

        def train() -> None:
            drawn.append(model(make_ids()).item() + torch.rand(()).item())

        if with_profiler:
            watch(tmp_path, train)
        else:
            for _ in range(STEPS):
                train()
        return drawn

    assert run(with_profiler=True) == run(with_profiler=False)


def test_no_batch_is_kept_alive(tmp_path):
    model, given = Reader(), list[weakref.ref[Tensor]]()
    alive: list[int] = []

    def train() -> None:
        ids = make_ids()
        given.append(weakref.ref(ids))
        model(ids=ids, keep=ids != 0)
        del ids
        alive.append(sum(one() is not None for one in given))

    gc.disable()
    try:
        watch(tmp_path, train)
    finally:
        gc.enable()
    assert alive == [0] * STEPS


def test_no_hook_stays(tmp_path):
    model = Reader()
    hooks: list[int] = []

    def train() -> None:
        model(make_ids())
        hooks.append(len(modules._global_forward_pre_hooks))

    watch(tmp_path, train)
    assert sum(hooks) == 1  # in the located step
    assert not modules._global_forward_pre_hooks


def test_beside_the_compiler_no_hook_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(padding, "is_compiler_used", lambda: True)
    model = Reader()
    assert watch(tmp_path, lambda: model(make_ids())) is None


@pytest.fixture
def without_haste(monkeypatch):
    """Steps of a millisecond leave no time for looks."""
    monkeypatch.setattr(further_padding, "_AT_MOST", 1e9)


@pytest.mark.usefixtures("without_haste")
def test_batches_of_the_timed_steps_tell_how_long_others_are(tmp_path):
    """Three steps pass before the located one, two are recorded, and the last one may not end."""
    steps, model = iter(range(1, 1 + STEPS)), Reader()
    found = watch(tmp_path, lambda: model(make_ids(lengths=(4, 5, 6, 10 + next(steps)))))
    assert found is not None
    (one,) = found
    assert [batch.longest for batch in one.batches] == [14]
    assert len(one.later) >= 3
    assert {batch.longest for batch in one.later} <= {17, 18, 19, 20, 21, 22}
    assert not modules._global_forward_pre_hooks


@pytest.mark.usefixtures("without_haste")
def test_an_evaluation_of_other_data_does_not_count(tmp_path):
    rows, others = ([torch.randint(1, 100, (size + i * i % 7,)) for i in range(ROWS * STEPS)] for size in (8, 20))
    batches, evaluated = (iter(DataLoader(of, ROWS, collate_fn=to_fixed_size)) for of in (rows, others))  # type: ignore[arg-type]  # a list will do
    steps = iter(range(STEPS))

    def train() -> None:
        next(batches)["ids"].sum()
        if next(steps) > 6:
            next(evaluated)["ids"].sum()

    found = watch(tmp_path, train)
    assert found is not None
    (one,) = found
    assert len(one.later) >= 3
    assert {batch.longest for batch in one.later} <= {10, 12}


def test_looks_take_no_more_than_their_part_of_the_timed_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(further_padding, "_AT_MOST", 0.0)
    model = Reader()
    found = watch(tmp_path, lambda: model(make_ids()))
    assert found is not None
    assert [len(one.later) for one in found] == [1]  # what a look takes is known after the first
