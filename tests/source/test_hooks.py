"""Hooks and where they are registered: functions that may register one more each time, not constructors."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from profkit.source.remarks import review_sources

WATCH = """
class Watch:
    def begin(self, layer):
        def keep(module, inputs, output):
            self.kept = output
            self.sum += output.sum()

        layer.{call}
"""


def registered(directory: Path, source: str) -> list[tuple[int, int, int]]:
    """The line that registers a hook, and the hook's first and last."""
    file = directory / "hooked.py"
    file.write_text(textwrap.dedent(source))
    found = [remark for remark in review_sources([str(file)]) if remark.kind == "hook-registered"]
    return [(remark.site.line, remark.used_at, remark.until) for remark in found]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("register_forward_hook(keep)", [(8, 4, 6)]),
        ("register_full_backward_pre_hook(keep, prepend=True)", [(8, 4, 6)]),
        ("register_forward_hook(functools.partial(keep, None))", [(8, 4, 6)]),
        ("register_hook(lambda gradient: gradient * 2)", [(8, 8, 8)]),
        ("register_forward_hook(self.keep)", [(8, 4, 6)]),
        ("register_forward_hook(other)", []),
        ("register_buffer(keep)", []),
        ("register_forward_hook()", []),
    ],
)
def test_a_hook_of_the_file_is_known_by_its_lines(tmp_path, call, found):
    assert registered(tmp_path, WATCH.format(call=call)) == found


def test_a_constructor_and_a_module_register_once(tmp_path):
    once = WATCH.replace("begin", "__init__").format(call="register_forward_hook(keep)")
    assert registered(tmp_path, once) == []
    assert registered(tmp_path, "def keep(*all):\n    return None\n\nlayer.register_forward_hook(keep)\n") == []
