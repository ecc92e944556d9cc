"""Text of a file stays text: no terminal and no CI system obeys it."""

from __future__ import annotations

import pytest

from profkit.core.errors import UnreadableInput, UsageError
from profkit.core.printing import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py:31 in größer", "train.py:31 in größer"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\r\u2028\u202e", "a\\nb\\r\\u2028\\u202e"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_controls_a_terminal_or_hides_text_is_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", "\\x3a:error::x"),
        ("of ::WARNING file=a.py,line=1::x", "of \\x3a:WARNING file=a.py,line=1::x"),
        ("::stop-commands::token", "\\x3a:stop-commands::token"),
        ("a ##[error]x", "a ##\\x5berror]x"),
        ("at::native::vectorized_elementwise_kernel", "at::native::vectorized_elementwise_kernel"),
        ("c10::errors::x, x[::2], ## [error]", "c10::errors::x, x[::2], ## [error]"),
    ],
)
def test_what_github_actions_would_obey_is_an_escape_and_what_resembles_it_is_not(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    assert str(UsageError("no rule is called 'a\x1b]0;x\x07\nb'")) == "no rule is called 'a\\x1b]0;x\\x07\\nb'"
    assert str(UnreadableInput("run  1/trace.json", "holds \u202e")) == "run  1/trace.json: holds \\u202e"
