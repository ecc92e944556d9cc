"""What engines write into the names of their steps.

vLLM calls the range of a step ``execute_context_2(512)_generation_30(30)``: the sequences whose prompt it computes, the
tokens of these, and the same for those that generate. Newer versions begin with all tokens and write sums in the
parentheses (``sq``: tokens that are computed, ``sk``: tokens they attend to; some write ``tokens_squares``). SGLang
calls it ``step[DECODE bs=32]`` or ``step[EXTEND bs=15 toks=15360]``, TensorRT-LLM ``[Executor] _forward_step 7: 1 ctx
reqs, 32 gen reqs``, newer versions with ``512 ctx tokens`` in between. A tool that opens vLLM's ranges around SGLang's
gets one account, vLLM's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.trace.events import Category, Rows

_VLLM = re.compile(
    r"execute_(?:\d{1,12}_)?context_(\d{1,12})\(([^()]{0,100})\)_generation_(\d{1,12})\(([^()]{0,100})\)"
)
_SGLANG = re.compile(r"step\[(\w+) bs=(\d{1,12})(?: toks=(\d{1,12}))?\]")
_TENSORRT = re.compile(
    r"_forward_step(?: \d{1,12})?: (\d{1,12}) ctx reqs, (?:(\d{1,12}) ctx tokens, )?(\d{1,12}) gen reqs"
)
_SUM = re.compile(r"(sqsq|sqsk|sq|sk)(\d{1,12})")
_PLAIN = re.compile(r"(\d{1,12})(?:_\d{1,18})?")
"""The tokens, and the sum of their squares."""


class Step(Struct, frozen=True):
    """What the name of a range says: the sequences in prefill and in generation, the tokens that are computed, and
    those that they attend to (0 if it does not say)."""

    prefilled: int
    generating: int
    tokens: int
    context_tokens: int

    @property
    def kind(self) -> str:
        if self.prefilled and self.generating:
            return "mixed"
        return "prefill" if self.prefilled else "decode"


class NamedSteps(Struct, frozen=True):
    """The ranges of an ``engine``'s steps in the order of their starts, and what the name of each says."""

    engine: str
    rows: Rows
    steps: tuple[Step, ...]


def read_vllm(name: str) -> Step | None:
    """A step by the name of vLLM's range; None for any other name."""
    found = _VLLM.search(name)
    if found is None:
        return None
    prefill, generation = (_sums(found[2]), _sums(found[4]))
    tokens = prefill.get("sq", 0) + generation.get("sq", 0)
    return Step(int(found[1]), int(found[3]), tokens, prefill.get("sk", 0) + generation.get("sk", 0))


def _sums(text: str) -> dict[str, int]:
    plain = _PLAIN.fullmatch(text)
    return {"sq": int(plain[1])} if plain else {key: int(value) for key, value in _SUM.findall(text)}


def read_sglang(name: str) -> Step | None:
    """A step by the name of SGLang's range; None for any other name."""
    found = _SGLANG.search(name)
    if found is None:
        return None
    sequences = int(found[2])
    if found[1] in ("DECODE", "IDLE"):
        return Step(0, sequences, sequences, 0)
    tokens = int(found[3] or 0)
    return Step(sequences, 0, tokens, 0) if found[1] == "EXTEND" else Step(sequences, sequences, tokens, 0)


def read_tensorrt(name: str) -> Step | None:
    """A step by the name of TensorRT-LLM's range; None for any other name. Without the tokens of its prompts, all
    tokens of a step with prompts are unknown, 0."""
    found = _TENSORRT.search(name)
    if found is None:
        return None
    prefilled, generating = int(found[1]), int(found[3])
    is_told = found[2] is not None or not prefilled
    return Step(prefilled, generating, int(found[2] or 0) + generating if is_told else 0, 0)


_READERS: tuple[tuple[str, Callable[[str], Step | None]], ...] = (
    ("TensorRT-LLM", read_tensorrt),
    ("vLLM", read_vllm),
    ("SGLang", read_sglang),
)


@derived_once
def named_steps(facts: Facts) -> NamedSteps | None:
    """The engine's steps; None if no ranges of one were recorded."""
    trace, events = facts.trace, facts.trace.events
    by_engine = {}
    for engine, read in _READERS:
        named = trace.where_name(lambda name: read(name) is not None)  # noqa: B023  # called at once
        rows = np.flatnonzero(named & (events.category == Category.ANNOTATION))
        rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
        steps = tuple(step for row in rows.tolist() if (step := read(trace.name_of(row))) is not None)
        if any(step.prefilled + step.generating for step in steps):
            by_engine[engine] = NamedSteps(engine, rows, steps)
    if not by_engine:
        return None
    telling, last = next(iter(by_engine.values())), list(by_engine)[-1]
    return NamedSteps(last, telling.rows, telling.steps)  # vLLM's names around SGLang's steps tell more
