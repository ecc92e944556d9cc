"""Decoding on several processors: other processes turn text into chunks.

Decoding text into columns takes most of the time of a diagnosis, and a Python process does it on one processor. The
other processes are forks: they start within milliseconds and find the text in memory that both map. Their chunks are
taken in the order of the file, so the trace is the same, code for code, whichever process decoded what. The reader
decodes too while all others are busy.

A chunk that does not decode, or a process that is gone, ends this. The text from there on is given back, and the reader
continues alone, with its tolerant parser.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from profkit.core.forks import Channel, Fork
from profkit.trace.containers import PIECE_BYTES
from profkit.trace.kineto.chunks import Chunk, ChunkDecoder, Translation

UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""The errors of text that is no list of events."""
_PLACES = 3
"""Chunks per process: the current one, the next, and one that is done."""
_PLACE_BYTES = 2 * PIECE_BYTES
_MOST_WAITING = 16
"""At most so many chunks wait for one before them in the file."""

Text = Sequence[bytes | memoryview]


class Undecoded(Exception):
    """The text from ``offset`` on is not decoded. ``texts`` holds it in the order of the file."""

    def __init__(self, offset: int, texts: list[bytes]) -> None:
        super().__init__(offset)
        self.offset = offset
        self.texts = texts


class _Task(Struct):
    """A chunk to make of the text at ``offset``; ``text`` includes the brackets."""

    offset: int
    text: memoryview
    translation: Translation
    other: _Other | None = None
    chunk: Chunk | None = None
    has_failed: bool = False

    @property
    def is_over(self) -> bool:
        return self.has_failed or self.chunk is not None


class Decoders:
    """This process and ``others``, which share the decoding. The chunks have the codes of ``own``.

    As a context manager it ends the others at its exit. There are fewer of them if the system does not grant more.
    """

    def __init__(self, own: ChunkDecoder, others: int) -> None:
        self._here, self._translation = ChunkDecoder(), Translation(own)
        self._tasks: deque[_Task] = deque()
        self._others: list[_Other] = []
        with suppress(OSError):
            for _ in range(others):
                self._others.append(_Other(Translation(own)))

    def __enter__(self) -> Decoders:
        return self

    def __exit__(self, *_: object) -> None:
        self._tasks.clear()
        for other in self._others:
            other.end()
        self._others.clear()

    def decode(self, text: Text, offset: int) -> Iterator[Chunk]:
        """Have the text of whole events decoded, whose parts begin at ``offset``. Yields the chunks that are done by
        now, in the order of the file. Raises `Undecoded`."""
        idle = min(self._others, key=lambda other: other.places_taken, default=None)
        if idle is not None and idle.has_room_for(text):
            self._tasks.append(idle.ask(text, offset))
        else:
            self._tasks.append(self._decode_here(text, offset))
        for other in self._others:
            other.answer(wait=False)
        yield from self._take(_MOST_WAITING)

    def finish(self) -> Iterator[Chunk]:
        """Wait for all other chunks. Raises `Undecoded`."""
        yield from self._take(0)

    def give_back(self) -> Undecoded | None:
        """The text of all chunks that were not yielded yet; None if all were."""
        texts = [bytes(task.text[1:-1]) for task in self._tasks]
        return Undecoded(self._tasks[0].offset, texts) if texts else None

    def _take(self, most_waiting: int) -> Iterator[Chunk]:
        while self._tasks:
            task = self._tasks[0]
            if not task.is_over:
                if len(self._tasks) <= most_waiting:
                    return
                assert task.other is not None
                task.other.answer(wait=True)
            elif task.chunk is None:
                raise self.give_back() or AssertionError
            else:
                self._tasks.popleft()
                if task.other is not None:
                    task.other.places_taken -= 1
                yield task.translation.translate(task.chunk)

    def _decode_here(self, text: Text, offset: int) -> _Task:
        task = _Task(offset, memoryview(b"".join((b"[", *text, b"]"))), self._translation)
        try:
            task.chunk = self._here.decode(task.text)
        except UNDECODABLE:
            task.has_failed = True
        return task


class _Other:
    """Another process that decodes. A text stays in the shared memory until its chunk is taken."""

    def __init__(self, translation: Translation) -> None:
        self.places_taken = 0
        self._asked: deque[_Task] = deque()
        self._translation = translation
        self._memory = mmap.mmap(-1, _PLACES * _PLACE_BYTES)
        self._next_place = 0
        self._fork = Fork(lambda channel: _serve(channel, self._memory))

    def has_room_for(self, text: Text) -> bool:
        return self.places_taken < _PLACES and sum(map(len, text)) + 2 <= _PLACE_BYTES

    def ask(self, text: Text, offset: int) -> _Task:
        begin = end = self._next_place * _PLACE_BYTES
        for part in (b"[", *text, b"]"):
            self._memory[end : end + len(part)] = part
            end += len(part)
        task = _Task(offset, memoryview(self._memory)[begin:end], self._translation, self)
        self._next_place = (self._next_place + 1) % _PLACES
        self.places_taken += 1
        self._asked.append(task)
        with suppress(OSError):  # a process that is gone answers nothing
            self._fork.channel.send((begin, end))
        return task

    def answer(self, wait: bool) -> None:
        """Take the chunks that are done; with ``wait``, at least one."""
        while self._asked:
            try:
                if not (wait or self._fork.channel.has_more()):
                    return
                chunk = self._fork.channel.receive()
            except (OSError, EOFError):
                chunk = None
            task, wait = self._asked.popleft(), False
            task.chunk, task.has_failed = chunk, chunk is None

    def end(self) -> None:
        self._fork.end()


def _serve(channel: Channel, memory: mmap.mmap) -> None:
    """Decode text in the shared memory as long as the reader asks; answer None if it does not decode."""
    decoder, content = ChunkDecoder(), memoryview(memory)
    with suppress(OSError, EOFError):
        while True:
            begin, end = channel.receive()
            try:
                chunk = decoder.decode(content[begin:end])
            except UNDECODABLE:
                chunk = None
            channel.send(chunk)
