"""Whether the rounds of a loop are independent, as far as the source of its lines shows."""

from __future__ import annotations

import pytest

from profkit.patterns.loops.independent_rounds import head_of, rounds_are_independent, rounds_recur
from profkit.run.directory import CallSite

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
        pytest.param((HEAD, "out.append(table.clone() * x)"), id="a copy of what stays"),
        pytest.param((f"{HEAD}  # each", "out.append(  # one", "x * y,  # more"), id="comments"),
    ],
)
def test_rounds_that_only_gather_results_are_independent(lines):
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
        pytest.param((HEAD, "out.append(table.advance() * x)"), id="a method that may change what stays"),
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
        pytest.param(("for _ in range(n):", "out.append(x * y)"), id="the same each time"),
        pytest.param(("out = [x * y for _ in range(n)]",), id="the same each time, in a comprehension"),
        pytest.param((HEAD, "z = x * y"), id="no result is kept"),
    ],
)
def test_rounds_that_may_need_an_earlier_one_are_dependent(lines):
    assert not independent(*lines)


def test_a_function_without_side_effects_may_be_called():
    pure = ("difference = (x - y).abs()", "return difference.mean() + F.relu(x).sum()")
    assert independent(HEAD, "out.append(distance(x, y))", called=pure)
    assert not independent(HEAD, "out.append(distance(x, y))", called=("self.seen += 1", *pure))
    assert not independent(HEAD, "out.append(distance(x, y))", called=("history.append(x)", *pure))


@pytest.mark.parametrize(
    ("called", "is_independent"),
    [
        pytest.param(
            ("out = torch.zeros(n)", "out[i] = self.layers[i](x)", "return out"), True, id="a tensor of its own"
        ),
        pytest.param(("parts = []", "parts.append(self.cell(x))", "return torch.cat(parts)"), True, id="its own list"),
        pytest.param(("h = x.clone()", "h += y", "h.mul_(2)", "return h"), True, id="its own copy"),
        pytest.param(("out = self.table", "out[i] = x", "return out"), False, id="a table that stays"),
        pytest.param(("out[i] = x", "out = torch.zeros(n)", "return out"), False, id="before it is made"),
        pytest.param(("out = x.view(-1)", "out[i] = y", "return out"), False, id="a view of its input"),
        pytest.param(("h = torch.zeros(n)", "h = self.state", "h += x", "return h"), False, id="another by then"),
        pytest.param(("parts = []", "parts.append(self.states.pop())", "return parts"), False, id="changed elsewhere"),
        pytest.param(("x += y", "return x"), False, id="its input"),
    ],
)
def test_a_function_may_fill_what_it_made(called, is_independent):
    assert independent(HEAD, "out.append(model(x, y))", called=called) is is_independent


def test_what_one_function_made_another_may_not_fill():
    lines = [CallSite("b.py", 5, "g", "out = torch.zeros(n)"), CallSite("b.py", 9, "h", "out[0] = x")]
    body = [CallSite("a.py", 1, "f", HEAD), CallSite("a.py", 2, "f", "kept.append(model(x))")]
    assert not rounds_are_independent(body, lines)


def test_a_line_after_closing_brackets_begins_a_new_statement():
    """Line 4 holds only closing brackets and does not run."""
    sites = [
        CallSite("a.py", 1, "f", HEAD),
        CallSite("a.py", 2, "f", "out.append("),
        CallSite("a.py", 3, "f", "F.mse_loss(x, h),"),
        CallSite("a.py", 5, "f", "h = x * y"),
    ]
    assert not rounds_are_independent(sites, [])


def recurs(*lines: str, computing: int = -1) -> bool:
    body = [CallSite("a.py", 10 + number, "f", line) for number, line in enumerate(lines)]
    return rounds_recur(body, [body[computing]])


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("last = x[t] + decay * last",), id="smoothed"),
        pytest.param(("if t == 0:", "following = x[t + 1]", "out[t] = last = following + decay * last"), id="returns"),
        pytest.param(("a, b = b, a + b",), id="two values"),
        pytest.param(("h = torch.tanh(w * h + x[t])",), id="through a function"),
    ],
)
def test_a_value_made_from_that_of_the_last_round_is_a_recurrence(lines):
    assert recurs("for t in range(n):", *lines)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("total = total + w[i] * x[i]",), id="sum"),
        pytest.param(("total = x[i] * total",), id="product"),
        pytest.param(("best = torch.maximum(best, x[i])",), id="largest"),
        pytest.param(("v = x[i]", "v = v / (v + 1)"), id="made in the same round"),
        pytest.param(("out[i] = x[i] / x[i].norm()",), id="no name is assigned"),
    ],
)
def test_sums_products_and_maxima_are_no_recurrences(lines):
    assert not recurs("for i in range(n):", *lines)


def recurs_through(*lines: str) -> bool:
    """All lines but the head compute."""
    body = [CallSite("a.py", 10 + number, "f", line) for number, line in enumerate(lines)]
    return rounds_recur(body, body[1:])


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("paths = scores + best[:, None]", "best, came = paths.max(dim=1)"), id="the best path"),
        pytest.param(("new = torch.logsumexp(x + state, 1)", "state.masked_scatter_(m, new[m])"), id="written into"),
        pytest.param(("y = x + decay * before", "before = y"), id="handed on"),
        pytest.param(("d = x - mean", "mean = mean + d / n"), id="a step towards"),
        pytest.param(("h /= h.norm() + x",), id="in place, by an operator"),
    ],
)
def test_a_recurrence_may_go_through_several_lines(lines):
    assert recurs_through("for x, scores in rows:", *lines)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("v = x * scores", "total = total + v"), id="sum"),
        pytest.param(("v = x * scores", "total += v"), id="sum, by an operator"),
        pytest.param(("v = x * scores", "total.add_(v)"), id="sum, in place"),
        pytest.param(("d = x - before", "before = x"), id="differences"),
        pytest.param(("total = total + x", "mean = total / n", "out.append(mean)"), id="made of a running sum"),
        pytest.param(("low, high = high, x.amax()",), id="two values"),
        pytest.param(("state.copy_(x * 2)", "y = state + scores"), id="written anew"),
    ],
)
def test_what_is_added_up_or_handed_on_is_no_recurrence(lines):
    assert not recurs_through("for x, scores in rows:", *lines)


def test_only_computing_lines_of_innermost_loops_count():
    assert not recurs("for x in xs:", "k = (k + 1) % n", "out[k] = x * 2")
    assert recurs("for x in xs:", "k = (k + 1) % n", "out[k] = x * 2", computing=1)
    assert not recurs("for world in worlds:", "for t in range(n):", "last = x[t, world] + decay * last")


def test_the_head_of_a_loop_is_its_for_or_the_comprehension():
    lines = [CallSite("a.py", 3, "f", "y = x * 2"), CallSite("a.py", 2, "f", "for x in xs:")]
    assert head_of(lines).line == 2
    assert head_of([CallSite("a.py", 7, "<listcomp>", "out = [x * 2 for x in xs]")]).line == 7


def writing(*lines: str) -> bool:
    body = [CallSite("a.py", 10 + number, "f", line) for number, line in enumerate(lines)]
    return rounds_are_independent(body, [], may_go_through_a_model=True, may_write=True)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((HEAD, "y.mul_(decay).add_(x, alpha=1 - decay)"), id="in place"),
        pytest.param((HEAD, "x += y"), id="in place, by an operator"),
        pytest.param((HEAD, "x.grad = x.grad * y"), id="an attribute"),
        pytest.param(("for i in range(n):", "out[i] = w[i] @ x[i]"), id="a row of the result"),
        pytest.param(("for k, p in ps:", "mean[k] = d * mean[k] + p"), id="the same place, read and written"),
        pytest.param((HEAD, "if y is not None:", "x.add_(y)"), id="a branch"),
        pytest.param(("for group in groups:", "for p in group['params']:", "p.mul_(2)"), id="loops in one another"),
    ],
)
def test_rounds_may_write_to_what_the_head_gives_them(lines):
    assert writing(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("for i in range(n):", "out[i] = w[i] @ out[i - 1]"), id="the row before"),
        pytest.param(("for i in range(n):", "out[i] = x[i]", "s.append(out.sum())"), id="the whole result"),
        pytest.param(("for i in range(n):", "out[0] = x[i]"), id="one place for all"),
        pytest.param((HEAD, "state.mul_(x)"), id="one tensor for all"),
        pytest.param((HEAD, "for z in zs:", "x.add_(z)"), id="loops side by side"),
        pytest.param((HEAD, "total += x", "y.mul_(total)"), id="a running sum"),
        pytest.param((HEAD, "x.add_(y).backward()"), id="an effect"),
    ],
)
def test_rounds_that_write_to_more_depend_on_each_other(lines):
    assert not writing(*lines)


@pytest.mark.parametrize(
    ("lines", "is_independent"),
    [
        pytest.param((HEAD, "loss = f(x, y) / 8", "loss.backward()"), True, id="a pass in each round"),
        pytest.param((HEAD, "f(x, y).backward()"), True, id="of what has no name"),
        pytest.param((HEAD, "g = torch.autograd.grad(f(x, y), params)", "out.append(g)"), True, id="its own gradients"),
        pytest.param((HEAD, "w = dict(net.named_parameters())", "f(w, x).backward()"), True, id="parameters are read"),
        pytest.param((HEAD, "f(x, y).backward()", "out.append(w.grad.norm())"), False, id="gradients are read"),
        pytest.param((HEAD, "f(x, y).backward()", "opt.step()"), False, id="training"),
        pytest.param((HEAD, "f(x, y).backward()", "opt.zero_grad()"), False, id="gradients are cleared"),
        pytest.param((HEAD, "f(x, y).backward()", "w.sub_(0.1)"), False, id="weights are written"),
        pytest.param((HEAD, "h = f(x, h)", "h.sum().backward()"), False, id="carried"),
        pytest.param(("for _ in range(8):", "x, y = batch()", "f(x, y).backward()"), False, id="no input of its own"),
    ],
)
def test_rounds_may_differentiate_but_read_no_gradients(lines: tuple[str, ...], is_independent: bool):
    body = [CallSite("a.py", 10 + number, "f", line) for number, line in enumerate(lines)]
    assert rounds_are_independent(body, [], may_differentiate=True) is is_independent
