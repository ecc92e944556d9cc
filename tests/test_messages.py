"""What profkit says about a recording, it says in short sentences."""

from __future__ import annotations

import pytest

from tests.messages import count_words, of_rule, sentences

MOST_WORDS = 25
"""Of a sentence. Readers of plain text lose the thread in longer ones (gov.uk's guide to writing says the same)."""
_NOT_A_VERB_FOR_IT = ("found no room", "finds no room", "stands still", "stand still", "is told to")
"""What no native speaker would say of a program, a request or a step."""
_SAID = sentences()


def test_no_sentence_has_more_than_25_words():
    assert [one for one in _SAID if one.words > MOST_WORDS] == []


@pytest.mark.parametrize("words", _NOT_A_VERB_FOR_IT)
def test_messages_use_the_verbs_of_their_readers(words):
    assert [one for one in _SAID if words in one.text] == []


def test_every_rule_that_suspects_says_something():
    assert len({one.where for one in _SAID if of_rule(one)}) > 60


@pytest.mark.parametrize(("text", "words"), [("One `torch.x(a, b)` here.", 3), ("… a step takes …", 5), ("", 0)])
def test_code_and_what_is_filled_in_count_as_one_word(text, words):
    assert count_words(text) == words
