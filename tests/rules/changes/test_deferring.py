"""Calls that keep books are made behind the loop: what the program prints stays, or the change is refused."""

from __future__ import annotations

import contextlib
import io
from textwrap import dedent, indent

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import changed, expect

RULE = "host-sync-in-step"
METER = """
import torch

class Meter:
    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)
"""
LOOP = """
data = [torch.full((), 0.1 * i) for i in range(7)]
meter, meters = Meter(), {"loss": Meter(), "hits": Meter()}
for i, x in enumerate(data):
    loss = x * 2
    meter.update(loss.item(), i + 1)  # here
print(meter.avg, meter.count)
"""


def printed(text: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(text, {"__name__": "program"})
    return out.getvalue()


def same(text: str) -> str:
    """The changed text, which prints the same."""
    after = changed(RULE, text)
    assert printed(after) == printed(text)
    return after


def loop(line: str, behind: str = "", before: str = "", inside: str = "") -> str:
    text = LOOP.replace("    meter.update(loss.item(), i + 1)  # here\n", indent(f"{line}\n{inside}", "    "))
    return METER + before + text + behind


def test_an_average_gets_its_numbers_behind_the_loop():
    after = same(METER + LOOP)
    assert (
        expect(
            """
        noted = []
        for i, x in enumerate(data):
            loss = x * 2
            noted.append((loss.detach(), i + 1))  # here
        numbers = torch.stack([entry[0] for entry in noted]).flatten().tolist() if noted else []
        for entry, number in zip(noted, numbers):
            meter.update(number, entry[1])
        print(meter.avg, meter.count)
        """
        )
        in after
    )


@pytest.mark.parametrize(
    "line",
    [
        "meter.update(loss.item())  # here",
        "meter.update(loss.item(), 8)  # here",
        "meter.update(float(loss), n=len(data))  # here",
        "meter.update(value=loss.detach().cpu().item(), n=i)  # here",
        "meter.update(\n    loss.item(),  # here\n    # so many\n    i,\n)",
        'meters["loss"].update(loss.item(), i)  # here\nprint(meters["hits"].avg)',
        "if i % 3 == 0:\n    print(meter.avg)\nmeter.update(loss.item(), i)  # here",
        "meter.update(loss.item(), i)  # here\nif i % 3 == 0:\n    print(meter.avg)\nelse:\n    print('none')",
        "if i > 2:\n    meter.update(loss.item(), i)  # here\nif i == 1:\n    pass\nelif i == 4:\n    print(meter.avg)",
        "meter.update(loss.item(), i)  # here\nif i == 5:\n    print(meter.avg)\n    break",
        "meter.update((loss > 0.5).item(), i)  # here",
        "meter.update(x.long().item())  # here",
    ],
)
def test_what_the_program_prints_stays(line):
    behind = 'print(meters["loss"].avg)\n'
    after = same(loop(line, behind))
    assert ".tolist() if noted else []" in after
    assert same(loop(line, behind).replace("\n", "\r\n").replace("    ", "\t"))


def test_a_loop_without_rounds():
    same(loop("meter.update(loss.item(), i)  # here").replace("range(7)", "range(0)"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("meter.update(loss.item(), i)  # here\nprint(meter.avg)", "names `meter` in each round"),
        ("if meter.count > 3: break\nmeter.update(loss.item(), i)  # here", "names `meter` in each round"),
        ("if i:\n    pass\nelif meter.count:\n    pass\nmeter.update(loss.item())  # here", "names `meter` in each"),
        ("meter.update(loss.item(), i)  # here\nshow(meter)", "names `meter` in each round"),
        ("meter.update(loss.item(), meter.count)  # here", "."),
        ("meter.update(loss.item(), next(ns))  # here", "may be another one behind the loop"),
        ("meter.update(*(loss.item(), i))  # here", "."),
        ("meter.update(loss.item(), *rest)  # here", "arguments that the line does not show"),
        ("meter.update(loss.item(), i)  # here\nloss.add_(1)", "may be the same tensor"),
        ("loss = state\nmeter.update(state.item(), i)  # here", "may be the same tensor"),
        ("n += 1\nmeter.update(loss.item(), n)  # here", "`n` is changed in place"),
        ("meter = Meter()\nmeter.update(loss.item())  # here", "`meter` is set inside of the loop"),
        ("if i > 3:\n    raise ValueError\nmeter.update(loss.item())  # here", "may leave the loop"),
        ("del x\nmeter.update(loss.item())  # here", "may leave the loop"),
        ("meters[i].update(loss.item())  # here", "nothing shows which object"),
        ("find().update(loss.item())  # here", "nothing shows which object"),
        ('meters["loss"].update(loss.item())  # here\nfor m in meters.values():\n    print(m.avg)', "in each round"),
        ('meters["loss"].update(loss.item())  # here\nprint(meters.get("loss"))', "in each round"),
        ("try:\n    meter.update(loss.item())  # here\nfinally:\n    pass", "goes on if an exception"),
        ("print((m := meter).avg)\nmeter.update(loss.item())  # here", "in each round"),
        ("report()\nmeter.update(loss.item())  # here", "which the loop may call, reads `avg`"),
        ("later()\nmeter.update(loss.item())  # here", "which the loop may call, reads `avg`"),
    ],
)
def test_who_looks_at_it_in_between_would_see_it(line, reason):
    before = """
n, ns, rest, state, show = 0, iter(range(9)), (1,), torch.zeros(()), print
def report():
    print(meter.avg)
def later():
    return report()
"""
    with pytest.raises(Refused, match=reason):
        changed(RULE, loop(line, before=before))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("self.count += n", "self.count += n\n        print(value)", "does more than keep books"),
        ("self.count += n", "self.count += n\n        value.append(1); TOTAL[0] = 1", "does more than keep books"),
        ("self.count += n", "global LAST\n        LAST = value", "does more than keep books"),
        ("self.count += n", "for one in range(n): self.count += one", "does more than keep books"),
        ("self.count += n", "self.log(value)", "does more than keep books"),
        ("class Meter:", "class Meter(Base):", "has a base class"),
        ("class Meter:", "@watched\nclass Meter:", "attributes of its own kind"),
        ("    def update", "    @cached\n    def update", "is not a plain method"),
        (
            "    @property",
            "    def __setattr__(self, name, value):\n        print(name)\n    @property",
            "of its own kind",
        ),
        ("    @property\n", "    @avg.setter\n    def avg(self, v):\n        pass\n    @property\n", "of its own kind"),
        ("import torch", "import torch, threading", "at any time"),
        ("import torch", "import torch\nfrom concurrent.futures import Executor", "at any time"),
        ("class Meter:", "class Other:\n    def update(self, x):\n        pass\nclass Meter:", "2 classes in the file"),
        ("    def update", "    def add_one", "no classes in the file"),
        ("data = ", "other = meter = Meter()\nother = meter\ndata = ", "a second name"),
        ("data = ", "watch = lambda: print(meter.avg)\ndata = ", "reads `avg`"),
        ("data = ", "class Net:\n    def forward(self, x):\n        return meter.avg\ndata = ", "reads `avg`"),
        ("import torch\n", "", "does not import torch"),
    ],
)
def test_a_class_that_does_more_stays(old, new, reason):
    text = METER + LOOP
    assert old in text
    with pytest.raises(Refused, match=reason):
        changed(RULE, text.replace(old, new, 1))


FUNCTION = METER + dedent("""
    def train(meter, data):
        for x in data:
            loss = x + 1
            meter.update(loss.item())  # here
            {}
""")


def test_whoever_calls_the_function_gets_the_same():
    call = "one = Meter()\ntrain(one, torch.ones(9))\nprint(one.avg)\n"
    same(FUNCTION.format("pass") + call)
    for line in ("if x > 1: return", "yield x", "await x"):
        asynchronous = "async def" if "await" in line else "def"
        with pytest.raises(Refused, match="may leave the loop"):
            changed(RULE, FUNCTION.format(line).replace("def train", f"{asynchronous} train") + call)
    caught = "one = Meter()\ntry:\n    train(one, torch.rand(9))\nexcept ValueError:\n    print(one.avg)\n"
    with pytest.raises(Refused, match="goes on if an exception ends the loop"):
        changed(RULE, FUNCTION.format("pass") + caught)


TRAINER = METER + dedent("""
    class Trainer:
        def __init__(self):
            self.losses, self.hits, self.model = Meter(), Meter(), torch.nn.Linear(1, 1)

        def report(self):
            print(self.losses.avg)

        def epoch(self, data):
            for n, x in enumerate(data):
                loss = self.model(x[None]).sum()
                self.losses.update(loss.item(), len(data))  # here
                self.hits.update(1.0)
                {}
            self.report()

    torch.manual_seed(0)
    Trainer().epoch(torch.rand(9))
""")


def test_an_attribute_of_a_trainer():
    assert "self.losses.update(number, entry[1])" in same(TRAINER.format("pass"))
    same(TRAINER.format("if n % 4 == 3:\n                print(self.losses.avg)"))
    for line in ("self.report()", "if n % 4 == 3: self.report()", "show(self)", "self.losses = Meter()"):
        with pytest.raises(Refused):
            changed(RULE, TRAINER.format(line))


LISTS = """
import torch

class Trainer:
    def __init__(self):
        self.losses = []
        self.history = {{"loss": [], "n": []}}

    def report(self):
        print(self.losses, self.history)

    def epoch(self, data):
        history = {{"loss": [], "n": []}}
        for n, x in enumerate(data):
            loss = x * 2
            {}
        print(history)
        self.report()

one = Trainer()
one.epoch(torch.ones(5))
one.epoch(torch.ones(2) * torch.tensor(3))
"""


@pytest.mark.parametrize(
    "line",
    [
        "self.losses.append(loss.item())  # here",
        "self.losses.append(loss.sum().item())  # here\n            self.history['n'].append(n)",
        'self.history["loss"].append(loss.item())  # here',
        'history["loss"].append(float(loss))  # here\n            history["n"].append(n)',
        "self.losses.append(loss.item())  # here\n            if n == 1: print(self.history)",
    ],
)
def test_lists_that_are_attributes_or_items(line):
    same(LISTS.format(line))


@pytest.mark.parametrize(
    "line",
    [
        "self.losses.append(loss.item())  # here\n            self.report()",
        "self.losses.append(loss.item())  # here\n            print(self.losses[-1])",
        "self.losses.append(loss.item())  # here\n            setattr(self, 'losses', [])",
        'history["loss"].append(loss.item())  # here\n            print(history)',
        'history["loss"].append(loss.item())  # here\n            print(len(history[name]))',
        'history["other"].append(loss.item())  # here',
        "self.others.append(loss.item())  # here",
        "one.losses.append(loss.item())  # here",
    ],
)
def test_a_list_that_is_read_in_each_round_is_filled_there(line):
    with pytest.raises(Refused):
        changed(RULE, LISTS.format(line))


def test_a_list_that_a_function_of_the_loop_reads():
    text = "import torch\nh = {'a': []}\ndef f(x):\n    print(h)\n    return x\nfor x in d:\n    y = f(x)\n"
    with pytest.raises(Refused, match="line 3, which the loop may call, reads `h`"):
        changed(RULE, text + "    h['a'].append(y.item())  # here\n")
