"""Faults in words that strangers use for them: each change beside a text that looks alike, where it is refused."""

from __future__ import annotations

from textwrap import dedent

import pytest

from profkit.rules.changes import AltersNumbers, Refused
from tests.rules.changes.test_deferring import printed
from tests.rules.changes.test_restructured import changed

HAND_ZEROED = """
    import torch
    w = torch.ones(3, requires_grad=True)
    {before}
    for _ in range(3):
        (w * w).sum().backward()
        with torch.no_grad():
            {step}
            {filled}.zero_()  # here
    print(w.tolist(){also})
"""


def hand_zeroed(filled: str = "w.grad", step: str = "w -= 0.1 * w.grad", before: str = "pass", also: str = "") -> str:
    return dedent(HAND_ZEROED.format(filled=filled, step=step, before=before, also=also)).lstrip("\n")


@pytest.mark.parametrize("filled", ["w.grad", "w.grad.data"])
@pytest.mark.parametrize("step", ["w -= 0.1 * w.grad", "w.sub_(torch.mul(w.grad, 0.1))"])
def test_a_gradient_that_is_zeroed_by_hand_goes(filled, step):
    text = hand_zeroed(filled, step)
    after = changed("zero-filled-gradients", text)
    assert "w.grad = None  # here\n" in after
    assert printed(after) == printed(text)


@pytest.mark.parametrize(
    ("before", "step", "reason"),
    [
        ("kept = []", "kept.append(w.grad)", "keeps a gradient"),
        ("pass", "kept = w.grad", "keeps a gradient"),
        ("pass", "kept = [w.grad]", "keeps a gradient"),
        ("pass", "kept = (w.grad, 1)", "keeps a gradient"),
    ],
)
def test_a_gradient_that_somebody_keeps_is_zeroed_in_place(before, step, reason):
    with pytest.raises(Refused, match=reason):
        changed("zero-filled-gradients", hand_zeroed(before=before, step=step))


@pytest.mark.parametrize("filled", ["w", "w.grad[0]", "w.data"])
def test_what_is_no_gradient_stays(filled):
    with pytest.raises(Refused, match="does not fill one gradient"):
        changed("zero-filled-gradients", hand_zeroed(filled))


KEPT = """
    import collections, torch
    class Memory:
        def __init__(self):
            self.rows = collections.deque(maxlen=9)
        def push(self, row, reward):
            {change}
            self.rows.append((row, reward))
    memory, Pair = Memory(), collections.namedtuple("Pair", "row reward")
    for n in range(4):
        frames = torch.full((5, 2), float(n))
        {line}  # here
        {later}
    print([row.tolist() for row, _ in memory.rows])
"""


def kept(line: str, change: str = "pass", later: str = "pass") -> str:
    return dedent(KEPT.format(line=line, change=change, later=later)).lstrip("\n")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("memory.push(frames[n], 1.0)", "memory.push(frames[n].clone(), 1.0)"),
        ("memory.push(frames.select(0, n).detach(), 1)", "memory.push(frames.select(0, n).detach().clone(), 1)"),
        ("memory.rows.append((frames[n], 0.5))", "memory.rows.append((frames[n].clone(), 0.5))"),
        ("memory.rows.append(Pair(frames[n], 1))", "memory.rows.append(Pair(frames[n].clone(), 1))"),
    ],
)
def test_of_what_a_line_keeps_the_only_part_is_copied(line, after):
    made = changed("oversized-storage", kept(line))
    assert made == kept(line).replace(line, after)
    assert printed(made) == printed(kept(line))


@pytest.mark.parametrize(
    ("line", "change", "later", "reason"),
    [
        ("memory.push(frames[n], frames[0, 0])", "pass", "pass", "several values are kept at once"),
        ("memory.push(frames, 1.0)", "pass", "pass", "several values are kept at once"),
        ("memory.rows.append(Pair(*both))", "pass", "pass", "several values are kept at once"),
        ("memory.push(row['frame'], 1.0)", "pass", "pass", "several values are kept at once"),
        ("memory.push(frames[n], 1.0)", "row.mul_(2)", "pass", "`push` changes `row` in place"),
        ("memory.push(frames[n], 1.0)", "pass", "frames.zero_()", "`frames` is changed in place"),
    ],
)
def test_what_may_be_another_part_or_has_to_follow_is_not_copied(line, change, later, reason):
    with pytest.raises(Refused, match=reason):
        changed("oversized-storage", kept(line, change, later))


COUNTED = """
    import collections, torch
    counter = collections.Counter()
    words, kinds = torch.tensor([[3], [1], [3]]), torch.tensor([0.5, 1.5, 0.5])
    {before}
    for {head}:
        {body}  # here
    print(sorted(counter.items()))
"""


def counted(head: str, body: str, before: str = "pass") -> str:
    return dedent(COUNTED.format(head=head, body=body, before=before)).lstrip("\n")


@pytest.mark.parametrize(
    ("head", "body", "after"),
    [
        ("word in words", "counter[word.item()] += 1", ("word in words.flatten().tolist()", "counter[word] += 1")),
        ("word in words.view(-1)", "counter[int(word)] += 1", ("words.view(-1).tolist()", "counter[int(word)] += 1")),
        (
            "word, kind in zip(words, kinds)",
            "counter[word.item(), kind.item()] += 1",
            ("zip(words.flatten().tolist(), kinds.flatten().tolist())", "counter[word, kind] += 1"),
        ),
    ],
)
def test_a_loop_that_reads_elements_as_numbers_goes_over_numbers(head, body, after):
    made = changed("tensor-element-loop", counted(head, body))
    assert all(part in made for part in after)
    assert printed(made) == printed(counted(head, body))


@pytest.mark.parametrize(
    ("head", "body", "before"),
    [
        ("word in words", "counter[word.item()] += word", "pass"),  # a tensor is read, too
        ("word in words", "counter[word.item()] += 1; words.add_(1)", "pass"),
        ("word in rows", "counter[word.item()] += 1", "rows = [*words]"),
        ("word in map(abs, words)", "counter[hash(word)] += 1", "pass"),
    ],
)
def test_a_loop_that_does_more_with_elements_stays(head, body, before):
    with pytest.raises(Refused):
        changed("tensor-element-loop", counted(head, body, before))


ATTENTION = """
    import torch
    from torch import nn
    def attend(q, k, v):
        {first}
        sim = q @ k.transpose(-1, -2) * 0.25  # here
        {between}
        sim = sim.masked_fill(causal, {lowest})
        attn = sim.softmax(dim=-1)
        return attn @ v
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 8, 4, requires_grad=True) for _ in range(3))
    out = attend(q, k, v)
    out.square().sum().backward()
    print(*(f"{{one.square().sum():.4f}}" for one in (out, q.grad, k.grad, v.grad)))
"""
CAUSAL = "causal = torch.ones((8, 8), dtype=torch.bool, device=k.device).triu(1)"


def attention(between: str = CAUSAL, lowest: str = "-torch.finfo(sim.dtype).max", first: str = "pass") -> str:
    return dedent(ATTENTION.format(between=between, lowest=lowest, first=first)).lstrip("\n")


@pytest.mark.parametrize("lowest", ["-torch.finfo(sim.dtype).max", "torch.finfo(sim.dtype).min", 'float("-inf")'])
def test_a_mask_that_is_made_between_the_lines_of_attention_stays_there(lowest):
    made = changed("unfused-attention", attention(lowest=lowest))
    assert "scaled_dot_product_attention" in made
    assert CAUSAL in made
    assert "sim" not in made
    assert printed(made) == printed(attention(lowest=lowest))


@pytest.mark.parametrize(
    ("first", "between"),
    [
        (CAUSAL, "k = k * 2"),  # the fused call would read this one
        (CAUSAL, "top = sim.amax()"),
        (CAUSAL, "k[0] = 0"),
        (CAUSAL, "other = k.mul_(2)"),
        (CAUSAL, "other = change(k)"),
        ("pass", "causal = torch.ones_like(sim).triu(1).bool()"),
        ("pass", "causal = torch.ones((8, 8), dtype=torch.bool, device=sim.device).triu(1)"),  # what is gone
    ],
)
def test_a_line_between_that_may_change_what_the_formula_reads_is_refused(first, between):
    with pytest.raises(Refused):
        changed("unfused-attention", attention(between, first=first))


PREPARED = """
    import functools
    import torch
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    {reset}
    for _ in range(3):
        reset()  # here
        (w * w).sum().backward()
        optimizer.step()
    print(w.tolist())
"""


def prepared(reset: str) -> str:
    return dedent(PREPARED.format(reset=reset)).lstrip("\n")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("optimizer.zero_grad, set_to_none=False", "reset = optimizer.zero_grad\n"),
        ("torch.optim.Optimizer.zero_grad, optimizer, set_to_none=False",
         "reset = functools.partial(torch.optim.Optimizer.zero_grad, optimizer)\n"),
    ],
)  # fmt: skip
def test_what_a_partial_was_given_goes_where_it_was_given(given, left):
    text = prepared(f"reset = functools.partial({given})")
    after = changed("zero-filled-gradients", text)
    assert left in after
    assert ("import functools" in after) == ("functools" in left)
    assert printed(after) == printed(text)


@pytest.mark.parametrize(
    ("reset", "reason"),
    [
        ("reset = functools.partial(optimizer.zero_grad, set_to_none=w.is_leaf)", "does not say `set_to_none=False`"),
        ("reset = functools.partial(optimizer.zero_grad)", "does not say `set_to_none=False`"),
        ("reset = functools.partial(print, set_to_none=False)", "no calls of `zero_grad`"),
        ("reset = functools.partial(optimizer.zero_grad, set_to_none=False)\n    reset = reset", "no calls of"),
        ("def reset(): optimizer.zero_grad(set_to_none=False)", "no calls of `zero_grad`"),
    ],
)
def test_a_variable_that_is_no_such_partial_is_refused(reset, reason):
    with pytest.raises(Refused, match=reason):
        changed("zero-filled-gradients", prepared(reset))


STEPPED = """
    import torch
    class World:
        def __init__(self):
            self.state = torch.zeros(2)
        def step(self, by):
            {moved}
            return {given}
    world, seen = World(), torch.empty(0, 2)
    for by in range(4):
        {taken}
        seen = torch.cat([seen, state[None]])  # here
    print(seen.tolist())
"""
MOVED, NEW = "self.state += by", "self.state = self.state + by"


@pytest.mark.parametrize(
    ("moved", "given", "taken", "appended"),
    [
        (MOVED, "self.state", "state = world.step(by)", "state[None].clone()"),
        (MOVED, "self.state, by", "state, reward = world.step(by)", "state[None].clone()"),
        (MOVED, "self.state[:2].view(2)", "state = world.step(by)", "state[None].clone()"),
        (NEW, "self.state * 1", "state = world.step(by)", "state[None]"),
        ("new = torch.zeros(2) + by", "new", "state = world.step(by)", "state[None]"),
    ],
)
def test_a_state_that_somebody_writes_over_is_copied(moved, given, taken, appended):
    text = dedent(STEPPED.format(moved=moved, given=given, taken=taken)).lstrip("\n")
    after = changed("growing-concatenation", text)
    assert f"seen_parts.append({appended})" in after
    assert printed(after) == printed(text)


HEAD = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    {constants}
    class Twice(nn.Linear):
        def forward(self, x):
            x.mul_(2)
            return super().forward(x)
    class Head(nn.Module):
        def __init__(self{taken}):
            super().__init__()
            self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
            self.value = {value}
            self.dropout = nn.Dropout({share})
        def forward(self, x):
            q, k = self.query(x), self.key(x)
            w = q @ k.transpose(-2, -1)  # here
            w = F.softmax(w, dim=-1)
            w = self.dropout(w)
            v = self.value({given})
            return w @ v
    torch.manual_seed(0)
    print(Head()(torch.rand(2, 5, 4)).tolist())
"""


def head(
    share: str = "0.0", value: str = "nn.Linear(4, 4)", given: str = "x", constants: str = "pass", taken: str = ""
) -> str:
    text = HEAD.format(share=share, value=value, given=given, constants=constants, taken=taken)
    return dedent(text).lstrip("\n")


@pytest.mark.parametrize(
    "text",
    [
        head(),
        head("p=0"),
        head("share", constants="share = 0.0"),
        head(given="x.reshape(2, 5, 4).view(2, 5, 4)"),
    ],
)
def test_values_that_are_computed_right_before_they_are_weighted_stay_there(text):
    after = changed("unfused-attention", text)
    assert "v = self.value(" in after
    assert "F.scaled_dot_product_attention" in after
    assert "softmax" not in after


@pytest.mark.parametrize(
    ("share", "constants", "taken"),
    [
        ("0.1", "pass", ""),
        ("share", "share = 0.1", ""),
        ("share", "share = 0.0\n    share = 0.2", ""),
        ("share", "share = 0.0\n    share += 0.2", ""),
        ("share", "share = 0.0", ", share=0.3"),
        ("share", "import sys\n    share = float(len(sys.argv) > 9)", ""),
    ],
)
def test_a_dropout_that_may_drop_something_alters_numbers(share, constants, taken):
    with pytest.raises(AltersNumbers, match="drops out other weights"):
        changed("unfused-attention", head(share, constants=constants, taken=taken))


CORNER = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    class Head(nn.Module):
        def __init__(self, size=6):
            super().__init__()
            self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("bias", {made})
            {more}
        def forward(self, x):
            T, S = x.size(1), x.size(1)
            q, k, v = self.query(x), self.key(x), self.value(x)
            w = q @ k.transpose(-2, -1)  # here
            w = w.masked_fill(self.bias{corner} == 0, float("-inf"))
            w = F.softmax(w, dim=-1)
            return w @ v
    torch.manual_seed(0)
    print([round(one, 4) for one in Head()(torch.rand(2, 5, 4)).flatten().tolist()])
"""
TRIANGLE = "torch.tril(torch.ones(size, size))"


def corner(made: str = TRIANGLE, corner: str = "[:T, :T]", more: str = "pass") -> str:
    return dedent(CORNER.format(made=made, corner=corner, more=more)).lstrip("\n")


@pytest.mark.parametrize(
    "text",
    [
        corner(),
        corner(made="torch.tril(torch.ones((size, size)))"),
        corner(made=f"{TRIANGLE}.view(1, 1, size, size)", corner="[:, :, :T, :T]"),
    ],
)
def test_the_corner_of_a_lower_triangle_is_called_causal(text):
    after = changed("unfused-attention", text)
    assert "is_causal=True" in after
    assert "attn_mask" not in after
    if ".view(" not in text:  # which has four dimensions
        assert printed(after) == printed(text)


@pytest.mark.parametrize(
    "text",
    [
        corner(made="torch.triu(torch.ones(size, size))"),
        corner(made="torch.tril(torch.ones(size, size), 1)"),
        corner(made="torch.tril(torch.ones(size, 2 * size))"),
        corner(corner="[:T, :S]"),
        corner(corner="[1:T + 1, :T]"),
        corner(more="self.bias = torch.ones(size, size)"),
    ],
)
def test_any_other_mask_is_given(text):
    after = changed("unfused-attention", text)
    assert "attn_mask=self.bias[" in after
    assert printed(after) == printed(text)


@pytest.mark.parametrize("value", ["Twice(4, 4)", "make(4)"])
def test_a_layer_that_may_change_what_attention_reads_is_refused(value):
    with pytest.raises(Refused, match="is not a step of plain attention"):
        changed("unfused-attention", head(value=value))


ANNOTATED = """
    from __future__ import annotations
    import torch
    from torch import Tensor, nn
    class Encoder(nn.Module):
        size: int = 3
        def __init__(self, hidden: int) -> None:
            super().__init__()
            self.hidden: int = hidden
            self.cell: nn.GRUCell = nn.GRUCell(2, hidden)
        def forward(self, notes: Tensor) -> Tensor:
            state: Tensor = notes.new_zeros(notes.shape[0], self.hidden)
            {more}
            for note in notes.unbind(1):
                state = self.cell(note, state)  # here
            return state
    torch.manual_seed(0)
    result: Tensor = Encoder(4)(torch.rand(2, 5, 2))
    print(result.tolist())
"""


def annotated(more: str = "total: float = 0.0  # of all") -> str:
    return dedent(ANNOTATED.format(more=more)).lstrip("\n")


def test_annotated_variables_are_read_and_keep_their_annotations():
    text = annotated()
    after = changed("unrolled-recurrence", text)
    assert printed(after) == printed(text)
    gone = [line for line in text.splitlines() if line not in after.splitlines()]
    assert [line.strip() for line in gone] == [
        "self.cell: nn.GRUCell = nn.GRUCell(2, hidden)",
        "state: Tensor = notes.new_zeros(notes.shape[0], self.hidden)",
        "for note in notes.unbind(1):",
        "state = self.cell(note, state)  # here",
    ]
    assert "        self.cell: nn.GRUCell = nn.GRU(2, hidden, batch_first=True)\n" in after


BEGUN = """
    import torch
    from torch import nn
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.{cell}(2, 4)
        def forward(self, notes):
            rows, device = notes.size(0), notes.device
            {begun}
            {more}
            found = []
            for note in notes.unbind(1):
                {states} = self.cell(note, {given})  # here
                found.append(h * 2)
            return torch.stack(found), {states}
    torch.manual_seed(0)
    with torch.no_grad():
        print(Encoder()(torch.rand(2, 5, 2)))
"""


def begun(line: str, more: str = "pass", states: str = "h") -> str:
    cell, given = ("LSTMCell", f"({states})") if "," in states else ("GRUCell", states)
    text = BEGUN.format(cell=cell, begun=line, more=more, states=states, given=given)
    return dedent(text).lstrip("\n")


@pytest.mark.parametrize(
    ("line", "states"),
    [
        ("h = torch.zeros(rows, 4)", "h"),
        ("h = notes.new_zeros(rows, 4, device=device)", "h"),
        ("h = c = torch.zeros(rows, 4)", "h, c"),
        ("h, c = torch.zeros(rows, 4), torch.zeros(rows, 4)", "h, c"),
        ("h = torch.zeros(rows, 4); c = torch.zeros(rows, 4)", "h, c"),
    ],
)
def test_a_state_of_zeros_that_the_layer_takes_by_itself_is_not_made(line, states):
    text = begun(line, states=states)
    after = changed("unrolled-recurrence", text)
    assert printed(after) == printed(text)
    is_two_on_a_line = ";" in line
    assert ("self.cell(notes)\n" in after, "zeros" in after) == (not is_two_on_a_line, is_two_on_a_line)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("h = torch.ones(rows, 4)", "pass"),
        ("h = torch.zeros(rows, 4, dtype=torch.float32)", "pass"),
        ("h = torch.zeros(rows, 4)", "print(h.sum())"),
        ("h = torch.zeros(rows, 4)", "h = h + 1"),
        ("h = torch.zeros((rows, 4))", "pass"),
    ],
)
def test_any_other_state_is_given_to_the_layer(line, more):
    text = begun(line, more)
    after = changed("unrolled-recurrence", text)
    assert printed(after) == printed(text)
    assert line in after
    assert "self.cell(notes, h[None])" in after


def test_an_annotated_state_that_is_no_tensor_is_refused():
    with pytest.raises(Refused):
        changed("unrolled-recurrence", annotated("state: Tensor | None = None"))


def test_with_windows_line_ends_and_tabs_annotations_stay_too():
    text = annotated().replace("    ", "\t").replace("\n", "\r\n")
    after = changed("unrolled-recurrence", text)
    assert after == changed("unrolled-recurrence", annotated()).replace("    ", "\t").replace("\n", "\r\n")
