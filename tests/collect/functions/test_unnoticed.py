"""The watch of functions changes nothing in the program: no code of it runs, nothing is read that is not there, nothing
large is kept."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import weakref
from collections import OrderedDict
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from profkit.collect.functions import watch as watching
from profkit.collect.functions.describing import Describer, Undescribed
from profkit.collect.functions.watch import FunctionWatch
from profkit.source.user_code import UserFiles
from tests.collect.functions.test_watch import watched

RAN: list[str] = []


class Proxy:
    """What stands in for something else may do anything when it is asked."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        RAN.append("class")
        return int

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)

    def __call__(self) -> int:
        RAN.append("call")
        return 1

    def __eq__(self, other: object) -> bool:
        RAN.append("eq")
        return True

    def __hash__(self) -> int:
        RAN.append("hash")
        return 1

    def __bool__(self) -> bool:
        RAN.append("bool")
        return True

    def __sizeof__(self) -> int:
        RAN.append("sizeof")
        return 1


class Row(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        RAN.append("len")
        return 1

    def __iter__(self) -> Any:
        RAN.append("iter")
        return iter(())


class Told(nn.Linear):
    def named_parameters(self, *given: Any, **named: Any) -> Any:
        RAN.append("named_parameters")
        return super().named_parameters(*given, **named)


class Kind(type):
    """A class of classes may do anything, too."""

    def __getattr__(cls, name: str) -> Any:
        RAN.append(name)
        raise AttributeError(name)

    def __eq__(cls, other: object) -> bool:
        RAN.append("eq")
        return cls is other

    def __hash__(cls) -> int:
        RAN.append("hash")
        return 1


class OfKind(metaclass=Kind):
    pass


class ListOfKind(list, metaclass=Kind):  # type: ignore[type-arg]
    pass


PROXY = Proxy()


def uses_proxy(_given: object, *_others: object) -> int:
    return 3 if _given is not None else PROXY()


def gives(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "value",
    [PROXY, Row([1, object()]), Row([1]), Told(2, 2), OfKind(), [OfKind()], ListOfKind(), Decimal("sNaN")],
    ids=["proxy", "row of a row", "row", "told", "of a kind", "list of a kind", "list kind", "not a number"],
)
def test_no_code_of_the_program_is_run(value):
    def give() -> object:
        return value

    watch = FunctionWatch(UserFiles())
    RAN.clear()
    watch.begin()
    for _ in range(2):
        for _ in range(3):
            uses_proxy(1, value)
            give()
        watch.end_step()
    watch.stop()
    assert RAN == []
    assert watch.ended == ""


def test_a_lazy_module_is_not_loaded(tmp_path, monkeypatch):
    (tmp_path / "lazily.py").write_text("raise RuntimeError\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.find_spec("lazily")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazily = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lazily)

    def step() -> None:
        for _ in range(2):
            uses_proxy(1, lazily)

    assert watched(step, step)["uses_proxy"].again == 1


def freed() -> torch.Tensor:
    tensor = torch.ones(1000)[100:200]
    tensor.untyped_storage().resize_(0)
    return tensor


def test_a_tensor_whose_memory_was_freed_is_not_read():
    tensor = freed()
    with pytest.raises(Undescribed):
        Describer().argument(tensor)
    with pytest.raises(Undescribed):
        Describer().result(tensor)


def test_a_tensor_that_repeats_its_numbers_is_known_by_its_memory():
    assert Describer().argument(torch.ones(1).expand(100))


class Handle:
    """It has an end that the program sees."""

    def __del__(self) -> None:
        RAN.append("ended")


def test_objects_end_when_they_end_without_the_watch():
    def make() -> Handle:
        return Handle()

    counts = []
    RAN.clear()

    def step() -> None:
        for _ in range(4):
            make()
            counts.append(len(RAN))

    watched(step, step)
    assert counts == [*range(1, 9)]


def test_entries_of_a_weak_cache_go_as_without_the_watch():
    class Named(OrderedDict[str, int]):
        pass

    living = []

    def make() -> Named:
        return Named(a=1)

    def step() -> None:
        for _ in range(3):
            seen = weakref.ref(make())
            living.append(seen() is not None)

    watched(step, step)
    assert living == [False] * 6


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (torch.zeros(1000)[:1], 4000),
        (np.zeros(1000)[:1], 8000),
        ([torch.zeros(1000), torch.zeros(1000)], 8000),
        ("a" * 1000, 1000),
        ([1.5] * 100, 6400),
    ],
    ids=["view", "view of an array", "tensors", "text", "numbers"],
)
def test_a_kept_result_counts_with_all_its_memory(value, kept):
    describer = Describer()
    describer.result(value)
    assert describer.kept_bytes is not None
    assert kept <= describer.kept_bytes <= kept + 1000


@pytest.mark.parametrize("value", [SimpleNamespace(a=1), (SimpleNamespace(a=1), 2), OrderedDict(a=1)], ids=str)
def test_what_the_program_may_see_end_is_not_kept(value):
    describer = Describer()
    describer.result(value)
    assert describer.kept_bytes is None


def test_long_text_is_not_kept():
    text = "ab" * 1000
    described = Describer().argument(text)
    assert text not in str(described)
    assert described == Describer().argument("ab" * 1000) != Describer().argument("ac" * 1000)
    with pytest.raises(Undescribed):
        Describer().argument(b"a" * (2 << 20))


@pytest.mark.parametrize("value", [{"ids": [[1] * 1000] * 100}, [np.zeros(1)], ["a" * 2_000_000]], ids=type)
def test_only_little_is_written_for_a_comparison(value, monkeypatch):
    written: list[object] = []
    monkeypatch.setattr("marshal.dumps", lambda value, _: written.append(value) or b"")
    Describer().argument(value)
    assert written == []


def test_arrays_of_other_shapes_in_a_list_differ():
    describer = Describer()
    assert describer.argument([np.zeros((2, 3))]) != describer.argument([np.zeros((3, 2))])
    assert describer.argument([np.zeros(2)]) == describer.argument([np.zeros(2)])


def test_a_long_list_that_was_filled_anew_is_another():
    describer, rows = Describer(), [1] * 30_000
    before = describer.argument(rows)
    assert describer.argument(rows) == before
    rows[:] = [2] * 30_000
    assert describer.argument(rows) != before


def test_of_long_functions_no_code_is_hashed():
    watch = FunctionWatch(UserFiles())
    watch.begin()
    gives(1)
    assert watch._places
    assert all(type(part) is int for where in watch._places for part in where)
    watch.stop()


def test_getting_to_know_a_place_is_charged(monkeypatch):
    ticks = iter(range(0, 10**12, 10**6))
    monkeypatch.setattr(watching, "time", SimpleNamespace(thread_time_ns=lambda: next(ticks)))
    watch = FunctionWatch(UserFiles())
    watch.begin()
    gives(None)
    watch.end_step()
    watch.stop()
    assert watch.take_uncharged_s() >= 0.003


def _deep(depth: int) -> int:
    return depth if depth == 0 else _deep(depth - 1)


def test_a_program_that_recurses_as_deep_as_it_may_does_so():
    def deepest() -> int:
        low, high = 0, sys.getrecursionlimit()
        while high - low > 1:
            middle = (low + high) // 2
            try:
                _deep(middle)
                low = middle
            except RecursionError:
                high = middle
        return low

    bare = deepest()
    watch = FunctionWatch(UserFiles())
    reached: list[int] = []
    watch.begin()
    for depth in range(bare - 40, bare):
        watch.is_on = True
        sys.setprofile(watch._callback)
        try:
            reached.append(_deep(depth))
        except RecursionError:
            reached.append(depth)
    watch.end_step()
    watch.stop()
    assert reached == [0] * 40


@pytest.mark.slow
def test_the_child_of_a_fork_is_not_watched(tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(
        "import os, sys, torch\n"
        "model = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "found = []\n"
        "for step in range(12):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os._exit(sys.getprofile() is not None)\n"
        "    found.append(os.waitpid(child, 0)[1])\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        "print('WATCHED' if any(found) else 'NONE')\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "profkit", "record", "--output", str(tmp_path / "run"), str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert "NONE" in ended.stdout, ended.stdout + ended.stderr
