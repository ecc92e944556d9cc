"""The threads by which a DataLoader of the program tells its workers which samples to fetch.

Each loader with workers has them, and they send nothing but indices. The queues of a program's own have threads of the
same name, which may send anything.
"""

from __future__ import annotations

import threading

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as WorkersIterator

from profkit.collect.program.living import living

_NAME = "QueueFeederThread"
"""Of the threads of all queues between processes."""


def feeding_threads() -> list[threading.Thread]:
    """Those of loaders that exist. They are only searched for, among all objects, if a thread may be one."""
    running = [thread for thread in threading.enumerate() if thread.name == _NAME]
    if not running:
        return []
    queues = [queue for iterator in living(WorkersIterator) for queue in getattr(iterator, "_index_queues", ())]
    own = {id(getattr(queue, "_thread", None)) for queue in queues}
    return [thread for thread in running if id(thread) in own]
