"""Planned training steps: what is alive at the peak, counted by hand for small models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from profkit.memory_planner.changes import computed_changes
from profkit.memory_planner.checkpointing import NoBlocks, checkpoint_blocks
from profkit.memory_planner.factory import Refused
from profkit.memory_planner.plan import InputSpec, PlanRequest
from profkit.memory_planner.training import Trained, Variant, train


def linear():
    """32 bytes of parameters, 60 of inputs for five samples, 40 of outputs."""
    return nn.Linear(3, 2), lambda samples: torch.zeros(samples, 3)


def planned(factory, optimizer="sgd", batch=5, precision="fp32", device="cpu", **settings) -> Trained:
    given = {name: settings.pop(name) for name in ("inputs", "inference") if name in settings}
    request = PlanRequest("tests:factory", batch, device=device, **given)
    return train(factory, request, Variant(batch, precision, optimizer, **settings))


def held(trained: Trained) -> dict[str, int]:
    return {category: size for category, size in trained.timeline.usage().by_category.items() if size}


def test_a_linear_layer_with_momentum_to_the_byte():
    """The peak is in the second backward pass, with the gradients of the outputs (40), the loss (4) and the parameters,
    and the loss itself (4)."""
    trained = planned(linear, "sgd-momentum")
    usage = trained.timeline.usage()
    assert held(trained) == {
        "parameters": 32,
        "gradients": 32,
        "optimizer state": 32,
        "activations": 4,
        "temporaries": 44,
        "inputs": 60,
    }
    assert (usage.peak_bytes, usage.when, usage.reserved_bytes) == (204, "backward", 0)
    # Forward: outputs (40) and loss (4) besides parameters, momentum and inputs. Step: the latter and the gradients.
    assert usage.by_phase == {"forward": 168, "backward": 204, "optimizer step": 156}


def test_momentum_adds_its_state_to_the_backward_pass():
    first, second = planned(linear, "sgd").timeline.usage(), planned(linear, "sgd-momentum").timeline.usage()
    assert second.by_phase["backward"] - first.by_phase["backward"] == 32


def wide():
    """4 MB of parameters; the activations of one sample are negligible."""
    return nn.Linear(1000, 1000, bias=False), lambda samples: torch.zeros(samples, 1000)


@pytest.mark.parametrize(
    ("optimizer", "temporaries", "state"),
    [
        ("adam-foreach", 4_000_000, 8_000_004),
        ("adam-fused", 0, 8_000_004),
        ("sgd", 0, 0),
        ("sgd-momentum-foreach", 0, 4_000_000),
    ],
)
def test_the_step_of_an_optimizer_takes_its_state_and_temporaries(optimizer, temporaries, state):
    """Adam's foreach form computes all square roots of second moments at once, the fused form keeps them in registers.
    Parameters and gradients take 4 MB each, the sample 4,000 bytes."""
    trained = planned(wide, optimizer, batch=1)
    assert trained.timeline.usage().by_phase["optimizer step"] == 8_004_000 + state + temporaries


def test_gradients_of_the_first_micro_batch_are_alive_in_the_second():
    whole, halves = planned(wide, "sgd", batch=4), planned(wide, "sgd", batch=4, micro_batches=2)
    assert whole.timeline.usage().by_phase["forward"] < 4_100_000
    assert halves.timeline.usage().by_phase["forward"] > 8_000_000
    # The second gradient is computed before it is added to the first.
    assert halves.timeline.usage().peak_bytes > whole.timeline.usage().peak_bytes + 3_900_000


class Tower(nn.Module):
    """Blocks of three layers; each keeps two wide activations and its input."""

    def __init__(self, blocks: int = 8):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8)) for _ in range(blocks))

    def forward(self, data):
        for block in self.blocks:
            data = data + block(data)
        return data


ROWS = (InputSpec((8,)),)


def test_checkpointed_blocks_keep_only_their_inputs():
    """For 1,000 rows a wide activation is 256,000 bytes, an input 32,000. The block that is recomputed in the backward
    pass has its activations again."""
    kept = planned(Tower, batch=1000, inputs=ROWS)
    again = planned(Tower, batch=1000, inputs=ROWS, prepare=checkpoint_blocks)
    assert kept.timeline.usage().by_category["activations"] >= 8 * 256_000
    assert 256_000 <= again.timeline.usage().by_category["activations"] < 8 * 32_000 + 3 * 256_000


def test_a_model_without_repeated_blocks_cannot_be_checkpointed():
    with pytest.raises(NoBlocks):
        checkpoint_blocks(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


def test_types_of_half_the_size_halve_the_plan():
    full, half = planned(wide, "adamw", batch=64), planned(wide, "adamw", batch=64, precision="bf16")
    assert held(half)["parameters"] * 2 == held(full)["parameters"] == 4_000_000
    assert held(half)["inputs"] * 2 == held(full)["inputs"] == 256_000


def test_autocast_keeps_parameters_and_adds_narrow_copies():
    full, mixed = planned(Tower, batch=1000, inputs=ROWS), planned(Tower, batch=1000, inputs=ROWS, precision="bf16-amp")
    assert held(mixed)["parameters"] == held(full)["parameters"]
    assert 0.4 < held(mixed)["activations"] / held(full)["activations"] < 0.8


def test_inference_keeps_no_activations():
    trained = planned(Tower, batch=1000, inputs=ROWS, inference=True)
    assert {"activations", "gradients", "optimizer state"}.isdisjoint(held(trained))
    assert list(trained.timeline.usage().by_phase) == ["forward"]


def test_smaller_or_offloaded_state_is_computed_from_the_same_run():
    """The peak is in the step: 4 MB of square roots besides 8 MB of moments. Without the roots it is in the backward
    pass, with 4,008 bytes for the loss, its gradient and that of the outputs."""
    trained = planned(wide, "adam-foreach", batch=1)
    before = trained.timeline.usage().peak_bytes
    less = {change.name: before - change.usage.peak_bytes for change in computed_changes(trained) if change.usage}
    assert less["8-bit optimizer state"] == 4_000_000 + 2 * (4_000_000 - 1_000_000 - 4 * 3907) - 4_008
    assert less["optimizer state and step on the host"] == 4_000_000 + 8_000_000 + 4 - 4_008
    assert less["optimizer state over 8 GPUs (ZeRO-1)"] == pytest.approx(12_000_000 * 7 / 8, abs=100)


def test_a_model_far_beyond_this_machines_memory_is_planned():
    """Two terabytes of parameters."""

    def huge():
        return nn.Linear(1 << 20, 1 << 19), lambda samples: torch.zeros(samples, 1 << 20)

    assert held(planned(huge))["parameters"] == (1 << 41) + (1 << 21)


def test_a_model_for_a_gpu_is_planned_without_one():
    def on_gpu():
        return nn.Linear(3, 2).cuda().to("cuda:0"), lambda samples: torch.zeros(samples, 3, device="cuda")

    assert held(planned(on_gpu)) == held(planned(linear))


class RatesRead(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Dropout(rate.item()) for rate in torch.linspace(0, 0.5, 3))
        self.weight = nn.init.trunc_normal_(nn.Parameter(torch.empty(4)))
        self.register_buffer("positions", torch.arange(4))

    def forward(self, data):
        return data * self.weight + self.positions


def test_constructors_may_read_small_constants():
    made = []

    def factory():
        made.append(RatesRead())
        return made[-1], torch.zeros(2, 4)

    trained = planned(factory)
    assert [layer.p for layer in made[0].layers] == [0, 0.25, 0.5]
    assert held(trained)["buffers"] == 32


@pytest.mark.parametrize(
    ("factory", "optimizer", "words"),
    [
        (lambda: 3, "sgd", "returns int"),
        (lambda: nn.Linear(2, 2), "sgd", "the model's input is unknown"),
        (lambda: (nn.ReLU(), torch.zeros(2, 2)), "sgd", "no parameter"),
        (linear, "lbfgs", "--optimizer lbfgs"),
        (linear, "nosuch", "choose from"),
        (linear, "adam-momentum", "no form 'momentum'"),
        (lambda: (nn.Embedding(3, 2).requires_grad_(False), torch.zeros(2, 2)), "sgd", "no parameter"),
    ],
)
def test_a_model_that_cannot_be_planned_is_refused(factory, optimizer, words):
    with pytest.raises(Refused, match=words):
        planned(factory, optimizer)


def test_inputs_may_have_a_name_and_the_batch_in_any_dimension():
    class Named(nn.Linear):
        def forward(self, *, rows):
            assert rows.shape == (7, 5, 3)
            return super().forward(rows)

    planned(lambda: Named(3, 2), inputs=(InputSpec((7, 3), batch_at=1, name="rows"),))


def test_examples_are_expanded_to_the_batch():
    shapes = []

    class Seen(nn.Linear):
        def forward(self, first, second):
            shapes.append((tuple(first.shape), tuple(second.shape)))
            return super().forward(first)

    planned(lambda: (Seen(3, 2), (torch.zeros(1, 3), torch.zeros(1, 9, dtype=torch.int64))), batch=6)
    assert set(shapes) == {((6, 3), (6, 9))}
