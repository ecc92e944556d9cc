"""Which hosts TensorBoard's routes of profkit answer."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
import werkzeug
from werkzeug.test import Client

from profkit.report.tensorboard.hosts import HOSTS, Hosts, answer_only, hosts_of

OWN = [
    "localhost",
    "localhost:6006",
    "LocalHost.:80",
    "127.0.0.1",
    "127.0.0.1:6006",
    "127.0.1.1",
    "[::1]",
    "[::1]:6006",
]
FOREIGN = [
    "",
    "attacker.example",
    "attacker.example:6006",
    "localhost.attacker.example",
    "127.0.0.1.attacker.example:6006",
    "notlocalhost",
    "[::1].attacker.example",
    "localhost@attacker.example",
    ":6006",
]
ADDRESSES = ["192.168.1.7:6006", "[2001:db8::1]:6006", "0.0.0.0"]


@pytest.mark.parametrize("header", OWN)
@pytest.mark.parametrize("flags", [{}, {"host": None}, {"host": "gpu7"}, {"bind_all": True}])
def test_this_machines_own_names_are_always_answered(header: str, flags: dict[str, object]) -> None:
    assert hosts_of(SimpleNamespace(**flags)).accept(header)


@pytest.mark.parametrize("header", FOREIGN)
@pytest.mark.parametrize("flags", [{}, {"host": None}, {"host": "gpu7"}, {"bind_all": True}, {"host": "0.0.0.0"}])
def test_another_name_is_never_answered(header: str, flags: dict[str, object]) -> None:
    assert not hosts_of(SimpleNamespace(**flags)).accept(header)


@pytest.mark.parametrize("header", ADDRESSES)
def test_an_address_is_answered_where_the_whole_network_is_served(header: str) -> None:
    assert not hosts_of(SimpleNamespace(host=None, bind_all=False)).accept(header)
    for flags in ({"bind_all": True}, {"host": "0.0.0.0"}, {"host": "::"}):
        assert hosts_of(SimpleNamespace(**flags)).accept(header)


def test_the_name_of_this_machine_is_answered_where_the_whole_network_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "GPU7")
    monkeypatch.setattr(socket, "getfqdn", lambda: "gpu7.cluster.example")
    for name in ("gpu7:6006", "gpu7.cluster.example:6006"):
        assert hosts_of(SimpleNamespace(bind_all=True)).accept(name)
        assert not hosts_of(SimpleNamespace()).accept(name)
    assert not hosts_of(SimpleNamespace(bind_all=True)).accept("gpu8:6006")


def test_the_host_that_is_bound_and_hosts_that_are_named_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = hosts_of(SimpleNamespace(host="GPU7", bind_all=False))
    assert bound.accept("gpu7:6006")
    assert not bound.accept("10.0.0.1")
    monkeypatch.setenv(HOSTS, " hub.example , notebooks.example")
    named = hosts_of(SimpleNamespace())
    assert named.accept("hub.example")
    assert named.accept("notebooks.example:443")
    assert not named.accept("example")


def test_a_request_to_another_host_is_forbidden() -> None:
    answered = Client(answer_only(Hosts(), werkzeug.Response("text")))
    assert answered.get("/", headers={"Host": "localhost:6006"}).status_code == 200
    refused = answered.get("/", headers={"Host": "attacker.example"})
    assert (refused.status_code, refused.mimetype) == (403, "text/plain")
    assert "attacker" not in refused.text
