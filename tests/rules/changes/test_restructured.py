"""Changes that move statements or join several lines: the exact text after them, or the reason why there is none."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from profkit.findings.values import Finding, Kind, Location, Severity
from profkit.rules.changes import AltersNumbers, Refused, changed_file

HELD = "Name what this loss is differentiated by: `loss.backward(inputs=list(model.parameters()))`"
TWICE = "Leave the program's own averaging out, with the division by the number of processes."
TRIP = "12 tensors are cast from float32 to float64 and straight back, which moves 3 MB."


def changed(rule: str, text: str, line: int = 0, fix: str = "", message: str = "") -> str:
    """The text after the change. The line is the one with the comment ``# here``, or the first."""
    raw = dedent(text).lstrip("\n")
    here = [number for number, one in enumerate(raw.splitlines(), 1) if "# here" in one]
    location = Location("/p/train.py", line or (here or [1])[0], "main")
    found = Finding(rule, Kind.FAULT, Severity.HIGH, message, 1, 0.9, fix, location)
    return changed_file(raw.encode(), found).decode()


def expect(after: str) -> str:
    return dedent(after).lstrip("\n")


def altered(rule: str, text: str, fix: str = "") -> str:
    with pytest.raises(AltersNumbers) as raised:
        changed(rule, text, fix=fix)
    assert "--unsafe tries it" in str(raised.value)
    return raised.value.after.decode()


def test_a_running_sum_stays_on_the_device_until_the_loop_has_ended():
    before = """
        total = 0.0

        # train
        for n, x in enumerate(data):
            loss = f(x)
            total += loss.item() * len(x)  # here
            if n % 10 == 0:
                print(total / n)
        print(total)
    """
    assert changed("host-sync-in-step", before) == expect("""
        total = 0.0

        # train
        for n, x in enumerate(data):
            loss = f(x)
            total += loss.detach().double() * len(x)  # here
            if n % 10 == 0:
                print(float(total) / n)
        total = float(total)
        print(total)
    """)


def test_a_sum_that_lasts_over_epochs_becomes_a_number_behind_the_outer_loop():
    before = """
        import torch
        def main():
            right = 0
            for epoch in range(3):
                for x, y in data:
                    right += (f(x) == y).sum().cpu().item()  # here
            return right
    """
    assert changed("host-sync-in-step", before) == expect("""
        import torch
        def main():
            right = 0
            for epoch in range(3):
                for x, y in data:
                    right += (f(x) == y).sum().detach()  # here
            right = torch.as_tensor(right).item()
            return right
    """)


def test_a_list_of_numbers_is_read_at_once():
    before = """
        import torch
        for epoch in range(3):
            losses = []
            for x in data:
                losses.append(float(f(x)))  # here
            print(sum(losses))
    """
    assert changed("host-sync-in-step", before) == expect("""
        import torch
        for epoch in range(3):
            losses = []
            for x in data:
                losses.append(f(x).detach())  # here
            losses = torch.stack(losses).flatten().tolist() if losses else []
            print(sum(losses))
    """)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("t = 0.0\nfor x in d:\n    t += x.item()  # here\n    print(t)\n", "line 4 reads `t` in each round"),
        ("t = 0.0\nfor x in d:\n    t += x.item()  # here\n    if x: t = 0\n", "`t` is set at 2 places"),
        ("t = 0.0\nfor x in d:\n    t += x  # here\n", "no numbers of"),
        ("for x in d:\n    self.t += x.item()  # here\n", "is no variable of the function"),
        ("t = 0.0\nt += x.item()  # here\n", "stands in no loop"),
        ("t = start\nfor x in d:\n    t += x.item()  # here\n", "begins as `start`"),
        ("for x in d:\n    if x > 1:  # here\n        f()\n", "the line is not one plain statement"),
        ("a = []\nfor x in d:\n    a.append(x.item())  # here\n    if x: f(a)\n", "read inside of the loop too"),
        ("a = []\nfor x in d:\n    a.append(2 * x.item())  # here\n", "part of what is collected"),
    ],
)
def test_a_number_that_the_loop_needs_is_still_read(text, reason):
    with pytest.raises(Refused, match=reason):
        changed("host-sync-in-step", text)


ATTENTION = """
    import math, torch
    import torch.nn.functional as F
    class A(nn.Module):
        def forward(self, q, k, v, mask):
            # scores of all pairs
            scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))  # here
            {}weights = F.softmax(scores, dim=-1)
            {}out = weights @ v
            return out
"""
FUSED = """
    import torch
    import torch.nn.functional as F
    class A(nn.Module):
        def forward(self, q, k, v, mask):
            # scores of all pairs
            out = F.scaled_dot_product_attention(q, k, v{})
            return out
"""
INDENT = "\n" + 12 * " "


def on_one_line(text: str) -> str:
    """Without the lines of a call that has one for each argument."""

    def joined(found: re.Match[str]) -> str:
        return f"({', '.join(row.strip().rstrip(',') for row in found[1].splitlines() if row.strip())})"

    return re.sub(r"\(\n +((?:.+,\n *)+)\)", joined, text)


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("", ""),
        ("scores = scores.masked_fill(mask == 0, float('-inf'))", ", attn_mask=mask != 0"),
        ("scores = scores.masked_fill(mask, -1e9)", ", attn_mask=torch.where(mask, -1e9, 0.0).to(q.dtype)"),
        ("scores = scores + mask", ", attn_mask=mask"),
    ],
)
def test_attention_becomes_one_call_with_its_mask(line, argument):
    before = ATTENTION.format(line and line + INDENT, "")
    assert on_one_line(changed("unfused-attention", before)) == expect(FUSED.format(argument))


def test_attention_with_a_mask_that_may_be_missing_and_a_return():
    before = """
        import math, torch
        import torch.nn.functional as F
        def attention(q, k, v, mask=None):
            # all pairs
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            # leave out
            if mask is not None:
                scores = scores.masked_fill(mask == 0, -1e9)
            scores = torch.softmax(scores, dim=-1)  # here
            return torch.matmul(scores, v)
    """
    assert changed("unfused-attention", before) == expect("""
        import torch
        import torch.nn.functional as F
        def attention(q, k, v, mask=None):
            # all pairs
            # leave out
            return F.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=None if mask is None else torch.where(mask == 0, -1e9, 0.0).to(q.dtype),
            )
    """)
    with pytest.raises(Refused, match="line 9 is not a step of plain attention"):
        changed("unfused-attention", before.replace("-1e9)\n", "-1e9)\n            x = scores.sum()\n"))


def test_a_softmax_in_float32_is_what_the_fused_call_does():
    line = "weights = F.softmax(scores.float(), dim=-1).type_as(q)"
    before = ATTENTION.format("", "").replace("weights = F.softmax(scores, dim=-1)", line)
    assert changed("unfused-attention", before) == expect(FUSED.format(""))


def test_attention_keeps_its_dropout_but_draws_other_numbers():
    for line, argument in (
        ("weights = self.dropout(weights)", ", dropout_p=self.dropout.p if self.training else 0.0"),
        ("weights = F.dropout(weights, 0.1, self.training)", ", dropout_p=0.1 if self.training else 0.0"),
    ):
        after = altered("unfused-attention", ATTENTION.format("", line + INDENT))
        assert on_one_line(after) == expect(FUSED.format(argument))


@pytest.mark.parametrize(
    ("scale", "argument"),
    [
        ("", ", scale=1.0"),
        (" * self.scale", ", scale=self.scale"),
        (" / 8", ", scale=1 / 8"),
        (" / (d ** 0.5)", ", scale=1 / (d ** 0.5)"),
        (" / math.sqrt(k.shape[-1])", ""),
    ],
)
def test_attention_keeps_its_scale(scale, argument):
    before = ATTENTION.format("", "").replace(" / math.sqrt(q.size(-1))", scale)
    unused = "math" not in scale  # before the change already: that is its author's
    fused = FUSED.replace("import torch\n", "import math, torch\n", 1) if unused else FUSED
    assert changed("unfused-attention", before) == expect(fused.format(argument))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("return out", "return out, weights", "line 9 names `weights` too"),
        ("weights @ v", "weights + v", "line 8 is not a step of plain attention"),
        ("dim=-1", "dim=1", "line 7 is not a step of plain attention"),
        ("k.transpose(-2, -1)", "k", "no product of queries and transposed keys"),
        ("import torch.nn.functional as F", "", "the file does not import torch"),
    ],
)
def test_what_is_not_plain_attention_stays(before, after, reason):
    text = ATTENTION.format("", "").replace("import math, torch\n", "import math\n")
    with pytest.raises(Refused, match=reason):
        changed("unfused-attention", text.replace(before, after))


def test_what_grows_is_collected_and_joined_once():
    before = """
        for d in documents:
            encoded = torch.empty(0, 8)

            for p in d:
                encoded = torch.cat([encoded, f(p)], dim=0)  # here
            use(encoded)
    """
    assert changed("growing-concatenation", before) == expect("""
        for d in documents:
            encoded = torch.empty(0, 8)

            encoded_parts = [encoded]
            for p in d:
                encoded_parts.append(f(p))  # here
            encoded = torch.cat(encoded_parts, dim=0)
            use(encoded)
    """)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for p in d:\n    e = torch.cat([e, f(p)])  # here\n    g(e)\n", "line 3 names `e` inside of the loop too"),
        ("for p in d:\n    e = torch.cat([e, f(e)])  # here\n", "what is joined to `e` is computed from it"),
        ("for p in d:\n    e = torch.cat([f(p), e])  # here\n", "`e` does not grow at its end"),
        ("e = torch.cat([e, f(p)])  # here\n", "stands in no loop"),
        ("for p in d:\n    self.e = torch.cat([self.e, p])  # here\n", "stands in no plain method of a class"),
    ],
)
def test_what_is_read_while_it_grows_stays(text, reason):
    with pytest.raises(Refused, match=reason):
        changed("growing-concatenation", text)


def test_what_does_not_change_in_a_loop_moves_in_front_of_it():
    before = """
        def main():
            for edges, x in data:
                # all layers
                for layer in layers:
                    # of the graph
                    weight = normalise(edges)  # here
                    x = spread(layer(x), weight)
    """
    assert changed("redundant-recomputation", before) == expect("""
        def main():
            for edges, x in data:
                # of the graph
                weight = normalise(edges)  # here
                # all layers
                for layer in layers:
                    x = spread(layer(x), weight)
    """)


def test_only_what_is_the_same_in_each_step_leaves_all_loops():
    before = "for x in d:\n    for l in ls:\n        y = f(w)  # here\n        l(x, y)\n"
    inner = "for x in d:\n    y = f(w)  # here\n    for l in ls:\n        l(x, y)\n"
    outer = "y = f(w)  # here\nfor x in d:\n    for l in ls:\n        l(x, y)\n"
    assert changed("redundant-recomputation", before) == inner
    assert changed("redundant-recomputation", before, fix="Compute it once, before the loop or where") == outer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for x in d:\n    y = torch.randn(w)  # here\n", "calls `randn`, which gives something else each time"),
        ("for x in d:\n    y = f(w)  # here\n    w.append(x)\n", "`w`, which it reads, changes in the loop"),
        ("for x in d:\n    y = f(x)  # here\n", "`x`, which it reads, changes in the loop"),
        ("for x in d:\n    y = f(w)  # here\n    w.add_(1)\n", "`w`, which it reads, changes in the loop"),
        ("for x in d:\n    y = f(w)  # here\n    y += 1\n", "`y` changes in the loop"),
        ("for x in d:\n    g(y)\n    y = f(w)  # here\n", "`y` changes in the loop"),
        ("y = f(w)  # here\n", "stands in no loop"),
        ("for x in d:\n    f(w)  # here\n", "does not assign what it computes"),
    ],
)
def test_what_a_loop_changes_stays_in_it(text, reason):
    with pytest.raises(Refused, match=reason):
        changed("redundant-recomputation", text)


def test_what_is_sent_in_each_round_is_sent_once():
    before = "for x in d:\n    y = f(x, mask.to(device))  # here\n"
    after = "mask_there = mask.to(device)\nfor x in d:\n    y = f(x, mask_there)  # here\n"
    assert changed("repeated-transfer", before) == after
    with pytest.raises(Refused, match="what is sent, or where to, is set inside of the loop"):
        changed("repeated-transfer", "for x in d:\n    y = x.to(device)  # here\n")


def test_what_a_module_sends_becomes_its_buffer():
    before = """
        class M(nn.Module):
            def __init__(self, table):
                self.table = table  # ours

            def forward(self, x):
                return x + self.table.to(x.device)  # here
    """
    after = expect(before).replace("self.table = table", 'self.register_buffer("table", table, persistent=False)')
    assert changed("repeated-transfer", before) == after
    with pytest.raises(Refused, match="is not set once, in the constructor"):
        changed("repeated-transfer", before.replace("return x", "self.table = x"))


def test_a_copy_from_a_loader_waits_no_more():
    before = """
        loader = DataLoader(d, batch_size=8)
        for n, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)  # here
    """
    after = expect(before).replace("=8", "=8, pin_memory=True").replace("(device)", "(device, non_blocking=True)")
    assert changed("pageable-transfer", before) == after
    other = "def f():\n    loader = DataLoader(e)\n"
    assert changed("pageable-transfer", other + dedent(before).lstrip("\n")) == other + after
    for text, reason in (
        ("x = x.to(device)  # here\n", "comes from no loop over a loader"),
        (
            "for x in loader:\n    x.to(device)  # here\n",
            "nothing in this file shows that `loader` is one `DataLoader`",
        ),
    ):
        with pytest.raises(Refused, match=reason):
            changed("pageable-transfer", text)


def test_a_tensor_is_made_where_it_is_used():
    assert changed("host-created-tensor", "i = torch.arange(n).unsqueeze(0).to(x.device)  # here\n") == (
        "i = torch.arange(n, device=x.device).unsqueeze(0)  # here\n"
    )
    assert altered("host-created-tensor", "x = torch.rand(8).cuda()\n") == 'x = torch.rand(8, device="cuda")\n'
    for text, reason in (
        ("x = load(8).to(device)\n", "not made by a function of PyTorch's"),
        ("x = torch.ones(8).to(torch.int64)\n", "no tensors sent"),
        ("x = torch.zeros(8, pin_memory=True).to(device)\n", "made with `pin_memory=`"),
    ):
        with pytest.raises(Refused, match=reason):
            changed("host-created-tensor", text)


def test_layers_before_a_normalisation_lose_their_bias():
    before = """
        class Net(nn.Module):
            def __init__(self):
                self.a = nn.Conv2d(3, 8, 3)
                self.b = nn.BatchNorm2d(8)
                self.c = nn.Conv2d(8, 8, 3)
                self.d = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))

            def forward(self, x):
                return self.d(self.c(self.b(self.a(x))).relu())  # here
    """
    after = (
        expect(before).replace("3, 8, 3)", "3, 8, 3, bias=False)").replace("Linear(8, 8)", "Linear(8, 8, bias=False)")
    )
    assert altered("bias-before-batchnorm", before) == after
    with pytest.raises(Refused, match="no layer with a normalisation right behind it"):
        changed("bias-before-batchnorm", "y = net(x)\n")


def test_what_doubles_are_multiplied_with_and_added_to_becomes_narrow_too():
    before = """
def features(x, n):
    w = torch.as_tensor(rng.normal(size=n))
    b = torch.from_numpy(rng.uniform(size=n))
    i = torch.from_numpy(rng.permutation(n))
    other = torch.from_numpy(rng.uniform(size=n))
    z = torch.as_tensor(x) @ w  # here
    z = z + b
    return z[i], other + 1
def g(b):
    b = torch.from_numpy(rng.uniform(size=n))
    return b * 2
"""
    after = before.replace("size=n))\n    b", "size=n), dtype=torch.float32)\n    b", 1)
    after = after.replace("size=n))\n    i", "size=n)).float()\n    i").replace("(x)", "(x, dtype=torch.float32)")
    assert changed("float64-compute", before) == after.lstrip("\n")


def test_doubles_from_numpy_become_single_where_they_enter():
    assert changed("float64-compute", "x = torch.from_numpy(a).to(d)\n") == "x = torch.from_numpy(a).float().to(d)\n"
    assert changed("float64-compute", "x = torch.tensor(a)\n") == "x = torch.tensor(a, dtype=torch.float32)\n"
    before = "import torch\nm = m.double()\nx = torch.from_numpy(a)  # here\n"
    after = "import torch\nm = m.float()\nx = torch.from_numpy(a).float()  # here\n"
    assert altered("float64-compute", before) == after
    asked = "import torch\ntorch.set_default_dtype(torch.float64)\n"
    assert altered("float64-compute", asked) == asked.replace("64", "32")
    with pytest.raises(Refused, match="that line does not show where the doubles come from"):
        changed("float64-compute", "y = f(x)\n")


def test_a_model_is_converted_once_to_channels_last():
    before = """
        import torch
        model = Net()

        for x in data:
            y = model(x)  # here
    """
    assert changed("channels-first-convolution", before) == expect("""
        import torch
        model = Net()

        model = model.to(memory_format=torch.channels_last)
        for x in data:
            y = model(x.to(memory_format=torch.channels_last))  # here
    """)
    for text, reason in (
        ("import torch\ny = model(x)  # here\n", "in no loop"),
        ("import torch\nfor x in d:\n    y = f(g(x))  # here\n", "2 calls of a model"),
        ("import torch\nfor model in d:\n    y = model(x)  # here\n", "`model` is set inside of the loop"),
    ):
        with pytest.raises(Refused, match=reason):
            changed("channels-first-convolution", text)


def test_a_model_is_compiled_once_before_the_loop():
    before = "for x, y in d:\n    loss = nn.functional.mse_loss(state.model(x), y)  # here\n"
    assert changed("launch-bound", before) == "state.model.compile()\n" + before
    for text, reason in (
        ("for x in d:\n    total.append(x)  # here\n", "no call of a model on that line"),
        ("y = model(x)  # here\n", "in no loop"),
        ("for model in d:\n    y = model(x)  # here\n", "`model` is set inside of the loop"),
    ):
        with pytest.raises(Refused, match=reason):
            changed("launch-bound", text)


def test_products_use_what_the_finding_names():
    text = "import torch\nfor x in d:\n    y = model(x)  # here\n"
    tf32 = "call `torch.set_float32_matmul_precision('high')` once"
    half = "run the forward pass under `torch.autocast('cpu', dtype=torch.bfloat16)`: the"
    assert changed("full-precision-matmul", text, fix=tf32) == (
        text.replace("torch\n", "torch\ntorch.set_float32_matmul_precision('high')\n", 1)
    )
    assert changed("full-precision-matmul", text, fix=half) == text.replace(
        "    y", '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        y'
    )
    with pytest.raises(Refused, match="GradScaler"):
        changed("full-precision-matmul", text, fix="float16")


def test_denormal_numbers_count_as_zero_behind_the_imports():
    text = "import torch as t\nfrom math import exp\n\nx = t.ones(9)\nx.mul_(exp(-90))  # here\n"
    assert changed("denormal-numbers", text) == text.replace("exp\n", "exp\nt.set_flush_denormal(True)\n", 1)
    with pytest.raises(Refused, match="calls `set_flush_denormal` already"):
        changed("denormal-numbers", text.replace("x = ", "t.set_flush_denormal(True)\nx = "))
    with pytest.raises(Refused, match="does not import torch"):
        changed("denormal-numbers", "import numpy\nx.mul_(2)  # here\n")


def test_a_cast_that_the_next_one_takes_back_goes():
    assert changed("dtype-round-trip", "x = f(x.float()).double()\n", message=TRIP) == "x = f(x.float())\n"
    assert changed("dtype-round-trip", "x = f(x).to(torch.float64)\n", message=TRIP) == "x = f(x)\n"
    with pytest.raises(Refused, match="2 casts to float64 on that line"):
        changed("dtype-round-trip", "x = y.double() + x.double()\n", message=TRIP)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = x @ w.t().contiguous()\n", "y = x @ w.t()\n"),
        ("y = conv2d(x.permute(0, 3, 1, 2).contiguous(), w)\n", "y = conv2d(x.permute(0, 3, 1, 2), w)\n"),
        (
            "def f(self, x):\n    w = self.w.t().contiguous()  # here\n    return x @ w\n",
            "def f(self, x):\n    w = self.w.t()  # here\n    return x @ w\n",
        ),
    ],
)
def test_a_view_takes_the_place_of_its_copy_where_it_is_only_read(before, after):
    assert changed("redundant-layout", before) == after


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y = x @ w.contiguous(memory_format=f)\n", "not of the form"),
        ("y = x.t().contiguous() @ w.t().contiguous()\n", "2 calls of `contiguous`"),
        ("y = w.t().contiguous().view(-1)\n", "does not show what reads the copy"),
        ("self.w = w.t().contiguous()\n", "does not show what reads the copy"),
        ("a = b = w.t().contiguous()\n", "does not show what reads the copy"),
        ("v = w.t().contiguous()  # here\ny = x @ v\nz = v.view(-1)\n", "line 3 may need `v` in order"),
        ("v = w.t().contiguous()  # here\ny = x @ v\nv = 1\n", "`v` is set at 2 places"),
        ("v = w.t().contiguous()  # here\nw.add_(1)\ny = x @ v\n", "`w` is changed in place"),
    ],
)
def test_a_copy_that_something_may_need_stays(text, reason):
    with pytest.raises(Refused, match=reason):
        changed("redundant-layout", text)


def test_a_backward_pass_is_told_what_it_trains():
    before = """
        a = SGD(g.parameters(), lr=1)
        for x in d:
            f(x).backward()  # here
            clip()
            a.step()
    """
    after = expect(before).replace("backward()", "backward(inputs=list(g.parameters()))")
    assert changed("unused-gradients", before, fix=HELD) == after
    for text, fix, reason in (
        (before, "Call `requires_grad_(False)`", "no optimizer holds them"),
        (before.replace("g.parameters()", "p"), HELD, "not made of the parameters of one module"),
        (before.replace("a.step()", "pass"), HELD, "no optimizer steps behind it"),
        (before.replace("clip()", "a.zero_grad()"), HELD, "no optimizer steps with what this pass computes"),
    ):
        with pytest.raises(Refused, match=reason):
            changed("unused-gradients", text, fix=fix)


@pytest.mark.parametrize(
    ("head", "tail", "inputs"),
    [
        ("", "a.step(); b.step()", "[*f.parameters(), *g.parameters()]"),
        ("", "a.step()\n    b.step()", "[*f.parameters(), *g.parameters()]"),
        ("", "a.step()\n    if x: b.step()", "[*f.parameters(), *g.parameters()]"),
        ("", "a.step()\n    b.zero_grad()\n    h(x)\n    b.step()", "list(f.parameters())"),
        ("", "a.step()\n    g.zero_grad()\n    h(x)\n    b.step()", "list(f.parameters())"),
        ("", "a.step()\n    if x: b.zero_grad()\n    b.step()", "[*f.parameters(), *g.parameters()]"),
        ("b.step()", "a.step()", "[*f.parameters(), *g.parameters()]"),  # in the next round
        ("b.zero_grad()\n    b.step()", "a.step()", "list(f.parameters())"),
        ("", "scaler.step(a)\n    s.step()", "list(f.parameters())"),
    ],
)
def test_all_optimizers_that_step_with_a_pass_keep_their_gradients(head, tail, inputs):
    made = "a = SGD(f.parameters(), lr=1)\nb = SGD(g.parameters(), lr=1)\ns = StepLR(a, 9)\n"
    text = f"{made}for x in d:\n    {head or 'pass'}\n    f(g(x)).backward()  # here\n    {tail}\n"
    after = expect(text).replace("backward()", f"backward(inputs={inputs})")
    assert changed("unused-gradients", text, fix=HELD) == after


def test_averaging_twice_goes_with_its_loop():
    before = "f()\nfor p in ps:\n    dist.all_reduce(p.grad)  # here\n    p.grad /= n\ng()\n"
    assert changed("redundant-allreduce", before, fix=TWICE) == "f()\ng()\n"
    with pytest.raises(Refused, match="does more than add up and divide"):
        changed("redundant-allreduce", before.replace("/= n", "/= n\n    h()"), fix=TWICE)


def test_micro_batches_are_averaged_with_the_last():
    before = """
        import torch
        model = DDP(net)
        for i, (x, y) in enumerate(data):
            # forward
            loss = f(model(x), y)  # here
            (loss / 4).backward()  # add up
            if (i + 1) % 4 == 0:
                optimizer.step()
    """
    assert changed("redundant-allreduce", before) == expect("""
        import torch
        from contextlib import nullcontext
        model = DDP(net)
        for i, (x, y) in enumerate(data):
            # forward
            with nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
                loss = f(model(x), y)  # here
                (loss / 4).backward()  # add up
            if (i + 1) % 4 == 0:
                optimizer.step()
    """)
    for old, new, reason in (
        ("if (i + 1) % 4 == 0:", "for _ in range(2):", "nothing shows which micro-batch is the last"),
        ("(i + 1) % 4 == 0", "loss < 1", "not known before the forward pass"),
        ("DDP(net)", "net", "the line calls no model that this file wraps"),
    ):
        with pytest.raises(Refused, match=reason):
            changed("redundant-allreduce", before.replace(old, new))


def test_an_old_constructor_keeps_its_type():
    before = "import numpy as np, torch\nx = torch.FloatTensor([s for s in b]).to(d)  # here\n"
    after = before.replace(
        "torch.FloatTensor([s for s in b])", "torch.from_numpy(np.asarray([s for s in b], dtype=np.float32))"
    )
    assert changed("slow-tensor-construction", before) == after
    with pytest.raises(Refused, match="the list is not the only argument"):
        changed("slow-tensor-construction", before.replace("[s for s in b]", "2, 3"))


def test_a_loader_picks_whole_batches():
    before = "import torch\nl = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, pin_memory=True)  # here\n"
    assert on_one_line(changed("per-sample-fetch", before)) == (
        "import torch\nl = DataLoader(TensorDataset(x, y), batch_size=None, sampler=torch.utils.data.BatchSampler("
        "torch.utils.data.RandomSampler(x), 8, drop_last=False), pin_memory=True)  # here\n"
    )
    for text, reason in (
        (before.replace("pin_memory", "collate_fn"), "may rely on single samples"),
        (
            before.replace("TensorDataset(x, y)", "data"),
            "nothing in this file shows that the data is one `TensorDataset`",
        ),
        (before.replace("shuffle=True", "shuffle=mix"), "whether the samples are shuffled"),
    ):
        with pytest.raises(Refused, match=reason):
            changed("per-sample-fetch", text)


def test_a_call_of_several_lines_keeps_its_form_and_its_comments():
    before = """
        import torch
        data = TensorDataset(x, y)
        loader = DataLoader(  # here
            data,  # all of it
            batch_size=8,
            # it fits into memory
            pin_memory=True,
        )
    """
    assert changed("per-sample-fetch", before) == expect("""
        import torch
        data = TensorDataset(x, y)
        loader = DataLoader(
            # here
            # all of it
            # it fits into memory
            data,
            batch_size=None,
            sampler=torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), 8, drop_last=False),
            pin_memory=True,
        )
    """)


SPLIT = "import torch\ndata = TensorDataset(x, y)\n{}\nl = DataLoader(train, 8, num_workers=2)  # here\n"


@pytest.mark.parametrize(
    ("made", "fits"),
    [
        ("train, rest = random_split(data, [6, 2])", True),
        ("train, rest = torch.utils.data.random_split(TensorDataset(x, y), [6, 2])", True),
        ("train = Subset(data, range(6))", True),
        ("train = Mine(data, range(6))", False),
        ("train, rest = halves(data)", False),
        ("train = random_split(data, [8])[0]", False),
        ("train, rest = random_split(other, [6, 2])", False),
        ("train = Subset(data, range(6))\ntrain = augment(train)", False),
    ],
)
def test_a_part_of_a_tensordataset_gives_whole_batches_too(made, fits):
    if not fits:
        with pytest.raises(Refused, match="nothing in this file shows that the data is one `TensorDataset`"):
            changed("per-sample-fetch", SPLIT.format(made))
        return
    sampler = "torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(train), 8, drop_last=False)"
    assert on_one_line(changed("per-sample-fetch", SPLIT.format(made))).endswith(
        f"l = DataLoader(train, batch_size=None, sampler={sampler}, num_workers=2)  # here\n"
    )


def test_the_data_that_a_function_is_given_may_be_another():
    text = SPLIT.format("train = data\ndef load(train):\n    return DataLoader(train, 8)  # this")
    with pytest.raises(Refused, match="nothing in this file shows that the data is one `TensorDataset`"):
        changed("per-sample-fetch", text, 5)


def test_data_that_a_function_makes_is_known_by_what_that_returns():
    before = """
import torch
def part(n):
    x = torch.randn(n, 2)
    return TensorDataset(x, x.sum(1))
def loaders():
    train, test = part(8), part(4)
    return DataLoader(train, 4, True), DataLoader(
        test, 4  # here
    )
def show(test):
    print(test)
"""
    whole = "sampler=torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(test), 4, drop_last=False),\n"
    assert whole in changed("per-sample-fetch", before)
    for old, new in (
        ("    return T", "    if n > 9:\n        return x\n    return T"),
        ("    return T", "    yield T"),
        ("def part", "@cached\ndef part"),
        ("part(8), part(4)", "split(part(8))"),
        ("    return D", "    test = Subset(test, [1])\n    return D"),
    ):
        with pytest.raises(Refused, match="nothing in this file shows that the data is one `TensorDataset`"):
            changed("per-sample-fetch", before.replace(old, new, 1))


def test_a_view_that_is_kept_becomes_a_copy():
    assert changed("oversized-storage", "kept.append(x[:1])\n") == "kept.append(x[:1].clone())\n"
    assert changed("oversized-storage", "kept[n] = a + b\n") == "kept[n] = (a + b).clone()\n"
    with pytest.raises(Refused, match="neither appends nor stores"):
        changed("oversized-storage", "y = x[:1]\n")


def test_a_block_is_called_without_its_checkpoint():
    assert changed("needless-checkpointing", "x = checkpoint(block, x, use_reentrant=False)\n") == "x = block(x)\n"
    with pytest.raises(Refused, match="arguments that the line does not show"):
        changed("needless-checkpointing", "x = checkpoint(block, *x)\n")


def test_only_the_last_position_goes_through_the_head():
    before = "logits = head(hidden)  # here\np = logits[:, -1].softmax(-1)\n"
    after = "logits = head(hidden[:, -1])  # here\np = logits.softmax(-1)\n"
    assert changed("discarded-logits", before) == after
    with pytest.raises(Refused, match="line 3 reads more of `logits` than its last position"):
        changed("discarded-logits", before + "q = logits.mean()\n")
    with pytest.raises(Refused, match="leaves the function, and others may need all positions"):
        changed("discarded-logits", "def forward(x):\n    return head(x)  # here\n")


def test_options_that_cost_are_not_asked_for():
    ddp = "m = DistributedDataParallel(n, find_unused_parameters=True)\ny = m(x)  # here\n"
    assert changed("unused-parameter-search", ddp) == "m = DistributedDataParallel(n)\ny = m(x)  # here\n"
    threads = "Use as many threads as there are CPUs: `torch.set_num_threads(2)`, or"
    assert (
        changed("thread-oversubscription", "torch.set_num_threads(16)\n", fix=threads) == "torch.set_num_threads(2)\n"
    )


def test_windows_line_ends_and_tabs_stay_where_statements_move():
    before = "for x in d:\n\te = torch.cat([e, f(x)])  # here\ng()\n"
    after = "e_parts = [e]\nfor x in d:\n\te_parts.append(f(x))  # here\ne = torch.cat(e_parts)\ng()\n"
    assert changed("growing-concatenation", before.replace("\n", "\r\n")) == after.replace("\n", "\r\n")


def test_a_number_in_a_tuple_that_is_collected_is_read_behind_the_loop():
    before = """
        import torch
        log = []
        for i in range(3):
            log.append((i, float(f(i)), "a"))  # here
        print(log)
    """
    assert changed("host-sync-in-step", before) == expect("""
        import torch
        log = []
        for i in range(3):
            log.append((i, f(i).detach(), "a"))  # here
        numbers = torch.stack([entry[1] for entry in log]).flatten().tolist() if log else []
        log = [(*entry[:1], number, *entry[2:]) for entry, number in zip(log, numbers)]
        print(log)
    """)


def test_a_number_in_a_dictionary_that_is_collected_is_read_behind_the_loop():
    before = """
        import torch
        def main(numbers):
            log = []
            for i in numbers:
                loss = f(i)
                log.append({"step": i, "loss": loss.item()})  # here
            return log
    """
    assert changed("host-sync-in-step", before) == expect("""
        import torch
        def main(numbers):
            log = []
            for i in numbers:
                loss = f(i)
                log.append({"step": i, "loss": loss.detach()})  # here
            numbers_2 = torch.stack([entry["loss"] for entry in log]).flatten().tolist() if log else []
            log = [{**entry, "loss": number} for entry, number in zip(log, numbers_2)]
            return log
    """)


@pytest.mark.parametrize(
    "entry",
    ["(i, round(f(i).item()))", "(*i, f(i).item())", "{i: f(i).item()}", "[i, f(i).item()]", "{'a': f(i).item(), **i}"],
)
def test_a_number_deeper_in_what_is_collected_is_its_authors(entry):
    with pytest.raises(Refused, match="part of what is collected"):
        changed("host-sync-in-step", f"import torch\nlog = []\nfor i in x:\n    log.append({entry})  # here\n")


def test_numbers_of_tensors_with_dimensions_are_plain_behind_the_loop():
    before = (
        "import torch\nlog = []\nfor i in range(3):\n    log.append((i, torch.full((1,), i + 0.5).item()))  # here\n"
    )
    names: dict[str, object] = {}
    exec(changed("host-sync-in-step", before), names)
    assert names["log"] == [(0, 0.5), (1, 1.5), (2, 2.5)]


@pytest.mark.parametrize("line", ["log.append((-1, 0.0))", "history = log", "main.log = log"])
def test_a_list_with_entries_or_another_name_before_the_loop_is_refused(line):
    with pytest.raises(Refused, match="line 3 uses `log` before the loop"):
        changed(
            "host-sync-in-step",
            f"import torch\nlog = []\n{line}\nfor i in x:\n    log.append((i, f(i).item()))  # here\n",
        )
