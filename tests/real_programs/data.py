"""Tiny random data in the formats that public programs read, as nothing is downloaded.

Each function returns what writes the data into a folder. The same numbers come out every time.
"""

from __future__ import annotations

import json
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


def csv_series(file: str, rows: int, columns: int = 7) -> Write:
    """Hourly readings as the ETT files have them: `date`, six loads and the target `OT`."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(0).standard_normal((rows, columns)).cumsum(axis=0) * 0.1
        hours = np.datetime64("2016-07-01T00:00:00") + np.arange(rows) * np.timedelta64(3600, "s")
        names = [*(f"load{number}" for number in range(columns - 1)), "OT"]
        lines = (
            f"{str(hour).replace('T', ' ')},{','.join(f'{value:.4f}' for value in row)}"
            for hour, row in zip(hours, values.tolist(), strict=True)
        )
        (folder / file).write_text("\n".join([f"date,{','.join(names)}", *lines]) + "\n")

    return write


def ratings(file: str, count: int, users: int = 2000, items: int = 1500) -> Write:
    """MovieLens 1M's lines: user, item, stars, time."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        columns = [random.integers(1, high + 1, count).tolist() for high in (users, items, 5)]
        lines = ("::".join(map(str, row)) + "::978300760" for row in zip(*columns, strict=True))
        (folder / file).write_text("\n".join(lines) + "\n")

    return write


def triples(entities: int, relations: int, train: int, valid: int) -> Write:
    """A knowledge graph: dictionaries of entities and relations, and lines of head, relation, tail."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for name, count in (("entities", entities), ("relations", relations)):
            (folder / f"{name}.dict").write_text("".join(f"{number}\t{name}{number}\n" for number in range(count)))
        for name, count in (("train", train), ("valid", valid), ("test", valid)):
            heads, tails = random.integers(0, entities, (2, count)).tolist()
            kinds = random.integers(0, relations, count).tolist()
            rows = zip(heads, kinds, tails, strict=True)
            lines = (f"entities{head}\trelations{kind}\tentities{tail}\n" for head, kind, tail in rows)
            (folder / f"{name}.txt").write_text("".join(lines))

    return write


def arrays(**shapes: tuple[int, ...]) -> Write:
    """`.npy` files of random numbers between 0 and 1, one for each name."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for name, shape in shapes.items():
            np.save(folder / f"{name}.npy", random.random(shape, dtype=np.float32))

    return write


def point_clouds(count: int, points: int, classes: tuple[str, ...] = ("Chair", "Table", "Lamp")) -> Write:
    """ShapeNet's part annotations: text files of points and of labels, with the lists that say which is for what."""

    def write(folder: Path) -> None:
        random = np.random.default_rng(0)
        folder.mkdir(parents=True)
        (folder / "synsetoffset2category.txt").write_text(
            "".join(f"{name}\t{number:08}\n" for number, name in enumerate(classes))
        )
        lists: dict[str, list[str]] = {"train": [], "test": []}
        for number in range(count):
            label = f"{number % len(classes):08}"
            lists["test" if number % 4 == 3 else "train"].append(f"shape_data/{label}/{number:05}")
            for part, rows in (
                ("points", random.standard_normal((points, 3))),
                ("points_label", random.integers(1, 4, (points, 1))),
            ):
                suffix, layout = ("pts", "%.5f") if part == "points" else ("seg", "%d")
                (folder / label / part).mkdir(parents=True, exist_ok=True)
                np.savetxt(folder / label / part / f"{number:05}.{suffix}", rows, fmt=layout)
        (folder / "train_test_split").mkdir()
        for split, names_ in lists.items():
            (folder / "train_test_split" / f"shuffled_{split}_file_list.json").write_text(json.dumps(names_))

    return write


def sentence_pairs(file: str, count: int, vocabulary: int = 2000) -> Write:
    """Two sentences of eight words a line, parted by a tab."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        words = _words(count * 16, vocabulary)
        lines = (
            " ".join(words[at : at + 8]) + "\t" + " ".join(words[at + 8 : at + 16]) for at in range(0, len(words), 16)
        )
        (folder / file).write_text("\n".join(lines) + "\n")

    return write


def tagged(*files: str, sentences: int, vocabulary: int = 800) -> Write:
    """CoNLL's columns, word first and tag last, sentences of five to thirty words parted by an empty line."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        tags = ("O", "O", "O", "S-PER", "S-LOC", "S-ORG")
        for file in files:
            words = iter(_words(sentences * 30, vocabulary))
            blocks = (
                "\n".join(f"{next(words)} NN I-NP {tags[tag]}" for tag in random.integers(0, len(tags), length))
                for length in random.integers(5, 30, sentences).tolist()
            )
            (folder / file).write_text("\n\n".join(blocks) + "\n\n")

    return write


def faces(images: int, size: int = 320) -> Write:
    """WIDER FACE: pictures, and their boxes and landmarks in one text file."""

    def write(folder: Path) -> None:
        pictures("images", count=images, size=size)(folder)
        random = np.random.default_rng(0)
        blocks = []
        for number in range(images):
            rows = []
            for _ in range(4):
                x, y = random.integers(0, size - 100, 2).tolist()
                marks = " ".join(f"{x + 20 + 5 * mark} {y + 30} 0.0" for mark in range(5))
                rows.append(f"{x} {y} 90 90 {marks} 0.8")
            blocks.append("\n".join([f"# {number:04}.jpg", *rows]))
        (folder / "label.txt").write_text("\n".join(blocks) + "\n")

    return write


def patches(train: int, evaluated: int, size: int = 33) -> Write:
    """SRCNN's HDF5 files: arrays of patches to train on, and pictures of their own to judge by."""

    def write(folder: Path) -> None:
        import h5py

        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        with h5py.File(folder / "train.h5", "w") as file:
            for name in ("lr", "hr"):
                file.create_dataset(name, data=random.random((train, size, size), dtype=np.float32) * 255)
        with h5py.File(folder / "eval.h5", "w") as file:
            for name in ("lr", "hr"):
                for number in range(evaluated):
                    file.create_dataset(f"{name}/{number}", data=random.random((120, 120), dtype=np.float32) * 255)

    return write


def modalities(file: str, train: int, valid: int) -> Write:
    """MulT's pickle: sequences of text, sound and sight of one length, and how positive each is."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        widths = {"text": 300, "audio": 74, "vision": 35}
        splits = {
            split: {name: random.standard_normal((count, 50, width)) for name, width in widths.items()}
            | {"labels": random.uniform(-3, 3, (count, 1, 1))}
            for split, count in (("train", train), ("valid", valid), ("test", valid))
        }
        (folder / file).write_bytes(pickle.dumps(splits))

    return write


def clouds_in_hdf5(train: int, test: int, points: int) -> Write:
    """ModelNet40's files as DGCNN reads them: points of shape (objects, points, 3), and a class of forty each."""

    def write(folder: Path) -> None:
        import h5py

        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for name, count in (("train", train), ("test", test)):
            with h5py.File(folder / f"ply_data_{name}0.h5", "w") as file:
                file.create_dataset("data", data=random.standard_normal((count, points, 3)).astype(np.float32))
                file.create_dataset("label", data=random.integers(0, 40, (count, 1)).astype(np.uint8))

    return write


def columns(file: str, rows: int, count: int) -> Write:
    """Readings of several sensors, a row for each hour, parted by commas and without a head."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(0).random((rows, count)) + 0.5
        np.savetxt(folder / file, values, fmt="%.4f", delimiter=",")

    return write


def lesions(*folders: str, count: int) -> Write:
    """ISIC's photographs of skin, and for each a mask in a folder beside them."""

    def write(folder: Path) -> None:
        from PIL import Image

        random = np.random.default_rng(0)
        for name in folders:
            (folder / name).mkdir(parents=True)
            (folder / f"{name}_GT").mkdir()
            for number in range(count):
                coarse = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
                Image.fromarray(coarse).resize((1024, 768)).save(folder / name / f"ISIC_{number:07}.jpg")
                mask = (coarse[:, :, 0] > 128).astype(np.uint8) * 255
                at = folder / f"{name}_GT" / f"ISIC_{number:07}_segmentation.png"
                Image.fromarray(mask).resize((1024, 768)).save(at)

    return write


def sounds(file: str, tracks: int, samples: int) -> Write:
    """Recordings in 256 steps of loudness, all in one `.npz`."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        np.savez(folder / file, *(random.integers(0, 256, samples).astype(np.uint8) for _ in range(tracks)))

    return write


def trees(train: int, other: int, vocabulary: int = 2000, width: int = 300) -> Write:
    """SICK, parsed: pairs of sentences, the parent of each word, how alike the two are, and vectors of the words."""

    def write(folder: Path) -> None:
        import torch

        random = np.random.default_rng(0)
        words = sorted(set(_words(200_000, vocabulary)))
        for split, count in (("train", train), ("dev", other), ("test", other)):
            (folder / split).mkdir(parents=True)
            for side in "ab":
                lengths = random.integers(6, 14, count).tolist()
                texts = (" ".join(words[at] for at in random.integers(0, len(words), length)) for length in lengths)
                (folder / split / f"{side}.toks").write_text("\n".join(texts) + "\n")
                parents = ((0, *(int(random.integers(1, at)) for at in range(2, n + 1))) for n in lengths)
                lines = (" ".join(map(str, row)) for row in parents)
                (folder / split / f"{side}.parents").write_text("\n".join(lines) + "\n")
            marks = random.uniform(1, 5, count).round(1).tolist()
            (folder / split / "sim.txt").write_text("\n".join(map(str, marks)) + "\n")
        (folder / "sick.vocab").write_text("\n".join(words) + "\n")
        torch.save(torch.randn(len(words) + 4, width), folder / "sick_embed.pth")

    return write


def particles(train: int, other: int, atoms: int = 5) -> Write:
    """NRI's springs: places and speeds of a few balls over time, and which of them are joined."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for split, count, steps in (("train", train, 49), ("valid", other, 49), ("test", other, 98)):
            for name in ("loc", "vel"):
                walk = random.standard_normal((count, steps, 2, atoms)).cumsum(axis=1)
                np.save(folder / f"{name}_{split}_springs{atoms}.npy", walk)
            joined = random.integers(0, 2, (count, atoms, atoms)).astype(np.float64)
            np.save(folder / f"edges_{split}_springs{atoms}.npy", joined)

    return write


def sessions(*files: str, count: int, items: int) -> Write:
    """What visitors of a shop looked at: session, item and time, with a head; every item occurs."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(files):
            random = np.random.default_rng(number)
            lengths = random.integers(2, 12, count)
            session = np.arange(count).repeat(lengths)
            seen = random.integers(0, items, len(session))
            seen[:items] = np.arange(items)[: len(seen)] if number == 0 else seen[:items]
            rows = zip(session.tolist(), seen.tolist(), range(len(session)), strict=True)
            lines = "".join(f"{at},{item},{time}\n" for at, item, time in rows)
            (folder / name).write_text("SessionID,ItemID,Time\n" + lines)

    return write


def walkers(*folders: str, frames: int, together: int = 5) -> Write:
    """Social GAN's tables of people who cross a square: frame, person, and the two coordinates, parted by tabs."""

    def write(folder: Path) -> None:
        random = np.random.default_rng(0)
        for name in folders:
            (folder / name).mkdir(parents=True)
            places = random.uniform(0, 10, (together, 2))
            speeds = random.normal(0, 0.3, (together, 2))
            lines = []
            for frame in range(frames):
                speeds += random.normal(0, 0.05, speeds.shape)
                places += speeds
                for person, (x, y) in enumerate(places.tolist()):
                    number = frame // 60 * together + person
                    lines.append(f"{frame * 10}\t{number}\t{x:.3f}\t{y:.3f}\n")
            (folder / name / "square.txt").write_text("".join(lines))

    return write


def graph_texts(name: str, count: int, nodes: tuple[int, int] = (10, 30)) -> Write:
    """Many small rings with chords, as powerful-gnns reads them: a line for each node, with label and neighbours."""

    def write(folder: Path) -> None:
        (folder / name).mkdir(parents=True)
        random = np.random.default_rng(0)
        lines = [str(count)]
        for graph in range(count):
            size = int(random.integers(*nodes))
            lines.append(f"{size} {graph % 2}")
            for node in range(size):
                near = sorted({(node - 1) % size, (node + 1) % size, (node + size // 2) % size} - {node})
                lines.append(" ".join(map(str, (int(random.integers(0, 5)), len(near), *near))))
        (folder / name / f"{name}.txt").write_text("\n".join(lines) + "\n")

    return write


def views(count: int, size: int) -> Write:
    """NeRF's synthetic scenes: pictures with a transparent ground, and where the camera stood."""

    def write(folder: Path) -> None:
        from PIL import Image

        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for split, number in (("train", count), ("val", 2), ("test", 2)):
            (folder / split).mkdir()
            frames = []
            for at in range(number):
                image = random.integers(0, 256, (size, size, 4), dtype=np.uint8)
                Image.fromarray(image).save(folder / split / f"r_{at}.png")
                angle = 2 * np.pi * at / number
                place = [[np.cos(angle), 0, np.sin(angle), 4 * np.sin(angle)], [0, 1, 0, 0.5]]
                place += [[-np.sin(angle), 0, np.cos(angle), 4 * np.cos(angle)], [0, 0, 0, 1]]
                frames.append({"file_path": f"./{split}/r_{at}", "transform_matrix": np.array(place).tolist()})
            text = json.dumps({"camera_angle_x": 0.69, "frames": frames})
            (folder / f"transforms_{split}.json").write_text(text)

    return write


def traffic(nodes: int, train: int, other: int, steps: int = 12) -> Write:
    """DCRNN's speeds on roads: windows of two channels and what follows them, who is near whom, and the settings."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for split, count in (("train", train), ("val", other), ("test", other)):
            shape = (count, steps, nodes, 2)
            np.savez(folder / f"{split}.npz", x=random.uniform(20, 70, shape), y=random.uniform(20, 70, shape))
        near = (random.random((nodes, nodes)) < 0.08).astype(np.float32) + np.eye(nodes, dtype=np.float32)
        (folder / "adj_mx.pkl").write_bytes(pickle.dumps(([], {}, near)))
        model = {"cl_decay_steps": 2000, "filter_type": "dual_random_walk", "horizon": steps, "input_dim": 2}
        model |= {"max_diffusion_step": 2, "num_nodes": nodes, "num_rnn_layers": 2, "output_dim": 1}
        model |= {"rnn_units": 32, "seq_len": steps, "use_curriculum_learning": True}
        settings = {
            "base_dir": "data/model",
            "log_level": "INFO",
            "data": {"batch_size": 32, "test_batch_size": 32, "dataset_dir": f"data/{folder.name}"}
            | {"graph_pkl_filename": f"data/{folder.name}/adj_mx.pkl"},
            "model": model,
            "train": {"base_lr": 0.01, "epochs": 1, "epsilon": 1e-3, "lr_decay_ratio": 0.1, "max_grad_norm": 5}
            | {"patience": 50, "steps": [20, 30], "test_every_n_epochs": 10, "dropout": 0, "epoch": 0},
        }
        (folder / "settings.yaml").write_text(json.dumps(settings))  # JSON is YAML

    return write


def drives(count: int, length: int) -> Write:
    """Rollouts of a racing car as world-models keeps them: pictures, actions, rewards and ends, a file for each."""

    def write(folder: Path) -> None:
        (folder / "thread_0").mkdir(parents=True)
        random = np.random.default_rng(0)
        for number in range(count):
            np.savez(
                folder / "thread_0" / f"rollout_{number}.npz",
                observations=random.integers(0, 256, (length, 64, 64, 3), dtype=np.uint8),
                actions=random.uniform(-1, 1, (length, 3)),
                rewards=random.uniform(-1, 1, length),
                terminals=np.zeros(length, dtype=bool),
            )

    return write


def autoencoder(latent: int = 32) -> Write:
    """A checkpoint of world-models' autoencoder that nobody trained."""

    def write(folder: Path) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        folder.mkdir(parents=True)
        state: dict[str, torch.Tensor] = {}
        for name, module in {
            "encoder.conv1": nn.Conv2d(3, 32, 4),
            "encoder.conv2": nn.Conv2d(32, 64, 4),
            "encoder.conv3": nn.Conv2d(64, 128, 4),
            "encoder.conv4": nn.Conv2d(128, 256, 4),
            "encoder.fc_mu": nn.Linear(1024, latent),
            "encoder.fc_logsigma": nn.Linear(1024, latent),
            "decoder.fc1": nn.Linear(latent, 1024),
            "decoder.deconv1": nn.ConvTranspose2d(1024, 128, 5),
            "decoder.deconv2": nn.ConvTranspose2d(128, 64, 5),
            "decoder.deconv3": nn.ConvTranspose2d(64, 32, 6),
            "decoder.deconv4": nn.ConvTranspose2d(32, 3, 6),
        }.items():
            state |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        torch.save({"epoch": 0, "precision": 0.0, "state_dict": state}, folder / "best.tar")

    return write


def visits(file: str, users: int, items: int, longest: int = 60) -> Write:
    """SASRec's histories: a line for each user and item, in the order of the visits."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        lines = []
        for user in range(1, users + 1):
            seen = random.integers(1, items + 1, random.integers(10, longest))
            lines += [f"{user} {item}\n" for item in seen.tolist()]
        (folder / file).write_text("".join(lines))

    return write


def bodies(train: int, other: int, count: int = 5, frames: int = 49) -> Write:
    """Charged bodies as EGNN simulates them: places, speeds, the signs of pairs, and charges."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for split, number in (("train", train), ("valid", other), ("test", other)):
            speeds = random.normal(0, 0.3, (number, frames, 3, count)).cumsum(axis=1) * 0.1
            charges = random.choice([-1.0, 1.0], (number, count, 1))
            for name, values in {
                "loc": speeds.cumsum(axis=1) * 0.1 + random.normal(0, 1, (number, 1, 3, count)),
                "vel": speeds,
                "edges": charges @ charges.transpose(0, 2, 1),
                "charges": charges,
            }.items():
                np.save(folder / f"{name}_{split}_charged5_initvel1small.npy", values)

    return write


def rated(name: str, users: int, items: int, each: int = 20, others: int = 99) -> Write:
    """Neural collaborative filtering's texts: the rated items of each user, and one among others to be ranked."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        rated_items = [random.permutation(items)[: each + 1].tolist() for _ in range(users)]
        lines = [f"{user}\t{item}\t1\t0\n" for user, own in enumerate(rated_items) for item in own[1:]]
        (folder / f"{name}.train.rating").write_text("".join(lines))
        ranked = [[f"({user},{own[0]})", *random.integers(0, items, others)] for user, own in enumerate(rated_items)]
        (folder / f"{name}.test.negative").write_text("".join("\t".join(map(str, row)) + "\n" for row in ranked))

    return write


def clicked(train: int, test: int, items: int) -> Write:
    """Pickled (sequences, targets) of clicks: items count from 1, some twice in a sequence."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        random = np.random.default_rng(0)
        for name, count in (("train.txt", train), ("test.txt", test)):
            lengths = random.integers(1, 16, count).tolist()
            clicks = [random.integers(1, items + 1, length + 1).tolist() for length in lengths]
            pairs = ([each[:-1] for each in clicks], [each[-1] for each in clicks])
            (folder / name).write_bytes(pickle.dumps(pairs))

    return write


def series(file: str, rows: int, columns: int) -> Write:
    """Numbers between 0 and 1 that follow daily waves, a row an hour, divided by commas."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        hours, phases = np.arange(rows)[:, None], random.random(columns)
        waves = 0.5 + 0.3 * np.sin(2 * np.pi * (hours / 24 + phases)) + 0.1 * random.random((rows, columns))
        np.savetxt(folder / file, waves, "%.4f", ",")

    return write


def answers(name: str, train: int, other: int, longest: int = 400) -> Write:
    """What students answered, four lines for each: who, the problems, their skills and whether it was right. Most
    answer few questions, some many."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for part, count in (("train", train), ("valid", other), ("test", other)):
            lines = []
            for student in range(count):
                length = int(np.clip(random.lognormal(3.8, 0.9), 3, longest))
                rows = (random.integers(1, most, length) for most in (16892, 111))
                right = random.integers(0, 2, length)
                lines += [f"{student},{student}", *(",".join(map(str, row)) for row in (*rows, right))]
            (folder / f"{name}_{part}1.csv").write_text("\n".join(lines) + "\n")

    return write


def advertisements(rows: int, numbers: int = 13, categories: int = 26) -> Write:
    """Numbers, categories and whether somebody clicked, as a click model's tables; the number of each column's
    categories lies beside them."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        sizes = random.integers(3, 3000, categories)
        parts = [random.integers(0, 30, (rows, numbers)), random.integers(0, sizes, (rows, categories))]
        table = np.concatenate([*parts, random.integers(0, 2, (rows, 1))], axis=1)
        head = ",".join(f"c{column}" for column in range(table.shape[1]))
        np.savetxt(folder / "train.txt", table, "%d", ",", header=head, comments="")
        (folder / "feature_sizes.txt").write_text(",".join(map(str, [1] * numbers + sizes.tolist())))

    return write
