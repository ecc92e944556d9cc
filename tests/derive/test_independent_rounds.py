"""What the source of a loop's lines says of its rounds."""

from __future__ import annotations

import pytest

from profkit.derive.independent_rounds import rounds_are_independent
from profkit.run import CallSite

HEAD = "for x, y in zip(xs, ys):"


def independent(*lines: str, called: tuple[str, ...] = ()) -> bool:
    body = [CallSite("a.py", 10 + number, "f", line) for number, line in enumerate(lines)]
    return rounds_are_independent(body, [CallSite("b.py", 5 + i, "g", line) for i, line in enumerate(called)])


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((HEAD, "out.append(-x * y)"), id="appended"),
        pytest.param((HEAD, "a = y - x.item()", "out.append(a * x)"), id="a name that each round makes anew"),
        pytest.param((HEAD, "total += F.mse_loss(x, y)"), id="added up"),
        pytest.param((HEAD, "total = total + (x - y).abs()"), id="added up by hand"),
        pytest.param((HEAD, "self.losses.append(self.criterion(x, y) * self.weight)"), id="into an attribute's list"),
        pytest.param(("out = torch.stack([-x * y for x, y in zip(xs, ys)])",), id="comprehension"),
        pytest.param(("loss = sum(x.exp() * y for x, y in zip(xs, ys))",), id="generator"),
        pytest.param(("for t in range(n):", "out.append(r[t] + gamma * v[t + 1] - v[t])"), id="indexed"),
        pytest.param((HEAD, "out.append(", "F.mse_loss(x, y)"), id="statement over several lines"),
    ],
)
def test_rounds_that_only_gather_need_none_before_them(lines):
    assert independent(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((HEAD, "h = a * h + x", "out.append(h)"), id="recurrence"),
        pytest.param((HEAD, "out.append(h * y)", "h = x + y"), id="the last round's value"),
        pytest.param((HEAD, "total = total + x", "out.append(total * y)"), id="running sum"),
        pytest.param((HEAD, "total = (total + x) * y"), id="more than a sum"),
        pytest.param((HEAD, "out.append(out[-1] * x)"), id="what it appended"),
        pytest.param((HEAD, "self.state = x * self.state", "out.append(y)"), id="state in an object"),
        pytest.param((HEAD, "obs = env.step(x * y)", "out.append(obs)"), id="an object's method"),
        pytest.param((HEAD, "out.append(next(noise) * x)"), id="iterator"),
        pytest.param((HEAD, "y.mul_(decay).add_(x, alpha=1 - decay)"), id="in place"),
        pytest.param((HEAD, "table[k] = x * y"), id="into a tensor"),
        pytest.param((HEAD, "torch.add(x, y, out=x)"), id="into its input"),
        pytest.param((HEAD, "x += y"), id="in place, by an operator"),
        pytest.param((HEAD, "if y:", "out.append(x * 2)"), id="branch"),
        pytest.param(("while todo:", "out.append(x * 2)"), id="while"),
        pytest.param((HEAD, "for z in x:", "out.append(z * y)"), id="two loops"),
        pytest.param((HEAD, "loss = x * y", "loss.backward()"), id="backward"),
        pytest.param(("for p in model.parameters():", "total = total + p.pow(2).sum()"), id="parameters"),
        pytest.param(("for p in weights:", "norms.append(p.grad.norm())"), id="gradients"),
        pytest.param(("out = [x * y for x, y in zip(xs, ys) if y]",), id="filtered comprehension"),
        pytest.param(("out = [(h := a * h + x) for x in xs]",), id="recurrence in a comprehension"),
        pytest.param((HEAD, "out.append(x *"), id="unreadable"),
        pytest.param(("out.append(x * y)",), id="no loop"),
        pytest.param((HEAD,), id="no body"),
    ],
)
def test_rounds_that_may_need_one_before_them_are_dependent(lines):
    assert not independent(*lines)


def test_a_function_that_leaves_nothing_behind_may_be_called():
    pure = ("difference = (x - y).abs()", "return difference.mean() + F.relu(x).sum()")
    assert independent(HEAD, "out.append(distance(x, y))", called=pure)
    assert not independent(HEAD, "out.append(distance(x, y))", called=("self.seen += 1", *pure))
    assert not independent(HEAD, "out.append(distance(x, y))", called=("history.append(x)", *pure))


def test_a_line_that_does_not_follow_begins_a_statement_of_its_own():
    """The line between holds closing brackets alone, and does not run."""
    sites = [CallSite("a.py", 1, "f", HEAD), CallSite("a.py", 2, "f", "out.append("),
             CallSite("a.py", 3, "f", "F.mse_loss(x, h),"), CallSite("a.py", 5, "f", "h = x * y")]  # fmt: skip
    assert not rounds_are_independent(sites, [])
