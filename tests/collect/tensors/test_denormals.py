"""Which tensors hold denormal numbers that slow this machine down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from profkit.collect.tensors import denormals
from profkit.collect.tensors.denormals import DenormalWatch, InputWatch, added_ns, read_tensors
from profkit.run.directory import DenormalTensors
from tests.collect.tensors.watching import watch_of

TINY = 3e-40


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which a denormal number takes 5 ns and any other 1 ns: whether a real one does is not for tests."""

    def multiply_ns(numbers) -> int:
        tiny = 1.17549435e-38 if numbers.itemsize == 4 else 2.2250738585072014e-308
        return sum(5 if 0 < abs(one) < tiny else 1 for one in numbers.tolist())

    monkeypatch.setattr(denormals, "_multiply_ns", multiply_ns)
    yield
    torch.set_flush_denormal(False)


def find(*tensors: Tensor) -> list[tuple[tuple[int, ...], str, float, float, float]]:
    return [(one.shape, one.type, one.share, one.slow_ns, one.usual_ns) for one in read_tensors(tensors)]


def mixed(every: int, count: int = 4096) -> Tensor:
    """One in so many numbers is denormal."""
    made = torch.ones(count)
    made[::every] = TINY
    return made


def test_a_decayed_tensor():
    assert find(torch.full((64, 64), TINY)) == [((64, 64), "float", 1.0, 5.0, 1.0)]
    assert find(torch.full((64, 64), -1e-310, dtype=torch.float64)) == [((64, 64), "double", 1.0, 5.0, 1.0)]


def test_a_part_of_the_numbers():
    assert find(mixed(4)) == [((4096,), "float", 0.25, 2.0, 1.0)]


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(torch.ones(4096), id="normal"),
        pytest.param(torch.zeros(4096), id="zero"),
        pytest.param(torch.full((4096,), -0.0), id="minus zero"),
        pytest.param(torch.full((4096,), 1.1754944e-38), id="the smallest normal number"),
        pytest.param(torch.full((4096,), TINY, dtype=torch.bfloat16), id="a half type"),
        pytest.param(torch.full((4096,), 1e-40, dtype=torch.float64), id="normal as a double"),
        pytest.param(torch.full((1,), TINY).expand(4096), id="one number"),
        pytest.param(torch.full((8192,), TINY)[::2], id="a view with gaps"),
        pytest.param(torch.full((4096,), 3, dtype=torch.int32), id="numbers whose bits are those of denormal ones"),
        pytest.param(torch.full((4096,), TINY, device="meta"), id="without memory"),
        pytest.param(torch.full((64, 64), TINY).to_sparse(), id="sparse"),
        pytest.param(torch.full((1023,), TINY), id="small"),
    ],
)
def test_other_tensors_are_silent(tensor):
    assert find(tensor) == []


def test_a_tensor_counts_from_1024_numbers_and_a_microsecond_on():
    assert len(find(torch.full((1024,), TINY))) == 1
    assert find(mixed(17)[:4097]) == []  # 241 numbers take 4 ns longer each: 964
    assert len(find(mixed(16))) == 1  # 256 of them: 1,024


def test_memory_that_was_given_back_is_not_read():
    decayed = torch.full((4096,), TINY)
    decayed.untyped_storage().resize_(4096)
    assert find(decayed) == []
    assert len(find(torch.full((8192,), TINY)[4096:])) == 1


@pytest.mark.parametrize(("every", "count"), [(19, 1), (25, 0)])
def test_it_counts_from_a_fifth_longer_on(every, count):
    """4 of 19 and of 25 are 21 and 16 %, of many numbers."""
    assert len(find(mixed(every, 1 << 14))) == count


def test_a_transposed_tensor_has_no_gaps():
    assert len(find(torch.full((64, 32), TINY).t())) == 1


def test_of_a_large_tensor_sixteen_stretches_are_read():
    large = torch.ones(1 << 20)
    large[: 1 << 16] = TINY
    ((_, _, share, slow_ns, usual_ns),) = find(large)
    assert share == 0.0625
    assert (slow_ns, usual_ns) == (1.25, 1.0)


def test_of_equal_shapes_the_one_that_costs_least_speaks():
    assert find(mixed(4), mixed(2), torch.ones(4096)) == [((4096,), "float", 0.25, 2.0, 1.0)]


def test_two_views_of_one_memory_count_once(monkeypatch):
    asked = []
    monkeypatch.setattr(denormals, "_multiply_ns", lambda numbers: asked.append(1) or len(numbers) * len(asked))
    whole = torch.full((64, 64), TINY)
    read_tensors([whole, whole.view(-1), whole.t()])
    assert len(asked) == 2


def test_a_machine_without_the_fault_finds_nothing(monkeypatch):
    monkeypatch.setattr(denormals, "_multiply_ns", len)
    assert find(torch.full((64, 64), TINY)) == []


def test_subclasses_are_not_asked():
    class Own(Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), named=None):
            raise AssertionError

    assert find(torch.full((64, 64), TINY).as_subclass(Own)) == []


def test_no_operator_runs_and_errors_of_numpy_stay_silent(monkeypatch):
    import numpy as np

    monkeypatch.undo()
    tensors = [torch.full((64, 64), TINY), torch.full((64, 64), float("nan"))]
    with np.errstate(all="raise"), torch.profiler.profile() as recorded:
        read_tensors(tensors)
    assert [one.name for one in recorded.events() if one.name.startswith("aten::")] == []


def test_where_numbers_are_flushed_nothing_is_slow(monkeypatch):
    """This machine is slow with what NumPy does not take for zero, on the thread that asks."""

    def multiply_ns(numbers) -> int:
        product = abs(numbers * 1)
        return len(numbers) + 4 * int(((product > 0) & (product < 1e-38)).sum())

    monkeypatch.setattr(denormals, "_multiply_ns", multiply_ns)
    decayed = torch.full((64, 64), TINY)
    assert find(decayed) == [((64, 64), "float", 1.0, 5.0, 1.0)]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush them")
    assert find(decayed) == []


def test_another_recording_is_worth_it_from_twice_the_cost_on():
    kept = [torch.full((2, 1024), TINY)]
    watch = DenormalWatch()
    assert watch.found is None
    assert watch.look()
    assert watch.found is None
    watch.keep()
    assert DenormalTensors((2, 1024), "float", 1.0, 5.0, 1.0) in (watch.found or ())
    assert not watch.look()
    kept.append(torch.full((8, 1024), TINY))
    assert watch.look()
    watch.keep_more()
    assert len(watch.found or ()) == 2
    assert not watch.look()


def test_what_they_cost_in_all():
    first, second = DenormalTensors((10, 10), "float", 1.0, 5.0, 1.0), DenormalTensors((50,), "float", 0.1, 3.0, 1.0)
    assert added_ns((first, second)) == 500.0


def test_what_a_call_takes_is_read_at_first_and_then_now_and_then():
    normal, decayed, watch = torch.ones(2048), torch.full((2048,), TINY), InputWatch()
    for tensor in [*[normal] * 4, *[decayed] * 11]:
        watch.note([tensor])
    assert watch.found == ()
    watch.note([decayed])
    assert watch.found == (DenormalTensors((2048,), "float", 1.0, 5.0, 1.0),)


def test_other_inputs_are_silent():
    watch = InputWatch()
    watch.note([torch.full((1023,), TINY), torch.ones(2048, dtype=torch.int32), torch.ones(2048), mixed(25, 1 << 14)])
    assert watch.found == ()


def test_the_watch_of_calls_reads_what_a_step_makes_and_uses():
    """Nothing of it is left when the step ends."""
    small = torch.full((4096,), 1e-20)

    def step() -> None:
        (small * small).sum().item()

    assert watch_of(step).denormals == (DenormalTensors((4096,), "float", 1.0, 5.0, 1.0),)


def test_what_calls_took_is_added_to_what_was_kept():
    first, second = DenormalTensors((10, 10), "float", 1.0, 5.0, 1.0), DenormalTensors((50,), "float", 0.1, 3.0, 1.0)
    watch = DenormalWatch()
    watch.add([first])
    watch.add([second, DenormalTensors((10, 10), "float", 0.5, 3.0, 1.0)])
    assert watch.found == (first, second)
