"""Strategies for snapshots: any values that PyTorch could have written."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "workspace_snapshot",
)
STATES = ("inactive", "active_allocated", "active_awaiting_free", "active_pending_free")

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_SIZE = st.integers(0, 2**40)
_ADDRESS = st.integers(0, 2**47)
_STREAM = st.one_of(st.just(0), st.integers(-(2**63) + 1, 2**63 - 1))
_FRAME = st.fixed_dictionaries({"name": _TEXT, "filename": _TEXT, "line": st.integers(0, 2**31 - 1)})


@st.composite
def _stacks(draw: st.DrawFn) -> list[list[Json]]:
    """A few stacks that share frames."""
    frames = draw(st.lists(_FRAME, min_size=1, max_size=5))
    return draw(st.lists(st.lists(st.sampled_from(frames), max_size=8), min_size=1, max_size=6))


@st.composite
def _segment(draw: st.DrawFn, stacks: list[list[Json]], address: int, addresses: bool) -> Json:
    blocks: list[Json] = []
    at = address
    for size in draw(st.lists(st.integers(1, 2**40), min_size=1, max_size=5)):
        block = {
            "address": at,
            "size": size,
            "requested_size": draw(st.integers(0, size)),
            "state": draw(st.sampled_from(STATES)),
            "frames": draw(st.sampled_from(stacks)),
        }
        blocks.append(block if addresses else {key: block[key] for key in block if key != "address"})
        at += size
    return {
        "device": draw(st.integers(0, 7)),
        "address": address,
        "total_size": at - address,
        "allocated_size": 0,
        "active_size": 0,
        "stream": draw(_STREAM),
        "segment_type": draw(st.sampled_from(("large", "small"))),
        "segment_pool_id": draw(st.tuples(st.integers(0, 2), st.integers(0, 2))),
        "is_expandable": draw(st.booleans()),
        "blocks": blocks,
        "frames": [],
    }


@st.composite
def _entry(draw: st.DrawFn, stacks: list[list[Json]]) -> Json:
    action = draw(st.sampled_from(ACTIONS))
    entry = {
        "action": action,
        "device_free" if action == "oom" else "addr": draw(_ADDRESS),
        "size": draw(_SIZE),
        "stream": draw(_STREAM),
    }
    if draw(st.booleans()):
        entry["time_us"] = draw(st.integers(0, 2**52))
    if draw(st.booleans()):
        entry |= {"compile_context": "N/A", "user_metadata": draw(_TEXT)}
    if draw(st.booleans()):
        entry["frames"] = draw(st.sampled_from(stacks))
    return entry


@st.composite
def snapshots(draw: st.DrawFn) -> Json:
    """Several devices, streams and pools; blocks with addresses or, as old versions have them, without."""
    stacks, addresses = draw(_stacks()), draw(st.booleans())
    segments = [draw(_segment(stacks, (number + 1) << 45, addresses)) for number in range(draw(st.integers(0, 4)))]
    traces = draw(st.lists(st.lists(_entry(stacks), max_size=8), max_size=3))
    document: Json = {"segments": draw(st.permutations(segments)), "device_traces": traces}
    if draw(st.booleans()):
        document["allocator_settings"] = {
            "PYTORCH_CUDA_ALLOC_CONF": draw(_TEXT),
            "max_split_size": draw(_STREAM),
            "garbage_collection_threshold": draw(st.floats(allow_nan=False)),
            "expandable_segments": draw(st.booleans()),
            "roundup_power2_divisions": {"1": 0, "2": draw(st.integers(0, 64))},
        }
        document["external_annotations"] = [{"stage": "START", "name": draw(_TEXT), "device": 0, "time_us": 1}]
    return document
