"""Lines that run equal operators again and again, in loops and in recursions."""

from __future__ import annotations

from profkit.patterns.flow.equal_calls import equal_calls
from profkit.run.directory import CallSite
from tests.traces import facts_of, mark, op, rows_named, step

NODE = CallSite("tree.py", 9, "Tree.encode", "both = torch.cat([self.encode(left), self.encode(right)])")


def nested(inner: str = "aten::cat"):
    """A call that calls its own function twice, and works after both."""
    marks = [mark(0, 10, 100), mark(0, 20, 30), mark(0, 60, 30)]
    ops = [op(inner, 25, 5), op(inner, 65, 5), op("aten::cat", 95, 5)]
    return facts_of([step(0, 0, 200), *marks, *ops, step(1, 200, 200), op("aten::cat", 250, 5)], callsites=(NODE,))


def test_calls_of_a_recursion_have_the_operators_that_they_call_themselves():
    facts = nested()
    (found,) = equal_calls(facts, 3)
    assert found.operators.ravel().tolist() == rows_named(facts.trace, "aten::cat")[:3]
    assert len(found.marks) == 3


def test_calls_of_a_recursion_with_other_operators_are_not_equal():
    assert list(equal_calls(nested("aten::stack"), 3)) == []


def test_the_rounds_of_a_generator_are_no_recursion():
    """Its marks lie inside that of its line; what a function calls in each round belongs to the round."""
    line = CallSite("loss.py", 9, "loss", "total = sum(error(x, y) for x, y in zip(xs, ys))")
    body = CallSite("loss.py", 3, "error", "return (x - y).abs()")
    marks = [mark(0, 10, 100), *(mark(code, 20 + 20 * i + code, 12 - code) for i in range(3) for code in (0, 1))]
    ops = [op(name, 22 + 20 * i + 4 * k, 3) for i in range(3) for k, name in enumerate(("aten::sub", "aten::abs"))]
    facts = facts_of(
        [step(0, 0, 200), *marks, *ops, step(1, 200, 200), op("aten::abs", 250, 5)], callsites=(line, body)
    )
    of_rounds = next(equal_calls(facts, 3))
    assert (of_rounds.site, of_rounds.operators.shape) == (0, (3, 2))
