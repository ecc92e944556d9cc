"""The block is called as it is, and keeps what its backward pass needs."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, refuse_hidden_arguments
from profkit.rules.changes.refusing import Refused

_OWN = frozenset(("use_reentrant", "preserve_rng_state", "determinism_check", "early_stop", "context_fn", "debug"))
"""Arguments of `checkpoint` itself; all others go to the block."""


def needless_checkpointing(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    call = text.call_at(finding.location.line, "checkpoint")
    refuse_hidden_arguments(call)
    if not call.args or call.args[0].keyword is not None:
        raise Refused("that line does not show which block is called")
    kept = [one for one in call.args[1:] if one.keyword is None or one.keyword.value not in _OWN]
    if kept:
        kept[-1] = kept[-1].with_changes(
            comma=libcst.MaybeSentinel.DEFAULT, whitespace_after_arg=call.args[-1].whitespace_after_arg
        )
    block = call.args[0].value
    is_plain = isinstance(block, (libcst.Name, libcst.Attribute, libcst.Subscript, libcst.Call))
    function = block if is_plain else block.with_changes(lpar=[libcst.LeftParen()], rpar=[libcst.RightParen()])
    return text.replaced(call, libcst.Call(function, kept))
