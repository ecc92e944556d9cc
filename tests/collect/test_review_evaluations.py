"""Which evaluations the source uses at few of the steps that compute them; what it does not prove is not said."""

from __future__ import annotations

import ast

import pytest

from profkit.source.evaluations import RareUse, rarely_used

PROGRAM = """\
import torch
from other import measure

@torch.no_grad()
def evaluate(model, data):
    model.eval()
    found = []
    for x, y in data:
        found.append((model(x).argmax(1) == y).float().mean().item())
    return sum(found) / len(found)

def main(model, data, epochs, every):
    best, history = 0.0, []
    for epoch in range(epochs):
        train(model, data)
        accuracy = evaluate(model, data)
        if epoch % 20 == 0:
            print(epoch, accuracy)
"""


def found_in(*replacements: tuple[str, str]) -> list[RareUse]:
    text = PROGRAM
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return list(rarely_used(ast.parse(text)))


def test_a_result_that_every_twentieth_step_prints_is_rarely_used():
    assert found_in() == [RareUse(line=16, until=16, every=20, used_at=18)]


@pytest.mark.parametrize(
    ("condition", "every"),
    [
        ("epoch % every == 0", 0),
        ("not epoch % 5", 5),
        ("(epoch + 1) % 5 == 0", 5),
        ("epoch % 5 == 4", 5),
        ("epoch > 3 and epoch % 5 == 0", 5),
        ("epoch % 5 == 0 or epoch == epochs - 1", 5),
    ],
)
def test_conditions_that_hold_at_every_nth_step(condition, every):
    (use,) = found_in(("epoch % 20 == 0", condition))
    assert use.every == every


@pytest.mark.parametrize(
    "condition",
    [
        "epoch % 1 == 0",
        "epoch % 20",
        "epoch % 20 != 0",
        "epoch > 20",
        "accuracy > best",
        "every",
        "epoch % 20 == 0 or every",
    ],
)
def test_conditions_that_may_hold_at_most_steps(condition):
    assert found_in(("epoch % 20 == 0", condition)) == []


def test_a_block_without_autograd_is_an_evaluation_too():
    block = "with torch.no_grad():\n            model.eval()\n            accuracy = model(data).mean()"
    assert found_in(("accuracy = evaluate(model, data)", block)) == [RareUse(line=16, until=18, every=20, used_at=20)]


PRINTED = "            print(epoch, accuracy)\n"
CALLED = "        accuracy = evaluate(model, data)\n"


@pytest.mark.parametrize(
    "replacement",
    [
        pytest.param((PRINTED, PRINTED + "        best = max(best, accuracy)\n"), id="the best one is chosen"),
        pytest.param((PRINTED, PRINTED + "        history.append(accuracy)\n"), id="all are kept"),
        pytest.param((PRINTED, PRINTED + "        if accuracy > 0.9:\n            break\n"), id="it ends the training"),
        pytest.param((PRINTED, PRINTED + "        scheduler.step(accuracy)\n"), id="a scheduler waits for it"),
        pytest.param((PRINTED, PRINTED + "    print(accuracy)\n"), id="the last one is printed"),
        pytest.param((PRINTED, PRINTED + "        else:\n            note(accuracy)\n"), id="the other steps use it"),
        pytest.param((CALLED, "        writer.add(evaluate(model, data))\n"), id="it is no assignment"),
        pytest.param((CALLED, "        model.accuracy = evaluate(model, data)\n"), id="it is kept in an object"),
        pytest.param((CALLED, "        accuracy = evaluate(model, next(data))\n"), id="its arguments draw the data on"),
        pytest.param((CALLED, "        accuracy = measure(model, data)\n"), id="it stands in another file"),
        pytest.param(("    return", "    print(found)\n    return"), id="it prints"),
        pytest.param(("    return", "    measure(found)\n    return"), id="it calls what stands in another file"),
        pytest.param(("    return", "    model.best = found\n    return"), id="it writes to the model"),
        pytest.param(("    return", "    torch.save(model, 'a')\n    return"), id="it saves"),
        pytest.param(("    found = []", "    found = model.found"), id="it appends to a list that is not its own"),
        pytest.param(("    found = []", "    global found"), id="it writes to a global"),
        pytest.param(("    return", "    model.loss(x).backward()\n    return"), id="it differentiates"),
        pytest.param(("    return", "    model.mean.add_(1)\n    return"), id="it changes a tensor"),
        pytest.param(("@torch.no_grad()", "@measure"), id="it has autograd on"),
        pytest.param(("    model.eval()\n", ""), id="batch normalisation may learn from it"),
        pytest.param(
            ("import torch\n", "import torch, torchmetrics\n"), id="metrics may keep what they are called with"
        ),
        pytest.param(
            ("def main(", "def evaluate(model, data):\n    print(model)\n\ndef main("), id="two have the name"
        ),
    ],
)
def test_it_is_not_said_where(replacement):
    assert found_in(replacement) == []


def test_a_training_step_is_no_evaluation():
    training = PROGRAM.replace("found = []", "model.step()")
    assert list(rarely_used(ast.parse(training))) == []
