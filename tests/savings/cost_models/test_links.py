"""Collectives far below what the links of a machine carry."""

from __future__ import annotations

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import ExchangeRate
from profkit.patterns.ranks.bandwidths import bus_rates
from profkit.report import render
from profkit.savings.cost_models.links import with_links
from tests.patterns.ranks.test_bandwidths import MEGABYTES, exchanges
from tests.traces import facts_of

H100, A100, L4 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4"


def rate_on(card: str, times_us: float = 10_000.0, *, exposed_ns: float = 1e12, **more) -> ExchangeRate:
    """Of all-reduces of 64 MiB among eight: 117.4 MB carried in each."""
    events = exchanges("allreduce", 16 * MEGABYTES, (times_us,) * 3, **more)
    facts = facts_of(events, deviceProperties=[{"id": 0, "name": card}])
    (one,) = with_links(facts, bus_rates(facts), exposed_ns)
    return one


@pytest.mark.parametrize(
    ("card", "link"),
    [
        (H100, 450e9),
        (A100, 300e9),
        ("Tesla V100-SXM2-32GB", 150e9),
        ("AMD Instinct MI300X", 448e9),
        ("NVIDIA H100 PCIe", 0.0),
        ("NVIDIA H100 NVL", 0.0),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0.0),
        ("NVIDIA A100 80GB PCIe", 0.0),
        ("a card of tomorrow", 0.0),
    ],
)
def test_the_card_tells_the_link(card, link):
    assert rate_on(card).link_bytes_per_s == link


@pytest.mark.parametrize(("times_us", "told"), [(1_043.0, 0.0), (1_045.0, 450e9)])
def test_a_quarter_of_the_rate_is_the_limit(times_us, told):
    """117.4 MB in 1,043.9 µs."""
    assert rate_on(H100, times_us).link_bytes_per_s == told


def test_a_card_without_such_links_is_compared_with_its_bus():
    assert rate_on(L4, 20_000.0).link_bytes_per_s == 31.5e9
    assert rate_on(L4, 10_000.0).link_bytes_per_s == 0


def test_the_gain_is_what_three_quarters_of_the_rate_would_take_less():
    carried = 1.75 * 64 * MEGABYTES
    assert rate_on(H100).could_save_ns == pytest.approx(10_000_000 - carried / 0.75 / 450, rel=1e-3)


def test_the_gain_is_no_more_than_what_nothing_hides():
    assert rate_on(H100, exposed_ns=3_000_000).could_save_ns == 3_000_000
    assert rate_on(H100, exposed_ns=0.0).could_save_ns == 0


def test_groups_of_several_machines_are_not_compared():
    assert rate_on(H100, ranks=16).link_bytes_per_s == 0


@pytest.mark.parametrize(("first", "stride", "told"), [(8, 1, True), (4, 1, False), (0, 8, False)])
def test_a_machine_holds_eight_ranks_in_a_row(first, stride, told):
    events = exchanges("allreduce", 16 * MEGABYTES, (10_000.0,) * 3)
    for event in events:
        if "Group size" in event["args"]:
            event["args"] |= {"Global rank start": first, "Global rank stride": stride}
    facts = facts_of(events, deviceProperties=[{"id": 0, "name": H100}])
    assert bool(with_links(facts, bus_rates(facts), 1e12)[0].link_bytes_per_s) is told


def test_small_messages_show_no_link():
    events = exchanges("allreduce", 2 * MEGABYTES, (10_000.0,) * 3)
    facts = facts_of(events, deviceProperties=[{"id": 0, "name": H100}])
    assert with_links(facts, bus_rates(facts), 1e12) == bus_rates(facts)


def test_reports_tell_it():
    facts = facts_of(exchanges("allreduce", 16 * MEGABYTES, (9_000.0,) * 3), deviceProperties=[{"id": 0, "name": H100}])
    text = " ".join(render(diagnose(facts), "text").split())
    assert "Links in one machine carry 450 GB a second between such devices" in text
    assert "at three quarters, a step takes up to 8.65 ms less" in text
