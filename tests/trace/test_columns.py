"""The columns of a trace are joined from parts and as narrow as possible."""

from __future__ import annotations

from dataclasses import fields
from unittest.mock import patch

import numpy as np
import pytest

from profkit.trace import containers
from profkit.trace.events import NONE, Events
from profkit.trace.kineto import columns
from profkit.trace.kineto.codes import KindCodes, TextCodes, recode
from profkit.trace.kineto.convert import join
from tests.traces import json_of, kernel, memory, op, runtime, trace_of, trace_of_bytes


def _many():
    for i in range(300):
        yield op(f"aten::op{i % 7}", 10 * i, 8, dims=[[i % 5], []], types=["float", ""], sequence=i, external=i + 1)
        if i > 200:
            yield runtime("cudaLaunchKernel", 10 * i + 1, 2, correlation=(1 << 33) + i)
            yield kernel("multiply", 10 * i + 4, 3, correlation=(1 << 33) + i)
        if i > 250:
            yield memory(10 * i + 2, 512, 1 << 40)


@pytest.mark.parametrize("merged", [2, 3, 10_000])
def test_parts_joined_while_reading_make_the_same_trace(merged):
    content = json_of(_many())
    whole = trace_of_bytes(content)
    small = {"PIECE_BYTES": 1024, "_BLOCK_BYTES": 1024}
    with patch.multiple(containers, **small), patch.object(columns, "_MERGED", merged):
        joined = trace_of_bytes(content)
    assert (joined.names, joined.lanes, joined.texts) == (whole.names, whole.lanes, whole.texts)
    for column in fields(Events):
        assert getattr(joined.events, column.name).tolist() == getattr(whole.events, column.name).tolist()


def test_unused_columns_take_no_memory_and_ids_are_narrow():
    events = trace_of([op("aten::mul", 0, 5, sequence=3), op("aten::mul", 10, 5, sequence=4)]).events
    for name in ("dims_code", "correlation", "address", "device_type", "site"):
        column = getattr(events, name)
        assert (column.tolist(), column.strides) == ([NONE, NONE], (0,))
    assert events.sequence.dtype == np.int32
    wide = trace_of([runtime("cudaLaunchKernel", 0, 5, correlation=1 << 40), op("aten::mul", 10, 5)]).events
    assert (wide.correlation.tolist(), wide.correlation.dtype) == ([1 << 40, NONE], np.int64)
    assert (wide.start_ns.dtype, wide.duration_ns.dtype, wide.size_bytes.dtype) == (np.int64, np.int64, np.int64)


def test_parts_without_a_column_are_joined_with_its_missing_value():
    one, two = np.array([1, 2], dtype=np.int32), np.array([1 << 40])
    assert join([None, None], [2, 1], NONE) is None
    joined = join([None, one, two], [3, 2, 1], NONE)
    assert joined is not None
    assert (joined.tolist(), joined.dtype) == ([NONE, NONE, NONE, 1, 2, 1 << 40], np.int64)
    narrow = join([one, None], [2, 1], 0)
    assert narrow is not None
    assert (narrow.tolist(), narrow.dtype) == ([1, 2, 0], np.int32)


def test_codes_are_renumbered_for_the_texts_still_used():
    texts = TextCodes()
    parts = [{"dims_code": np.array([texts[b"a"], texts[b"b"], NONE, texts[b"c"]], dtype=np.int32), "types_code": None}]
    parts[0]["dims_code"] = parts[0]["dims_code"][2:]
    fewer = recode(texts, parts, ("dims_code", "types_code"))
    assert (fewer.texts(), parts[0]["dims_code"].tolist(), parts[0]["types_code"]) == (("c",), [NONE, 0], None)
    assert (texts.size_bytes, fewer.size_bytes) == (606, 202)
    kinds = KindCodes()
    codes = [{"kind": np.array([kinds["x", name, 1, 1] for name in "abca"], dtype=np.int32)[1:]}]
    left = recode(kinds, codes, ("kind",))
    assert (list(left), codes[0]["kind"].tolist()) == ([("x", name, 1, 1) for name in "abc"], [1, 2, 0])
