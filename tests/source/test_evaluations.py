"""Evaluations whose result the source uses at few of the steps that compute it; without proof there is no remark."""

from __future__ import annotations

import ast

import pytest

from profkit.source.evaluations.rarely_used import RareUse, rarely_used

PROGRAM = """\
import torch
import torch.nn.functional as F
from other import measure, softmax

class Classifier(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.hidden = torch.nn.Linear(size, size)

    def forward(self, x):
        return F.dropout(F.relu(self.hidden(x)), 0.5, training=self.training)

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

main(Classifier(8).to("cpu"), torch.load("data"), 100, 20)
"""


def found_in(*replacements: tuple[str, str]) -> list[RareUse]:
    text = PROGRAM
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return list(rarely_used(ast.parse(text)))


def test_a_result_printed_at_every_twentieth_step_is_rarely_used():
    assert found_in() == [RareUse(line=25, until=25, every=20, used_at=27)]


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
def test_a_condition_that_holds_at_every_nth_step_makes_a_use_rare(condition, every):
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
def test_a_condition_that_may_hold_at_most_steps_makes_no_use_rare(condition):
    assert found_in(("epoch % 20 == 0", condition)) == []


def test_a_block_without_autograd_is_an_evaluation_too():
    block = "with torch.no_grad():\n            model.eval()\n            accuracy = model(data).mean()"
    assert found_in(("accuracy = evaluate(model, data)", block)) == [RareUse(line=25, until=27, every=20, used_at=29)]


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
        pytest.param(("    return sum", "    visualise(found)\n    return sum"), id="it calls what nobody knows"),
        pytest.param(("    return sum", "    found.publish()\n    return sum"), id="it calls an unknown method"),
        pytest.param(("    return sum", "    softmax(found)\n    return sum"), id="its softmax stands in another file"),
        pytest.param(("    return sum", "    model.half()\n    return sum"), id="it changes the type of the model"),
        pytest.param(("model(x).argmax", "torch.rand_like(model(x)).argmax"), id="it draws random numbers"),
        pytest.param(("main(Classifier(8)", "main(measure(8)"), id="the model is made in another file"),
        pytest.param(("main(Classifier(8)", "main(torch.nn.Sequential(measure(8))"), id="a part of the model is"),
        pytest.param(("\nmain(Classifier(8)", "\nrun(Classifier(8)"), id="nobody knows which model it is"),
        pytest.param(("        return F", "        self.last = x\n        return F"), id="the model keeps its input"),
        pytest.param(("training=self.training", "training=True"), id="the model draws random numbers"),
        pytest.param(("= torch.nn.Linear(size, size)", "= measure(size)"), id="a layer stands in another file"),
        pytest.param(("        super().__init__()", "        self.register_forward_hook(keep)"), id="a hook keeps it"),
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
def test_a_use_is_not_rare_if(replacement):
    assert found_in(replacement) == []


@pytest.mark.parametrize(
    "replacement",
    [
        pytest.param(("    return sum", "    model.train()\n    return sum"), id="it sets the mode back"),
        pytest.param(("    return sum", "    loss = F.nll_loss(y, y).cpu()\n    return sum"), id="it computes a loss"),
        pytest.param(("Classifier(8).to", "torch.nn.Linear(8, 8).to"), id="the model is the library's"),
        pytest.param(("main(Classifier(8).to", "net = Classifier(8)\nmain(net.to"), id="the model has another name"),
    ],
)
def test_a_use_is_still_rare_if(replacement):
    assert len(found_in(replacement)) == 1


def test_a_training_step_is_no_evaluation():
    training = PROGRAM.replace("found = []", "model.step()")
    assert list(rarely_used(ast.parse(training))) == []
