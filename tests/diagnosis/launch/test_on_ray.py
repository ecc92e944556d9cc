"""A real Ray cluster: two nodes as processes on this machine, and a third node that is lost."""

from __future__ import annotations

import os
import re
import select
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.launch import on_ray
from profkit.diagnosis.launch.on_ray import cluster, find_holders, reduce_on_ray
from profkit.diagnosis.launch.schedule import Done
from tests.forks import LONGEST_S

ray = pytest.importorskip("ray", reason="Ray is not installed")
ray_cluster = pytest.importorskip("ray.cluster_utils")
ray_work = pytest.importorskip("tests.diagnosis.launch.ray_work")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.races(why="a node that a busy machine keeps from answering for two seconds counts as gone"),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
        "ignore::DeprecationWarning",
        "ignore::FutureWarning",
    ),  # Ray's own
]
_NOTICED_SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
}
_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """The head of a cluster and one more node; this process is connected."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        patch.setenv("RAY_TMPDIR", folder)  # short, as sockets have it in their names, and found by no other test
        made = ray_cluster.Cluster(initialize_head=True, head_node_args={**_NODE, "_system_config": _NOTICED_SOON})
        made.add_node(**_NODE)
        ray.init(address=made.address, logging_level="ERROR", log_to_driver=False, configure_logging=False)
        yield made
        ray.shutdown()
        made.shutdown()


def _by_number(done: Iterator[Done[Any]]) -> list[Done[Any]]:
    return sorted(done, key=lambda one: one.number)


def test_every_place_is_done_once_and_a_broken_one_affects_no_other(nodes: Any) -> None:
    places = ["a", "broken", "ccc", "dddd", "a"]
    assert _by_number(reduce_on_ray(ray_work.measure, places)) == [
        Done(0, ("a", 1)),
        Done(1, None, "broken: is broken"),
        Done(2, ("ccc", 3)),
        Done(3, ("dddd", 4)),
        Done(4, ("a", 1)),
    ]


def test_a_place_that_always_kills_its_process_is_given_up(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "_MOST_RETRIES", 1)
    fine, fatal = _by_number(reduce_on_ray(ray_work.end, ["fine", "fatal"]))
    assert fine == Done(0, "fine")
    assert fatal.value is None
    assert fatal.cause.startswith("fatal: Ray gave up: WorkerCrashedError: ")


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A folder with the pipes of `ray_work.meet`, and this side of ``started``."""
    for name in ("started", "go"):
        os.mkfifo(tmp_path / name)
    started = os.open(tmp_path / "started", os.O_RDWR)
    yield tmp_path, started
    os.close(started)


def _done_without(nodes: Any, lost: Any, pipes: tuple[Path, int], running: Iterator[Done[Any]]) -> list[Done[Any]]:
    """The results if the processes of a node are killed while a task runs there. The other tasks wait for that."""
    folder, started = pipes
    with ThreadPoolExecutor(1) as other:
        results = other.submit(_by_number, running)
        try:
            worker = _wait_for(lost.node_id, started)
            nodes.remove_node(lost, allow_graceful=False)
            os.kill(worker, signal.SIGKILL)  # it would outlive its node for a while, unlike on a lost machine
        finally:
            going = os.open(folder / "go", os.O_RDWR)
        done = results.result(timeout=LONGEST_S)
        os.close(going)
    return done


def _wait_for(node: str, started: int) -> int:
    """The process of the first task that reports from that node."""
    reported = b""
    while not (found := re.search(rf"{node} (\d+)\n", reported.decode())):
        assert select.select([started], [], [], 60)[0], f"no task began on {node}, but {reported!r}"
        reported += os.read(started, 4096)
    return int(found[1])


def test_a_machine_lost_midway_loses_no_work(nodes: Any, pipes: tuple[Path, int]) -> None:
    lost = nodes.add_node(**_NODE)
    nodes.wait_for_nodes()
    places = [str(pipes[0] / f"rank{rank}") for rank in range(6)]
    running = reduce_on_ray(ray_work.meet, places)
    done = _done_without(nodes, lost, pipes, running)
    assert done == [Done(rank, place) for rank, place in enumerate(places)]


def test_files_only_on_the_lost_machine_are_named_and_all_others_are_read(nodes: Any, pipes: tuple[Path, int]) -> None:
    lost = nodes.add_node(**_NODE)
    nodes.wait_for_nodes()
    places = [str(pipes[0] / f"rank{rank}") for rank in range(3)]
    running = reduce_on_ray(ray_work.meet, places, {places[1]: (lost.node_id,)})
    done = _done_without(nodes, lost, pipes, running)
    gone = Done(1, cause=f"{places[1]}: the machine that has the file is gone")
    assert done == [Done(0, places[0]), gone, Done(2, places[2])]


def test_files_that_another_machine_has_too_are_read_there(nodes: Any, pipes: tuple[Path, int]) -> None:
    lost = nodes.add_node(**_NODE)
    nodes.wait_for_nodes()
    place = str(pipes[0] / "rank0")
    running = reduce_on_ray(ray_work.meet, [place], {place: (lost.node_id, nodes.head_node.node_id)})
    assert _done_without(nodes, lost, pipes, running) == [Done(0, place)]


def test_files_are_found_on_the_machines_that_have_them(nodes: Any) -> None:
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert len(alive) == 2
    assert find_holders(ray_work.find_everywhere, "/traces") == {"/traces/shared": ()}
    first = min(alive)
    assert find_holders(ray_work.find_own, "/traces") == {
        "/traces/shared": (),
        **{f"/traces/{node}": (node,) for node in alive},
        "/traces/differs": (first,),
    }


def test_a_place_that_no_machine_has_is_refused(nodes: Any) -> None:
    with pytest.raises(UsageError, match=r"^--on ray: /nowhere: no machine of the cluster has a trace there "):
        find_holders(ray_work.find_nothing, "/nowhere")


@pytest.mark.parametrize(
    ("address", "variable", "asked"),
    [(None, "", "local"), (None, "10.0.0.1:6379", None), ("auto", "", "auto"), ("head:10001", "", "ray://head:10001")],
)
def test_an_address_selects_the_cluster(
    monkeypatch: pytest.MonkeyPatch, address: str | None, variable: str, asked: str | None
) -> None:
    begun: list[str | None] = []
    monkeypatch.setenv("RAY_ADDRESS", variable)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda address, **settings: begun.append(address))
    monkeypatch.setattr(ray, "shutdown", lambda: begun.append("ended"))
    with cluster(address):
        assert begun == [asked]
    assert begun == [asked, "ended"]


def test_an_unreachable_cluster_is_refused_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**settings: Any) -> None:
        raise ConnectionError("nobody answers\nat all")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    refused = pytest.raises(UsageError, match=r"^--on ray: no cluster was reached at head:1: nobody answers$")
    with refused, cluster("head:1"):
        pass


def test_messages_of_ray_about_lost_machines_stay_out_of_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **settings: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with cluster("head:1"):
        print("Raylet is terminated")
    assert capsys.readouterr() == ("", "Raylet is terminated\n")
