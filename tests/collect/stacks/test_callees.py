"""The name of what a line calls: from the frames below it, and from its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.collect.stacks.callees import Frame, name_callee

PACKAGES = "/venv/lib/python3.11/site-packages"
STANDARD = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("text", "below", "name"),
    [
        ("d = json.loads(text)", [("loads", f"{STANDARD}/json/__init__.py")], "json.loads"),
        ("c = deepcopy(state)", [("deepcopy", f"{STANDARD}/copy.py")], "copy.deepcopy"),
        ("w = random.choice(words)", [("Random.choice", f"{STANDARD}/random.py")], "random.choice"),
        ("r = frame.iloc[i]", [("_LocIndexer.__getitem__", f"{PACKAGES}/pandas/core/indexing.py")], "frame.iloc[…]"),
        ("r = self.data.frame.iloc[i]", [("_L.__getitem__", f"{PACKAGES}/pandas/core/indexing.py")], "frame.iloc[…]"),
        ("r = a[b[i]]", [("_L.__getitem__", f"{PACKAGES}/pandas/core/indexing.py")], "_L.__getitem__"),
        ("p = picture.resize((8, 8))", [("Image.resize", f"{PACKAGES}/PIL/Image.py")], "Image.resize"),
        ("log(f'{y}')", [("Tensor.__format__", f"{PACKAGES}/torch/_tensor.py")], "Tensor.__format__"),
        ("s = np.sort(a)", [("sort", f"{PACKAGES}/numpy/_core/fromnumeric.py")], "numpy.sort"),
        ("s = order(a)", [("sort", f"{PACKAGES}/numpy/_core/fromnumeric.py")], "numpy.sort"),
        (
            "y = self.linear(x)",
            [
                ("Module._wrapped_call_impl", f"{PACKAGES}/torch/nn/modules/module.py"),
                ("Module._call_impl", f"{PACKAGES}/torch/nn/modules/module.py"),
                ("Linear.forward", f"{PACKAGES}/torch/nn/modules/linear.py"),
            ],
            "Linear.forward",
        ),
        ("ids = self.tokenizer.get_vocab()['x'] * (5 - len(ids))", [], "self.tokenizer.get_vocab"),
        ("v = values[:n].copy()", [], "….copy"),
        ("a = f(b) + g(c)", [], ""),
        ("a = b + c", [], ""),
    ],
)
def test_the_callee_of_a_line(tmp_path: Path, text: str, below: list[tuple[str, str]], name: str):
    file = tmp_path / "train.py"
    file.write_text(f"first = 1\n{text}\nother(third)\n")
    assert name_callee(str(file), 2, [Frame(called, path, 1) for called, path in below]) == name


def test_a_line_without_a_text_has_a_callee_only_by_its_frames():
    assert name_callee("/nowhere/train.py", 2, []) == ""
    assert name_callee("/nowhere/train.py", 2, [Frame("loads", f"{STANDARD}/json/__init__.py", 3)]) == "json.loads"
