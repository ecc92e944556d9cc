"""Steps, backward passes, losses and random numbers that differ, of programs that print next to nothing."""

from __future__ import annotations

import msgspec
import pytest

from profkit.diagnosis.fixing.courses import compare_courses, compare_draws
from profkit.diagnosis.fixing.results import compare_results
from profkit.diagnosis.fixing.turns import Run, Seen, _load
from tests.recordings import Recordings


def seen(*losses: float | None, steps: int = 0, passes: int = 0, state: str = "a") -> Seen:
    return Seen(
        losses=losses,
        step_ns=tuple(range(steps)),
        passes=passes or len(losses),
        drawn=("torch",),
        random_states={"torch": state},
    )


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        (seen(0.7, 0.6), seen(0.7001, 0.6001), ""),
        (seen(0.7, 0.6), seen(0.7, 0.59), "the losses of its first backward passes are others"),
        (seen(0.7, 1e-9), seen(0.7, -3e-9), ""),
        (seen(0.7, None), seen(0.7, None), ""),
        (seen(0.7, 0.6), seen(0.7, None), "the losses of its first backward passes are others"),
        (seen(passes=8), seen(passes=7), "it has 7 backward passes instead of 8"),
        (seen(passes=2), seen(passes=1), "it has 1 backward pass instead of 2"),
        (seen(steps=1000), seen(steps=999), "it has 999 steps of an optimizer instead of 1,000"),
        (seen(steps=9, passes=60), seen(steps=9, passes=61), ""),
    ],
)
def test_steps_passes_and_first_losses_must_agree(before, after, differs):
    assert compare_courses([before] * 3, [after] * 3).differs == differs


def test_what_varies_without_a_change_says_nothing():
    assert not compare_courses([seen(0.7), seen(0.8)], [seen(0.9)]).differs
    assert not compare_courses([seen(steps=3), seen(steps=4)], [seen(steps=9)]).differs


def test_other_random_numbers_make_a_program_that_trains_nothing_incomparable():
    assert (
        compare_draws([seen()] * 2, [seen(state="b")]).unknown == "it draws other random numbers of `torch` than before"
    )
    assert not compare_draws([seen()] * 2, [seen()]).unknown
    assert not compare_draws([seen(0.7)] * 2, [seen(0.7, state="b")]).unknown
    assert not compare_draws([seen(), seen(state="b")], [seen(state="c")]).unknown


def run(recordings: Recordings, text: str) -> Run:
    """What `fix` sees of a run of the program."""
    options = ["--result=result.json", "--", "prog.py"]
    kept = recordings.fork("profkit.collect.launch.turn:main", options, writes={"prog.py": text})
    assert kept.ended.returncode == 0, kept.ended.stderr
    result = kept.directory / "result.json"
    seen = msgspec.json.decode(result.read_bytes(), type=Seen)
    return Run(0, kept.ended.stdout, kept.ended.stderr, seen, {}, _load(result))


def verdict(recordings: Recordings, before: str, after: str) -> str:
    """What is said of two versions of a program, each run once."""
    found = compare_results([run(recordings, before)] * 2, [run(recordings, after)])
    return found.differs or found.unknown


BY_HAND = """
import torch
torch.manual_seed(0)
weight = torch.zeros(3, requires_grad=True)
for step in range(6):
    x = torch.rand(8, 3)
    loss = (x @ weight - x.sum(1)).square().mean()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
print("done")
"""
LOGGED = """
import logging, torch
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
scores = torch.linspace(0, 1, 40).view(4, 10)
for number, batch in enumerate(scores):
    logging.info("batch %d mean %.4f", number, batch.mean().item())
print("4 batches")
"""
DROPPED = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.5))
with torch.no_grad():
    for _ in range(5):
        net(torch.ones(2, 4))
print("5 batches")
"""
LATE = """
import torch
torch.manual_seed(0)
common, rare = torch.nn.Linear(400, 400), torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD([*common.parameters(), *rare.parameters()], lr=0.1, momentum=0.9)
for step in range(9):
    optimizer.zero_grad(set_to_none=False)
    loss = common(torch.rand(8, 400)).square().mean()
    if step == 1:
        loss = loss + 1e-3 * rare(torch.ones(1, 1)).sum()
    loss.backward()
    optimizer.step()
"""
NORMED = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
for _ in range(3):
    net(torch.rand(8, 4))
print("3 batches")
"""


@pytest.mark.parametrize(
    ("program", "old", "new", "said"),
    [
        (BY_HAND, "x.sum(1)", "x.sum(1) - 0.01", "the losses of its first backward passes are others"),
        (BY_HAND, "range(6)", "range(5)", "it has 5 backward passes instead of 6"),
        (LOGGED, "0, 1, 40", "0, 1.01, 40", "standard error says"),
        (DROPPED, "range(5)", "range(4)", "it draws other random numbers of `torch` than before"),
        (LATE, "set_to_none=False", "", "parameter 3 of an optimizer is trained otherwise than before"),
        (NORMED, "net(torch.rand(8, 4))", "net.eval()(torch.rand(8, 4))", "of a Sequential ends as another"),
    ],
)  # fmt: skip
def test_a_result_that_is_not_printed_is_not_called_the_same(recordings, program, old, new, said):
    assert said in verdict(recordings, program, program.replace(old, new))


@pytest.mark.parametrize(
    ("program", "old", "new"),
    [
        (BY_HAND, "x @ weight - x.sum(1)", "(x * weight).sum(1) - x.sum(1)"),
        (LOGGED, "batch.mean()", "batch.double().mean()"),
        (DROPPED, "net(torch.ones(2, 4))", "net(torch.ones(1, 4).expand(2, 4))"),
        (LATE, "momentum=0.9", "momentum=0.9, foreach=True"),
        (NORMED, "torch.rand(8, 4)", "torch.rand(8, 4).clone()"),
    ],
)
def test_what_is_only_computed_otherwise_is_the_same(recordings, program, old, new):
    assert verdict(recordings, program, program.replace(old, new)) == ""
