"""What runs for a thread that waits: another thread, a result of a pool, a coroutine."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from profkit.collect.whole_run.waiting import running_for
from tests.forks import LONGEST_S


class Held:
    """Work that goes on until it is let go; `reached` says that it has begun."""

    def __init__(self) -> None:
        self.reached, self.free = threading.Event(), threading.Event()

    def work(self) -> None:
        self.reached.set()
        assert self.free.wait(LONGEST_S)


def names_while(held: Held, main: Callable[[], object]) -> tuple[list[str], bool]:
    """The functions that run for the thread that runs ``main``, innermost first, and whether it is the thread itself,
    once it waits for what is held."""
    thread = threading.Thread(target=main)
    thread.start()
    try:
        assert held.reached.wait(LONGEST_S)
        while True:
            running = running_for(thread.ident or 0, sys._current_frames())
            names = [frame.f_code.co_name for frame in running.frames]
            if "work" in names or "wait_for_nothing" in names:
                return names, running.thread == thread.ident
    finally:
        held.free.set()
        thread.join()


def test_a_thread_that_is_joined_goes_on_for_the_one_that_waits():
    held = Held()

    def train() -> None:
        held.work()

    def join_it() -> None:
        other = threading.Thread(target=train)
        other.start()
        other.join()

    names, is_own = names_while(held, join_it)
    assert not is_own
    assert names.index("work") < names.index("train") < names.index("join") < names.index("join_it")


def test_a_result_is_waited_for_in_the_thread_that_computes_it():
    held, other = Held(), Held()

    def wait_for_result() -> None:
        with ThreadPoolExecutor(2) as pool:
            pool.submit(other.work)
            assert other.reached.wait(LONGEST_S)
            pool.submit(held.work).result()
            other.free.set()

    names, is_own = names_while(held, wait_for_result)
    assert not is_own
    assert names.index("work") < names.index("wait_for_result")


def test_a_thread_that_works_itself_is_looked_at_although_others_do_too():
    held = Held()
    other = threading.Thread(target=held.free.wait)
    other.start()

    def work() -> None:
        held.work()

    names, is_own = names_while(held, work)
    other.join()
    assert is_own
    assert names.count("work") == 2


def test_two_threads_that_join_each_other_have_an_end():
    threads: list[threading.Thread] = []
    held = Held()

    def join(number: int) -> None:
        held.reached.set()
        held.free.wait(LONGEST_S)
        threads[number].join(0.1)

    threads += [threading.Thread(target=join, args=(1 - number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    held.free.set()
    while any(thread.is_alive() for thread in threads):
        frames = sys._current_frames()
        for thread in threads:
            if thread.ident in frames:
                assert running_for(thread.ident or 0, frames).thread in {one.ident for one in threads}


async def wait_for_nothing(held: Held) -> None:
    held.reached.set()
    while not held.free.is_set():
        await asyncio.sleep(0.001)


async def upload(held: Held) -> None:
    await wait_for_nothing(held)


async def upload_together(held: Held) -> None:
    await asyncio.gather(asyncio.sleep(0), upload(held))


async def upload_in_task(held: Held) -> None:
    await asyncio.create_task(upload(held))


@pytest.mark.parametrize("main", [upload, upload_together, upload_in_task])
def test_a_coroutine_that_waits_is_on_the_stack_of_its_loop(main):
    held = Held()

    def start() -> None:
        asyncio.run(main(held))

    names, is_own = names_while(held, start)
    assert is_own
    inner = names.index("wait_for_nothing")
    assert names[:inner] == ["sleep"] * inner
    assert inner < names.index("upload") < names.index("run_until_complete") < names.index("start")
    assert "select" not in names


def test_a_callback_that_runs_in_a_loop_is_no_wait():
    held = Held()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(held.work)
        await asyncio.sleep(0.01)

    names, _ = names_while(held, lambda: asyncio.run(main()))
    assert "main" not in names
    assert names.index("work") < names.index("_run_once")


def test_an_object_of_the_programs_that_is_awaited_is_not_asked():
    held = Held()

    class Stubborn:
        def __await__(self):
            return self

        def __iter__(self):
            return self

        def __next__(self):
            held.reached.set()
            if held.free.is_set():
                raise StopIteration

        def __getattr__(self, name: str):
            raise AssertionError(name)

    async def wait_for_nothing() -> None:
        await Stubborn()

    names, _ = names_while(held, lambda: asyncio.run(wait_for_nothing()))
    assert "wait_for_nothing" in names


def test_a_thread_that_is_not_known_has_no_frames():
    assert list(running_for(-1, sys._current_frames()).frames) == []
