"""A copy of a trace with further events is the text of the file with these in front of its own."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from backports import zstd

from profkit.core.errors import UnreadableInput
from profkit.trace.kineto.insertion import with_events
from tests.traces import json_of, op

NEW = [b'{"new":1}', b'{"new":2}']
OWN = [op("aten::mul", 1, 2), op("aten::add", 5, 1)]


def copy_of(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    return b"".join(with_events(path, iter(NEW)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
def test_the_events_and_keys_of_the_file_follow_the_new_events(tmp_path, pack):
    content = json_of(OWN, traceName='a "traceEvents": [ in a name', baseTimeNanoseconds=5)
    copy = json.loads(copy_of(tmp_path / "trace", pack(content)))
    assert copy.pop("traceEvents") == [{"new": 1}, {"new": 2}, *OWN]
    assert copy == {"schemaVersion": 1, "traceName": 'a "traceEvents": [ in a name', "baseTimeNanoseconds": 5}


@pytest.mark.parametrize(
    ("content", "own"),
    [
        (b'{"traceEvents": []}', []),
        (b'{"traceEvents":[ \n ] , "a": 1}', []),
        (b"[]", []),
        (b'\xef\xbb\xbf [{"b": 1}]', [{"b": 1}]),
    ],
)
def test_an_empty_or_plain_list_of_events_stays_json(tmp_path, content, own):
    copy = json.loads(copy_of(tmp_path / "trace.json", content))
    events = copy if isinstance(copy, list) else copy["traceEvents"]
    assert events == [{"new": 1}, {"new": 2}, *own]


def test_without_new_events_only_a_blank_is_added(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(json_of(OWN))
    assert json.loads(b"".join(with_events(path, ()))) == json.loads(json_of(OWN))


def test_names_that_strict_json_forbids_are_copied_as_they_are(tmp_path):
    content = b'{"traceEvents": [{"name": "a\x01\xff"}]}'
    assert copy_of(tmp_path / "trace.json", content).endswith(b'{"name": "a\x01\xff"}]}')


def test_a_cut_off_file_is_copied_as_far_as_it_goes(tmp_path):
    whole = json_of(OWN)
    assert copy_of(tmp_path / "trace.json", whole[:-30]).endswith(whole[-60:-30])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b'{"a": 1}', b'{"a": tru, "traceEvents": [{"name": "b"}]}'])
def test_a_file_without_a_complete_beginning_is_refused(tmp_path, content):
    with pytest.raises(UnreadableInput, match=r"trace\.json"):
        copy_of(tmp_path / "trace.json", content)


def test_a_long_trace_is_copied_in_pieces(tmp_path):
    path = tmp_path / "trace.json.gz"
    events = b",".join([json.dumps(OWN[0]).encode()] * 200_000)
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + events + b"]}", 1))
    tracemalloc.start()
    copied = sum(map(len, with_events(path, iter(NEW))))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert copied > len(events) > 20_000_000
    assert most_bytes < 4 << 20
