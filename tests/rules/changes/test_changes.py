"""Each change on a few lines of a program: the exact text after it, or the reason why there is none."""

from __future__ import annotations

import importlib
from pathlib import Path

import libcst
import pytest

import profkit.rules.changes as room
from profkit.findings.values import Change, Finding, Kind, Location, Severity
from profkit.rules import all_rules
from profkit.rules.changes import Refused, changed_file, has_change

FUSED = "Pass `fused=True` to `torch.optim.Adam`: it updates all parameters in one call."
FOREACH = "Pass `foreach=True` (since PyTorch 2.0) to `torch.optim.Rprop`: it updates all parameters in a few calls."
WORKERS = "Prepare batches in worker processes: DataLoader(..., num_workers=3, persistent_workers=True)."
PINNED = (
    "Prepare batches in worker processes: DataLoader(..., num_workers=3, persistent_workers=True, pin_memory=True)."
)
OWN_NAME = "`detect_anomaly` is imported by its own name: write `set_detect_anomaly(False)` there"
CARRIED = "the value is carried over from step to step: where its history should be cut is the author's choice"
SEVERAL = "several values are kept at once: the line does not say which of them carry a graph"


def finding(rule: str, line: int = 1, fix: str = "", precision: str = "call", change: Change | None = None) -> Finding:
    location = Location("/p/train.py", line, "main", precision=precision)
    return Finding(rule, Kind.FAULT, Severity.HIGH, "", 1, 0.9, fix, location, change=change)


def changed(rule: str, text: str, line: int = 1, fix: str = "") -> str:
    return changed_file(text.encode(), finding(rule, line, fix)).decode()


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        ("debug-mode-on", "set_detect_anomaly(True)  # why\n", "set_detect_anomaly(False)  # why\n"),
        (
            "debug-mode-on",
            "a.set_detect_anomaly(mode = True, check_nan=False)\n",
            "a.set_detect_anomaly(mode = False, check_nan=False)\n",
        ),
        ("debug-mode-on", "with t.detect_anomaly():\n\tf()\n", "with t.set_detect_anomaly(False):\n\tf()\n"),
        ("debug-mode-on", "torch.cuda.set_sync_debug_mode(1)\n", 'torch.cuda.set_sync_debug_mode("default")\n'),
        ("zero-filled-gradients", "o.zero_grad(set_to_none=False)\n", "o.zero_grad()\n"),
        ("zero-filled-gradients", "o.zero_grad(\n    set_to_none=False,  # as ever\n)\n", "o.zero_grad()\n"),
        ("needless-retain-graph", "loss.backward(g, retain_graph=True)\n", "loss.backward(g)\n"),
        ("needless-retain-graph", "loss.backward(retain_graph=True, inputs=p)\n", "loss.backward(inputs=p)\n"),
        (
            "workers-respawned",
            "l = DataLoader(d, num_workers=2)\n",
            "l = DataLoader(d, num_workers=2, persistent_workers=True)\n",
        ),
        ("workers-respawned", "l = D(\n    DataLoader(\n        d,\n        num_workers=2,\n    )\n)\n", None),
        ("garbage-collection-in-step", "gc.collect()\nf()\n", "f()\n"),
        ("garbage-collection-in-step", "collect()\r\nf()\r\n", "f()\r\n"),
        ("allocator-flush-in-step", "torch.cuda.empty_cache()\nf()\n", "f()\n"),
        ("retained-graph", "losses.append(loss)\n", "losses.append(loss.detach())\n"),
        ("retained-graph", "self.all.append( a + b )\n", "self.all.append( (a + b).detach() )\n"),
        ("retained-graph", "losses.append(f(x)[0])\n", "losses.append(f(x)[0].detach())\n"),
        ("retained-graph", "total += loss * n  # sum\n", "total += (loss * n).detach()  # sum\n"),
        ("retained-graph", "total = total + loss\n", "total = total + loss.detach()\n"),
        ("retained-graph", "kept[step] = loss\n", "kept[step] = loss.detach()\n"),
        (
            "materialised-broadcast",
            "y = x[:, None].repeat(1, len(c), 1) - c\n",
            "y = x[:, None].expand(-1, len(c), -1) - c\n",
        ),
        (
            "slow-tensor-construction",
            "import numpy as n; x = t.tensor(a, dtype=d)\n",
            "import numpy as n; x = t.tensor(n.asarray(a), dtype=d)\n",
        ),
    ],
)
def test_a_change_alters_only_what_it_must(rule, before, after):
    if after is None:
        after = before.replace("num_workers=2,", "num_workers=2,\n        persistent_workers=True,")
        assert changed(rule, before, 3) == after
    else:
        assert changed(rule, before) == after


@pytest.mark.parametrize(
    ("rule", "text", "reason"),
    [
        ("debug-mode-on", "set_detect_anomaly(debug)\n", "`mode` is `debug`, which may have a reason"),
        ("debug-mode-on", "set_detect_anomaly(*a)\n", "the call takes arguments that the line does not show"),
        ("debug-mode-on", "with detect_anomaly():\n    f()\n", OWN_NAME),
        ("debug-mode-on", "set_sync_debug_mode()\n", "the call does not say that the mode is on"),
        ("zero-filled-gradients", "o.zero_grad(set_to_none=keep)\n", "the line does not say `set_to_none=False`"),
        ("zero-filled-gradients", "p.zero_()\n", "the line does not fill one gradient with zeros"),
        (
            "zero-filled-gradients",
            "a.zero_grad(set_to_none=False); b.zero_grad(set_to_none=False)\n",
            "2 calls of `zero_grad` on that line",
        ),
        ("workers-respawned", "l = DataLoader(d, **options)\n", "the call takes arguments that the line does not show"),
        ("garbage-collection-in-step", "n = gc.collect()\n", "the line does more than call `gc.collect()`"),
        ("garbage-collection-in-step", "f(); gc.collect()\n", "the line is not one plain statement"),
        ("allocator-flush-in-step", "f(x)\n", "the memory is not handed back by `empty_cache()` on that line"),
        ("retained-graph", "losses.append((loss, n))\n", SEVERAL),
        ("retained-graph", "losses.append(loss.item())\n", "the value is detached already"),
        ("retained-graph", "h = f(x, h)\n", CARRIED),
        ("retained-graph", "h, c = f(x, (h, c))\n", CARRIED),
        ("retained-graph", "self.h = f(x, self.h)\n", CARRIED),
        ("retained-graph", "h = f(x, self.h)\n", "the line neither appends, adds up, nor stores a value by its key"),
        ("retained-graph", "keep(loss)\n", "the line neither appends, adds up, nor stores a value by its key"),
        ("input-bound", "l = DataLoader(d)\n", "more workers would not help: a batch itself has to become cheaper"),
        ("unused-autograd-graph", "y = model(x)\n", "the file does not import torch"),
        (
            "materialised-broadcast",
            "y = x.repeat(4, n)\n",
            "every dimension is repeated, and the call does not say which of them have one element",
        ),
        (
            "materialised-broadcast",
            "y = x.repeat(sizes=(4, 1))\n",
            "the call does not show how often each dimension is repeated",
        ),
        (
            "slow-tensor-construction",
            "import numpy; x = tensor(a)\n",
            "of arrays NumPy keeps the type, but of a list of numbers it makes float64; --unsafe tries it",
        ),
        ("slow-tensor-construction", "x = tensor(a, dtype=d)\n", "the file has no import at its top"),
        ("slow-tensor-construction", "x = tensor(np.ones(2), dtype=d)\n", "the file does not import numpy by its name"),
        ("graph-break", "f()\n", "profkit has no change for this rule, only its advice"),
        ("base", "f()\n", "profkit has no change for this rule, only its advice"),
        ("../../x", "f()\n", "profkit has no change for this rule, only its advice"),
        ("debug-mode-on", "def f(:\n", "the file could not be read as Python (SyntaxError)"),
    ],
)
def test_what_the_text_does_not_prove_is_refused_with_a_reason(rule, text, reason):
    with pytest.raises(Refused) as raised:
        changed(rule, text)
    assert str(raised.value) == reason


def test_a_loader_gets_its_workers_where_its_arguments_end():
    one = "l = DataLoader(data, batch_size=8)  # small\n"
    more = "l = DataLoader(data, batch_size=8, num_workers=3, persistent_workers=True)  # small\n"
    assert changed("input-bound", one, fix=WORKERS) == more
    assert changed("input-bound", one.replace("8)", "8, num_workers=1)"), fix=WORKERS) == more
    assert changed("input-bound", one, fix=PINNED) == more.replace("True)", "True, pin_memory=True)")
    with pytest.raises(Refused, match=r"`num_workers` is `args\.workers`, which may have a reason"):
        changed("input-bound", "l = DataLoader(data, num_workers=args.workers)\n", fix=WORKERS)


def test_a_call_over_several_lines_keeps_its_layout():
    before = "l = DataLoader(\n    data,  # ours\n    batch_size=8,\n)\n"
    after = "l = DataLoader(\n    data,  # ours\n    batch_size=8,{}num_workers=3,{}persistent_workers=True,\n)\n"
    found = changed("input-bound", before, 3, WORKERS)
    assert "# ours" in found
    assert " ".join(found.split()) == " ".join(after.format(" ", " ").split())


@pytest.mark.parametrize(
    ("before", "after", "fix"),
    [
        (
            "o = torch.optim.Adam(p, lr=0.1, foreach=False)\no.step()\n",
            "o = torch.optim.Adam(p, lr=0.1, fused=True)\no.step()\n",
            FUSED,
        ),
        ("o = Adam(p)\no.step()\n", "o = Adam(p, fused=True)\no.step()\n", FUSED),
        ("o = Rprop(p, foreach=False)\no.step()\n", "o = Rprop(p, foreach=True)\no.step()\n", FOREACH),
    ],
)
def test_the_optimizer_is_changed_where_it_is_made(before, after, fix):
    assert changed("single-tensor-optimizer", before, 2, fix) == after


def test_of_several_optimizers_that_of_the_function_is_changed():
    other = "def g():\n    o = Adam(q)\n    o.step()\n"
    before = "def f():\n    o = Adam(p)\n    o.step()\n"
    assert (
        changed("single-tensor-optimizer", before + other, 3, FUSED) == before.replace("(p)", "(p, fused=True)") + other
    )


def test_a_file_without_numpy_imports_it():
    before = "import torch as t\nfrom a import b  # of ours\n\nx = t.FloatTensor([r.x for r in b])  # here\n"
    after = before.replace("# of ours\n", "# of ours\nimport numpy as np\n").replace(
        "t.FloatTensor([r.x for r in b])", "t.from_numpy(np.asarray([r.x for r in b], dtype=np.float32))"
    )
    assert changed("slow-tensor-construction", before, 4) == after
    windows = before.replace("\n", "\r\n")
    assert changed("slow-tensor-construction", windows, 4) == after.replace("\n", "\r\n")


def test_of_several_optimizers_that_of_the_line_is_changed():
    for made in ("a, b = Adam(p), Adam(q)\n", "b = Adam(q)\na = Adam(p)\n"):
        for name, given in (("a", "p"), ("b", "q")):
            before = f"import x\n{made}for y in z:\n    {name}.step()  # here\n"
            line = before.splitlines().index(f"    {name}.step()  # here") + 1
            after = before.replace(f"Adam({given})", f"Adam({given}, fused=True)")
            assert changed("single-tensor-optimizer", before, line, FUSED) == after
    kept = """
class T:
    def __init__(self):
        self.a, self.b = Adam(p), Adam(q)
    def fit(self):
        self.b.step()
"""
    assert changed("single-tensor-optimizer", kept, 6, FUSED) == kept.replace("Adam(q)", "Adam(q, fused=True)")
    taken = "a, b = make(Adam(p), Adam(q))\na.step()\n"
    with pytest.raises(Refused, match="2 calls of `Adam`"):
        changed("single-tensor-optimizer", taken, 2, FUSED)


def test_an_optimizer_made_twice_or_elsewhere_is_left_alone():
    for text, reason in (("o.step()\n", "no calls of `Adam`"), ("a = Adam(p)\nb = Adam(q)\n", "2 calls of `Adam`")):
        with pytest.raises(Refused, match=f"{reason} in the file that steps"):
            changed("single-tensor-optimizer", text, fix=FUSED)
    with pytest.raises(Refused, match="the loop is the program's own"):
        changed("single-tensor-optimizer", "o.step()\n", fix="Update all parameters at once")


def test_the_call_of_a_model_moves_into_a_block_of_its_own():
    before = "import torch\ndef f():\n\tfor x in b:\n\t\t# score\n\t\ty = model(x)  # logits\n\t\tkeep(y)\n"
    after = before.replace("\t\ty = ", "\t\twith torch.no_grad():\n\t\t\ty = ")
    assert changed("unused-autograd-graph", before, 5) == after
    windows = before.replace("\n", "\r\n")
    assert changed("unused-autograd-graph", windows, 5) == after.replace("\n", "\r\n")
    with pytest.raises(Refused, match="yields to other code"):
        changed("unused-autograd-graph", "import torch\ndef f():\n    yield model(x)\n", 3)


def test_a_function_that_runs_later_is_in_no_block():
    before = "import torch\nscore = {}(lambda x: model(x))\n"
    with pytest.raises(Refused, match="the line makes a function, which runs later"):
        changed("unused-autograd-graph", before.format("keep"), 2)


def test_the_only_statement_of_a_block_becomes_pass():
    assert (
        changed("garbage-collection-in-step", "if a:\n    # often\n    gc.collect()  # now\n", 3)
        == "if a:\n    # often\n    pass  # now\n"
    )


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_the_encoding_that_a_file_declares_is_kept(encoding):
    before = f"# coding: {encoding}\nnom = 'é'\nlosses.append(perte)\n".encode(encoding)
    after = changed_file(before, finding("retained-graph", 3))
    assert after == before.replace(b"perte", b"perte.detach()")


def test_a_rule_without_a_file_has_its_changed_line_applied():
    change = Change("/p/train.py", 2, "x = torch.zeros(8).to(device)", "x = torch.zeros(8, device=device)")
    raw = b"for _ in a:\n    x = torch.zeros(8).to(device)  # new\n"
    after = changed_file(raw, finding("graph-break", 2, change=change))
    assert after == b"for _ in a:\n    x = torch.zeros(8, device=device)  # new\n"
    with pytest.raises(Refused, match="the line is no longer what was recorded"):
        changed_file(b"a\nb\n", finding("graph-break", 2, change=change))


def test_only_a_line_of_the_program_can_be_changed():
    with pytest.raises(Refused, match="only the function is known, not the line"):
        changed_file(b"f()\n", finding("retained-graph", precision="def"))
    with pytest.raises(Refused, match="no single line of the program is at fault"):
        changed_file(b"f()\n", finding("retained-graph", line=0))


def test_each_change_bears_the_name_of_a_rule():
    names = {path.stem for path in Path(room.__file__).parent.glob("*.py")} - {"__init__", *room.NOT_RULES}
    assert names <= {name.replace("-", "_") for name in all_rules()}
    assert all(has_change(name.replace("_", "-")) for name in names)


def test_a_file_that_was_edited_since_is_left_alone():
    location = Location("/p/train.py", 2, "main", "losses.append(loss)")
    one = Finding("retained-graph", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", location)
    assert changed_file(b"# \xc3\xa9\n  losses.append(loss)  # all\n".replace(b"  l", b"l"), one).endswith(
        b"(loss.detach())  # all\n"
    )
    for raw in (b"losses.append(loss)\nother.append(loss)\n", b"losses.append(loss)\n"):
        with pytest.raises(Refused, match="the line is no longer what was recorded"):
            changed_file(raw, one)
    with pytest.raises(Refused, match="not in the encoding that it declares"):
        changed_file(b"# coding: utf-8\n# \xe9\xe9\nlosses.append(\xe9)\n", finding("retained-graph", 3))


@pytest.mark.parametrize(
    "text",
    [
        f"xs.append({'(' * 5000}a{')' * 5000})\n",  # libcst's parser alone would end the process
        f"xs.append({'-' * 20_000}a)\n",
        f"xs.append({'-' * 400}a)\n",  # parsed, but too deep for what follows
        "xs.append(a)\x00\n",
    ],
)
def test_a_hostile_file_is_refused(text):
    with pytest.raises(Refused):
        changed("retained-graph", text)


def _invalid(text, _finding):
    raise libcst.CSTValidationError("a node that is none")


@pytest.mark.parametrize(("change", "kind"), [(_invalid, "CSTValidationError"), (lambda *_: b"x = (\n", "SyntaxError")])
def test_a_change_that_cannot_be_made_is_refused_with_its_place(monkeypatch, change, kind):
    monkeypatch.setattr(room, "_change_of", lambda _: change)
    with pytest.raises((libcst.CSTValidationError, SyntaxError)):  # who tests profkit sees the error itself
        changed("retained-graph", "losses.append(loss)\n")
    monkeypatch.delenv("PROFKIT_STRICT")
    with pytest.raises(Refused, match=rf"the change failed inside profkit \({kind} at .*\.py:\d+\), please report it"):
        changed("retained-graph", "losses.append(loss)\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [("redundant_allreduce", "_TWICE"), ("redundant_recomputation", "_EACH_STEP"), ("unused_gradients", "_NAMED")],
)
def test_what_a_change_looks_for_in_a_fix_is_what_the_rule_says(change, words):
    said = getattr(importlib.import_module(f"{room.__name__}.{change}"), words)
    assert said in " ".join((Path(room.__file__).parent.parent / f"{change}.py").read_text().replace('"\n', "").split())
