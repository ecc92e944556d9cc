"""Remarks on evaluations with autograd on, thread counts and DataLoaders: only what the source proves."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from profkit.run.directory import Remark
from profkit.source.remarks import review_sources, user_sources

EVALUATE = """
def evaluate(model, loader):
    model.eval()
    total = 0
    for x in loader:
        total += model(x).sum()
    return total
"""


def review(directory: Path, *sources: str) -> tuple[Remark, ...]:
    files = [directory / f"part{i}.py" for i in range(len(sources))]
    for file, source in zip(files, sources, strict=True):
        file.write_text(textwrap.dedent(source))
    return review_sources(map(str, files))


def lines_of(directory: Path, *sources: str) -> list[tuple[int, str]]:
    return [(remark.site.line, remark.site.function) for remark in review(directory, *sources)]


def test_an_evaluation_loop_with_autograd_on_is_remarked_at_its_line(tmp_path):
    (remark,) = review(tmp_path, EVALUATE)
    assert (remark.kind, remark.site.file) == ("evaluation-with-grad", str(tmp_path / "part0.py"))
    assert remark.site.line == 6
    assert (remark.site.function, remark.site.source) == ("evaluate", "total += model(x).sum()")


@pytest.mark.parametrize(("after", "lines"), [("model.train()", [4]), ("return score", [])])
def test_a_single_call_counts_only_if_the_model_returns_to_training(tmp_path, after, lines):
    source = f"""
    def score(model, x, y):
        model.eval()
        score = loss(model(x), y)
        {after}
    """
    assert [line for line, _ in lines_of(tmp_path, source)] == lines


def test_an_evaluation_at_module_level_is_remarked(tmp_path):
    source = """
    for epoch in range(2):
        net.train()
        for x in batches:
            loss(net(x)).backward()
        net.eval()
        for x in held_out:
            right += (net(x).argmax(1) == 0).sum()
    """
    assert lines_of(tmp_path, source) == [(8, "<module>")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def evaluate", "@torch.no_grad()\ndef evaluate"),
        ("def evaluate", "@torch.inference_mode\ndef evaluate"),
        ("    for x in loader:", "    with torch.no_grad(), lock:\n     for x in loader:"),
        ("model.eval()", "model.eval(); torch.set_grad_enabled(False)"),
        ("model.eval()", "model.eval(); model.requires_grad_(False)"),
        ("model.eval()", "model.train()"),
        ("model.eval()", "model.eval(); model.train()"),
        ("model.eval()", "frame.eval('a + b')"),
        ("for x in loader:", "if loader:"),
        ("total += model(x).sum()", "model(x).sum().backward()"),
        ("total += model(x).sum()", "total += torch.autograd.grad(model(x).sum(), x)"),
        ("total += model(x).sum()", "total += other(x).sum()"),
        ("return total", "with torch.no_grad():\n        return evaluate(model, loader)"),
    ],
)
def test_what_may_be_intended_is_not_remarked(tmp_path, old, new):
    assert old in EVALUATE
    assert lines_of(tmp_path, EVALUATE.replace(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("model.eval()", "model.train(False)"), ("model(x)", "model.forward(x)"), ("model", "self.model")],
)
def test_other_spellings_are_remarked_too(tmp_path, old, new):
    body = EVALUATE.replace("(model, loader)", "(loader)").replace(old, new)
    assert [name for _, name in lines_of(tmp_path, body)] == ["evaluate"]


def test_a_caller_in_another_file_that_switches_autograd_off_silences_the_remark(tmp_path):
    caller = "import part0\nwith torch.inference_mode():\n    part0.evaluate(net, data)\n"
    assert lines_of(tmp_path, EVALUATE, caller) == []


def test_methods_and_inner_functions_have_their_qualified_names(tmp_path):
    inner = textwrap.indent(EVALUATE, "    ")
    source = f"class Trainer:\n{inner}def main():\n{inner}"
    assert [name for _, name in lines_of(tmp_path, source)] == ["Trainer.evaluate", "main.<locals>.evaluate"]


@pytest.mark.parametrize("source", ["", "def broken(:", "\0", "(" * 5000, "x = 1" + " " * (1 << 20)])
def test_an_unreadable_file_is_skipped(tmp_path, source):
    assert lines_of(tmp_path, source) == []
    assert review_sources([str(tmp_path / "absent.py")]) == ()


def test_only_modules_of_the_program_are_read():
    assert user_sources(lambda file: file == __file__) == [sys.modules[__name__].__file__]


class _Lazy(ModuleType):
    def __getattribute__(self, name):
        raise ImportError(f"an attribute was read: {name}")


def test_a_lazy_module_is_not_loaded_to_see_where_it_comes_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "lazy", _Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "no_module", object())
    own = ModuleType("own")
    own.__file__ = "own.py"
    monkeypatch.setitem(sys.modules, "own", own)
    assert user_sources(lambda file: file == "own.py") == ["own.py"]


def test_lines_that_set_the_number_of_threads_are_remarked(tmp_path):
    source = "import torch\ntorch.set_num_threads(16)\n\ndef f():\n    torch.get_num_threads()\n"
    (remark,) = review(tmp_path, source)
    assert (remark.kind, remark.site.line, remark.site.function) == ("threads-set", 2, "<module>")
    assert remark.site.source == "torch.set_num_threads(16)"


def test_lines_that_make_data_loaders_are_remarked(tmp_path):
    source = "def main():\n    train = DataLoader(data, 8)\n    test = torch.utils.data.DataLoader(data, 8)\n"
    found = [(remark.kind, remark.site.line, remark.site.function) for remark in review(tmp_path, source)]
    assert found == [("loader-made", 2, "main"), ("loader-made", 3, "main")]
