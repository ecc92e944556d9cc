"""Hostile snapshots: nothing in them is run, and reading costs no more memory than their size allows."""

from __future__ import annotations

import copyreg
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest

from profkit.core.errors import UnreadableInput
from tests.trace.snapshot.written import Json, flat, read

MOST_BYTES = 64 << 20
"""Of memory for files of some kilobytes: no number in a file is the size of an array."""


class _Payload:
    """Writes a file when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def _inst(marker: Path) -> bytes:
    return f"\x80\x02(S'touch {marker}'\nios\nsystem\n.".encode("latin-1")


def _obj(marker: Path) -> bytes:
    return b"\x80\x02(cos\nsystem\n" + _text(f"touch {marker}") + b"o."


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _in_a_snapshot(value: object) -> Json:
    return {"segments": [], "device_traces": [[value]]}


PAYLOADS = {
    "REDUCE": lambda marker: pickle.dumps(_in_a_snapshot(_Payload(marker)), 4),
    "REDUCE, protocol 2": lambda marker: pickle.dumps(_in_a_snapshot(_Payload(marker)), 2),
    "INST": _inst,
    "OBJ": _obj,
    "NEWOBJ": lambda marker: b"\x80\x02cos\nsystem\n" + _text(f"touch {marker}") + b"\x85\x81.",
    "NEWOBJ_EX": lambda marker: b"\x80\x04cos\nsystem\n)}\x92.",
    "BUILD": lambda marker: b"\x80\x02}" + b"}" + _text("__setstate__") + b"Nsb.",
    "EXT1": lambda marker: b"\x80\x02\x82\x01.",
    "EXT2": lambda marker: b"\x80\x02\x83\x01\x00.",
    "EXT4": lambda marker: b"\x80\x02\x84\x01\x00\x00\x00.",
    "PERSID": lambda marker: b"\x80\x02Pname\n.",
    "BINPERSID": lambda marker: b"\x80\x02" + _text("name") + b"Q.",
    "NEXT_BUFFER": lambda marker: b"\x80\x05\x97.",
    "READONLY_BUFFER": lambda marker: b"\x80\x05\x98.",
    "STACK_GLOBAL": lambda marker: b"\x80\x04" + _text("os") + _text("system") + b"\x93.",
    "GLOBAL": lambda marker: b"\x80\x02cos\nsystem\n.",
    "in the middle": lambda marker: pickle.dumps({"segments": [{}] * 5000, "device_traces": _Payload(marker)}),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_is_refused_by_name_and_not_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(copyreg, "_inverted_registry", {1: ("os", "system")})
    marker = tmp_path / "ran"
    with pytest.raises(UnreadableInput, match=r"uses the opcode [A-Z_0-9]+, which a memory snapshot has no use for"):
        read(PAYLOADS[name](marker), tmp_path)
    assert not marker.exists()


def test_the_payload_does_run_when_unpickled(tmp_path):
    pickle.loads(PAYLOADS["REDUCE"](tmp_path / "ran"))
    assert (tmp_path / "ran").exists()


HEAD = b"\x80\x02}" + _text("segments") + b"]s" + _text("device_traces")
REFUSED = {
    "a reference to what is not there": b"\x80\x02h\x05.",
    "a reference to itself before it is there": b"\x80\x02](h\x00e.",
    "a number far ahead": b"\x80\x02]r\xff\xff\xff\xff.",
    "a reference far ahead": b"\x80\x02j\xff\xff\xff\xff.",
    "a text of four gigabytes": b"\x80\x02X\xff\xff\xff\xffabc",
    "a long text": b"\x80\x02X\xff\xff\xff\x7f" + b"a" * 5000,
    "LONG4": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "BINUNICODE8": b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.",
    "BINBYTES8": b"\x80\x04\x8e" + b"\xff" * 8 + b"abc.",
    "no value": b"\x80\x02.",
    "two values": b"\x80\x02}}.",
    "a number": b"\x80\x02K\x07.",
    "an empty list": b"\x80\x02].",
    "an empty dictionary": b"\x80\x02}.",
    "a list for a dictionary": b"\x80\x02]NNs.",
    "a key alone": b"\x80\x02}(Nu.",
    "an end without a beginning": b"\x80\x02}u.",
    "an append to nothing": b"\x80\x02a.",
    "nothing after the head": b"\x80\x02",
    "a number for a number": b"\x80\x02K\x01q\x00.",
    "segments that are text": b"\x80\x02}" + _text("segments") + _text("none") + b"s.",
    "histories that are a dictionary": HEAD + b"}s.",
    "nested lists": HEAD + b"](" + b"](" * 100_000 + b"e" * 100_001 + b"s.",
    "nested tuples": b"\x80\x02N" + b"\x85" * 100_000 + b".",
    "appends one by one": b"\x80\x02]" + b"Na" * 100_000 + b".",
    "only marks": b"\x80\x02" + b"(" * 3_000_000,
    "an open dictionary": b"\x80\x02}(" + b"N" * 3_000_000,
    "lists in lists": HEAD + b"](" + b"]" * 100_000 + b"es.",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_other_than_a_snapshot_is_refused_in_one_line_with_its_name(name, tmp_path):
    with pytest.raises(UnreadableInput) as refused:
        _measured(REFUSED[name], tmp_path)
    assert str(refused.value).startswith(str(tmp_path / "snapshot.pickle"))
    assert "\n" not in str(refused.value)


def _measured(content: bytes, folder: Path) -> object:
    tracemalloc.start()
    try:
        return read(content, folder)
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak_bytes < MOST_BYTES + 60 * len(content)


def test_a_list_nested_in_itself_many_times_takes_no_more_memory_than_written(tmp_path):
    """Expanded it would have 10**20 entries."""
    lists: list[object] = []
    for _ in range(20):
        lists = [lists] * 10
    snapshot = _measured(pickle.dumps({"segments": [], "device_traces": lists}), tmp_path)
    assert len(snapshot.history) == 0


def test_containers_that_contain_themselves_are_read(tmp_path):
    entry: Json = {"action": "alloc", "addr": 1, "size": 2, "stream": 0, "time_us": 3}
    trace: list[object] = [entry]
    trace.append(trace)
    entry["frames"] = trace
    settings: Json = {"one": 1}
    settings["self"] = settings
    value = {"segments": [], "device_traces": [trace], "allocator_settings": settings}
    value["self"] = value
    snapshot = _measured(pickle.dumps(value), tmp_path)
    assert snapshot.history.size_bytes.tolist() == [2]
    assert snapshot.settings["one"] == "1"


_GOOD = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 5, "frames": []}
WRONG = [-1, 2**63, 2**70, 10**400, 1.5, float("nan"), "512", None, True, [], {}, (1, 2)]


@pytest.mark.parametrize("key", ["action", "addr", "size", "stream"])
@pytest.mark.parametrize("wrong", WRONG, ids=[str(value)[:10] for value in WRONG])
def test_an_entry_with_an_invalid_value_is_left_out_and_counted(key, wrong, tmp_path):
    if (key, wrong) in [("stream", -1), ("action", "512")]:
        return  # any number names a stream, and any text an action
    value = {"segments": [], "device_traces": [[_GOOD, {**_GOOD, key: wrong}]]}
    snapshot = read(pickle.dumps(value), tmp_path)
    assert len(snapshot.history) == 1
    assert snapshot.notes == ("1 entry of the history could not be read and is left out",)


@pytest.mark.parametrize("wrong", WRONG[:3] + WRONG[4:], ids=str)
def test_an_entry_with_an_invalid_time_is_read_without_it(wrong, tmp_path):
    value = {"segments": [], "device_traces": [[{**_GOOD, "time_us": wrong}]]}
    assert read(pickle.dumps(value), tmp_path).history.time_ns.tolist() == [-1]


def test_blocks_outside_their_segment_are_left_out_and_overlapping_ones_are_refused(tmp_path):
    def segment(*blocks: tuple[int, int]) -> Json:
        rows = [
            {"address": at, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}
            for at, size in blocks
        ]
        return {"device": 0, "address": 4096, "total_size": 1024, "stream": 0, "segment_type": "small", "blocks": rows}

    snapshot = read(pickle.dumps([segment((4096, 512), (8192, 512), (4608, 1024))]), tmp_path)
    assert snapshot.blocks.address.tolist() == [4096]
    assert snapshot.notes == ("2 blocks could not be read and are left out",)
    with pytest.raises(UnreadableInput, match="overlap"):
        read(pickle.dumps([segment((4096, 512), (4352, 512))]), tmp_path)


def test_a_cut_off_snapshot_is_read_up_to_the_cut(tmp_path):
    entries = [{**_GOOD, "time_us": n, "user_metadata": f"{n}"} for n in range(2000)]
    whole = pickle.dumps({"segments": [], "device_traces": [entries]})
    cut = read(whole[: len(whole) // 2], tmp_path)
    assert 900 < len(cut.history) < 1100
    assert flat(cut)["history"] == flat(read(whole, tmp_path))["history"][: len(cut.history)]
    assert cut.notes[0].startswith("the file is cut off after ")


def test_a_damaged_compressed_snapshot_is_read_up_to_the_damage(tmp_path):
    entries = [{**_GOOD, "time_us": n, "size": hash(str(n)) % 2**40, "user_metadata": f"{n}"} for n in range(5000)]
    content = zlib.compress(pickle.dumps({"segments": [], "device_traces": [entries]}), wbits=31)
    snapshot = read(content[: len(content) // 2], tmp_path)
    assert 0 < len(snapshot.history) < 5000
    assert "cut off" in snapshot.notes[0]


def test_if_memory_is_short_the_newest_entries_of_a_history_are_kept(tmp_path):
    entries = [{**_GOOD, "time_us": n} for n in range(20_000)]
    value = {"segments": [], "device_traces": [entries[:10_000], entries[10_000:]]}
    snapshot = read(pickle.dumps(value), tmp_path, limit_bytes=100_000_000 + 200 * 3000)
    assert (snapshot.history.time_ns // 1000).tolist() == list(range(17_000, 20_000))
    assert set(snapshot.history.device.tolist()) == {1}
    assert snapshot.notes[0].startswith("only the newest 3,000 entries of the history were kept")


def test_names_beyond_the_limit_are_left_out_with_a_note(tmp_path):
    """Programs can set a text for each entry, so there may be millions."""
    entries = [{**_GOOD, "time_us": n, "user_metadata": f"{n}" * 20} for n in range(100_000)]
    frames = [{"name": "late", "filename": "late.py", "line": 1}]
    value = {"segments": [], "device_traces": [[*entries, {**_GOOD, "frames": frames}]]}
    snapshot = read(pickle.dumps(value), tmp_path, limit_bytes=160_000_000)
    assert len(snapshot.history) == 100_001
    assert snapshot.stacks.functions == ("…",)
    assert snapshot.notes == ("names beyond the memory limit are shown as '…'",)


def test_a_file_that_unpacks_beyond_the_limit_is_refused(tmp_path):
    with pytest.raises(UnreadableInput, match="of memory"):
        read(zlib.compress(b"\x80\x02](" + b"}" * 40_000_000, wbits=31), tmp_path, limit_bytes=15_000_000)


_CHILD = """
import resource, sys
from pathlib import Path
from profkit.core.errors import UnreadableInput
from profkit.trace.snapshot.reader import read_snapshot
resource.setrlimit(resource.RLIMIT_AS, (700_000_000, 700_000_000))
for name in sys.argv[1:]:
    try:
        read_snapshot(Path(name), 150_000_000)
        print("read")
    except UnreadableInput as error:
        print("refused")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process's memory are Linux's")
def test_large_hostile_files_are_read_with_little_memory(tmp_path):
    """A few megabytes each, of whatever takes most memory per byte."""
    files = {
        "containers": b"\x80\x02](" + b"}" * 12_000_000,
        "texts": b"\x80\x02](" + b"".join(b"X\x04\x00\x00\x00" + struct.pack("<I", n) for n in range(200_000)),
        "numbers": b"\x80\x02](" + b"K\x01" * 2_000_000,
        "memo": b"\x80\x04](" + b")\x94" * 6_000_000,
        "references": b"\x80\x04]\x94(" + b"".join(b"](" + b"h\x00" * (1 + n % 90) + b"e" for n in range(100_000)),
        "numbers of one": b"\x80\x04](" + (b"]" + b"\x94" * 29) * 500_000,
        "blocks": b"\x80\x04]("
        + _text("state")
        + b"\x94"
        + _text("inactive")
        + b"\x94"
        + _text("size")
        + b"\x94"
        + b"}(h\x00h\x01h\x02K\x07u" * 1_500_000,
        "marks": b"\x80\x02" + b"(" * 5_000_000,
        "tuple": b"\x80\x02(" + b"N" * 5_000_000 + b"t.",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    names = [str(tmp_path / name) for name in files]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _CHILD, *names]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ended.stderr == ""
    assert ended.stdout.split() == ["refused"] * len(files)
