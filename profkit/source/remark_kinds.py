"""What a program's source may say about a line: the kinds of `profkit.run.directory.Remark`."""

EVALUATION_WITH_GRAD = "evaluation-with-grad"
"""A model in evaluation mode is called in a loop with autograd on."""
THREADS_SET = "threads-set"
"""An operator's number of threads is set."""
LOADER_MADE = "loader-made"
"""A DataLoader is made."""
BIASED_LAYER_MADE = "biased-layer-made"
"""A layer with a bias is made, which a line of the same file calls."""
CYCLE_CLOSED = "cycle-closed"
"""Objects come to refer to each other."""
DOUBLES_BY_DEFAULT = "doubles-by-default"
"""float64 becomes the type of all new tensors."""
DOUBLES_ASKED_FOR = "doubles-asked-for"
"""A tensor is made as float64, or converted to it, by name."""
DOUBLES_MADE = "doubles-made"
"""Data becomes a tensor of its own type, which may be float64."""
ANOMALY_MODE_SET = "anomaly-mode-set"
"""Autograd's anomaly mode is switched on, by a function or by an option of a trainer."""
DETERMINISM_SET = "determinism-set"
"""Deterministic algorithms are asked for."""
RARELY_USED = "rarely-used"
"""The results of an evaluation are used at every n-th step only."""
HOOK_REGISTERED = "hook-registered"
"""A function registers a hook, which begins at ``used_at`` and ends at ``until``."""
SEEDS = {
    "PyTorch": "seeds-pytorch",
    "NumPy": "seeds-numpy",
    "Python's random": "seeds-random",
}
"""Random numbers are seeded, by whose they are."""
DRAWS = {
    "PyTorch": "draws-pytorch",
    "NumPy": "draws-numpy",
    "Python's random": "draws-random",
}
"""Random numbers are drawn from the global generator, by whose they are."""
LIST_SEARCH = "list-search"
"""A list is searched from its start. The expression ends at ``until``, here and in the remarks below."""
LIST_SHIFT = "list-shift"
"""The first element of a list is taken or put."""
ARRAY_GROWN = "array-grown"
"""An array or a data frame is joined to itself."""
LIST_GROWN = "list-grown"
"""A list is made of itself and more."""
FILE_READ = "file-read"
"""A file or a text is opened, read or decoded."""
DEEP_COPY = "deep-copy"
"""An object is copied with all that it refers to."""
ROW_OF_FRAME = "row-of-frame"
"""A row or a cell of a data frame is asked for."""
DRAW_FROM_ALL = "draw-from-all"
"""NumPy's old function draws without replacement."""
INSIDE_DEQUE = "inside-deque"
"""An element inside a deque is read."""
