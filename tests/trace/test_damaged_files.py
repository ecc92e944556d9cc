"""A damaged file is read as far as possible, and a health note says what was lost and where."""

from __future__ import annotations

import gzip
import json
from unittest.mock import patch

import pytest
from backports import zstd

from profkit.trace import containers
from tests.traces import json_of, op, trace_of_bytes

EVENTS = [op(f"aten::op{i}", 10 * i, 9, dims="[[4],[]]") for i in range(20)]
WHOLE = json_of(EVENTS, deviceProperties=[{"id": 0, "name": "A100"}])


def _names(trace) -> list[str]:
    return [trace.name_of(row) for row in range(len(trace.events))]


def _place(i: int) -> int:
    """Where event ``i`` begins."""
    return WHOLE.index(json.dumps(EVENTS[i]).encode())


@pytest.mark.parametrize("piece_bytes", [1 << 20, 300, 7])
def test_a_file_cut_off_inside_an_event_keeps_the_events_before(piece_bytes):
    with patch.object(containers, "PIECE_BYTES", piece_bytes):
        trace = trace_of_bytes(WHOLE[: _place(7) + 20])
    assert _names(trace) == [f"aten::op{i}" for i in range(7)]
    assert trace.recording.devices == ("A100",)
    (note,) = trace.health
    assert note.startswith(f"the file is cut off or damaged at byte {_place(7):,} of {_place(7) + 20:,} of its content")
    assert note.endswith("the rest is lost: 7 events could be read")


def test_a_file_cut_off_after_its_last_event_keeps_all_events_with_a_note():
    trace = trace_of_bytes(WHOLE[:-1])
    assert len(trace.events) == 20
    assert f"of {len(WHOLE) - 1:,} of its content, the rest is lost: 20 events could be read" in trace.health[0]
    assert len(trace.health) == 1


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (zstd.compress, "zstd")])
def test_a_compressed_file_cut_off_keeps_what_can_be_unpacked(pack, kind):
    # each event a text of its own, so that the content does not all stand in the last bytes
    events = [op(f"aten::op{i * 7919 % 10007}", 10 * i, 9) for i in range(40_000)]
    packed = pack(json_of(events))
    trace = trace_of_bytes(packed[: len(packed) // 2])
    assert 1000 < len(trace.events) < 39_000
    assert _names(trace) == [event["name"] for event in events[: len(trace.events)]]
    (note,) = trace.health
    assert note.startswith(f"the file is a {kind} file cut off after ")
    assert note.endswith(f"bytes of content: {len(trace.events):,} events could be read")


def test_a_wrong_checksum_gets_a_note_and_the_content_is_kept():
    trace = trace_of_bytes(gzip.compress(WHOLE)[:-8] + b"\0" * 8)
    assert len(trace.events) >= 19  # the last few bytes come with the checksum
    assert trace.health[0].startswith("the file is a damaged gzip file: Error -6 Incorrect checksum found, after ")
    assert trace.health[0].endswith(f"bytes of content: {len(trace.events)} events could be read")


@pytest.mark.parametrize("piece_bytes", [1 << 20, 5000])
def test_events_before_a_damaged_block_are_kept(piece_bytes):
    packed = bytearray(gzip.compress(WHOLE[:900]) + gzip.compress(WHOLE[900:1800]) + gzip.compress(WHOLE[1800:]))
    third = packed.rindex(b"\x1f\x8b")
    packed[third + 10 : third + 14] = b"\xff" * 4
    with patch.object(containers, "PIECE_BYTES", piece_bytes):
        trace = trace_of_bytes(bytes(packed))
    assert _names(trace) == [f"aten::op{i}" for i in range(20) if _place(i) + len(json.dumps(EVENTS[i])) < 1800]
    assert "is a damaged gzip file" in trace.health[0]
    assert "after 1,800 bytes of content" in trace.health[0]


def test_a_broken_gzip_member_after_a_complete_one_only_gets_a_note():
    trace = trace_of_bytes(gzip.compress(WHOLE + b"\n") + gzip.compress(b" ")[:12])
    assert len(trace.events) == 20
    assert trace.health[0].startswith(f"the file is a gzip file cut off after {len(WHOLE) + 2:,} bytes of content")


@pytest.mark.parametrize("piece_bytes", [1 << 20, 300, 7])
@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (b'"aten::op9"', b"N/A", "Expecting value"),
        (b'"aten::op9"', b'"aten::"op9"', "Expecting ',' delimiter"),
        (b'"aten::op9", ', b'"aten::op9" ', "Expecting ',' delimiter"),
        (b'"aten::op9"', b"[" * 5000 + b'"aten::op9"', "nested too deeply"),
    ],
)
def test_damage_in_an_event_loses_only_that_event(old, new, cause, piece_bytes):
    assert WHOLE.count(old) == 1
    content = WHOLE.replace(old, new)
    with patch.object(containers, "PIECE_BYTES", piece_bytes):
        trace = trace_of_bytes(content)
    assert _names(trace) == [f"aten::op{i}" for i in range(20) if i != 9]
    lost = _place(10) - _place(9) + len(new) - len(old)
    if "nested" not in cause or piece_bytes == 1 << 20:
        (note,) = trace.health
        assert note.startswith(f"the file is damaged in 1 place, first at byte {_place(9):,} of its content ({cause})")
        assert note.endswith(f"leaving out {lost:,} bytes: 19 events could be read")


def test_damage_in_two_places_is_counted_twice():
    trace = trace_of_bytes(WHOLE.replace(b'"aten::op9"', b"N/A").replace(b'"aten::op12"', b"N/A"))
    assert len(trace.events) == 18
    assert trace.health[0].startswith(f"the file is damaged in 2 places, first at byte {_place(9):,} of its content")


def test_an_unreadable_head_loses_only_its_own_content():
    content = WHOLE.replace(b'[{"id": 0', b"[" * 9**6 + b'{"id": 0')
    trace = trace_of_bytes(content)
    assert (len(trace.events), trace.recording.devices) == (20, ())
    assert "first at byte 0 of its content (nested too deeply)" in trace.health[0]


def test_a_bracket_that_seems_to_end_the_events_does_not():
    at = _place(9)
    content = WHOLE[: at - 4] + b"]" + WHOLE[at - 3 :]
    trace = trace_of_bytes(content)
    assert len(_names(trace)) >= 18
    assert trace.health[0].startswith("the file is damaged in 1 place")


def test_a_name_with_the_separator_in_it_is_no_damage():
    events = [op('a},\n  {"b', 1, 1), *EVENTS]
    for piece_bytes in (1 << 20, 64):
        with patch.object(containers, "PIECE_BYTES", piece_bytes):
            trace = trace_of_bytes(json_of(events).replace(b"\\n", b"\n"))
        assert (len(trace.events), trace.health) == (21, ())


def test_a_list_that_is_never_closed_is_read_whole():
    trace = trace_of_bytes(json.dumps(EVENTS).encode()[:-1])
    assert len(trace.events) == 20
    assert "the rest is lost: 20 events could be read" in trace.health[0]
