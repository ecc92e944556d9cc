"""What a diagnosis tells of the steps that serve a language model."""

from __future__ import annotations

from dataclasses import replace

from profkit.derive.facts import Facts
from profkit.findings.serving import EngineSteps, FamilyShare
from profkit.patterns.named_lines import locations_of
from profkit.patterns.places.callers import model_call_sites
from profkit.patterns.serving.kinds import StepsOfKind, engine_steps
from profkit.patterns.serving.token_passes import token_passes
from profkit.patterns.shapes import with_shapes
from profkit.savings.decoding import decode_floor
from profkit.savings.step_time import step_time


def tell_serving(facts: Facts) -> tuple[EngineSteps, ...]:
    """The kinds of steps, the one with most time first; empty for any other program."""
    return tuple(_told(one) if one.engine else _of_loop(facts, _told(one)) for one in engine_steps(facts))


def _told(one: StepsOfKind) -> EngineSteps:
    return EngineSteps(
        engine=one.engine,
        kind=one.kind,
        steps=one.steps,
        sequences=round(one.sequences, 2),
        tokens=round(one.tokens, 2),
        context_tokens=round(one.context_tokens, 2),
        step_ns=int(one.step_ns),
        device_ns=int(one.device_ns),
        replayed_fraction=round(one.replayed, 4),
        idle_ns=int(one.idle_ns),
        idle_in=one.idle_in,
        tokens_per_s=round(one.tokens_per_s, 1),
        families=tuple(FamilyShare(family.value, round(share, 4)) for family, share in one.families),
    )


def _of_loop(facts: Facts, one: EngineSteps) -> EngineSteps:
    """A pass as long as it is without the recording, with its floor and the line that calls the model."""
    time, passes = step_time(facts), token_passes(facts)
    slower = time.ns / time.recorded_ns if time.ns and time.recorded_ns else 1.0
    # what is read beside the tokens may be needless: no floor
    floor = None if passes is None or passes.beside else decode_floor(facts, passes)
    places = () if passes is None else locations_of(facts, model_call_sites(facts, with_shapes(facts, passes.rows[:1])))
    one = replace(
        one,
        step_ns=int(one.step_ns * slower),
        tokens_per_s=round(one.tokens_per_s / slower, 1),
        where=places[0].short if places else "",
        beside_tokens=passes.beside if passes is not None else 0,
    )
    if floor is None:
        return one
    return replace(one, weight_bytes=floor.weight_bytes, cache_bytes=floor.cache_bytes, floor_ns=floor.ns)
