"""Memory peaks that consist mostly of activations, and peaks that do not or are too small to matter."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.derive.facts import Facts
from profkit.findings.values import Kind, Severity
from profkit.rules.activation_dominated_peak import activation_dominated_peak
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.run.directory import CallSite, Host, LoadSample, Run
from tests.traces import facts_of, kernel, mark, memory, op, runtime, step

Json = dict[str, Any]
LOOP = CallSite("train.py", 9, "main", "x = block(x)")
INNER = CallSite("model.py", 30, "forward", "return x + self.layers(x)")
OUTER = CallSite("train.py", 7, "main", "loss = run(blocks, x)")
MIB = 1 << 20
BACKWARD = "autograd::engine::evaluate_function: AddBackward0"


def block(at: float, address: int, size: int = 30 * MIB, output: int = 10 * MIB, site: int = 0) -> list[Json]:
    """One call of the line in the loop and, inside it, of a line of the model. It keeps two tensors, the second of
    which is the output, and frees a third at once."""
    return [
        mark(site, at, 20),
        mark(1, at + 1, 18),
        op("aten::add", at + 2, 15),
        memory(at + 3, 7 * MIB, 1),
        memory(at + 4, -7 * MIB, 1),
        memory(at + 5, size, address),
        memory(at + 6, output, address + 1),
    ]


def backward(at: float, address: int, size: int = 30 * MIB, output: int = 10 * MIB) -> list[Json]:
    return [op(BACKWARD, at, 20), memory(at + 5, -output, address + 1), memory(at + 6, -size, address)]


def one_step(calls: int = 8, *, before: int = 0, parameters: int = 0, **sizes: int) -> list[Json]:
    """A located step: ``before`` bytes are allocated first, then come the blocks' forward and backward passes and their
    gradients."""
    there = [memory(0.5, before, 99)] if before else []
    ahead = [event for i in range(calls) for event in block(10 + 30 * i, 100 + 10 * i, **sizes)]
    back = [
        event
        for i in reversed(range(calls))
        for event in backward(
            980 - 30 * i, 100 + 10 * i, **{name: size for name, size in sizes.items() if name != "site"}
        )
    ]
    gradient = [op("torch::autograd::AccumulateGrad", 995, 1, dims=[[parameters // 4]], types=["float"])]
    return [*there, step(0, 1, 1200), mark(2, 2, 1100), *ahead, *back, *gradient]


def facts(events: list[Json]) -> Facts:
    return facts_of(events, callsites=(LOOP, INNER, OUTER))


def find(events: list[Json]) -> list[Suspicion]:
    return list(activation_dominated_peak.check(facts(events)))


def test_blocks_called_in_a_loop_are_reported_with_the_bytes_they_keep():
    (found,) = find(one_step())
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 9)
    assert found.size_bytes == 8 * 40 * MIB - 7 * 10 * MIB - 30 * MIB
    assert found.peak_fraction == pytest.approx(220 / 320)
    assert found.count == 8
    assert found.evidence == {"peak_bytes": 320 * MIB, "activation_bytes": 320 * MIB, "calls": 8}
    assert "100 % of the peak of 336 MB is activations that wait for the backward pass; 8 calls" in found.message
    assert "use_reentrant=False" in found.fix


def test_every_finding_is_an_opportunity():
    assert activation_dominated_peak.kind is Kind.OPPORTUNITY
    assert [found.kind for found in find(one_step())] == [None]


@pytest.mark.parametrize(("size", "count"), [(22 * MIB, 1), (22 * MIB - 1, 0)])
def test_peaks_below_the_smallest_size_are_silent(size, count):
    assert len(find(one_step(size=size))) == count


@pytest.mark.parametrize(("before", "count"), [(320 * MIB, 1), (320 * MIB + 1, 0)])
def test_memory_allocated_before_the_forward_pass_is_not_counted_as_activations(before, count):
    assert len(find(one_step(before=before))) == count


@pytest.mark.parametrize(("parameters", "count"), [(106 * MIB, 1), (107 * MIB, 0)])
def test_parameters_and_optimizer_state_are_estimated_from_the_gradients(parameters, count):
    assert len(find(one_step(parameters=parameters))) == count


def test_memory_that_the_backward_pass_does_not_free_is_not_counted_as_activations():
    events = [event for event in one_step() if (event["args"].get("Bytes") or 0) > -7 * MIB - 1]
    assert find(events) == []


def test_calls_that_keep_only_their_output_are_silent():
    """Calls under a checkpoint look like this."""
    assert find(one_step(size=0, output=40 * MIB)) == []


def test_a_line_that_runs_once_is_silent():
    assert find(one_step(1, size=400 * MIB)) == []


def test_a_forward_pass_without_a_backward_pass_is_silent():
    assert find([event for event in one_step() if event["name"] != BACKWARD]) == []


def test_without_line_marks_the_rule_cannot_look():
    bare = [event for event in one_step() if not event["name"].startswith("profkit.line")]
    with pytest.raises(CannotLook, match="which line allocates"):
        find(bare)


def test_without_memory_events_the_rule_does_not_look():
    assert missing_needs(facts_of([op("aten::mm", 1, 9)]), activation_dominated_peak.needs) == [Need.MEMORY]


def on_device(total_bytes: int) -> Facts:
    """The same step on a GPU with ``total_bytes`` of memory, 2 GiB of which the allocator has reserved."""
    events: list[Json] = []
    for number, event in enumerate(one_step(), 1):
        if event["name"] == "[memory]":
            event["args"].update({"Device Type": 1, "Device Id": 0, "Total Reserved": 2048 * MIB})
        if event["name"] == "aten::add":
            events += [
                runtime("cudaLaunchKernel", event["ts"] + 0.1, 0.1, correlation=number),
                kernel("add", event["ts"] + 0.3, 0.5, correlation=number),
            ]
        events.append(event)
    devices = [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": total_bytes}]
    return facts_of(events, callsites=(LOOP, INNER, OUTER), deviceProperties=devices)


@pytest.mark.parametrize(("before", "count"), [(320 * MIB, 1), (320 * MIB + 1, 0)])
def test_recorded_device_memory_replaces_the_estimate_from_gradients(before: int, count: int):
    """The gradients alone would suggest more than 300 MiB of parameters and optimizer state."""
    held, events = before, []
    for number, event in enumerate(one_step(parameters=107 * MIB), 1):
        if event["name"] == "[memory]":
            held += event["args"]["Bytes"]
            event["args"].update({"Device Type": 1, "Device Id": 0, "Total Allocated": held})
        if event["name"] == "aten::add":
            events += [
                runtime("cudaLaunchKernel", event["ts"] + 0.1, 0.1, correlation=number),
                kernel("add", event["ts"] + 0.3, 0.5, correlation=number),
            ]
        events.append(event)
    found = list(activation_dominated_peak.check(facts(events)))
    assert [one.evidence["peak_bytes"] for one in found] == [320 * MIB + before] * count


@pytest.mark.parametrize(("total_mib", "severity"), [(2410, Severity.INFO), (2409, None)])
def test_the_severity_is_info_when_the_gpu_has_room(total_mib: int, severity: Severity | None):
    """2 GiB are 85 % of 2,409.4 MiB."""
    (found,) = activation_dominated_peak.check(on_device(total_mib * MIB))
    assert found.severity is severity
    room = "There is room: at most 2.15 GB of 2.53 GB is in use."
    assert found.message.endswith(room) is (severity is Severity.INFO)


@pytest.mark.parametrize(("used_mib", "severity"), [(850, Severity.LOW), (851, None)])
def test_memory_used_by_other_programs_counts_as_used(used_mib: int, severity: Severity | None):
    known = {"run": Run(host=Host(8, 8, 1000 * MIB)), "samples": (LoadSample(0, used_mib * MIB, 1.0),)}
    (found,) = activation_dominated_peak.check(facts_of(one_step(), callsites=(LOOP, INNER, OUTER), **known))
    assert found.severity is severity
    assert ("There is room: " in found.message) is (severity is not None)


def test_the_severity_is_unset_when_memory_use_was_not_sampled():
    (found,) = find(one_step())
    assert found.severity is None
