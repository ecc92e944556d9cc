"""Which line makes the layer that another line calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.source.index import SourceFile, parsed_file
from profkit.source.models.layers import biased_layers

CLASS = """\
class Net(nn.Module):
    def __init__(self):
        {made}
    def forward(self, x):
        {called}
"""


def read(folder: Path, text: str) -> SourceFile:
    path = folder / "net.py"
    path.write_text(text)
    file = parsed_file(str(path))
    assert file is not None
    return file


@pytest.mark.parametrize(
    ("made", "called"),
    [
        pytest.param("self.conv = nn.Conv2d(3, 8, 3)", "return self.bn(self.conv(x))", id="attribute"),
        pytest.param("self.net = nn.Sequential(Linear(3, 3), BatchNorm1d(3))", "return self.net(x)", id="container"),
        pytest.param("self.net = nn.ModuleList(nn.Linear(3, 3) for _ in x)", "return self.net[0](x)", id="item"),
        pytest.param("self.net: nn.Module = nn.Conv1d(3, 3, 1, bias=True)", "return self.net(x)", id="bias asked for"),
        pytest.param("self.net.append(nn.Linear(3, 3))", "return self.net(x)", id="appended"),
        pytest.param("self.net = nn.ModuleList([nn.Linear(1, 1)])", "return [one(x) for one in self.net]", id="loop"),
    ],
)
def test_a_layer_is_made_where_its_attribute_is_assigned(tmp_path, made, called):
    assert biased_layers(read(tmp_path, CLASS.format(made=made, called=called))) == [(3, 5)]


@pytest.mark.parametrize(
    ("made", "called"),
    [
        pytest.param("self.conv = nn.Conv2d(3, 8, 3, bias=False)", "return self.conv(x)", id="without bias"),
        pytest.param("self.conv = make(3)", "return self.conv(x)", id="made elsewhere"),
        pytest.param("self.conv = nn.Conv2d(3, 8, 3)", "return other(x)", id="not called"),
        pytest.param("self.norm = nn.BatchNorm2d(3)", "return self.norm(x)", id="no layer with a bias"),
    ],
)
def test_nothing_is_said_without_a_layer_a_bias_and_a_call(tmp_path, made, called):
    assert biased_layers(read(tmp_path, CLASS.format(made=made, called=called))) == []


def test_calls_of_one_function_lead_to_one_line(tmp_path):
    text = "def block(a):\n    return nn.Sequential(\n        nn.Conv2d(a, a, 3),\n        nn.BatchNorm2d(a))\n\n"
    text += CLASS.format(made="self.a, self.b = block(3), block(8)", called="return self.b(self.a(x))")
    assert biased_layers(read(tmp_path, text)) == [(3, 10)]


def test_of_a_container_only_the_layers_before_a_norm_count(tmp_path):
    made = "self.net = nn.Sequential(\n            nn.Linear(3, 3),\n            nn.BatchNorm1d(3),\n"
    made += "            nn.Linear(3, 1))"
    assert biased_layers(read(tmp_path, CLASS.format(made=made, called="return self.net(x)"))) == [(4, 8)]


def test_a_class_that_only_builds_is_followed_and_one_with_a_forward_is_not(tmp_path):
    builds = "class Block(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Linear(3, 3))\n\n"
    computes = builds.replace("\n\n", "\n    def forward(self, x):\n        return self[0](x)\n\n")
    net = CLASS.format(made="self.block = Block()", called="return self.block(x)")
    assert biased_layers(read(tmp_path, builds + net)) == [(3, 9)]
    (tmp_path / "other").mkdir()
    assert biased_layers(read(tmp_path / "other", computes + net)) == []


def test_a_name_of_the_module_is_followed_if_it_is_assigned_once(tmp_path):
    once = "model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))\ndef train(x):\n    return model(x)\n"
    assert biased_layers(read(tmp_path, once)) == [(1, 3)]
    (tmp_path / "other").mkdir()
    assert biased_layers(read(tmp_path / "other", once + "model = None\n")) == []


def test_a_function_that_calls_itself_is_not_followed_for_ever(tmp_path):
    text = "def build(a):\n    return build(nn.Linear(a, a))\nmodel = build(3)\ny = model(x)\n"
    assert biased_layers(read(tmp_path, text)) == [(2, 4)]
