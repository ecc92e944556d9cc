"""Which hosts a request may name. A page from elsewhere can have its own name resolve to this machine (DNS rebinding);
the browser then lets it read all answers, but its requests still name the page's host."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable
from typing import Any

import werkzeug
from msgspec import Struct

HOSTS = "PROFKIT_TENSORBOARD_HOSTS"
"""The environment variable that adds names, separated by commas: of a proxy, for instance."""
_HEADER = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]*))(?::\d*)?")
_App = Callable[..., Iterable[bytes]]


class Hosts(Struct, frozen=True):
    """This machine as the user has TensorBoard serve it: under ``bound``, by default for this machine only, or for the
    whole network (``is_open``). ``named`` are further hosts."""

    bound: str = ""
    is_open: bool = False
    named: frozenset[str] = frozenset()

    def accept(self, header: str) -> bool:
        """Whether a request with this ``Host`` may be answered."""
        host = _host_in(header)
        address = _address(host)
        if host == "localhost" or host in {self.bound, *self.named} - {""} or (address and address.is_loopback):
            return True
        if not self.is_open:
            return False
        # No page elsewhere has an address as its name. TensorBoard itself prints the name of `getfqdn`.
        return address is not None or host == _plain(socket.gethostname()) or host == _plain(socket.getfqdn())


def hosts_of(flags: Any) -> Hosts:
    """The hosts that TensorBoard's flags ask for, and those that `HOSTS` adds."""
    bound = _plain(getattr(flags, "host", None) or "").strip("[]")
    address = _address(bound)
    is_open = bool(getattr(flags, "bind_all", False)) or (address is not None and address.is_unspecified)
    named = frozenset(map(_plain, os.environ.get(HOSTS, "").split(",")))
    return Hosts(bound, is_open, named)


def answer_only(hosts: Hosts, app: _App) -> _App:
    """The app, which refuses requests to other hosts with status 403."""

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if hosts.accept(environ.get("HTTP_HOST", "")):
            return app(environ, start)
        text = f"This host is not answered. Name it in {HOSTS} if it is yours.\n"
        return werkzeug.Response(text, status=403, content_type="text/plain; charset=utf-8")(environ, start)

    return answer


def _host_in(header: str) -> str:
    """The host without its port: ``[::1]:6006`` is ``::1``. Empty if the header is malformed."""
    found = _HEADER.fullmatch(header)
    return _plain(found[1] or found[2]) if found else ""


def _plain(name: str) -> str:
    return name.strip().lower().removesuffix(".")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
