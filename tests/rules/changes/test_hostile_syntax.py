"""Each change in other surroundings: the same change, indented alike, or a reason; and never an error."""

from __future__ import annotations

import re
from textwrap import indent

import pytest

from profkit.rules.changes import AltersNumbers, Refused
from tests.rules.changes.test_restructured import changed

TORCH = "import torch\nimport numpy as np\nfrom torch import nn\nfrom torch.nn import functional as F\n"
WORKERS = "Prepare batches in worker processes: DataLoader(..., num_workers=3)."
FUSED = "Pass `fused=True` to `torch.optim.Adam`: it updates all parameters in one call."
SNIPPETS = {
    "allocator-flush-in-step": ("f()\ntorch.cuda.empty_cache()  # here\n", ""),
    "debug-mode-on": ("torch.autograd.set_detect_anomaly(True)  # here\n", ""),
    "float64-compute": ("x = torch.from_numpy(a)  # here\n", ""),
    "garbage-collection-in-step": ("f()\ngc.collect()  # here\ng()\n", ""),
    "growing-concatenation": (
        "e = torch.zeros(0)\nfor x in d:\n    y = x + 1\n    e = torch.cat([e, y])  # here\n",
        "",
    ),
    "host-sync-in-step": ("t = 0.0\nfor x in d:\n    loss = f(x)\n    t += loss.item()  # here\nprint(t)\n", ""),
    "input-bound": ("loader = DataLoader(data, batch_size=8)  # here\n", WORKERS),
    "materialised-broadcast": ("y = x[:, None].repeat(1, n, 1) - c  # here\n", ""),
    "needless-retain-graph": ("loss.backward(retain_graph=True)  # here\n", ""),
    "oversized-storage": ("kept.append(x[:1])  # here\n", ""),
    "per-sample-fetch": ("loader = DataLoader(TensorDataset(x, y), batch_size=8)  # here\n", ""),
    "retained-graph": ("for x in d:\n    losses.append(f(x) * 2)  # here\n", ""),
    "single-tensor-optimizer": ("o = torch.optim.Adam(p, lr=0.1)\no.step()  # here\n", FUSED),
    "slow-tensor-construction": ("x = torch.tensor(rows, dtype=torch.float32)  # here\n", ""),
    "tensor-element-loop": (
        "m = torch.zeros(3)\nfor i in y.view(-1):  # all\n    # each\n    m[i.long()] += 1  # here\n",
        "",
    ),
    "unfused-attention": (
        "s = q @ k.transpose(-2, -1) / 8  # here\nw = F.softmax(s, dim=-1)\no = w @ v\n",
        "",
    ),
    "unused-autograd-graph": ("with f():\n    y = model(x)  # here\n    g(y)\n", ""),
    "workers-respawned": ("loader = DataLoader(data, num_workers=2)  # here\n", ""),
    "zero-filled-gradients": ("o.zero_grad(set_to_none=False)  # here\n", ""),
}


def within(head: str, end: str = ""):
    levels = len(head.splitlines()[-1]) - len(head.splitlines()[-1].lstrip()) + 4
    return lambda text: TORCH + head + indent(text, " " * levels) + end


def plain(text: str) -> str:
    return TORCH + text


SURROUNDINGS = {
    "function": within("def main(*args, d, **more):\n"),
    "async": within("async def main(d):\n    await ready()\n    async with lock:\n"),
    "method": within("class Trainer(Base, key=1):\n    @logged(level=2)\n    def fit(self, d, /, *, n: int = 3):\n"),
    "nested": within("def outer(d):\n    def inner():\n", "    return inner\n"),
    "class": within("class Settings:\n"),
    "match": within("match mode:\n    case {'train': [*_, n]} if n:\n", "    case _:\n        pass\n"),
    "if": within("if (n := len(d)) > 3:\n", "elif n:\n    pass\n"),
    "try": within("try:\n    f()\nexcept* ValueError as group:\n    raise\nelse:\n"),
    "with": within("with (\n    a() as b,\n    c(),\n):\n"),
    "generator": within("def main(d):\n    yield from f()\n    if d:\n", "    return (yield)\n"),
    "behind": lambda text: f'{TORCH}x = [y async for y in z] if 0 else f"{{a!r:>{{n}}}}"; lambda *_, k=(w := 1): w\n'
    .replace("[y async for y in z]", "[y for y in z]") + text,
    "windows": lambda text: plain(text).replace("\n", "\r\n"),
    "tabs": lambda text: within("def main(d):\n")(text).replace("    ", "\t"),
    "two spaces": lambda text: within("def main(d):\n")(text).replace("    ", "  "),
    "backslash": lambda text: plain("n = 1 + \\\n    2\n" + text),
    "no end": lambda text: plain(text + "g()\n").removesuffix("\n"),
}  # fmt: skip


def outcome(rule: str, text: str, fix: str) -> str | None:
    """The file after the change, also one that alters numbers; None if it is refused."""
    try:
        return changed(rule, text, fix=fix)
    except AltersNumbers as change:
        return change.after.decode()
    except Refused:  # a failure inside profkit is none here, see tests/conftest.py
        return None


def joined(rule: str, text: str) -> str:
    """Without line ends in a call that gets a line for each argument where no other line is as long."""
    if rule not in ("per-sample-fetch", "unfused-attention"):
        return text
    return re.sub(r",?\s+\)", ")", re.sub(r"\(\s+", "(", re.sub(r",\s+", ", ", text)))


@pytest.mark.parametrize("rule", sorted(SNIPPETS))
def test_a_change_is_the_same_in_other_surroundings_or_refused(rule):
    text, fix = SNIPPETS[rule]
    after = outcome(rule, plain(text), fix)
    assert after is not None
    fitted = []
    for name, surround in SURROUNDINGS.items():
        found = outcome(rule, surround(text), fix)
        expected = surround(after.removeprefix(TORCH))
        assert found is None or joined(rule, found) == joined(rule, expected), name
        fitted += [name] * (found is not None)
    assert {"function", "method", "windows", "tabs", "match"} <= {*fitted}


STARRED = {
    "debug-mode-on": "torch.autograd.set_detect_anomaly(*mode)  # here\n",
    "float64-compute": "x = torch.from_numpy(*a)  # here\n",
    "growing-concatenation": "e = s()\nfor x in d:\n    e = torch.cat([e, *x])  # here\n",
    "input-bound": "loader = DataLoader(data, *more)  # here\n",
    "materialised-broadcast": "y = x.repeat(*times)  # here\n",
    "needless-retain-graph": "loss.backward(**options)  # here\n",
    "per-sample-fetch, split": "*a, b = random_split(TensorDataset(x, y), n)\nloader = DataLoader(a, 8)  # here\n",
    "tensor-element-loop, names": "m = torch.zeros(3)\nfor t, *p in zip(a.view(-1), b):\n    m[t] += 1  # here\n",
    "tensor-element-loop, shape": (
        "def f(r):\n    *t, n = r.shape\n    out = torch.zeros_like(r)\n    for i in range(n):\n"
        "        out[0, i] = r[0, i] * 2  # here\n"
    ),
    "oversized-storage": "kept.append(*x)  # here\n",
    "per-sample-fetch": "loader = DataLoader(TensorDataset(*all), **options)  # here\n",
    "retained-graph": "losses.append(*x)  # here\n",
    "slow-tensor-construction": "x = torch.tensor(*rows, dtype=torch.float32)  # here\n",
    "tensor-element-loop": "m = torch.zeros(3)\nfor i in zip(*y):\n    m[i] += 1  # here\n",
    "workers-respawned": "loader = DataLoader(data, **options)  # here\n",
    "zero-filled-gradients": "o.zero_grad(**options)  # here\n",
}


@pytest.mark.parametrize("case", sorted(STARRED))
def test_what_a_star_stands_for_is_not_guessed(case):
    rule = case.partition(",")[0]
    assert outcome(rule, plain(STARRED[case]), SNIPPETS[rule][1]) is None
