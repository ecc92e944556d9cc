"""Programs in strangers' styles: what is offered for their fault, as their authors read it. `python -m tests.fixes
tests/fixes/strangers` runs them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from profkit.findings.values import Finding, Kind, Location, Severity
from profkit.rules.changes import Refused, changed_file
from tests.fixes.cases import MARK, programs

FOLDER = Path(__file__).parent / "strangers"
_MARKED = re.compile(r"# expect: (\S+)")
_SAID = {
    "dense-embedding-gradient": "Make the table with `nn.EmbeddingBag(…, sparse=True)`, and Adagrad updates these",
    "padded-batch": "Pad each batch to its own longest row",
    "unread-factors": "Ask for the values alone: `torch.linalg.svdvals`",
    "unused-gradients": "Name what this loss is differentiated by",
    "redundant-recomputation": "Compute it once, before the loop",
}
"""How the finding's advice begins, where the change depends on it."""
_TOLD = {"dtype-round-trip": "1 tensor a step is cast from float32 to float64 and straight back"}
"""What the finding says, where the change depends on it."""
_EVIDENCE = {"repeated-call": {"callee": "kaiser"}}
"""Figures behind the message, where the change depends on them."""
OWN_WORDS = {
    "cell_loop": "x = self.embed(words)\n        outputs, _ = self.cell(x)\n        return self.out(outputs)\n",
    "closure_bank": "codes_parts.append(code)\n    codes = T.cat(codes_parts)\n    return codes\n",
    "masked_encoder": "attn_mask=torch.where(padding[:, None, None, :], -1e9, 0.0).to(query_layer.dtype),\n",
    "einsum_attention": "attn_mask=torch.where(causal_mask, -torch.finfo(q.dtype).max, 0.0).to(q.dtype),\n",
    "token_counter": "for word in words.flatten().tolist():\n            self.counter[word] += 1\n",
    "vit_checkpoint": "for block in self.blocks:\n            x = block(x)\n",
    "profile_distances": "x.unsqueeze(1).expand(-1, centres.shape[0], -1)\n",
    "sweep_partial": "reset = optimizer.zero_grad\n",
    "trainer_files": "return pixels.float() * 2 - 1\n",
    "melody_encoder": "_ = self.cell(embedded)\n        state: Tensor = states[:, -1]\n        return state\n",
    "preallocated_decoder": "outputs, _ = self.rnn_cell(seq)\n",
    "closure_whitener": "out = torch.vmap(lambda row: (row - row.mean()) / (row.std() + eps))(block)\n",
    "next_char": "logits = self.scores(hidden[:, -1])\n        return logits\n",
    "scored_folds": "scores = cat(scores_parts, dim=0) if scores_parts else None\n    return scores\n",
    "trainer_callbacks": "self.records[name].append(value.detach() if torch.is_tensor(value) else value)\n",
    "straight_through": "scale.unsqueeze(0).expand(x.shape[0], -1)\n",
    "padded_reviews": "mask[torch.arange(mask.shape[1]) < lengths.unsqueeze(1)] = True\n    return ids",
    "rotary_decoder": "self.freqs_cis = precompute_freqs_cis(self.head_dim, self.args.max_seq_len)\n\n    def forward",
    "small_gpt": "is_causal=True,\n            dropout_p=self.dropout.p if self.training else 0.0,\n",
}
"""Where the change differs from the fix that was written by hand: what it says."""
REFUSED = {
    "shuffled_arrays": "of a list of numbers it makes float64; --unsafe tries it",
    "collated_arrays": "of a list of numbers it makes float64; --unsafe tries it",
    "annotated_rollout": "`Rollout` has a base class or a decorator, which may know its attributes",
}
"""Programs whose fault is not changed, and why: the list may hold numbers; a dataclass knows its fields."""
SILENT = {"point_distances"}
"""Programs that look alike, in which nothing is to be won."""


def faulty(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*.py")) if not file.relative_to(folder).parts[0].startswith("fix")]


def marked(folder: Path) -> tuple[Path, int, str]:
    """The file of the fault, its line and its rule."""
    for file in faulty(folder):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if found := _MARKED.search(line):
                return file, number, found[1]
    raise AssertionError(f"{folder.name} marks no line")


def found(file: Path, line: int, rule: str) -> Finding:
    place, evidence = Location(str(file), line, "main"), _EVIDENCE.get(rule, {})
    said, told = _SAID.get(rule, ""), _TOLD.get(rule, "")
    return Finding(rule, Kind.FAULT, Severity.HIGH, told, 1, 0.9, said, place, evidence=evidence)


NAMES = sorted(one.name for one in programs(FOLDER))


def test_there_are_at_least_a_dozen_and_each_has_a_fix():
    assert len(NAMES) - len(SILENT) >= 12
    assert NAMES == sorted(one.name for one in FOLDER.iterdir() if one.is_dir())
    for name in SILENT:
        assert not any("# expect" in file.read_text(encoding="utf-8") for file in faulty(FOLDER / name))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_text_does_not_show_is_refused_with_its_reason(name):
    file, line, rule = marked(FOLDER / name)
    with pytest.raises(Refused, match=re.escape(REFUSED[name])):
        changed_file(file.read_bytes(), found(file, line, rule))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SILENT and name not in REFUSED])
def test_the_change_is_what_the_author_would_write(name):
    file, line, rule = marked(FOLDER / name)
    raw = file.read_bytes()
    after = changed_file(raw, found(file, line, rule))
    assert after.count(b"\r\n") in (0, after.count(b"\n"))
    text = MARK.sub("", after.decode("utf-8").replace("\r\n", "\n"))
    if name in OWN_WORDS:
        assert OWN_WORDS[name] in text
        ast.parse(text)
        return
    parts = file.relative_to(FOLDER / name).parts
    fixed = (FOLDER / name).joinpath(parts[0].replace("fault", "fix"), *parts[1:])
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(fixed.read_text(encoding="utf-8")))
