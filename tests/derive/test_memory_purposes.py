"""What memory is for, by where it was allocated and given back."""

from __future__ import annotations

import numpy as np
import pytest

from profkit.derive.memory.allocator import Allocator, describe_allocator
from profkit.derive.memory.origins import Origin, tell_origins
from profkit.derive.memory.purposes import Purpose
from tests.snapshots import BACKWARD, MIB, TORCH, Frame, Recording, at, clearing, in_model, in_step, moving, snapshot_of

BASE = 1 << 40
ENGINE: Frame = ("torch/csrc/autograd/engine.cpp", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<…>&)")
UNWIND: Frame = ("??", 0, "torch::unwind::unwind()")


def one_step() -> Recording:
    """A parameter, a batch, an activation and one that the model frees itself, the backward pass with a gradient and
    what it works with, and a step with two pieces of state and one that is gone behind it."""
    recording = Recording()
    recording.segment(BASE, 512 * MIB, moving())
    recording.alloc(BASE, 4 * MIB, moving())
    recording.alloc(BASE + 10 * MIB, 6 * MIB, at(8))
    recording.alloc(BASE + 20 * MIB, 8 * MIB, in_model(31))
    recording.alloc(BASE + 30 * MIB, 16 * MIB, in_model(32))
    recording.free(BASE + 20 * MIB, in_model(33))
    recording.alloc(BASE + 50 * MIB, 2 * MIB, BACKWARD)
    recording.alloc(BASE + 60 * MIB, 4 * MIB, BACKWARD)
    recording.free(BASE + 50 * MIB, BACKWARD)
    recording.free(BASE + 30 * MIB, BACKWARD)
    recording.alloc(BASE + 70 * MIB, 4 * MIB, in_step())
    recording.alloc(BASE + 80 * MIB, 4 * MIB, in_step())
    recording.alloc(BASE + 90 * MIB, 4 * MIB, in_step())
    recording.free(BASE + 90 * MIB, in_step())
    return recording


def purposes_in(recording: Recording, **how: int) -> dict[int, Purpose]:
    """The purpose of each piece, by its place in MiB."""
    allocator = describe_allocator(snapshot_of(recording, **how))
    places = (allocator.allocations.address - BASE) // MIB
    return dict(zip(places.tolist(), map(Purpose, allocator.purposes.tolist()), strict=True))


def test_the_allocations_of_a_training_step_get_their_purposes():
    assert purposes_in(one_step()) == {
        0: Purpose.PARAMETERS,
        10: Purpose.OWN,
        20: Purpose.TEMPORARIES,
        30: Purpose.ACTIVATIONS,
        50: Purpose.TEMPORARIES,
        60: Purpose.GRADIENTS,
        70: Purpose.OPTIMIZER_STATE,
        80: Purpose.OPTIMIZER_STATE,
        90: Purpose.TEMPORARIES,
    }


def test_state_that_each_step_replaces_is_not_temporary():
    """As an optimizer does that writes `state["m"] = …`: the next step frees it, with a forward pass in between."""
    recording = one_step()
    recording.alloc(BASE + 100 * MIB, 8 * MIB, in_model(31))
    recording.free(BASE + 70 * MIB, in_step())
    assert purposes_in(recording)[70] is Purpose.OPTIMIZER_STATE


def test_an_allocation_as_large_as_no_parameter_is_no_gradient():
    recording = one_step()
    recording.alloc(BASE + 100 * MIB, 5 * MIB, BACKWARD)
    recording.alloc(BASE + 110 * MIB, 8 * MIB, in_model(31))
    assert purposes_in(recording)[100] is Purpose.UNKNOWN


def test_in_an_unfinished_pass_allocations_as_large_as_no_parameter_are_temporary():
    """As where it runs out of memory."""
    recording = one_step()
    recording.alloc(BASE + 100 * MIB, 5 * MIB, BACKWARD)
    assert purposes_in(recording)[100] is Purpose.TEMPORARIES


def test_an_allocation_freed_by_zero_grad_was_a_gradient():
    recording = Recording()
    recording.segment(BASE, 64 * MIB, is_older=True)
    recording.alloc(BASE, 4 * MIB, is_older=True)
    recording.alloc(BASE + 10 * MIB, 6 * MIB, is_older=True)
    recording.free(BASE, clearing())
    assert purposes_in(recording) == {0: Purpose.GRADIENTS, 10: Purpose.EARLIER}


ADAM = in_step()
SGD: list[Frame] = [(f"{TORCH}/optim/sgd.py", 350, "step"), (f"{TORCH}/optim/optimizer.py", 533, "wrapper"), *at(12)]
OTHER: list[Frame] = [("/opt/lion.py", 9, "step"), (f"{TORCH}/optim/optimizer.py", 533, "wrapper"), *at(12)]
P, S, C, E = Purpose.PARAMETERS, Purpose.OPTIMIZER_STATE, Purpose.COPIES, Purpose.EARLIER


def late_step(older: int, optimizer: list[Frame], gradients: int = 2) -> Recording:
    """A history that begins between two steps: ``older`` pieces of 4 MiB, a step with so many gradients as large, and
    an optimizer that allocates something for a moment."""
    recording = Recording()
    recording.segment(BASE, 512 * MIB, is_older=True)
    for i in range(older):
        recording.alloc(BASE + 10 * i * MIB, 4 * MIB, is_older=True)
    recording.alloc(BASE + 100 * MIB, 8 * MIB, in_model(31))
    for i in range(gradients):
        recording.alloc(BASE + (110 + 10 * i) * MIB, 4 * MIB, BACKWARD)
    recording.free(BASE + 100 * MIB, BACKWARD)
    recording.alloc(BASE + 150 * MIB, 4 * MIB, optimizer)
    recording.free(BASE + 150 * MIB, optimizer)
    return recording


def older_in(recording: Recording) -> list[Purpose]:
    return [purpose for place, purpose in sorted(purposes_in(recording).items()) if place < 100]


@pytest.mark.parametrize(
    ("older", "optimizer", "purposes"),
    [
        pytest.param(2, SGD, [P, P], id="as many as the gradients"),
        pytest.param(6, ADAM, [P, P, S, S, S, S], id="Adam's two moments"),
        pytest.param(8, ADAM, [P, P, S, S, S, S, C, C], id="a third kind: amsgrad, or an average of the weights"),
        pytest.param(4, SGD, [P, P, C, C], id="momentum, or an average of the weights"),
        pytest.param(6, SGD, [P, P, C, C, C, C], id="momentum and an average of the weights"),
        pytest.param(6, OTHER, [P, P, C, C, C, C], id="an optimizer that nobody knows"),
        pytest.param(6, at(12), [P, P, C, C, C, C], id="an optimizer that allocates nothing is not seen"),
        pytest.param(4, ADAM, [P, P, C, C], id="too few for Adam's state, which lies elsewhere"),
        pytest.param(7, ADAM, [P, P, S, S, S, S, E], id="one more of that size"),
        pytest.param(1, ADAM, [E], id="fewer than gradients: they lie in one buffer"),
    ],
)
def test_what_is_older_than_the_history_is_told_by_number_and_size(older, optimizer, purposes):
    assert older_in(late_step(older, optimizer)) == purposes


def test_gradients_that_are_older_and_never_cleared_leave_nothing_to_count_by():
    """As with `zero_grad(set_to_none=False)`: parameters, gradients and state are all older, and equally large."""
    assert older_in(late_step(8, ADAM, gradients=0)) == [E] * 8


def test_older_pieces_are_told_though_they_are_freed_when_the_program_ends():
    recording = late_step(6, ADAM)
    for i in range(6):
        recording.free(BASE + 10 * i * MIB, at(20))
    assert older_in(recording) == [P, P, S, S, S, S]


def test_what_the_program_frees_before_the_training_ends_is_no_parameter():
    """Such as the batches of the step before the history."""
    recording = late_step(4, SGD)
    for i in range(2):
        recording.free(BASE + 10 * i * MIB, at(20))
    recording.alloc(BASE + 200 * MIB, 8 * MIB, in_model(31))
    assert older_in(recording) == [E, E, P, P]


def test_state_that_the_history_shows_is_not_looked_for_among_older_pieces():
    """The first step makes the moments, so older pieces as large as parameters are something else."""
    recording = late_step(6, ADAM)
    for i in range(4):
        recording.alloc(BASE + (200 + 10 * i) * MIB, 4 * MIB, ADAM)
    recording.alloc(BASE + 300 * MIB, 8 * MIB, in_model(31))
    assert older_in(recording) == [P, P, C, C, C, C]


def test_the_sizes_with_most_bytes_decide_how_often_each_parameter_is_there():
    """Adam's moments are there, so of another size, of which there is one piece for each gradient, nothing is known."""
    recording = late_step(6, ADAM)
    recording.alloc(BASE + 80 * MIB, 1 * MIB, is_older=True)
    recording.alloc(BASE + 300 * MIB, 1 * MIB, BACKWARD)
    recording.alloc(BASE + 310 * MIB, 8 * MIB, in_model(31))
    assert older_in(recording) == [P, P, S, S, S, S, E]


def test_optimizers_that_keep_unlike_numbers_show_nothing():
    recording = late_step(6, ADAM)
    recording.alloc(BASE + 160 * MIB, 4 * MIB, SGD)
    recording.free(BASE + 160 * MIB, SGD)
    assert older_in(recording) == [P, P, C, C, C, C]


def test_a_cublas_workspace_follows_the_result_that_it_is_for():
    """Of two pieces of its size that stay, the one behind another allocation of the same stack."""
    recording = Recording()
    recording.segment(BASE, 512 * MIB)
    recording.alloc(BASE, 32 * MIB, in_model(30))
    recording.alloc(BASE + 40 * MIB, 20 * MIB, in_model(31))
    recording.alloc(BASE + 80 * MIB, 32 * MIB, in_model(31))
    assert purposes_in(recording) == {0: Purpose.ACTIVATIONS, 40: Purpose.ACTIVATIONS, 80: Purpose.WORKSPACE}


def test_allocations_in_private_pools_have_their_own_purpose():
    recording = Recording()
    recording.segment(BASE, 32 * MIB, pool=(0, 7))
    recording.alloc(BASE, 4 * MIB, in_model(31))
    assert purposes_in(recording) == {0: Purpose.GRAPH_POOL}


def test_without_stacks_no_purpose_is_known():
    """A history that was recorded with `context=None`."""
    recording = Recording()
    recording.segment(BASE, 64 * MIB)
    recording.alloc(BASE, 4 * MIB)
    recording.free(BASE)
    recording.alloc(BASE + 10 * MIB, 4 * MIB)
    assert set(purposes_in(recording).values()) == {Purpose.UNKNOWN}


def origin(stack: list[Frame]) -> Origin:
    recording = Recording()
    recording.segment(BASE, 64 * MIB, at(1))
    recording.alloc(BASE, 4 * MIB, stack)
    allocator: Allocator = describe_allocator(snapshot_of(recording))
    return Origin(int(allocator.origins[allocator.allocations.stack[0]]))


CLOSURE = [*in_model(31)[:3], ("/home/me/train.py", 11, "closure"), *in_step()]
CHECKPOINT = [*in_model(31)[:3], (f"{TORCH}/utils/checkpoint.py", 1100, "unpack_hook")]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        pytest.param(at(4), Origin.PROGRAM, id="the program"),
        pytest.param([], Origin.BACKWARD, id="a thread without Python"),
        pytest.param([UNWIND, ENGINE], Origin.BACKWARD, id="the engine, in C++"),
        pytest.param([UNWIND], Origin.UNKNOWN, id="C++ that tells nothing"),
        pytest.param([UNWIND, *in_model(31)], Origin.FORWARD, id="C++ and Python"),
        pytest.param(CLOSURE, Origin.FORWARD, id="the model in an optimizer's closure"),
        pytest.param(CHECKPOINT, Origin.BACKWARD, id="a checkpoint computed again"),
        pytest.param([(f"{TORCH}/_tensor.py", 630, "backward"), *at(4)], Origin.BACKWARD, id="the call of backward"),
        pytest.param([(f"{TORCH}/_tensor.py", 1000, "__rsub__"), *at(4)], Origin.PROGRAM, id="another method"),
        pytest.param([("??", 0, "at::cuda::getCurrentCUDABlasHandle()"), *in_model(31)], Origin.WORKSPACE, id="cuBLAS"),
        pytest.param(
            [(f"{TORCH}/distributed/fsdp/_flat_param.py", 9, "init"), *at(4)], Origin.UNKNOWN, id="torch.distributed"
        ),
        pytest.param(
            [("C:\\Lib\\site-packages\\torch\\optim\\sgd.py", 9, "step"), *at(4)], Origin.OPTIMIZER, id="Windows"
        ),
    ],
)
def test_a_stack_shows_which_part_of_the_program_it_belongs_to(stack, expected):
    assert origin(stack) is expected


def test_a_history_without_frames_shows_no_backward_pass():
    recording = Recording()
    recording.segment(BASE, 64 * MIB)
    recording.alloc(BASE, 4 * MIB)
    assert tell_origins(snapshot_of(recording).stacks).tolist() == [Origin.UNKNOWN]
    assert np.isin(list(purposes_in(recording).values()), Purpose.UNKNOWN).all()


def test_frees_without_stacks_show_no_backward_pass():
    """As with `context="alloc"`: the same step, but nobody knows who gives anything back."""
    recording = one_step()
    for event in recording.events:
        event["frames"] = event["frames"] if "alloc" in event["action"] else []
    found = purposes_in(recording)
    assert found[20] is Purpose.ACTIVATIONS, "whether the model itself freed it is not known"
    assert found[30] is Purpose.ACTIVATIONS
    assert found[60] is Purpose.GRADIENTS
    recording.free(BASE + 10 * MIB)
    assert purposes_in(recording)[10] is Purpose.OWN
