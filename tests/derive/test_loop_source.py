"""Loops over modules, as people write them: which call independent modules, and which only look like it."""

from __future__ import annotations

import pytest

from profkit.derive.loop_source import calls_independent_modules


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("scores = torch.stack([model(x) for model in self.models])", []),
        ("scores = torch.stack([model(x).softmax(-1) for model in self.models])", []),
        ("return sum(head(x) for head in heads) / len(heads)", []),
        ("out = {name: head(x) for name, head in self.heads.items()}", []),
        ("out = torch.cat([self.heads[i](x) for i in range(4)])", []),
        ("return dict(zip(self.seats, map(lambda seat: seat(x), self.seats.values())))", []),
        ("outputs.append(expert(x))", ["for expert in self.experts:"]),
        ("answer = head(shared)", ["for w, head in enumerate(self.heads, 1):", "total = total + answer / w"]),
        ("total += head(x)", ["for head in heads:"]),
        ("model(x)", ["for model in models"]),
        ("scores[i] = self.models[i](x)", ["for i in range(len(self.models)):"]),
        ("outs.append(net.encode(x))", ["for net in nets:"]),
        ("outs.append(net.linear(x))", ["for net in nets:"]),
        ("ask = lambda net: net(x)", []),
    ],
)
def test_a_loop_that_calls_independent_modules(call: str, body: list[str]) -> None:
    assert calls_independent_modules(call, [*body, call])


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("x = layer(x)", ["for layer in self.layers:"]),
        ("encode = lambda row: net(row)", []),
        ("h = block(previous)", ["for block in blocks:", "previous = norm(h)"]),
        ("x = x + block(x)", ["for block in blocks:"]),
        ("total += head(total)", ["for head in heads:"]),
        ("hidden = self.cell(x[t], hidden)", ["for t in range(steps):"]),
        ("outputs.append(self.cell(x[t]))", ["for t in range(steps):"]),
        ("out = torch.stack([self.linear(x[:, t]) for t in range(steps)])", []),
        ("features.append(block(features[-1]))", ["for block in blocks:"]),
        ("loss = model(batch)", ["for batch in micro_batches:", "loss.backward()"]),
        ("loss = model(batch).square().mean()", ["for batch in micro_batches:", "loss.backward()"]),
        ("outputs.append(model(x[i : i + 64]).argmax(-1))", ["for i in range(0, len(x), 64):"]),
        ("scores = torch.cat([model(part).softmax(-1) for part in x.split(64)])", []),
        ("outputs = [expert(part) for expert, part in zip(experts, parts)]", []),
        ("outputs.append(self.heads[i](x[i]))", ["for i in range(heads):"]),
        ("a, b = [tower(x) for tower in towers]", ["for x in batches:", "loss = distance(a, b)"]),
        ("y = layer(", ["for layer in layers:"]),
        ("x = torch.tanh(w_in @ u.unsqueeze(1) + w @ x)", ["for u in inputs:"]),
        ("rows.append(row.matmul(weight))", ["for row in table:"]),
        ("parts = [part.reshape(2, -1) @ weight for part in parts]", []),
        ("total += part.sum() @ weight", ["for part in parts:"]),
        ("outputs = list(map(lambda part: model(part), parts))", []),
        ("outputs = map(model)", []),
        ("", []),
    ],
)
def test_a_loop_that_only_looks_like_it(call: str, body: list[str]) -> None:
    assert not calls_independent_modules(call, [*body, call])
