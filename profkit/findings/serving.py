"""The steps of what serves a language model, as a diagnosis tells them: an engine's, or a loop's of one's own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FamilyShare:
    """The share of the time of all kernels of these steps that those of one ``family`` take."""

    family: str
    fraction: float


@dataclass(frozen=True, slots=True)
class EngineSteps:
    """All steps of one ``kind`` (``prefill``, ``decode`` or ``mixed``) of an ``engine``, by the names of its ranges.
    Without an engine (empty) they are the passes of a loop of the program's own, whose model is called ``where``.

    ``sequences`` and ``tokens`` are means of a step: the sequences in it, and the tokens that it computes.
    ``context_tokens`` are the tokens that these attend to, 0 if the names do not tell. ``step_ns`` is the median time
    from the start of a step's work to that of the next one's, or the length of its work if there is no next.
    ``device_ns`` is the median time in which the device works on it, ``replayed_fraction`` the share of its kernels
    that a graph launches. ``idle_ns`` is the median time between the end of the work of the step before and the
    beginning of its own, and ``idle_in`` the Python functions that take most of it. ``tokens_per_s`` counts a token for
    each sequence that generates. ``families`` are those of the kernels that take most, the first with most.

    A pass of a loop reads ``weight_bytes`` of weights and ``cache_bytes`` of keys and values, 0 if unknown. Reading
    each once takes at least ``floor_ns``, 0 if the rate of the memory is unknown. ``beside_tokens`` are the other
    tokens that are looked up for nearly every pass, and from which nothing is drawn, 0 if there are none."""

    engine: str
    kind: str
    steps: int
    sequences: float
    tokens: float
    context_tokens: float
    step_ns: int
    device_ns: int
    replayed_fraction: float
    idle_ns: int
    idle_in: tuple[str, ...] = ()
    tokens_per_s: float = 0.0
    families: tuple[FamilyShare, ...] = ()
    weight_bytes: int = 0
    cache_bytes: int = 0
    floor_ns: int = 0
    where: str = ""
    beside_tokens: int = 0
