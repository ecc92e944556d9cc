"""Tiny random data in the formats that public programs read, as nothing is downloaded.

Each function returns what writes the data into a folder. The same numbers come out every time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

Write = Callable[[Path], None]


def mnist(train: int, test: int) -> Write:
    """The four files that torchvision's MNIST reads from a root."""

    def write(folder: Path) -> None:
        raw = folder / "MNIST" / "raw"
        raw.mkdir(parents=True)
        random = np.random.default_rng(0)
        for prefix, count in (("train", train), ("t10k", test)):
            images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
            labels = np.arange(count, dtype=np.uint8) % 10  # so that no class is missing
            head = np.array([0x803, count, 28, 28], dtype=">i4").tobytes()
            (raw / f"{prefix}-images-idx3-ubyte").write_bytes(head + images.tobytes())
            head = np.array([0x801, count], dtype=">i4").tobytes()
            (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())

    return write


def cifar10(train: int, test: int) -> Write:
    """The batches that torchvision's CIFAR10 reads; its checksums have to be switched off."""

    def write(folder: Path) -> None:
        at = folder / "cifar-10-batches-py"
        at.mkdir(parents=True)
        random = np.random.default_rng(0)
        sizes = {f"data_batch_{number}": train // 5 for number in range(1, 6)} | {"test_batch": test}
        for name, count in sizes.items():
            batch = {"data": random.integers(0, 256, (count, 3072), dtype=np.uint8), "labels": [*range(10)] * count}
            batch["labels"] = batch["labels"][:count]
            (at / name).write_bytes(pickle.dumps(batch))
        (at / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {label}" for label in range(10)]}))

    return write


def _words(count: int, vocabulary: int) -> list[str]:
    random = np.random.default_rng(0)
    syllables = ["ba", "do", "ki", "lu", "me", "no", "pi", "ra", "su", "te"]
    known = ["".join(syllables[int(digit)] for digit in str(number)) for number in range(vocabulary)]
    return [known[index] for index in random.integers(0, vocabulary, count)]


def text(*files: str, words: int, vocabulary: int = 2000) -> Write:
    """Files of random words, ten a line."""

    def write(folder: Path) -> None:
        lines = _words(words, vocabulary)
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("\n".join(" ".join(lines[at : at + 10]) for at in range(0, words, 10)) + "\n")

    return write


def names(file: str, count: int) -> Write:
    """One word a line."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("\n".join(_words(count, 20_000)))

    return write


def token_files(tokens: int, vocabulary: int = 65) -> Write:
    """nanoGPT's prepared data: two files of 16-bit tokens, and what the vocabulary is."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for name in ("train.bin", "val.bin"):
            (folder / name).write_bytes(random.integers(0, vocabulary, tokens).astype(np.uint16).tobytes())
        characters = {chr(32 + index): index for index in range(vocabulary)}
        meta = {"vocab_size": vocabulary, "stoi": characters, "itos": {v: k for k, v in characters.items()}}
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta))

    return write


def citations(nodes: int = 2000, features: int = 300) -> Write:
    """`cora.content` and `cora.cites`: papers with their words and subject, and who cites whom."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        words = random.random((nodes, features)) < 0.03
        words[:, 0] = True  # no paper without words
        rows = (
            "\t".join([str(node), *("01"[word] for word in row.tolist()), f"class{node % 7}"])
            for node, row in enumerate(words)
        )
        (folder / "cora.content").write_text("\n".join(rows) + "\n")
        targets = (np.arange(nodes).repeat(2) + random.integers(1, nodes, 2 * nodes)) % nodes  # never the paper itself
        pairs = sorted(
            {(source, int(target)) for source, target in zip(np.arange(nodes).repeat(2).tolist(), targets, strict=True)}
        )
        (folder / "cora.cites").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))

    return write


def planetoid(nodes: int = 2708, features: int = 1433, classes: int = 7) -> Write:
    """The raw files of PyTorch Geometric's `Planetoid(root, "Cora")`."""

    def write(folder: Path) -> None:
        raw = folder / "Cora" / "raw"
        raw.mkdir(parents=True)
        random = np.random.default_rng(0)
        x = (random.random((nodes, features)) < 0.013).astype(np.float32)
        y = np.eye(classes, dtype=np.int32)[np.arange(nodes) % classes]
        neighbours = {node: random.integers(0, nodes, 2).tolist() for node in range(nodes)}
        known = nodes - 1000  # the last thousand are the test set
        parts = {
            "x": x[:140],
            "y": y[:140],
            "allx": x[:known],
            "ally": y[:known],
            "tx": x[known:],
            "ty": y[known:],
            "graph": neighbours,
        }
        for name, part in parts.items():
            (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
        (raw / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in range(known, nodes)))

    return write


def graphs(name: str, count: int) -> Write:
    """The raw files of PyTorch Geometric's `TUDataset(root, name)`: many small graphs with labels of nodes."""

    def write(folder: Path) -> None:
        raw = folder / name / "raw"
        raw.mkdir(parents=True)
        random = np.random.default_rng(0)
        sizes = random.integers(10, 30, count)
        first = np.concatenate(([0], np.cumsum(sizes)[:-1])) + 1
        edges = []
        for start, size in zip(first.tolist(), sizes.tolist(), strict=True):
            ring = [(start + node, start + (node + 1) % size) for node in range(size)]
            edges += [pair for source, target in ring for pair in ((source, target), (target, source))]
        (raw / f"{name}_A.txt").write_text("".join(f"{source}, {target}\n" for source, target in edges))
        columns = {
            "graph_indicator": np.arange(count).repeat(sizes) + 1,
            "graph_labels": np.arange(count) % 2,
            "node_labels": random.integers(0, 3, int(sizes.sum())),
        }
        for column, values in columns.items():
            (raw / f"{name}_{column}.txt").write_text("".join(f"{value}\n" for value in values))

    return write


def pictures(*folders: str, count: int, size: int = 300) -> Write:
    """JPEG files of noise that is smooth enough to look like something."""

    def write(folder: Path) -> None:
        from PIL import Image

        random = np.random.default_rng(0)
        for name in folders:
            (folder / name).mkdir(parents=True)
            for number in range(count):
                coarse = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(coarse).resize((size, size)).save(folder / name / f"{number:04}.jpg")

    return write


def sine_waves(count: int = 100, length: int = 1000) -> Write:
    """What time_sequence_prediction's own generator makes: shifted sines, one a row."""

    def write(folder: Path) -> None:
        import torch

        shifts = np.random.default_rng(2).integers(-80, 80, (count, 1))
        torch.save(np.sin((np.arange(length) + shifts) / 20.0), folder / "traindata.pt", pickle_protocol=4)

    return write
