"""The steps of an engine that serves a language model, as a diagnosis tells them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSteps:
    """All steps of one ``kind`` (``prefill``, ``decode`` or ``mixed``) of an ``engine``, by the names of its ranges.

    ``sequences`` and ``tokens`` are means of a step: the sequences in it, and the tokens that it computes.
    ``context_tokens`` are the tokens that these attend to, 0 if the names do not tell. ``step_ns`` is the median time
    from the start of a step's work to that of the next one's, or the length of its work if there is no next.
    ``device_ns`` is the median time in which the device works on it, ``replayed_fraction`` the share of its kernels
    that a graph launches. ``idle_ns`` is the median time between the end of the work of the step before and the
    beginning of its own, and ``idle_in`` the Python functions that take most of it. ``tokens_per_s`` counts a token for
    each sequence that generates."""

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
