"""Rules speak in short sentences."""

from __future__ import annotations

import pytest

from tests.messages import count_words, sentences

MOST_WORDS = 25
"""Of a sentence. Readers of plain text lose the thread in longer ones (gov.uk's guide to writing says the same)."""
MOST_LONG = 30
"""Sentences that are longer all the same. The number may only fall: `python -m tests.messages` lists them first."""
LONGEST = 48


def test_hardly_a_sentence_has_more_than_25_words():
    long = [one for one in sentences() if one.words > MOST_WORDS]
    assert len(long) <= MOST_LONG
    assert [one for one in long if one.words > LONGEST] == []


def test_every_rule_that_suspects_says_something():
    assert len({one.rule for one in sentences()}) > 60


@pytest.mark.parametrize(("text", "words"), [("One `torch.x(a, b)` here.", 3), ("… a step takes …", 5), ("", 0)])
def test_code_and_what_is_filled_in_count_as_one_word(text, words):
    assert count_words(text) == words
