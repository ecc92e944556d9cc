"""What the census finds: what each name holds, and the line that makes it grow."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profkit.run.directory import LIVE_FILE, LiveHolder, load_live
from tests.collect.census.counting import STORAGE_BYTES, count, one

MODULE_LEVEL: list[Tensor] = []


def place_of(holder: LiveHolder) -> tuple[str, str]:
    """The line that makes the holder grow, and its function."""
    assert holder.site is not None
    return holder.site.source, holder.site.function.rpartition("<locals>.")[2]


def make_loss() -> Tensor:
    weight = torch.ones(1000, requires_grad=True)
    return (weight * 2).sum()


def test_a_list_counts_its_tensors_graphs_and_bytes():
    losses = []
    for _ in range(3):
        losses.append(make_loss())
    holder = count()["losses"]
    assert (holder.tensors, holder.graph_tensors, holder.bytes) == (3, 3, 12)
    assert holder.graph_nodes == 9  # the sum, the product and the leaf of each
    assert place_of(holder) == ("losses.append(make_loss())", "test_a_list_counts_its_tensors_graphs_and_bytes")


def test_a_running_total_holds_a_longer_graph_after_each_step():
    total: Any = 0
    lengths = []
    for _ in range(3):
        total += make_loss()
        lengths.append(count()["total"].graph_nodes)
    assert lengths[0] < lengths[1] < lengths[2]
    assert place_of(count()["total"])[0] == "total += make_loss()"


@dataclass
class Trainer:
    history: list[Tensor] = field(default_factory=list)
    nested: dict[str, Any] = field(default_factory=dict)

    def keep(self) -> dict[str, LiveHolder]:
        self.history.append(make_loss())
        return count()


class Slotted:
    __slots__ = ("empty", "kept")

    def __init__(self) -> None:
        self.kept = one()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return x


def test_an_attribute_is_named_through_self_and_located_in_its_class():
    trainer = Trainer()
    holder = trainer.keep()["self.history"]
    assert holder.graph_tensors == 1
    for found in (holder, count()["trainer.history"]):
        assert place_of(found) == ("self.history.append(make_loss())", "Trainer.keep")


class Memory(dict[int, Tensor]):
    def __missing__(self, key: int) -> Tensor:
        made = one()
        self[key] = made
        return made


class Pile(list[Tensor]):
    def keep(self) -> None:
        copy = one()
        self.append(copy)


def test_a_container_class_of_the_program_is_located_where_its_own_method_fills_it():
    memory, pile = Memory(), Pile()
    memory[0], memory[1]
    pile.keep()
    held = count()
    assert place_of(held["memory"]) == ("self[key] = made", "Memory.__missing__")
    assert place_of(held["pile"]) == ("self.append(copy)", "Pile.keep")


def test_a_container_class_of_the_program_is_located_where_others_fill_it():
    class Plain(list[Tensor]):
        """Nothing of its own."""

    plain = Plain()
    for _ in range(2):
        plain.append(one())
    assert place_of(count()["plain"])[0] == "plain.append(one())"


def test_a_module_counts_what_it_collects_but_not_its_parameters_and_buffers():
    net = nn.Sequential(Net())
    net(torch.ones(2, 3))
    held = count()
    assert held["net.0.seen"].tensors == 1
    assert {path for path in held if path.startswith("net")} == {"net.0.seen"}


def test_buffers_count_only_if_they_carry_a_graph_or_are_large():
    net = nn.Module()
    for name, buffer in (("small", one()), ("unset", None), ("large", torch.zeros(1 << 18))):
        net.register_buffer(name, buffer)
    net.register_buffer("running", one())
    net.running = one().requires_grad_() * 2
    held = count()
    assert {path for path in held if path.startswith("net")} == {"net.large", "net.running"}
    assert held["net.running"].graph_tensors == 1


def test_what_a_deeply_nested_module_collects_is_reached():
    deep = Net()
    deep(torch.ones(2, 3))
    for _ in range(9):
        deep = nn.Sequential(deep)
    assert count()["deep" + ".0" * 9 + ".seen"].tensors == 1


def test_an_optimizers_state_is_not_counted():
    optimizer = torch.optim.Adam([nn.Parameter(one())])
    for group in optimizer.param_groups:
        group["params"][0].grad = one()
    optimizer.step()
    held = count()
    assert [path for path in held if path.startswith("optimizer")] == []


CONTAINERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: [one()], "held"),
    (lambda: (one(),), "held"),
    (lambda: {one()}, "held"),
    (lambda: frozenset([one()]), "held"),
    (lambda: deque([one()]), "held"),
    (lambda: {1: one()}, "held"),
    (lambda: {"loss": one()}, "held['loss']"),
    (lambda: {"train": {"loss": one()}}, "held['train']['loss']"),
    (lambda: defaultdict(list, loss=[one()]), "held['loss']"),
    (lambda: OrderedDict(loss=one()), "held['loss']"),
    (lambda: [{"loss": one()}], "held"),
    (lambda: SimpleNamespace(loss=one()), "held.loss"),
    (lambda: Slotted(), "held.kept"),
    (lambda: [Slotted()], "held"),
    (lambda: one(), "held"),
]


@pytest.mark.parametrize(("make", "path"), CONTAINERS)
def test_every_kind_of_container_is_searched(make, path):
    held = make()
    holder = count()[path]
    assert held is not None
    assert (holder.tensors, holder.graph_tensors, holder.bytes) == (1, 0, STORAGE_BYTES)


class Cache:
    kept: list[Tensor] = []  # noqa: RUF012  # shared by all instances: that is the mistake


def test_globals_and_class_attributes_of_the_program_are_names_too():
    MODULE_LEVEL.append(one())
    Cache.kept.append(one())
    try:
        held = count()
    finally:
        MODULE_LEVEL.clear()
        Cache.kept.clear()
    assert held["MODULE_LEVEL"].tensors == 1
    assert held["Cache.kept"].tensors == 1
    assert place_of(held["MODULE_LEVEL"])[0] == "MODULE_LEVEL.append(one())"


def make_counter() -> Callable[[], None]:
    captured: list[Tensor] = []

    def record() -> None:
        captured.append(one())

    record()
    return record


def test_a_variable_captured_by_a_closure_keeps_its_name():
    record = make_counter()
    holder = count()["captured"]
    assert holder.tensors == 1
    assert place_of(holder)[0] == "captured.append(one())"
    assert callable(record)


def train() -> Iterator[int]:
    kept = []
    for step in range(3):
        kept.append(make_loss())
        yield step


def test_the_variables_of_a_suspended_generator_are_names_too():
    steps = train()
    next(steps)
    by_name, by_census = count()["kept"], count(steps)["kept"]
    assert by_name == by_census
    assert by_name.graph_tensors == 1
    assert place_of(by_name)[0] == "kept.append(make_loss())"
    assert list(steps) == [1, 2]


def test_a_long_list_is_sampled_at_both_ends_and_scaled():
    losses = [make_loss() for _ in range(1000)]
    holder = count()["losses"]
    assert (holder.tensors, holder.graph_tensors, holder.graph_nodes) == (1000, 1000, 3000)
    assert holder.bytes == 4 * 1000
    assert len(losses) == 1000


@dataclass
class Probe:
    name: str
    readings: list[Tensor] = field(default_factory=list)

    def read(self) -> None:
        self.readings.append(one())


def read_all(probes: list[Probe]) -> list[Probe]:
    for probe in probes:
        probe.read()
    return probes


class History:
    def __init__(self) -> None:
        self.records: dict[str, list[Tensor]] = defaultdict(list)

    def on_batch_end(self, value: Tensor) -> None:
        self.records["loss"].append(value)


def test_a_list_by_name_in_a_callback_of_a_trainer_is_reached():
    trainer = SimpleNamespace(callbacks=[History()])
    for value in (make_loss(), make_loss().detach()):
        trainer.callbacks[0].on_batch_end(value)
    holder = count()["trainer.callbacks[*].records['loss']"]
    assert (holder.tensors, holder.graph_tensors) == (2, 1)
    assert place_of(holder) == ('self.records["loss"].append(value)', "History.on_batch_end")


def test_a_list_in_an_object_in_a_list_is_located_where_its_method_fills_it():
    probes = read_all([Probe("mae"), Probe("rel")])
    holder = count()["probes[*].readings"]
    assert len(probes) == 2
    assert holder.tensors == 2
    assert place_of(holder) == ("self.readings.append(one())", "Probe.read")


@dataclass
class Episode:
    rewards: list[Tensor]
    state: Tensor


def test_a_list_in_an_object_that_nothing_changes_is_located_where_the_outer_list_grows():
    episodes = []
    for _ in range(3):
        episodes.append(Episode([one()], one()))
    holders = count()
    assert (holders["episodes"].tensors, holders["episodes[*].rewards"].tensors) == (3, 3)
    sources = {path: holder.site.source for path, holder in holders.items() if holder.site}
    assert sources["episodes"] == sources["episodes[*].rewards"] == "episodes.append(Episode([one()], one()))"


def test_what_a_bounded_list_holds_is_bounded_too():
    recent = read_all([Probe("mae")])
    assert not count()["recent[*].readings"].is_bounded
    assert recent
    window = [Probe("rel", [one()])]
    if len(window) > 9:
        window.pop(0)
    assert count()["window[*].readings"].is_bounded


def test_two_names_of_the_same_losses_share_their_graphs():
    history, total = [], torch.zeros(())
    for _ in range(3):
        history.append(make_loss())
        total = total + history[-1]
    found = count()
    assert [(one.path, one.graph_nodes) for one in found["total"].shared] == [("history", 9)]
    assert [(one.path, one.graph_nodes) for one in found["history"].shared] == [("total", 9)]


def test_separate_graphs_share_only_the_parameters_of_a_model():
    layer = nn.Linear(4, 1)
    ones, others = [layer(torch.ones(2, 4)).sum()], [layer(torch.ones(2, 4)).mean()]
    alone = [make_loss()]
    found = count()
    assert [(one.path, one.graph_nodes) for one in found["ones"].shared] == [("others", 2)]  # weight and bias
    assert found["alone"].shared == ()
    del others, alone, ones


def test_a_tensor_that_two_names_hold_is_shared_with_its_bytes():
    kept = [torch.ones(1000), torch.ones(10)]
    last = kept[0]
    (shared,) = count()["last"].shared
    assert (shared.path, shared.graph_nodes, shared.bytes) == ("kept", 0, 4000)
    assert last is kept[0]


def test_a_deque_is_bounded_if_it_has_a_maximum():
    limited, endless = deque([torch.ones(3)], maxlen=9), deque([torch.ones(3)])
    held = count()
    assert (held["limited"].is_bounded, held["endless"].is_bounded) == (True, False)
    assert len(limited) == len(endless)


def test_a_view_uses_less_than_the_storage_that_it_keeps_alive():
    view = torch.ones(1000)[:1]
    held = count()["view"]
    assert (held.bytes, held.used_bytes) == (STORAGE_BYTES, 4)
    assert len(view) == 1


def test_views_of_one_storage_count_its_bytes_once():
    base = torch.ones(1000)
    rows = [base[:1] for _ in range(1000)]
    assert count()["rows"].bytes == STORAGE_BYTES
    assert len(rows) == 1000


def test_a_view_wastes_nothing_that_another_name_uses():
    full = torch.ones(1000)
    view = full[:1]
    assert count()["view"].used_bytes == full.untyped_storage().nbytes()
    assert len(view) == 1


def test_overlapping_and_expanded_views_use_no_more_than_their_storage():
    views = [torch.ones(10).expand(1000, 10), torch.ones(1000)[:600]]
    views.append(views[1][:500])
    assert count()["views"].used_bytes == 40 + 4000


def test_the_use_of_a_long_list_is_scaled_from_its_sample():
    kept = [torch.ones(100)[:1] for _ in range(1000)]
    held = count()["kept"]
    assert (held.bytes, held.used_bytes) == (400_000, 4000)
    assert len(kept) == 1000


def test_views_of_one_storage_after_another_are_scaled_from_their_sample():
    """As of a cache that keeps a row of each request's batch."""
    batches = [torch.ones(32, 25) for _ in range(20)]
    kept = [row[:1] for batch in batches for row in batch]
    del batches
    held = count()["kept"]
    assert (held.tensors, held.used_bytes) == (640, 640 * 4)
    assert held.bytes == pytest.approx(20 * 3200, rel=0.02)
    assert len(kept) == 640


@pytest.mark.parametrize("sets", [1, 3, 6])
def test_rows_of_a_few_storages_are_not_scaled_however_many_there_are(sets):
    """As of data sets whose samples are tuples of rows."""
    data = [torch.ones(1000, 25) for _ in range(sets)]
    samples = list(zip(*data, strict=True))
    assert count()["samples"].bytes == sets * 100_000
    assert len(samples) == 1000


def test_a_view_of_a_parameter_uses_as_much_as_the_parameter():
    weight = torch.nn.Parameter(torch.ones(1000))
    row = weight.detach()[:1]
    assert count()["row"].used_bytes == 4000
    assert len(row) == 1


def test_a_census_of_an_older_version_can_be_read(tmp_path):
    holder = '{"path": "kept", "site": null, "graph_tensors": 0, "graph_nodes": 0, "bytes": 8, "tensors": 2}'
    (tmp_path / LIVE_FILE).write_text(f'[{{"step": 3, "holders": [{holder}]}}]')
    ((read,),) = (sample.holders for sample in load_live(tmp_path))
    assert (read.bytes, read.used_bytes, read.is_bounded) == (8, None, False)
