"""Snapshots of all versions of PyTorch and from all picklers are read correctly."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from profkit.trace.snapshot.columns import Action, State, is_snapshot
from profkit.trace.snapshot.reader import read_snapshot
from tests.trace.snapshot.made import snapshots
from tests.trace.snapshot.written import WRITERS, Json, expected, flat, read

RECORDED = Path(__file__).parent / "recorded"
"""Of an H100, each with `memory_stats` of the moment."""
TRUTH = json.loads((RECORDED / "truth.json").read_text())

each_recording = pytest.mark.parametrize("name", sorted(TRUTH))


@each_recording
def test_the_totals_match_the_statistics_of_the_allocator_to_the_byte(name):
    snapshot, stats = read_snapshot(RECORDED / f"{name}.pickle.gz"), TRUTH[name]["stats"]
    blocks = snapshot.blocks
    parts = np.bincount(blocks.segment, minlength=len(snapshot.segments))[blocks.segment]
    free = blocks.state == State.INACTIVE
    assert {
        "allocated": blocks.size_bytes[blocks.state == State.ACTIVE].sum(),
        "reserved": snapshot.segments.size_bytes.sum(),
        "inactive_split": blocks.size_bytes[free & (parts > 1)].sum(),
    } == {name: stats[f"{name}_bytes.all.current"] for name in ("allocated", "reserved", "inactive_split")}
    assert snapshot.notes == ()


@each_recording
def test_sizes_in_the_history_are_the_requested_ones(name):
    snapshot = read_snapshot(RECORDED / f"{name}.pickle.gz")
    history, blocks = snapshot.history, snapshot.blocks
    live: dict[int, int] = {}
    for action, address, size in zip(history.action, history.address, history.size_bytes, strict=True):
        if action == Action.ALLOC:
            live[address] = size
        elif action == Action.FREE_REQUESTED:
            assert live[address] == size
        elif action == Action.FREE_COMPLETED:
            assert live.pop(address) == size
    held = blocks.state == State.ACTIVE
    asked = dict(zip(blocks.address[held], blocks.requested_bytes[held], strict=True))
    assert live == {address: asked[address] for address in live}


@each_recording
@pytest.mark.parametrize("writer", WRITERS)
def test_a_recording_is_the_same_from_every_pickler(name, writer, tmp_path):
    value = pickle.loads(gzip.decompress((RECORDED / f"{name}.pickle.gz").read_bytes()))
    snapshot = read(WRITERS[writer](value), tmp_path)
    assert flat(snapshot) == expected(value)
    assert snapshot.notes == ()


def test_snapshots_of_others_are_read_completely(corpus):
    for path in sorted((corpus / "memory_snapshots").glob("*.pickle")):
        snapshot = read_snapshot(path)
        assert flat(snapshot) == expected(pickle.loads(path.read_bytes())), path
        assert snapshot.notes == ()


@given(snapshots(), st.sampled_from(sorted(WRITERS)))
def test_a_written_snapshot_is_read_back(tmp_path_factory, value, writer):
    snapshot = read(WRITERS[writer](value), tmp_path_factory.getbasetemp())
    assert flat(snapshot) == expected(value)
    assert snapshot.notes == ()


def test_long_histories_are_read_in_pieces(tmp_path):
    """A piece is half a megabyte, so entries, texts and lists lie across the borders."""
    frames = [{"name": f"f{n}" * 50, "filename": "train.py", "line": n} for n in range(300)]
    stacks = [[*frames[n:], *frames[:n]][:20] for n in range(300)]
    entries = [_entry(n, stacks[n % 300] if n % 3 else []) for n in range(30_000)]
    value = {"segments": [], "device_traces": [[], entries, entries[:5000]]}
    value["device_traces"][2] = [dict(entry) for entry in entries[:5000]]
    history = expected(value)["history"]
    for name in ("Python, protocol 2", "Python, protocol 4", "C++"):
        content = WRITERS[name](value)
        assert len(content) > 3 << 19
        found = read(content, tmp_path)
        assert flat(found)["history"] == history


def _entry(number: int, frames: list[Json]) -> Json:
    return {
        "action": "alloc",
        "addr": (1 << 40) + number,
        "size": 512 * number,
        "stream": 0,
        "time_us": number,
        "user_metadata": f"step {number}",
        "frames": frames,
    }


def _segment(**other: object) -> Json:
    block = {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": []}
    return {
        "device": 0,
        "address": 4096,
        "total_size": 1024,
        "allocated_size": 1024,
        "active_size": 1024,
        "stream": 0,
        "segment_type": "small",
        "blocks": [block],
        **other,
    }


def test_a_plain_list_of_segments_is_a_snapshot(tmp_path):
    snapshot = read(pickle.dumps([_segment()]), tmp_path)
    assert snapshot.blocks.size_bytes.tolist() == [1024]
    assert len(snapshot.history) == 0


def test_blocks_without_addresses_follow_each_other(tmp_path):
    blocks = [{"size": size, "state": "active_allocated"} for size in (512, 256, 256)]
    snapshot = read(pickle.dumps({"segments": [_segment(blocks=blocks)], "device_traces": []}), tmp_path)
    assert snapshot.blocks.address.tolist() == [4096, 4608, 4864]
    assert snapshot.blocks.requested_bytes.tolist() == [512, 256, 256]


def test_blocks_of_torch_2_0_keep_their_stacks_in_a_history(tmp_path):
    histories = [
        [{"addr": 1, "real_size": 500, "frames": [{"name": name, "filename": "a.py", "line": 3}]} for name in names]
        for names in ("f", "gh", "")
    ]
    blocks = [{"size": 512, "requested_size": 500, "state": "active_allocated", "history": each} for each in histories]
    snapshot = read(pickle.dumps([_segment(total_size=1536, blocks=blocks)]), tmp_path)
    stacks = [stack for *_, stack in flat(snapshot)["blocks"]]
    assert stacks == [(("a.py", "f", 3),), (("a.py", "h", 3),), ()]
    assert snapshot.notes == ()


def test_stacks_of_more_than_a_thousand_frames_are_read_completely(tmp_path):
    """Python writes lists a thousand items at a time, and a single last item differently."""
    frames = [{"name": "f", "filename": "deep.py", "line": n} for n in range(2500)]
    for depth in (999, 1000, 1001, 1002, 2000, 2001, 2500):
        entries = [_entry(n, list(frames[:depth])) for n in range(5)]
        value = {"segments": [], "device_traces": [entries]}
        for name in ("Python, protocol 4", "C++"):
            assert flat(read(WRITERS[name](value), tmp_path)) == expected(value)


def test_the_last_requested_size_of_a_free_block_is_not_kept(tmp_path):
    blocks = [{"size": 1024, "requested_size": 7, "address": 4096, "state": "inactive", "frames": []}]
    assert read(pickle.dumps([_segment(blocks=blocks)]), tmp_path).blocks.requested_bytes.tolist() == [0]


def test_private_pools_are_numbered_and_the_common_one_is_0(tmp_path):
    pools = [(0, 3), (0, 0), (1, 0), (0, 3)]
    segments = [_segment(address=(n + 1) << 20, segment_pool_id=pool, blocks=[]) for n, pool in enumerate(pools)]
    first, common, other, again = read(pickle.dumps(segments), tmp_path).segments.pool.tolist()
    assert common == 0
    assert first == again
    assert len({first, common, other}) == 3


def test_an_out_of_memory_entry_has_the_free_memory_of_the_device(tmp_path):
    entry = {"action": "oom", "device_free": 123, "size": 999, "stream": 0, "time_us": 7, "frames": []}
    history = read(pickle.dumps({"segments": [], "device_traces": [[entry]]}), tmp_path).history
    assert (history.action[0], history.address[0], history.size_bytes[0]) == (Action.OOM, 123, 999)
    assert history.time_ns[0] == 7000


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_compressed_snapshots_are_unpacked(compress, tmp_path):
    content = pickle.dumps([_segment()])
    assert flat(read(compress(content), tmp_path)) == flat(read(content, tmp_path))


def test_a_pickle_is_recognised_by_its_first_bytes():
    assert [is_snapshot(pickle.dumps([], protocol)) for protocol in (0, 1, 2, 3, 4, 5)] == [False, False] + [True] * 4
    assert not is_snapshot(b"")
    assert not is_snapshot(b"{}")


def test_half_a_surrogate_in_a_name_becomes_a_replacement_character(tmp_path):
    frames = [{"name": "a\ud800b", "filename": "\x1b[31m.py", "line": 3}]
    segment = _segment()
    segment["blocks"][0]["frames"] = frames
    stacks = read(pickle.dumps([segment]), tmp_path).stacks
    assert stacks.functions == ("a\ufffd\ufffd\ufffdb",)
    assert stacks.files == ("\x1b[31m.py",)  # reports show it inert, as all text of a recording
    stacks.functions[0].encode()
