"""Which loops call independent modules, and what a loop shows about the inputs of a recurrent cell."""

from __future__ import annotations

import pytest

from profkit.patterns.loops.loop_source import CellCall, Inputs, inputs_of_modules, read_cell_call


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
        ("outputs.append(expert(x))  # its own", ["for expert in self.experts:  # each alone"]),
        ("answer = head(shared)", ["for w, head in enumerate(self.heads, 1):", "total = total + answer / w"]),
        ("total += head(x)", ["for head in heads:"]),
        ("model(x)", ["for model in models"]),
        ("scores[i] = self.models[i](x)", ["for i in range(len(self.models)):"]),
        ("outs.append(net.encode(x))", ["for net in nets:"]),
        ("outs.append(net.linear(x))", ["for net in nets:"]),
        ("ask = lambda net: net(x)", []),
        ("for head in heads: outs.append(head(x))", []),
        ("y = head(x); outs.append(y)", ["for head in heads:"]),
    ],
)
def test_a_loop_that_calls_independent_modules_on_one_input(call: str, body: list[str]) -> None:
    assert inputs_of_modules(call, [*body, call]) is Inputs.ONE


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ([], "sizes = [size(column) for size, column in zip(self.sizes, columns)]"),
        ([], "outputs = [expert(part) for expert, part in zip(experts, parts)]"),
        ([], "x = torch.cat([emb(x[:, i]) for i, emb in enumerate(self.embeddings)], 1)"),
        ([], "out = {name: self.tables[name](column) for name, column in batch.items()}"),
        ([], "out = list(map(lambda head, part: head(part), heads, parts))"),
        ([], "return [getattr(self, f'fc{i}')(x[i]) for i in range(6)]"),
        (["for m, part in zip(self.parts, x.unbind(1)):"], "out.append(m(part))"),
        (["for i in range(heads):"], "outputs.append(self.heads[i](x[i]))"),
        (["for i in range(heads):"], "out[:, :, i] = self.linears[i](x[:, :, i])"),
        (["for i in range(heads):", "classify = getattr(self, 'part' + str(i))"], "y.append(classify(x[:, i]))"),
        (["for i, head in enumerate(heads):", "h = x[:, i]"], "h = head(h)"),
        (["for i, head in enumerate(heads):", "h = x[:, i]", "h = h.relu()", "y = head(h)"], "outs += [last[i](y)]"),
        (["for i in range(n):", "h = layers[i](h)"], "outs.append(heads[i](h))"),
        (["for i, emb in enumerate(self.embeddings)"], "emb(x[:, i])"),
        (["for i, head in enumerate(heads):", "if weights is None:"], "total = total + head(x[i])"),
    ],
)
def test_a_loop_that_calls_independent_modules_on_inputs_of_their_own(body: list[str], call: str) -> None:
    assert inputs_of_modules(call, [*body, call]) is Inputs.OWN


@pytest.mark.parametrize(
    ("before", "call", "after"),
    [
        pytest.param(["for i in range(n):"], "x[i + 1] = layers[i](x[i])", [], id="written where inputs come from"),
        pytest.param(["for layer, m in zip(layers, ms):"], "h = layer(h, m)", [], id="a layer and its memory"),
        pytest.param(["for i in range(n):", "h = x[i] + h"], "h = convs[i](h)", [], id="added to the next part"),
        pytest.param(
            ["for i in range(n):", "if i == 0:", "h = x[i]", "h = h + x[i]"], "h = convs[i](h)", [], id="a branch"
        ),
        pytest.param(["for i in range(n):"], "y = layers[i](x[i] + last)", ["last = norm(y)"], id="through another"),
        pytest.param(["for x in xs:", "for layer in layers:"], "outs.append(layer(x))", [], id="of two loops"),
        pytest.param(["for t in range(n):"], "outs.append(x[t].cross(y[t]))", [], id="a tensor's method"),
        pytest.param(["for m, part in zip(ms, parts):"], "outs.append(loss(m, part))", [], id="one function"),
        pytest.param([], "h = [h := layer(h + x[i]) for i, layer in enumerate(layers)]", [], id="a name made inside"),
        pytest.param([], "apply = lambda layer, h: layer(h)", [], id="a lambda with a name"),
        pytest.param([], "outs = [m(x) for x in batches for m in models]", [], id="all with all"),
        pytest.param([], "outs = [a.cross(b) for a, b in zip(rows, others)]", [], id="tensors"),
    ],
)
def test_inputs_of_their_own_that_earlier_calls_make_or_may_make(
    before: list[str], call: str, after: list[str]
) -> None:
    assert inputs_of_modules(call, [*before, call, *after]) is None


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("x = layer(x)", ["for layer in self.layers:"]),
        ("encode = lambda row: net(row)", []),
        ("for block in self.blocks: x = block(x, e)", []),
        ("for block in self.blocks: x = x + block(x)", []),
        ("h = block(last); last = norm(h)", ["for block in blocks:"]),
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
def test_a_loop_that_only_looks_like_independent_modules(call: str, body: list[str]) -> None:
    assert inputs_of_modules(call, [*body, call]) is None


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("h, c = self.cell(x[:, t], (h, c))", ["for t in range(x.size(1)):", "out.append(self.head(h))"]),
        ("h = cell(part, h)", ["for part in x.unbind(1):", "y = head(h)", "total = total + y"]),
        ("h, c = cell(embed(words[t]), (h, c))", ["for t in range(n):", "logits[:, t] = head(h)"]),
        ("h2, c2 = second(h, (h2, c2))", ["for part in parts:", "h, c = first(part, (h, c))", "outs += [head(h2)]"]),
        ("h[i] = cells[i](part, h[i])", ["for part in parts:", "outs.append(h[i])"]),
        ("for t in range(n): h = cell(x[:, t], h)", []),
    ],
)
def test_a_cell_whose_inputs_all_exist_before_the_loop(call: str, body: list[str]) -> None:
    assert read_cell_call(call, [*body, call]) == CellCall(feeds_back=False, keeps_state=True)


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("h, c = cell(y, (h, c))", ["for _ in range(future):", "y = head(h)", "outs += [y]"]),
        ("h, c = cell(h, (h, c))", ["for _ in range(future):"]),
        ("h, c = first(y, (h, c))", ["for _ in range(n):", "h2, c2 = second(h, (h2, c2))", "y = head(h2)"]),
        ("h = cell(torch.cat([x[t], seen], 1), h)", ["for t in range(n):", "seen = attend(h, memory)"]),
        ("h = cell(part, h)", ["for t in range(n):", "part = x[t] if teacher else y", "y = head(h)"]),
    ],
)
def test_a_cell_that_gets_its_own_output(call: str, body: list[str]) -> None:
    assert read_cell_call(call, [*body, call]).feeds_back


@pytest.mark.parametrize(
    ("call", "body"),
    [
        pytest.param("h = cell(x[:, t], h)", ["x[:, t + 1] = head(h)"], id="written into the sequence"),
        pytest.param("h = cell(queue[-1], h)", ["queue.append(head(h))"], id="put where inputs come from"),
        pytest.param("h = cell(x[t], h)", ["x[t + 1].copy_(head(h))"], id="copied into the sequence"),
        pytest.param("h = cell(y, h)", ["if random() < ratio:", "y = x[t]"], id="a branch may have another side"),
        pytest.param("h[l] = cells[l](y, h[l])", ["y = x[t]", "y = h[l]"], id="of two values one comes from outside"),
        pytest.param("h = cell(x[t], h)", ["outs.append("], id="a line that cannot be read"),
        pytest.param("h = cell(x[t])", [], id="a new state each time"),
        pytest.param("new = cell(x[t], h)", ["h = mask * new"], id="a state that others assign"),
        pytest.param("return cell(x, h)", [], id="the line of another function"),
    ],
)
def test_in_some_loops_the_source_does_not_show_the_input(call: str, body: list[str]) -> None:
    assert read_cell_call(call, [*body, call]) == CellCall()


@pytest.mark.parametrize("line", ["h = h * mask", "h[done] = 0", "h *= mask", "h.zero_()", "if done: h = start"])
def test_a_state_that_another_line_may_change_is_found(line: str) -> None:
    call = "h = cell(x[t], h)"
    assert read_cell_call(call, ["for t in range(n):", line, call]) == CellCall(feeds_back=False)
