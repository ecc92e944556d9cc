"""What the source of a loop shows about a state that is carried from round to round."""

from __future__ import annotations

import pytest

from profkit.patterns.loops.carried_state import CarriedState, has_steady_weights, read_carried_state

TAKES = CarriedState(takes_sequence=True, keeps_state=True)
HEAD = "for t in range(n):"
GATES = [
    "g = self.lin(torch.cat([x[:, t], h], 1))",
    "i, f, o, u = g.chunk(4, 1)",
    "c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)",
    "h = torch.sigmoid(o) * torch.tanh(c)",
]


@pytest.mark.parametrize(
    ("cell", "others"),
    [
        (["h = torch.tanh(self.a(x[:, t]) + self.b(h))"], [HEAD]),
        (["h = cell(part, h)"], ["for part in x.unbind(1):", "out.append(head(h))"]),
        (["h, c = cell(part, (h, c))"], ["for i, part in enumerate(parts):", "out[:, i] = h"]),
        (["y, h = net(part, h)"], [HEAD, "part = embed(words[t])", "loss = loss + criterion(y, words[t + 1])"]),
        (["h = cell(x[:, t], h)"], ["while t < n:", "t += 1"]),
        (["h = cell(x[:, t].float().to(device), h)"], [HEAD]),
        (GATES, [HEAD, "outs += [h]"]),
        (["for t in range(n): h = cell(x[:, t], h)"], []),
    ],
)
def test_a_loop_over_a_sequence(cell, others):
    assert read_carried_state(cell, [*others, *cell]) == TAKES


@pytest.mark.parametrize(
    ("cell", "others"),
    [
        (["h = cell(y, h)"], [HEAD, "y = head(h)"]),
        (["h = cell(x, h)"], [HEAD]),
        (["h = cell(h, h)"], [HEAD]),
        (["h = cell(x[t], g)"], [HEAD]),
        (["hs[t] = cell(x[t], hs[t - 1])"], [HEAD]),
        (["return cell(x[t], h)"], [HEAD]),
        (["h = cell(x[t], h)"], [HEAD, "x = torch.where(keep, x, head(h))"]),
        (["h = cell(x[t], h)"], [HEAD, "if (h > 3).any():", "break"]),
        (["h = cell(x[t], h)"], ["while h.norm() < 3:", "t += 1"]),
        (["h = layer(c, h)"], ["for layer, c in zip(layers, parts):"]),
        (["h = layer(x[t], h)"], [HEAD, "layer = layers[t]"]),
        (["h = layers[t](x[t], h)"], [HEAD]),
        (["h = getattr(self, f'cell{t}')(x[t], h)"], [HEAD]),
        (["h = cell(x[t], h, t)"], [HEAD]),
        (["h = cell(x[t], h, scale=s[t])"], [HEAD]),
        (["h = cell(x[t],"], [HEAD]),
        (["h, g = torch.tanh(self.a(x[:, t]) + self.b(g)), h"], [HEAD]),
        (["h = cell(x, h)"], [HEAD, "if coin():", "x = xs[t]"]),
    ],
)
def test_loops_that_cannot_be_shown_to_be_replaceable(cell, others):
    assert not read_carried_state(cell, [*others, *cell]).takes_sequence


def test_a_line_that_assigns_the_state_is_found():
    masked = ["for t in range(n):", "h = cell(x[t], h)", "h = h * mask[t]"]
    assert read_carried_state(["h = cell(x[t], h)"], masked) == CarriedState(takes_sequence=True)


def test_a_branch_may_contain_the_line_that_assigns_the_state():
    body = [HEAD, "h = cell(x[t], h)", "if t % 10 == 0:", "print(t)"]
    assert read_carried_state(["h = cell(x[t], h)"], body) == CarriedState(takes_sequence=True)


@pytest.mark.parametrize(
    ("line", "steady"),
    [
        ("h = F.linear(x, self.weight, self.bias)", True),
        ("h = F.linear(x, self.weights[i])", False),
        ("h = torch.tanh(self.lin(z))", True),
        ("h = torch.tanh(self.lins[i](z))", False),
        ("f = g.chunk(4, 1)[0].sigmoid()", True),
    ],
)
def test_weights_taken_from_a_list_may_differ(line, steady):
    assert has_steady_weights([line], set()) is steady
