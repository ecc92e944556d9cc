"""Calls whose results are read under a condition only, and calls that only log; without proof there is no remark."""

from __future__ import annotations

import ast

import pytest

from profkit.source.evaluations.logged import logged
from profkit.source.evaluations.rarely_read import rarely_read
from profkit.source.evaluations.rarely_used import RareUse

KEEPER = """\
import copy
import numpy as np

def table_of(truth, guess):
    table = np.zeros((2, 2))
    for t, g in zip(truth.tolist(), guess.tolist()):
        table[t, g] += 1
    return table

def main(model, best):
    for step in range(100):
        loss = train(model)
        state = copy.deepcopy(model.state_dict())
        if loss < best:
            best, kept = loss, state
        table = table_of(model.truth, model.guess)
        later()
        if step % 25 == 0:
            print(table)
"""
LOGGER = """\
import json
import numpy as np

class Log:
    def histogram(self, tag, values):
        counts, edges = np.histogram(values.detach().numpy(), bins=64)
        self.file.write(json.dumps({tag: counts.tolist()}))

def main(model, log, writer):
    for step in range(100):
        train(model)
        for name, weight in model.named_parameters():
            log.histogram(name, weight)
        writer.add_scalar("loss", model.loss, step)
"""


def read_in(*replacements: tuple[str, str]) -> list[RareUse]:
    return list(rarely_read(ast.parse(_replaced(KEEPER, replacements))))


def logged_in(*replacements: tuple[str, str]) -> list[tuple[int, int]]:
    return logged(ast.parse(_replaced(LOGGER, replacements)))


def _replaced(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_copy_for_the_best_and_a_table_for_each_25th_step():
    assert read_in() == [RareUse(13, 13, 0, 15), RareUse(16, 16, 25, 19)]


@pytest.mark.parametrize(
    "replacement",
    [
        pytest.param(("best, kept = loss, state", "best = loss\n        history.append(state)"), id="used elsewhere"),
        pytest.param(("loss < best", "loss < best and state"), id="the condition asks for it"),
        pytest.param(("if loss < best", "while loss < best"), id="no condition"),
        pytest.param(("state_dict())\n", "state_dict())\n        loss = train(model)\n"), id="a step lies in between"),
        pytest.param(("copy.deepcopy(", "advance("), id="it may leave something behind"),
        pytest.param(("copy.deepcopy(model.state_dict())", "model"), id="nothing is called"),
        pytest.param(
            ("            best, kept = loss, state", "            global state\n            x = state"), id="shared"
        ),
    ],
)
def test_the_copy_is_needed_in_each_step_if(replacement):
    assert [use.line for use in read_in(replacement) if use.line == 13] == []


@pytest.mark.parametrize(
    "replacement",
    [
        pytest.param(("    table = np.zeros((2, 2))", "    table = model.table"), id="the table is somebody else's"),
        pytest.param(("step % 25 == 0", "step > 25"), id="something happens before another condition"),
        pytest.param(("    return table", "    print(table)\n    return table"), id="it prints"),
    ],
)
def test_the_table_is_needed_in_each_step_if(replacement):
    assert [use.line for use in read_in(replacement) if use.line == 16] == []


def test_a_logger_of_its_own_and_a_library_s():
    assert logged_in() == [(6, 6), (7, 7), (13, 13), (14, 14)]


@pytest.mark.parametrize(
    ("replacement", "left"),
    [
        pytest.param(
            ("        writer.add", "        if step % 10 == 0:\n            writer.add"),
            [6, 7, 13],
            id="every tenth step",
        ),
        pytest.param(("writer.add_scalar(", "x = writer.add_scalar("), [6, 7, 13], id="the result is used"),
        pytest.param(
            ("        self.file", "        self.count += 1\n        self.file"), [6, 8, 15], id="it also counts"
        ),
        pytest.param(
            ("        self.file", "        if tag % 5:\n            return\n        self.file"),
            [16],
            id="it waits itself",
        ),
        pytest.param(("        self.file.write(json", "        self.push(json"), [14], id="it does something unknown"),
    ],
)
def test_what_does_not_only_log(replacement, left):
    assert [first for first, _ in logged_in(replacement)] == left


def test_what_comes_once_is_not_looked_at():
    assert logged(ast.parse("print('begin')\nwriter.add_text('a', 'b')\n")) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(
            "accuracy = (guess == truth).float().mean().item()\n    log.info(accuracy)", [3, 4], id="a number"
        ),
        pytest.param("a = guess.norm()\n    b = a.item()\n    print(b)", [3, 4, 5], id="a chain"),
        pytest.param("a = guess.norm()\n    print(a)\n    guess.push(a)", [4], id="somebody else takes it"),
        pytest.param("a = guess.norm()\n    a = truth.norm()\n    print(a)", [5], id="assigned twice"),
        pytest.param("memory.write(guess.tolist())", [], id="a memory is no log"),
        pytest.param("self.log_file.write(str(guess.tolist()))", [3], id="a file"),
        pytest.param(
            "figure, ax = plt.subplots()\n    ax.plot(truth.tolist())\n    figure.savefig('a')", [3, 4, 5], id="a plot"
        ),
    ],
)
def test_what_is_computed_for_a_log_belongs_to_it(text, lines):
    program = f"from matplotlib import pyplot as plt\ndef step(guess, truth):\n    {text}\n"
    assert [first for first, _ in logged(ast.parse(program))] == lines


def test_a_function_of_the_file_is_judged_by_what_it_does():
    text = "def log_metrics(x):\n    {}\ndef step(x):\n    log_metrics(x.tolist())\n"
    assert [first for first, _ in logged(ast.parse(text.format("state.push(x)")))] == []
    assert [first for first, _ in logged(ast.parse(text.format("print(x)")))] == [2, 4]


READER = """\
from itertools import groupby
def read(scores):
    words = []
    for sample in scores:
        words.append("".join(str(k) for k, _ in groupby(sample.tolist())))
    return words

def distance(a, b):
    row = list(range(len(b)))
    for i in range(len(a)):
        row[0] = i
    return row[-1]

def main(model, batches):
    for step, batch in enumerate(batches):
        out = train(model, batch)
        words = read(out.detach())
        wrong = sum(distance(w, b.word) for w, b in zip(words, batch))
        if step % 20 == 0:
            print(wrong)
"""


def test_what_only_a_seldom_needed_call_reads_is_as_seldom_needed():
    assert list(rarely_read(ast.parse(READER))) == [RareUse(17, 17, 20, 20), RareUse(18, 18, 20, 20)]


@pytest.mark.parametrize(
    ("replacement", "lines"),
    [
        pytest.param(("print(wrong)\n", "print(wrong)\n        keep(words)\n"), [18], id="each step keeps the words"),
        pytest.param(("print(wrong)\n", "print(wrong)\n        keep(wrong)\n"), [], id="each step keeps the number"),
        pytest.param(("print(wrong)", "print(words)"), [], id="a line whose result nobody uses reads them"),
        pytest.param(("row = list(", "row = kept("), [], id="the row may be somebody else's"),
    ],
)
def test_what_something_else_reads_is_needed(replacement, lines):
    assert [use.line for use in rarely_read(ast.parse(_replaced(READER, (replacement,))))] == lines
