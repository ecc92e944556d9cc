"""Which calls of PyTorch compute something again, judged by their inputs and never by values that look alike."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from profkit.collect.recorder.profiler import profile
from profkit.collect.tensors import call_budget, recomputation, sampling
from profkit.collect.tensors.identities import Identities
from profkit.collect.tensors.recomputation import CallWatch
from profkit.core.marks import CALL_MARK
from profkit.diagnosis.pipeline import read_facts
from profkit.patterns.loops.located import in_located_step
from profkit.run.directory import Recomputation, load_run
from tests.traces import rows_named

SIZE = 8


@pytest.fixture(autouse=True)
def _nothing_is_left_by_other_tests() -> Iterator[None]:
    """Neither compiled code nor layers; and none is left for later tests."""
    torch.manual_seed(0)
    forget_compiler()
    gc.collect()
    yield
    forget_compiler()


def forget_compiler() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def watched(*steps: Callable[[], object]) -> Recomputation:
    """What is found in two steps; the second may be empty."""
    watch = CallWatch()
    watch.begin()
    try:
        for number in range(2):
            if number < len(steps):
                steps[number]()
            watch.end_step()
    finally:
        watch.stop()
    assert not torch.overrides._len_torch_function_stack()
    assert watch.found is not None
    return watch.found


def again(step: Callable[[], object]) -> int:
    """How many calls of a step repeat another one in it."""
    return len(watched(step).again)


def each(step: Callable[[], object]) -> int:
    """How many calls of a step are repeated by the same step after it."""
    return len(watched(step, step).each_step)


def matrix() -> Tensor:
    return torch.randn(SIZE, SIZE)


def test_a_function_of_the_same_tensor_is_a_repetition():
    x = matrix()
    found = watched(lambda: [x @ x, x @ x])
    assert (found.again, found.each_step, found.looked_at, found.zeroed) == (((1, 0),), (), 2, ())


def test_calls_on_repeated_results_are_repetitions_too():
    x = matrix()

    def normalise() -> Tensor:
        return (x.sum(0).pow_(-0.5)[None] * x).relu()

    assert again(lambda: [normalise(), normalise()]) == 5


def test_views_that_are_no_calls_are_followed_by_what_they_show():
    """Reading `x.mT` is none. The same view of an equal result is equal; another view of it is not."""
    x = matrix()

    def rotation() -> Tensor:
        lower = x.tril()
        return torch.matrix_exp(lower - lower.mT)

    assert again(lambda: [rotation(), rotation()]) == 3
    assert again(lambda: [x.tril().mT.relu(), x.tril().relu()]) == 1


def test_a_view_of_a_result_that_was_written_to_is_another():
    x = matrix()

    def step() -> None:
        x.tril().mT.relu()
        changed = x.tril()
        changed[0] = 1
        changed.mT.relu()

    assert again(step) == 0


def test_of_a_part_the_rest_of_its_memory_is_not_known():
    """The first rows of both are equal, and the tensors need not be; their parts are known once they are."""
    identities, (first, second) = Identities(), (torch.zeros(2, SIZE), torch.ones(2, SIZE))
    assert identities.give(first[0], 7) == identities.give(second[0], 7) == 7
    assert identities.value_of(first) != identities.value_of(second)
    third, fourth = torch.zeros(2, SIZE), torch.zeros(2, SIZE)
    assert identities.give(third, 8) == identities.give(fourth, 8) == 8
    assert identities.value_of(third[0]) == identities.value_of(fourth[0])
    assert identities.value_of(third[0]) != identities.value_of(fourth[1])


def test_a_frozen_encoder_that_runs_twice_is_a_repetition():
    encoder, x = nn.Sequential(nn.Linear(SIZE, SIZE), nn.GELU(), nn.LayerNorm(SIZE)), matrix()

    def run() -> Tensor:
        with torch.no_grad():
            return encoder(x)

    assert again(lambda: [run(), run()]) == 3


def test_a_mask_made_again_from_numbers_is_a_repetition():
    def mask() -> Tensor:
        return torch.triu(torch.ones(SIZE, SIZE), diagonal=1)

    assert again(lambda: [mask(), mask()]) == 2


def test_a_sparse_matrix_is_identified_by_its_object():
    adjacency, x = matrix().to_sparse(), matrix()
    same = matrix()
    other = adjacency.clone()
    assert again(lambda: [adjacency @ x, adjacency @ x]) == 1
    assert again(lambda: [adjacency @ same, other @ same]) == 0


def nothing_alike() -> dict[str, Callable[[], object]]:  # noqa: C901  # a list of small functions
    """Steps in which nothing is computed again, although it may look so."""
    x, weight = matrix(), matrix().requires_grad_()
    layer, norm = nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE)

    def changed_between() -> None:
        x.relu()
        x.add_(1)
        x.relu()

    def changed_through_data() -> None:
        layer(x)
        layer.weight.data.mul_(0.5)
        layer(x)

    def changed_by_an_optimizer() -> None:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(x).sum().backward()
        optimizer.step()
        layer(x)

    def changed_through_a_view() -> None:
        x.relu()
        x[0].zero_()
        x.relu()

    def changed_by_numpy() -> None:
        x.relu()
        x.numpy()[0, 0] += 1
        x.relu()

    def freed_between() -> None:
        for number in range(4):
            torch.full((SIZE,), float(number)).relu()

    def of_fresh_memory() -> None:
        for _ in range(3):
            torch.empty(SIZE).relu()

    def of_random_numbers() -> None:
        for _ in range(3):
            torch.randn(SIZE).relu()

    def differentiated_in_turns() -> None:
        for _ in range(2):
            (weight @ x).relu().sum().backward()
            weight.grad = None

    def over_time() -> None:
        state = torch.zeros(SIZE, SIZE)
        for _ in range(4):
            state = torch.tanh(x @ state + 1.5)

    def checkpointed() -> None:
        checkpoint(lambda one: (one @ weight).relu(), x, use_reentrant=False).sum().backward()

    def given_up() -> None:
        first = x.relu()
        first.add_(1)
        x.relu()

    def written_into() -> None:
        for number in range(2):
            buffer = x.relu()
            buffer.add_(number)

    return {
        "dropout": lambda: [functional.dropout(x), functional.dropout(x)],
        "another input of one module": lambda: [layer(matrix()), layer(matrix())],
        "equal tensors": lambda: [x.clone().relu(), x.relu()],
        "another part of one tensor": lambda: [x[0].relu(), x[1].relu()],
        "another stride": lambda: [x.relu(), x.t().relu()],
        "another number": lambda: [x * 2, x * 2.0, x * 3],
        "with a graph and without": lambda: [weight.relu(), weight.detach().relu()],
        "in another mode": lambda: [weight.relu(), torch.no_grad()(weight.relu)()],
        "statistics that move on": lambda: [norm(x), norm(x)],
        "buffers of zeros": lambda: functional.linear(torch.zeros(SIZE), x) + torch.zeros(SIZE)[0],
        "two states of an LSTM": lambda: nn.LSTMCell(SIZE, SIZE)(x, (torch.zeros(SIZE, SIZE), torch.zeros(SIZE, SIZE))),
        "changed between": changed_between,
        "changed through .data": changed_through_data,
        "changed by an optimizer": changed_by_an_optimizer,
        "changed through a view": changed_through_a_view,
        "changed by NumPy": changed_by_numpy,
        "freed, and its address used again": freed_between,
        "of fresh memory": of_fresh_memory,
        "of random numbers": of_random_numbers,
        "the graph was freed between": differentiated_in_turns,
        "a recurrence": over_time,
        "checkpointing": checkpointed,
        "the first result was changed": given_up,
        "both results are changed": written_into,
    }


@pytest.mark.parametrize("name", nothing_alike())
def test_nothing_is_computed_again(name):
    step = nothing_alike()[name]
    assert again(step) == 0


OF_AUTOGRAD = {
    "changed by an optimizer",
    "checkpointing",
    "in another mode",
    "the graph was freed between",
    "with a graph and without",
}


@pytest.mark.parametrize("name", sorted(set(nothing_alike()) - OF_AUTOGRAD))
def test_nothing_is_computed_again_without_autograd(name):
    with torch.inference_mode():
        assert again(nothing_alike()[name]) == 0


def test_tensors_of_inference_mode_are_followed_though_their_writes_are_not_counted():
    with torch.inference_mode():
        x, direction, size = matrix(), matrix(), torch.rand(SIZE, 1)
        torch._weight_norm(direction, size, 0)
        assert again(lambda: [x.relu().exp(), x.relu().exp()]) == 2
        assert each(lambda: torch._weight_norm(direction, size, 0) @ matrix()) == 1


def large_writes() -> dict[str, Callable[[Tensor], object]]:
    """Writes to a few places of a large tensor, which comparing pieces of it may miss."""
    return {
        "an item": lambda x: x.__setitem__(5000, 1.0),
        "in place": lambda x: x[5000:5002].add_(1),
        "as an option": lambda x: torch.ones(1, out=x[5000:5001]),
    }


@pytest.mark.parametrize("name", large_writes())
def test_a_write_of_inference_mode_that_names_itself_is_known_wherever_it_goes(name):
    write = large_writes()[name]

    def step(x: Tensor) -> None:
        x.relu()
        write(x)
        x.relu()

    with torch.inference_mode():
        assert again(lambda: step(torch.zeros(1 << 20))) == 0


def test_memory_that_numpy_owns_is_compared_up_to_a_size():
    values = np.ones(SIZE, dtype=np.float32)
    x = torch.from_numpy(values)

    def changed() -> None:
        x.exp()
        values[3] = 7
        x.exp()

    assert again(lambda: [x.exp(), x.exp()]) == 1
    assert again(changed) == 0
    large = torch.from_numpy(np.ones(2 << 20, dtype=np.float32))
    assert again(lambda: [large.exp(), large.exp()]) == 0


def test_a_table_that_each_step_builds_is_repeated_across_steps():
    def step() -> Tensor:
        return torch.arange(SIZE).float().mul(-0.1).exp()

    assert each(step) == 4


def test_other_inputs_in_the_next_step_are_no_repetition():
    batches = iter([matrix(), matrix()])
    weight = matrix()
    assert each(lambda: next(batches) @ weight) == 0


def test_parameters_that_change_are_no_repetition():
    layer, x = nn.Linear(SIZE, SIZE), matrix()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        layer(x).pow(2).sum().backward()
        optimizer.step()

    assert each(step) == 0


def test_outputs_and_random_numbers_of_the_program_stay_the_same():
    def run() -> list[Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Dropout(0.5), nn.BatchNorm1d(SIZE))
        x = matrix()
        loss = (model(x) + model(x)).sum()
        loss.backward()
        return [loss.detach(), *(one.grad for one in model.parameters()), torch.randn(3)]

    bare = run()
    found: list[Tensor] = []
    watched(lambda: found.extend(run()))
    assert all(torch.equal(one, other) for one, other in zip(bare, found, strict=True))


def test_no_tensor_is_kept_alive():
    x = matrix()
    storages = []

    def step() -> None:
        for _ in range(3):
            storages.append(torch.multiprocessing.reductions.StorageWeakRef((x @ x).untyped_storage()))
            assert all(storage.expired() for storage in storages[:-1])

    watched(step)


def test_a_chain_of_calls_is_freed_where_the_watch_ends_also_while_python_frees_an_object():
    watch = CallWatch()
    watch.begin()
    value = torch.zeros(SIZE)
    for _ in range(500):
        value = value + 1
    left = []

    class EndsTheStep:
        def __del__(self) -> None:
            watch.stop()
            left.append(sum(isinstance(one, StorageWeakRef) for one in gc.get_objects()))

    before = sum(isinstance(one, StorageWeakRef) for one in gc.get_objects())
    options = {"ends": EndsTheStep()}
    del options
    assert left[0] <= before - 500


def test_an_error_in_the_program_passes_through():
    x = matrix()

    def step() -> None:
        with pytest.raises(RuntimeError, match="shape"):
            x @ torch.ones(SIZE + 1, 2)
        x.relu()

    assert again(lambda: [step(), step()]) == 1


def test_transformer_layers_that_a_mode_would_reroute_are_left_alone():
    attention = nn.MultiheadAttention(SIZE, 2)
    watch = CallWatch()
    watch.begin()
    assert not watch.is_installed
    del attention


def test_a_mode_of_the_program_is_left_alone_and_outlives_the_watch():
    with torch.device("meta"):
        watch = CallWatch()
        watch.begin()
        assert not watch.is_installed
    watch.begin()
    with torch.device("meta"):
        watch.stop()
        assert torch.ones(1).is_meta
    assert not torch.overrides._len_torch_function_stack()


def overridable(x: Tensor) -> Tensor:
    """Like PyTorch's own Python functions."""
    if torch.overrides.has_torch_function_unary(x):
        return torch.overrides.handle_torch_function(overridable, (x,), x)
    return x + 1


@pytest.mark.parametrize("entered", ["handle_torch_function", "helper", "_pop_mode_temporarily"])
def test_a_watch_whose_mode_was_seen_stays_until_it_is_called(entered):
    """Otherwise PyTorch would find no mode where it has just seen one."""
    watch, seen = CallWatch(), []

    def leave(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_name == entered and not seen:
            seen.append(entered)
            watch._leave_later(frame, event, argument)

    watch.begin()
    sys.settrace(leave)
    try:
        result = overridable(torch.ones(2))
    finally:
        sys.settrace(None)
        watch.stop()
    assert seen
    assert result.tolist() == [2, 2]
    assert not watch.is_installed
    assert not torch.overrides._len_torch_function_stack()


def test_a_watch_that_ends_amid_a_call_leaves_soon():
    watch = CallWatch()

    class Meddling:
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), named=None):
            watch.stop()
            return 7

    watch.begin()
    assert torch.relu(Meddling()) == 7
    for _ in range(1_000_000):
        matrix()
        if not watch.is_installed:
            break
    assert not torch.overrides._len_torch_function_stack()


def test_a_watch_that_has_used_its_budget_leaves_within_a_loop_of_operators(monkeypatch):
    """No function of Python is called there, and a mode that stays makes each operator several times dearer."""
    monkeypatch.setattr(call_budget, "MOST_CALLS", 10)
    watch = CallWatch()
    x = matrix()
    watch.begin()
    rounds = 0
    while watch._thread and rounds < 10_000_000:  # an attribute, no call
        x = x + 1
        rounds += 1
    assert not watch.is_installed
    assert not torch.overrides._len_torch_function_stack()
    watch.stop()


def test_a_watch_that_cannot_leave_asks_a_bounded_number_of_times(monkeypatch):
    monkeypatch.setattr(CallWatch, "_leave", lambda watch, frame: False)
    monkeypatch.setattr(recomputation, "_SOON_S", 0)
    asked: list[None] = []
    watch = CallWatch()
    monkeypatch.setattr(watch._departure, "request", lambda: asked.append(None))
    watch._thread = threading.get_ident()
    for _ in range(3):
        watch.stop()
    assert watch._asker is not None
    watch._asker.join()
    assert len(asked) == recomputation._MOST_TRIES


def test_a_recording_names_repetitions_by_the_numbers_of_its_events(tmp_path):
    x = matrix()
    with profile(tmp_path, warmup=1, active=2) as recording:
        for _ in range(10):
            [x @ x, x @ x]
            recording.step()
    found = load_run(tmp_path).recomputation
    assert found is not None
    ((second, first),) = found.again
    assert second == first + 1
    assert found.each_step == (first,)
    assert not torch.overrides._len_torch_function_stack()


def test_calls_on_other_threads_are_ignored():
    x = matrix()

    def step() -> None:
        x.relu()
        thread = threading.Thread(target=x.relu)
        thread.start()
        thread.join()

    assert again(step) == 0


def test_full_graph_compilation_works_under_the_watch():
    """The watch makes way for functions that are compiled before or during it and first called in a watched step."""
    x = matrix()

    def double(number: int) -> Tensor:
        compiled = torch.compile(lambda given: given.sin() * number, backend="eager", fullgraph=True)
        return compiled(x) @ x

    torch.optim.SGD([x], lr=0.1)  # imports the compiler's modules, as in every training
    watch = CallWatch()
    watch.begin()
    assert watch.is_on
    assert double(2).equal((x.sin() * 2) @ x)
    assert not watch.is_installed
    watch.end_step()
    watch.begin()
    assert not watch.is_installed
    assert double(3).equal((x.sin() * 3) @ x)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_updates_of_optimizers_are_looked_past_and_clearing_gradients_is_not():
    """A step of Adam alone calls ten functions for each parameter."""
    layer, x = nn.Linear(SIZE, SIZE), matrix()
    optimizer = torch.optim.Adam(layer.parameters(), foreach=False)

    def train() -> None:
        optimizer.zero_grad(set_to_none=False)
        layer(x).sum().backward()
        optimizer.step()

    train()
    clearing, switching = 2 * len(list(layer.parameters())), 2  # `requires_grad_` and `zero_`; gradients off and on
    assert watched(train).looked_at == 2 + clearing + switching


def test_calls_inside_ranges_are_still_found(tmp_path):
    layer = nn.Linear(SIZE, SIZE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with profile(tmp_path, warmup=1, active=2) as recording:
        for _ in range(8):
            optimizer.zero_grad(set_to_none=False)
            layer(matrix()).sum().backward()
            recording.step()
    facts = read_facts(tmp_path)
    fills = in_located_step(facts, np.array(rows_named(facts.trace, "aten::zero_")))
    clearing = facts.trace.where_name(lambda name: name.startswith("Optimizer.zero_grad#"))
    assert fills.size
    assert facts.tree.under(clearing)[fills].all()
    assert facts.tree.under(facts.trace.where_name(lambda name: name.startswith(CALL_MARK)))[fills].all()


def chained(rounds: int, scaled: Callable[[], Tensor]) -> Callable[[], object]:
    """A state that each round changes, and something that no round does."""

    def run() -> Tensor:
        state = torch.ones(SIZE)
        for _ in range(rounds):
            state = state * 0.5 + scaled()
        return state

    return run


def test_of_many_calls_those_that_repeat_stay_watched(monkeypatch):
    """Of 600 calls, the two of each round that change a state are sampled after 32."""
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    x = torch.rand(SIZE)
    looked: list[str] = []
    describe = CallWatch._look_at

    def look_at(watch: CallWatch, function: object, name: str, *rest: object) -> object:
        looked.append(name)
        return describe(watch, function, name, *rest)

    monkeypatch.setattr(CallWatch, "_look_at", look_at)
    found = watched(chained(200, lambda: x.neg()))
    assert looked.count("neg") == 200
    assert looked.count("mul") == 32 + 200 // 16 - 32 // 16
    assert len(found.again) == 199


def test_what_is_passed_by_explains_nothing_that_comes_later(monkeypatch):
    """Memory that a call which was not looked at gave has no known value."""
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    monkeypatch.setattr(sampling, "SITE_LOOKS", 0)

    def run() -> None:
        x = torch.ones(SIZE)
        for _ in range(40):
            x = x + 1
            x.exp()

    assert watched(run).again == ()


def test_a_tensor_that_is_written_to_at_a_sampled_place_is_another(monkeypatch):
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    monkeypatch.setattr(sampling, "SITE_LOOKS", 0)
    x = torch.rand(SIZE)

    def run() -> None:
        for _ in range(40):
            x.data.add_(1)
            x.exp()

    assert watched(run).again == ()


def test_buffers_without_inputs_are_two_where_their_users_are_only_sampled(monkeypatch):
    monkeypatch.setattr(sampling, "WHOLE_NS", 0)
    found = watched(lambda: [torch.arange(SIZE).float() for _ in range(2)])
    assert len(found.again) == 1


def test_what_was_found_before_the_budget_ended_is_kept(monkeypatch):
    monkeypatch.setattr(call_budget, "MOST_CALLS", 10)
    x = torch.rand(SIZE)
    watch = CallWatch()
    watch.begin()
    try:
        for _ in range(2):
            for _ in range(20):
                x.exp()
            watch.end_step()
    finally:
        watch.stop()
    assert watch.found is not None
    assert len(watch.found.again) == 8  # the tenth call had not ended
    assert watch.found.each_step == ()
    assert "its room for 10 calls" in watch.budget.ended


def test_tensors_that_stand_for_others_end_no_watch():
    """Those of `vmap` have no memory of their own."""
    same = matrix()

    def step() -> None:
        torch.func.vmap(lambda row: row.sum() * 2)(same)
        torch.func.grad(lambda row: (row * 2).sum())(same)
        same.exp()

    assert each(step) >= 1
