"""Layers before a normalisation, wherever a class keeps them, and a state that goes from step to step."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_restructured import altered, changed, expect

BIAS, RETAINED = "bias-before-batchnorm", "retained-graph"
LISTED = """
    class Points(nn.Module):
        def __init__(self, sizes):
            {convs}
            {norms}

        def forward(self, x):
            {head}
                {line}
            return x
"""
IN_LINES = """
    class Block(nn.Module):
        def __init__(self):
            self.conv = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x):
            {first} = self.conv(x)
            {second} = self.norm({first})
            return {result}
"""
BY_CALLERS = """
    class Net(nn.Module):
        def __init__(self, size, {parameter}):
            self.conv = nn.Conv2d(3, size, 1, bias=bias)
            self.norm = nn.BatchNorm2d(size)
            self.head = nn.Linear(4, 4{head})

        def forward(self, x):
            return self.head(self.norm(self.conv(x)))

    {calls}
"""
GROWN = "self.{0} = nn.ModuleList()\n            for size in sizes: self.{0}.append({1})"


@pytest.mark.parametrize(
    ("convs", "norms", "head", "line"),
    [
        (
            "self.convs = nn.ModuleList(nn.Conv1d(3, n, 1) for n in sizes)",
            "self.norms = nn.ModuleList([nn.BatchNorm1d(n) for n in sizes])",
            "for conv, norm in zip(self.convs, self.norms, strict=True):",
            "x = norm(conv(x)).relu()",
        ),
        (
            GROWN.format("convs", "nn.Conv1d(3, size, 1)"),
            GROWN.format("norms", "nn.BatchNorm1d(size)"),
            "for i, conv in enumerate(self.convs):",
            "norm = self.norms[i]; x = F.relu(norm(conv(x)))",
        ),
        (
            "self.convs = nn.ModuleList([nn.Conv1d(3, 8, 1)])",
            "self.norms = nn.ModuleList([nn.BatchNorm1d(8)])",
            "for i in range(1):",
            "x = self.norms[i](self.convs[i](x))",
        ),
    ],
)
def test_layers_in_lists_lose_their_bias(convs, norms, head, line):
    before = LISTED.format(convs=convs, norms=norms, head=head, line=line)
    lost = altered(BIAS, before)
    assert next(one for one in lost.splitlines() if "Conv1d" in one).count(", 1, bias=False)") == 1
    assert lost.replace(", bias=False", "") == expect(before)
    other = before.replace("BatchNorm1d", "LayerNorm")  # of one position: it does not take the mean of a channel away
    with pytest.raises(Refused, match="no layer with a normalisation"):
        changed(BIAS, other)


def test_an_element_that_goes_somewhere_else_too_keeps_its_bias():
    before = LISTED.format(
        convs="self.convs = nn.ModuleList(nn.Conv1d(3, n, 1) for n in sizes)",
        norms="self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in sizes)",
        head="for conv, norm in zip(self.convs, self.norms):",
        line="x = norm(conv(x)) + conv(x)",
    )
    with pytest.raises(Refused, match="no layer with a normalisation"):
        changed(BIAS, before)


def test_a_layer_and_its_normalisation_may_stand_in_two_lines():
    lost = altered(BIAS, IN_LINES.format(first="x", second="x", result="x"))
    assert "nn.Conv2d(3, 4, 3, bias=False)" in lost
    kept = IN_LINES.format(first="y", second="x", result="x + y")  # what comes before the normalisation is used, too
    with pytest.raises(Refused, match="no layer with a normalisation"):
        changed(BIAS, kept)


@pytest.mark.parametrize(
    ("parameter", "calls", "after"),
    [
        ("bias", "a, b = Net(4, True), Net(8, bias=True)", "a, b = Net(4, False), Net(8, bias=False)"),
        ("bias=True", "a, b = Net(4), Net(8, True)", "a, b = Net(4), Net(8, False)"),
        ("*, bias: bool", "a = Net(4, bias=True)", "a = Net(4, bias=False)"),
    ],
)
def test_a_bias_that_all_callers_ask_for_is_changed_there(parameter, calls, after):
    lost = altered(BIAS, BY_CALLERS.format(parameter=parameter, head="", calls=calls))
    assert lost == expect(BY_CALLERS.format(parameter=parameter.replace("True", "False"), head="", calls=after))


@pytest.mark.parametrize(
    ("head", "calls", "reason"),
    [
        ("", "a, b = Net(4, True), Net(8, False)", "`bias` is not `True` for all callers"),
        ("", "a = Net(4, args.bias)", "`bias` is not `True` for all callers"),
        ("", "", "`bias` is not `True` for all callers"),
        ("", "a = Net(*args)", "passes arguments that cannot be read"),
        (", bias=bias", "a = Net(4, True)", "uses `bias`, too"),
        ("", "class Other(Net): pass\n    a = Net(4, True)", "another class is derived from `Net`"),
    ],
)
def test_a_bias_that_somebody_decides_elsewhere_stays(head, calls, reason):
    with pytest.raises(Refused, match=reason):
        changed(BIAS, BY_CALLERS.format(parameter="bias", head=head, calls=calls))


CARRYING = """
    {begin}
    for x in chunks:
        {line}  # here
        loss = f({loss})
        loss.backward({kept})
        losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("begin", "line", "cut"),
    [
        ("h = None", "out, h = rnn(x, h)", "h = h.detach()"),
        ("h, c = zeros(), zeros()", "out, (h, c) = rnn(x, (h, c))", "h, c = h.detach(), c.detach()"),
        ("state = (zeros(), zeros())", "out, state = rnn(x, state)", "state = tuple(one.detach() for one in state)"),
        ("rnn = nn.LSTM(3, 4)", "out, state = rnn(x, state)", "state = tuple(one.detach() for one in state)"),
    ],
)
def test_a_state_is_cut_off_at_the_end_of_each_step(begin, line, cut):
    before = CARRYING.format(begin=begin, line=line, loss="out", kept="retain_graph=True")
    after = CARRYING.format(begin=begin, line=line, loss="out", kept="")
    assert altered(RETAINED, before) == expect(after) + f"    {cut}\n"


def test_two_backward_passes_keep_their_graph_for_the_second():
    before = CARRYING.format(
        begin="", line="out, h = rnn(x, h)", loss="out", kept="retain_graph=True)\n        g.backward("
    )
    assert "loss.backward(retain_graph=True)" in altered(RETAINED, before)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("for x in xs:\n    h = cell(x, h)  # here\n", "carried over"),  # one sequence: the steps of time
        ("for x in xs:\n    y = cell(x, h)  # here\n    y.sum().backward()\n", "neither appends"),
        ("for x in xs:\n    h = cell(x, h)  # here\n    if g(h): continue\n    h.sum().backward()\n", "carried over"),
    ],
)
def test_where_no_step_ends_nothing_is_cut_off(before, reason):
    with pytest.raises(Refused, match=reason) as raised:
        changed(RETAINED, before)
    assert raised.type is Refused
