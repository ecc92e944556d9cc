"""Numbers that are nearly zero count as zero from the imports on. Results change, so it is never safe."""

from __future__ import annotations

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import with_statements

_SETTER = "set_flush_denormal"


def denormal_numbers(text: ProgramText, _finding: Finding) -> bytes:
    """Where the finding's file has its imports: what the main program runs first may lie in another one."""
    if _SETTER in text.module.code:
        raise Refused(f"the file calls `{_SETTER}` already, but not early enough or not on this thread")
    statement = f"{text.known_as('torch')}.{_SETTER}(True)"
    line = text.last_import()
    return text.edited({line: lambda one: with_statements(text, (), one, (statement,))})
