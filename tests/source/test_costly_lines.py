"""Lines that take long for what they do: each kind, and what is alike and does not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from profkit.source.costly_lines import costly_lines
from profkit.source.index import parsed_file
from profkit.source.remarks import review_sources


def found(directory: Path, source: str) -> list[tuple[str, int]]:
    path = directory / "program.py"
    path.write_text(textwrap.dedent(source))
    file = parsed_file(str(path))
    assert file is not None
    return [(one.kind, one.line) for one in costly_lines(file)]


def in_loop(*lines: str, before: str = "") -> str:
    return "\n".join([before, "for i in range(9):", *(f"    {line}" for line in lines)])


CASES = {
    "list-search": [
        ("names.index(x)", "names = sorted(given)"),
        ("x in seen", "seen = []"),
        ("if x not in self.seen: pass", "self.seen = []"),
        ("VOCAB.index(x)", "VOCAB = [str(i) for i in range(9)] + ['+']"),
        ("words.remove(x)", "words = text.split()"),
    ],
    "list-shift": [("queue.pop(0)", "queue = []"), ("queue.insert(0, x)", "queue = [1]")],
    "array-grown": [
        ("rows = np.append(rows, row)", ""),
        ("rows = numpy.concatenate([rows, row[None]], axis=0)", ""),
        ("self.rows = np.vstack((self.rows, row))", ""),
        ("frame = pd.concat([frame, row])", ""),
        ("frame = frame.append(row)", ""),
    ],
    "list-grown": [("losses = losses + [loss]", ""), ("all_rows = all_rows + more", "all_rows = []")],
    "file-read": [
        ("x = np.load(path)", ""),
        ("row = json.loads(line)", ""),
        ("with open(path) as file: pass", ""),
        ("image = Image.open(path).convert('RGB')", ""),
        ("with h5py.File(path, 'r') as file: pass", ""),
        ("x = torch.load(path)", ""),
    ],
    "deep-copy": [("best = copy.deepcopy(model)", ""), ("best = deepcopy(state)", "")],
    "whole-copy": [
        ("rows = self.rewards[:n].copy()", ""),
        ("kept[key] = self.buffers[key][: self.size].copy()", ""),
        ("kept = states[:, 1:, :].copy()", ""),
        ("kept = np.copy(states)", ""),
        ("kept = states.copy()", ""),
    ],
    "row-of-frame": [
        ("x = frame.iloc[i]", ""),
        ("x = frame.loc[i, 'x']", ""),
        ("y = frame.apply(f, axis=1)", ""),
        ("for _, row in frame.iterrows(): pass", ""),
    ],
    "draw-from-all": [("rows = np.random.choice(n, 9, replace=False)", "")],
    "weighted-draw": [
        ("rows = np.random.choice(n, 9, p=chances)", ""),
        ("rows = rng.choice(n, 9, True, chances)", ""),
        ("rows = random.choices(range(n), weights=self.weights, k=9)", ""),
        ("rows = random.choices(rows, weights)", ""),
    ],
    "inside-deque": [
        ("batch = random.sample(memory, 32)", "memory = deque(maxlen=9)"),
        ("x = memory[i]", "memory = collections.deque()"),
    ],
}


@pytest.mark.parametrize(("kind", "line", "before"), [(kind, *case) for kind, cases in CASES.items() for case in cases])
def test_each_kind_in_a_loop(tmp_path, kind, line, before):
    assert found(tmp_path, in_loop(line, before=before)) == [(kind, 3)]


@pytest.mark.parametrize(("line", "before"), [case for cases in CASES.values() for case in cases])
def test_what_runs_once_is_no_matter(tmp_path, line, before):
    once = [(kind, number) for kind, number in found(tmp_path, f"{before}\n{line}") if kind != "row-of-frame"]
    assert once == []


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("x in seen", "seen = set()"),
        ("x in seen", "seen = {}"),
        ("x in seen", "seen = []\nseen = set(seen)"),  # one or the other
        ("x in given", ""),
        ("place = text.index(x)", "text = 'abc'"),
        ("queue.pop()", "queue = []"),
        ("queue.pop(False)", "queue = []"),
        ("queue.popleft()", "queue = deque()"),
        ("x = memory[0]", "memory = deque()"),
        ("x = memory[-1]", "memory = deque()"),
        ("memory[i] = x", "memory = deque()"),
        ("random.sample(memory, 32)", "memory = []"),
        ("rows = np.append(others, row)", ""),
        ("rows = torch.cat([rows, row])", ""),  # seen in the recording
        ("rows.append(row)", "rows = []"),
        ("total = total + loss", ""),
        ("rows = rng.choice(n, 9, replace=False)", ""),
        ("rows = np.random.choice(n, 9)", ""),
        ("rows = np.random.choice(n, 9, p=None)", ""),
        ("rows = random.choices(rows, k=9)", ""),
        ("rows = random.choices(rows, cum_weights=sums, k=9)", ""),
        ("row = random.choice(rows)", ""),
        ("x = frame.iloc[:9]", ""),
        ("frame.iloc[i] = x", ""),
        ("y = frame.apply(f)", ""),
        ("for row in frame.itertuples(): pass", ""),
        ("with open(path, 'w') as file: pass", ""),
        ("with open(path, mode='ab') as file: pass", ""),
        ("model.load(path)", ""),
        ("best = copy.copy(state)", ""),
        ("rows = states[chosen].copy()", ""),  # as many rows as are picked
        ("row = states[i, times].copy()", ""),
        ("mean = states.mean(0).copy()", ""),
        ("kept = config.copy()", "config = {}"),
    ],
)
def test_what_is_alike_and_cheap(tmp_path, line, before):
    assert found(tmp_path, in_loop(line, before=before)) == []


def test_a_name_without_a_value_at_first_holds_what_it_is_given(tmp_path):
    source = """
    class Memory:
        def __init__(self):
            self.seen: list | None = None

        def reset(self):
            self.seen = []

        def add(self, x):
            return x in self.seen
    """
    assert found(tmp_path, source) == [("list-search", 10)]


def test_a_remark_ends_where_its_expression_ends(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("def f():\n    return copy.deepcopy(\n        x\n    )\n")
    (remark,) = review_sources([str(path)])
    assert (remark.kind, remark.site.line, remark.until) == ("deep-copy", 2, 4)


def test_an_array_grows_in_a_loop_or_where_it_outlives_a_call(tmp_path):
    source = """
    def padded(rows):
        rows = np.append(rows, 0)
        return rows

    class Log:
        def add(self, row):
            self.rows = np.append(self.rows, row)

    for epoch in range(9):
        def local(rows):
            rows = np.append(rows, 0)
    """
    assert found(tmp_path, source) == [("array-grown", 8)]
