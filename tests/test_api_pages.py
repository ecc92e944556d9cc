"""docs/api.md is that of the code, and tells of every name what a stranger needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

import profkit
from tests import api_pages
from tests.api_pages import PAGE, make_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), "run `python -m tests.api_pages`"


def test_every_public_name_and_every_value_of_a_diagnosis_has_its_place() -> None:
    headings = re.findall(r"^#+ (\S+)", make_page(), re.MULTILINE)
    assert {*profkit.__all__} - {"__version__"} <= {*headings}
    assert {"Finding", "Saving", "Location", "Timing", "Side", "StepTime", "Move", "Pictures"} <= {*headings}


def test_no_two_headings_are_the_same() -> None:
    headings = re.findall(r"^#+ .+$", make_page(), re.MULTILINE)
    assert len(headings) == len({*headings})


def test_a_name_without_a_docstring_is_an_error() -> None:
    @dataclass(frozen=True)
    class Silent:
        number: int

    with pytest.raises(AssertionError, match=r"Silent.* has no docstring"):
        api_pages._text(Silent)


def test_a_signature_shows_defaults_result_and_keyword_only_parameters() -> None:
    def made(first: int, *, second: str = "a") -> bool: ...

    assert api_pages._signature("made", made) == "```python\nmade(first: int, *, second: str = 'a') -> bool\n```\n"


def test_marks_and_code_of_a_docstring_become_markdown() -> None:
    text = "Takes ``a`` or `b`.\n\n::\n\n    if a:\n        b()\n\nThen ends."
    assert api_pages._marked_down(text) == ("Takes `a` or `b`.\n\n```python\nif a:\n    b()\n```\n\nThen ends.")
