"""Programs of several styles that note how long each phase of their run takes, as the truth for `profkit watch`.

    python run_phases.py STYLE

The last line on stdout is JSON: seconds by phase.
"""

from __future__ import annotations

import asyncio
import io
import json
import linecache
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, STEPS = 6, 8
TOOK = Counter[str]()


@contextmanager
def noted(phase: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    TOOK[phase] += time.perf_counter() - begun


class SlowFile(io.BytesIO):
    def write(self, data) -> int:
        time.sleep(0.002)
        return super().write(data)


class Samples(Dataset):
    def __len__(self) -> int:
        return STEPS * 2

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.randn(64)


def save(model: nn.Module) -> None:
    torch.save([parameter for parameter in model.parameters() for _ in range(20)], SlowFile())


def read_again() -> list[str]:
    return [json.dumps({"row": row, "values": list(range(20))}) for row in range(30_000)]


def make_model() -> nn.Module:
    time.sleep(0.7)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))


@torch.no_grad()
def score(model: nn.Module) -> float:
    total = 0.0
    for _ in range(12):
        time.sleep(0.02)
        total += float(model(torch.randn(32, 64)).sum())
    return total


def inline() -> None:
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(), batch_size=2)
    for _ in range(EPOCHS):
        with noted("between the epochs"):
            read_again()
        batches = iter(loader)
        for _ in range(STEPS):
            with noted("waiting for data"):
                batch = next(batches)
            with noted("steps"):
                time.sleep(0.02)
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
        with noted("evaluation"):
            score(model)
        with noted("checkpoints"):
            save(model)
    with noted("after the last step"):
        time.sleep(0.8)


class Trainer:
    def __init__(self) -> None:
        with noted("before the first step"):
            self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self) -> None:
        for epoch in range(EPOCHS):
            self.run_epoch(epoch)
            with noted("evaluation"):
                self.validate()
        with noted("after the last step"):
            time.sleep(0.8)

    def run_epoch(self, epoch: int) -> None:
        with noted("between the epochs"):
            rows = read_again()
        for step in range(STEPS):
            with noted("steps"):
                self.train_step(len(rows[step]))
        if epoch % 2:
            with noted("checkpoints"):
                self.checkpoint()

    def train_step(self, scale: int) -> None:
        batch = torch.randn(32, 64) / scale
        time.sleep(0.03)
        loss = self.model(batch).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def validate(self) -> None:
        self.model.eval()
        for _ in range(10):
            time.sleep(0.02)
            self.model(torch.randn(32, 64))
        self.model.train()

    def checkpoint(self) -> None:
        save(self.model)


def closures() -> None:
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def after_epoch(number: int) -> None:
        with noted("between the epochs"):
            read_again()
        with noted("checkpoints"):
            save(model)

    count = 0
    while count < EPOCHS * STEPS:
        for _ in range(STEPS):
            with noted("steps"):
                time.sleep(0.03)
                step(torch.randn(64, 64))
            count += 1
        after_epoch(count)
    with noted("after the last step"):
        time.sleep(0.8)


def inference() -> None:
    with noted("before the first step"):
        model = make_model()
    with torch.inference_mode():
        for _ in range(EPOCHS * STEPS):
            with noted("steps"):
                time.sleep(0.05)
                model(torch.randn(64, 64))
    with noted("after the last step"):
        time.sleep(0.8)


class SlowPeer:
    """Takes what is sent over a socket slowly, and answers a request for a page slowly."""

    def __init__(self, pause_s: float) -> None:
        self._listening, self._pause_s = socket.create_server(("127.0.0.1", 0)), pause_s
        self.address = self._listening.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._listening.accept()
            with peer:
                first = peer.recv(4)
                time.sleep(self._pause_s)
                if first == b"GET ":
                    peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
                while peer.recv(1 << 20):
                    pass


def send(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as peer:
        peer.sendall(b"x" * (32 << 20))


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with noted("steps"):
        for _ in range(STEPS):
            time.sleep(0.03)
            optimizer.zero_grad()
            model(torch.randn(32, 64)).mean().backward()
            optimizer.step()


def remote() -> None:
    """A download before the first step, an upload over a bare socket after each epoch."""
    source, target = SlowPeer(1.5), SlowPeer(0.4)
    with noted("network"):
        urlopen(f"http://127.0.0.1:{source.address[1]}/").read()
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        train(model, optimizer)
        with noted("network"):
            send(target.address)


def commands() -> None:
    """An installation by a command, and one through the shell after each epoch."""
    with noted("other programs"):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(1.5)"], check=True)
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        train(model, optimizer)
        with noted("other programs"):
            os.system("sleep 0.3")


class SlowSource(io.BytesIO):
    def read(self, size: int = -1) -> bytes:
        time.sleep(0.1)
        return super().read(size)


def copies() -> None:
    """A file that is copied through Python after each epoch, and a checkpoint that is read first."""
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(EPOCHS):
            train(model, optimizer)
            with noted("copying files"), Path(folder, str(epoch)).open("wb") as file:
                shutil.copyfileobj(SlowSource(bytes(4 << 16)), file, 1 << 16)
    with noted("after the last step"):
        time.sleep(1.5)


class LateSamples(Samples):
    """The first sample takes long: an index is built."""

    def __init__(self) -> None:
        self._index: list[int] = []

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self._index:
            time.sleep(2.0)
            self._index = list(range(1000))
        return super().__getitem__(index)


def first_batch() -> None:
    """A dataset whose first sample takes two seconds, read through enumerate."""
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(LateSamples(), batch_size=2)
    for _ in range(EPOCHS):
        before = time.perf_counter()
        for _, batch in enumerate(loader):
            TOOK["waiting for data"] += time.perf_counter() - before
            with noted("steps"):
                time.sleep(0.03)
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
            before = time.perf_counter()


def compiled() -> None:
    """A backend that takes a second to compile, once."""

    def slow_backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        time.sleep(2.0)
        return graph

    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    faster = torch.compile(model, backend=slow_backend)
    with noted("compiling"):
        faster(torch.randn(32, 64))
    for _ in range(EPOCHS):
        train(faster, optimizer)


def callbacks() -> None:
    """A trainer that calls hooks by name, whose evaluation and checkpoint lie in another object."""

    class Keeper:
        def on_epoch_end(self, model: nn.Module) -> None:
            with noted("evaluation"):
                score(model)
            with noted("checkpoints"):
                save(model)

    with noted("before the first step"):
        model = make_model()
    optimizer, keepers = torch.optim.SGD(model.parameters(), lr=0.01), [Keeper()]
    for _ in range(EPOCHS):
        train(model, optimizer)
        for keeper in keepers:
            keeper.on_epoch_end(model)


def threaded() -> None:
    """The main thread only joins the one that trains."""
    trainer = threading.Thread(target=lambda: Trainer().fit())
    trainer.start()
    trainer.join()


def fork_worker() -> int:
    worker = os.fork()
    if not worker:
        time.sleep(0.4)
        os._exit(0)
    return worker


def forking() -> None:
    """Workers that the program forks itself, and waits for, after each epoch."""
    with noted("before the first step"):
        model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        train(model, optimizer)
        with noted("other programs"):
            workers = [fork_worker() for _ in range(2)]
            for worker in workers:
                os.waitpid(worker, 0)
        with noted("checkpoints"):
            save(model)


def awaited() -> None:
    """Training in a coroutine, and an upload that it awaits after each epoch."""
    target = SlowPeer(0.4)

    async def upload() -> None:
        _, stream = await asyncio.open_connection(*target.address)
        stream.write(b"x" * (32 << 20))
        await stream.drain()
        stream.close()
        await stream.wait_closed()

    async def run() -> None:
        with noted("before the first step"):
            model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(EPOCHS):
            train(model, optimizer)
            with noted("network"):
                await upload()

    asyncio.run(run())


CELLS = (
    """
with noted("before the first step"):
    model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
""",
    """
for epoch in range(EPOCHS):
    with noted("steps"):
        for _ in range(STEPS):
            time.sleep(0.03)
            optimizer.zero_grad()
            model(torch.randn(32, 64)).mean().backward()
            optimizer.step()
    with noted("evaluation"):
        with torch.no_grad():
            score(model)
""",
    """
with noted("checkpoints"):
    save(model)
with noted("after the last step"):
    time.sleep(0.8)
""",
)


def cells() -> None:
    """Cells of a notebook, as ipykernel runs them: each a file of its own, which only `linecache` knows."""
    for number, text in enumerate(CELLS):
        name = f"/tmp/ipykernel_{os.getpid()}/{number}.py"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        exec(compile(text, name, "exec"), globals())


STYLES = {"inline": inline, "trainer": lambda: Trainer().fit(), "closures": closures, "inference": inference}
_MORE = (remote, commands, copies, first_batch, compiled, callbacks, threaded, forking, awaited, cells)
STYLES |= {style.__name__: style for style in _MORE}

if __name__ == "__main__":
    STYLES[sys.argv[1]]()
    print(json.dumps(TOOK))
