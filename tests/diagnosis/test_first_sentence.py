"""The first sentence of every report, the table below it, and the file itself: all three agree, for all recordings at
hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.diagnosis.catalogue import recordings_root
from profkit.run.directory import RUN_FILE
from tests.diagnosis.agreement import check, traces_in

_IN_TREE = Path(__file__).parents[1] / "h100" / "recordings"


def _committed() -> Iterator[Path]:
    root = recordings_root()
    yield from sorted(path.parent for path in (root.rglob(RUN_FILE) if root else ()))
    yield from sorted(path.parent for path in _IN_TREE.rglob(RUN_FILE))
    yield from sorted(_IN_TREE.rglob("*.plain.pt.trace.json.gz"))


def _of_corpus(corpus: Path, part: str) -> Iterator[Path]:
    root = corpus / part
    if part == "h100":
        yield from sorted(path.parent for path in root.rglob(RUN_FILE))
        yield from sorted(root.rglob("*.plain.pt.trace.json.gz"))
    else:
        yield from traces_in(root)


@pytest.mark.parametrize("path", tuple(_committed()), ids=lambda path: "-".join(path.parts[-2:]))
def test_sentence_table_and_file_agree(path):
    check(path)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["kineto", "h100", "ranks"])
def test_sentence_table_and_file_agree_on_recordings_made_elsewhere(corpus, part):
    paths = list(_of_corpus(corpus, part))
    if not paths:
        pytest.skip(f"{corpus} holds no recordings in {part}")
    failed = []
    for path in paths:
        try:
            check(path)
        except AssertionError as error:  # noqa: PERF203  # all of them are told
            failed.append(f"{path.relative_to(corpus)}: {error}")
    assert not failed, "\n".join(failed)
