"""What the source shows of a name that does not grow for ever, and how much of its storage a name uses."""

from __future__ import annotations

import sys
import textwrap
from collections import deque
from pathlib import Path

import pytest
import torch

from profkit.collect.census.names import Census
from profkit.run import LIVE_FILE, LiveHolder, load_live
from profkit.source.growth import GrowthLines, Origin
from profkit.source.user_code import UserFiles


def count() -> dict[str, LiveHolder]:
    census = Census(UserFiles(), GrowthLines(lambda file, line: False))
    census.take(0, sys._getframe(1))
    return {holder.path: holder for holder in census.samples[0].holders}


@pytest.fixture
def is_bounded(tmp_path: Path):
    def ask(body: str) -> bool:
        path = tmp_path / "program.py"
        path.write_text("kept = []\n" + textwrap.dedent(body))
        return GrowthLines(lambda file, line: False).is_bounded(("kept",), Origin(str(path)))

    return ask


@pytest.mark.parametrize(
    "body",
    [
        "kept.clear()",
        "kept.pop(0)",
        "heapq.heappushpop(kept, x)",
        "del kept[0]",
        "del kept",
        "kept = kept[-100:]",
        "for epoch in epochs:\n    kept = []",
        "if len(kept) < 100:\n    kept.append(x)",
        "while 100 < len(kept):\n    kept = kept[1:]",
        "if key not in kept:\n    kept[key] = x",
        "if key in kept:\n    use(kept[key])\nelse:\n    kept[key] = x",
        "if len(kept) >= limit:\n    kept[i % limit] = x\nelse:\n    kept.append(x)",
        "while not len(kept) >= 9:\n    kept.append(x)",
        "if wanted and len(kept) <= 9:\n    kept.append(x)",
        "for x in xs:\n    if done or 9 < len(kept):\n        break\n    kept.append(x)",
        "def trim(rows):\n    del rows[0]\nif len(kept) > 9:\n    trim(kept)",
        "if len(kept) > 9:\n    evict(kept)",
        "torch.cat(kept)",
        "torch.stack(kept, dim=1)",
        "cat(kept).mean()",
    ],
)
def test_growth_that_the_program_ends_itself(is_bounded, body):
    assert is_bounded("for x in xs:\n    kept.append(x)\n" + body)


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "other.clear()",
        "kept = [*kept, x]",
        "total = sum(kept)",
        "if len(kept) % 10 == 0:\n    print(len(kept))",
        "torch.stack([x.mean() for x in kept])",
        "if len(kept) > 9:\n    mean = sum(kept) / len(kept)",
        "if len(kept) < 9:\n    print('a few')",
        "def train():\n    if len(kept) < batch:\n        return\n    learn(kept)",
        "def smooth():\n    if len(kept) > 9:\n        return kept[-9:]",
        "for x in xs:\n    if len(kept) < 9:\n        continue\n    kept.append(x)",
        "if key in kept:\n    print(key)",
        "if wanted or len(kept) < 9:\n    kept.append(x)",
        "def draw(rows):\n    plot(rows)\nif len(kept) > 9:\n    draw(kept)",
        "if len(kept) > 9:\n    print(kept)",
        "share = len(kept) < 9",
        "for epoch in epochs:\n    other = []",
    ],
)
def test_growth_that_nothing_ends(is_bounded, body):
    assert not is_bounded("for x in xs:\n    kept.append(x)\n" + body)


def test_a_method_that_empties_an_attribute_bounds_it(tmp_path: Path):
    path = tmp_path / "program.py"
    methods = (f"    def {name}(self):\n        self.kept = []\n" for name in ("__init__", "reset"))
    path.write_text("class Meter:\n" + "".join(methods))
    growth = GrowthLines(lambda file, line: False)
    origin = Origin(str(path), owner="Meter", skip=1, around=Origin(str(path)))
    assert growth.is_bounded(("meter", ".kept"), origin)
    assert not growth.is_bounded(("meter", ".other"), origin)


def test_the_line_that_ends_the_growth_is_not_the_one_that_makes_it(tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text("kept = []\nfor x in xs:\n    kept.append(x)\n    if len(kept) > 9:\n        kept.pop(0)\n")
    site = GrowthLines(lambda file, line: True).find(("kept",), Origin(str(path)))
    assert site is not None
    assert site.line == 3


def test_a_deque_is_bounded_where_it_has_a_maximum():
    limited, endless = deque([torch.ones(3)], maxlen=9), deque([torch.ones(3)])
    held = count()
    assert (held["limited"].is_bounded, held["endless"].is_bounded) == (True, False)
    assert len(limited) == len(endless)


def test_a_view_uses_less_than_the_storage_that_it_keeps():
    view = torch.ones(1000)[:1]
    held = count()["view"]
    assert (held.bytes, held.used_bytes) == (4000, 4)
    assert len(view) == 1


def test_what_another_name_uses_in_full_is_not_wasted_by_a_view():
    full = torch.ones(1000)
    view = full[:1]
    assert count()["view"].used_bytes == full.untyped_storage().nbytes()
    assert len(view) == 1


def test_overlapping_and_expanded_views_use_no_more_than_there_is():
    views = [torch.ones(10).expand(1000, 10), torch.ones(1000)[:600]]
    views.append(views[1][:500])
    assert count()["views"].used_bytes == 40 + 4000


def test_a_sample_of_a_long_list_stands_for_what_all_use():
    kept = [torch.ones(100)[:1] for _ in range(1000)]
    held = count()["kept"]
    assert (held.bytes, held.used_bytes) == (400_000, 4000)
    assert len(kept) == 1000


def test_a_view_of_a_parameter_uses_what_the_parameter_does():
    weight = torch.nn.Parameter(torch.ones(1000))
    row = weight.detach()[:1]
    assert count()["row"].used_bytes == 4000
    assert len(row) == 1


def test_a_census_of_before_is_still_read(tmp_path: Path):
    holder = '{"path": "kept", "site": null, "graph_tensors": 0, "graph_nodes": 0, "bytes": 8, "tensors": 2}'
    (tmp_path / LIVE_FILE).write_text(f'[{{"step": 3, "holders": [{holder}]}}]')
    ((read,),) = (sample.holders for sample in load_live(tmp_path))
    assert (read.bytes, read.used_bytes, read.is_bounded) == (8, None, False)
