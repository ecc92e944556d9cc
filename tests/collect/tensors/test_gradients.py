"""What becomes of gradients: which an optimizer takes, which are thrown away unread, and which no optimizer holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from profkit.collect.recorder.profiler import profile
from profkit.collect.tensors import gradients
from profkit.run.directory import GradientUse, load_run

NOTHING = GradientUse()
STEPS = 12


class Pair:
    """Two models, each with its own optimizer; the second judges what the first makes."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.maker = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 32))
        self.judge = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.of_maker = torch.optim.SGD(self.maker.parameters(), lr=0.01)
        self.of_judge = torch.optim.SGD(self.judge.parameters(), lr=0.01)

    def made(self) -> Tensor:
        return self.maker(torch.randn(4, 8))

    def train_maker(self, **options: list[Tensor]) -> None:
        self.of_maker.zero_grad()
        self.judge(self.made()).mean().backward(**options)
        self.of_maker.step()

    def train_judge(self, cleared: bool = True) -> None:
        if cleared:
            self.of_judge.zero_grad()
        (self.judge(torch.randn(4, 32)) - self.judge(self.made().detach())).mean().backward()
        self.of_judge.step()


def watch(directory: Path, train: Callable[[], None], steps: int = STEPS) -> GradientUse:
    with profile(directory, warmup=1, active=2) as recording:
        for _ in range(steps):
            train()
            recording.step()
    use = load_run(directory).gradients
    assert use is not None
    return use


def in_turns(*parts: Callable[[], object]) -> Callable[[], None]:
    def train() -> None:
        for part in parts:
            part()

    return train


def test_gradients_of_a_model_that_the_loss_does_not_train_are_thrown_away(tmp_path):
    pair = Pair()
    assert watch(tmp_path, in_turns(pair.train_maker, pair.train_judge)) == GradientUse(
        taken=(4, 5, 6, 7, 8, 9, 10, 11), thrown_away=(0, 1, 2, 3)
    )


def test_gradients_may_be_thrown_away_in_the_next_step(tmp_path):
    pair = Pair()
    assert watch(tmp_path, in_turns(pair.train_judge, pair.train_maker)) == GradientUse(
        taken=(0, 1, 2, 3, 8, 9, 10, 11), thrown_away=(4, 5, 6, 7)
    )


def test_a_backward_pass_limited_to_its_inputs_throws_nothing_away(tmp_path):
    pair = Pair()

    def train_maker() -> None:
        pair.train_maker(inputs=list(pair.maker.parameters()))

    assert watch(tmp_path, in_turns(train_maker, pair.train_judge)) == NOTHING


def test_gradients_that_are_not_cleared_are_taken_by_the_next_step(tmp_path):
    pair = Pair()

    def train() -> None:
        pair.train_maker()
        pair.train_judge(cleared=False)
        pair.of_judge.zero_grad()

    use = watch(tmp_path, train)
    assert use.thrown_away == use.unheld == ()


@pytest.mark.parametrize("look", [torch.norm, lambda gradient: gradient.data.abs().max()], ids=["norm", "data"])
def test_gradients_that_are_read_are_used(tmp_path, look):
    pair = Pair()

    def read() -> None:
        for parameter in pair.judge.parameters():
            if parameter.grad is not None:
                look(parameter.grad)

    orders = [(pair.train_maker, read, pair.train_judge), (pair.train_judge, pair.train_maker, read)]
    for number, parts in enumerate(orders):
        assert watch(tmp_path / str(number), in_turns(*parts)).thrown_away == ()


def test_clipping_gradients_uses_no_others(tmp_path):
    pair = Pair()

    def train_judge() -> None:
        pair.of_judge.zero_grad()
        pair.judge(torch.randn(4, 32)).mean().backward()
        nn.utils.clip_grad_norm_(pair.judge.parameters(), 1.0)
        pair.of_judge.step()

    assert watch(tmp_path, in_turns(train_judge, pair.train_maker)).thrown_away == (4, 5, 6, 7)


def attacking(pair: Pair, differentiate: Callable[[Tensor, Tensor], Tensor], clears: bool) -> Callable[[], None]:
    """Trains the judge on inputs that two steps of an attack have changed."""

    def train() -> None:
        given = torch.randn(4, 32)
        for _ in range(2):
            if clears:
                pair.judge.zero_grad()
            given = given.detach().requires_grad_()
            given = given + 0.1 * differentiate(pair.judge(given).mean(), given).sign()
        pair.of_judge.zero_grad()
        pair.judge(given.detach()).mean().backward()
        pair.of_judge.step()

    return train


def by_backward(loss: Tensor, given: Tensor) -> Tensor:
    loss.backward()
    assert given.grad is not None
    return given.grad


@pytest.mark.parametrize("clears", [False, True])
def test_an_attack_on_the_inputs_throws_the_gradients_of_the_weights_away(tmp_path, clears):
    """Each of its passes adds to four weights and stores the input's, the fourth of the five. Where a gradient's memory
    was used again, nothing is said of it."""
    use = watch(tmp_path, attacking(Pair(), by_backward, clears))
    assert use.taken == (10, 11, 12, 13)
    assert {0, 1, 2, 4, 5, 6, 7, 9} >= set(use.thrown_away) >= {0, 5}


def test_an_attack_that_differentiates_by_the_inputs_alone_throws_nothing_away(tmp_path):
    use = watch(tmp_path, attacking(Pair(), lambda loss, given: torch.autograd.grad(loss, given)[0], clears=False))
    assert use == NOTHING


def test_weights_whose_gradients_an_attack_logs_are_read(tmp_path):
    norms = []

    def logged(loss: Tensor, given: Tensor) -> Tensor:
        found = by_backward(loss, given)
        norms.extend(float(one.grad.norm()) for one in pair.judge.parameters() if one.grad is not None)
        return found

    pair = Pair()
    assert watch(tmp_path, attacking(pair, logged, clears=True)).thrown_away == ()


def test_a_gradient_that_a_hook_receives_is_used(tmp_path):
    pair, seen = Pair(), []
    for parameter in pair.judge.parameters():
        parameter.register_hook(lambda gradient: seen.append(gradient.shape))
    assert watch(tmp_path, in_turns(pair.train_maker, pair.train_judge)).thrown_away == ()


def test_an_ordinary_training_throws_nothing_away(tmp_path):
    pair = Pair()
    both = torch.optim.SGD([*pair.maker.parameters(), *pair.judge.parameters()], lr=0.01)

    def train() -> None:
        both.zero_grad()
        pair.judge(pair.made()).mean().backward()
        both.step()

    assert watch(tmp_path, train) == NOTHING


def test_gradients_that_accumulate_over_four_steps_are_not_thrown_away(tmp_path):
    pair, turns = Pair(), iter(range(100))

    def train() -> None:
        pair.judge(pair.made()).mean().backward()
        pair.of_maker.step()
        pair.of_maker.zero_grad()
        if next(turns) % 4 == 3:
            pair.of_judge.step()
            pair.of_judge.zero_grad()

    use = watch(tmp_path, train, steps=24)
    assert use.thrown_away == use.unheld == ()


def test_parameters_that_no_optimizer_holds_are_found_whether_cleared_or_not(tmp_path):
    for number, clears_all in enumerate([False, True]):
        pair = Pair()
        del pair.of_maker

        def train(pair: Pair = pair, clears_all: bool = clears_all) -> None:
            (pair.maker if clears_all else pair.judge).zero_grad()
            pair.of_judge.zero_grad()
            pair.judge(pair.made()).mean().backward()
            pair.of_judge.step()

        use = watch(tmp_path / str(number), train)
        assert use == GradientUse(taken=(0, 1, 2, 3), unheld=(4, 5, 6, 7))


@pytest.mark.parametrize("clears", [True, False])
def test_parameters_that_the_program_updates_by_hand_are_left_out(tmp_path, clears):
    """With gradients that it clears, or that add up."""
    pair = Pair()
    del pair.of_maker

    def train() -> None:
        pair.of_judge.zero_grad()
        pair.judge(pair.made()).mean().backward()
        pair.of_judge.step()
        with torch.no_grad():
            for parameter in pair.maker.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.01 if clears else 0.001)
                    parameter.grad = None if clears else parameter.grad

    assert watch(tmp_path, train).unheld == ()


def test_a_moving_average_of_a_model_is_found_though_it_changes(tmp_path):
    student, teacher = nn.Linear(8, 4), nn.Linear(8, 4)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)

    def train() -> None:
        given = torch.randn(4, 8)
        optimizer.zero_grad()
        (student(given) - teacher(given)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(teacher.parameters(), student.parameters(), strict=True):
                average.lerp_(parameter, 0.01)

    use = watch(tmp_path, train)
    assert (len(use.taken), len(use.unheld)) == (2, 2)


def test_nothing_is_watched_after_the_recording(tmp_path):
    pair = Pair()
    with profile(tmp_path, warmup=1, active=2) as recording:
        for _ in range(STEPS):
            pair.train_maker()
            pair.train_judge()
            recording.step()
        assert recording._recorder is not None
        assert not recording._recorder._phases._gradients.is_on


@pytest.mark.parametrize(("was_there", "numbers"), [(True, (1,)), (False, (0, 1))])
def test_another_gradient_at_a_cleared_ones_address_is_not_taken_for_it(was_there, numbers):
    """What is handed over is a new gradient. One that was there before grows in place, as in node 1."""
    handed_over = gradients._Node(start_ns=20, end_ns=21, target=0, memory=640, stored=640)
    grown = gradients._Node(start_ns=30, end_ns=31, target=7, memory=320, stored=640)
    seen = gradients._Seen(steps=[(50, 60)], nodes=[handed_over, grown])
    added = gradients._Added(tensor=7, memory=640, after=0, until=1, was_there=was_there)
    seen.find(added, first_memory=0)
    assert added.numbers == numbers
