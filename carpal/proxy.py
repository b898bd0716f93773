"""The way out of a customer's network: straight, or through an HTTP proxy by CONNECT.

Which it is, is decided here and nowhere else. gRPC would decide by itself: it knows the variables
only in lower case and passes over what it does not understand, and then dials straight where
nothing may be dialled straight. Here what cannot be done is refused.
"""

import base64
import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

VARIABLES = (
    "grpc_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "http_proxy",
    "HTTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
)
"""Where a proxy's URL is looked for, the first that is set and not empty counts."""
EXCEPTIONS = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
"""What is dialled straight; what one of them names is."""
NONE = "none"
"""In place of a URL: dial straight, whatever the variables say."""


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy."""

    host: str
    port: int
    source: str
    """Where its URL was found, in words."""
    user: str | None = None
    password: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """`host:port`, without who may use it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """As gRPC takes it."""
        if self.user is None:
            return f"http://{self.address}"
        return f"http://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{self.address}"

    def connect(self, address: str) -> bytes:
        """The request that opens a tunnel to `host:port`."""
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        if self.user is not None:
            both = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {both}")
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass(frozen=True)
class Way:
    """How to get to any address from here."""

    configured: str = ""
    """A proxy's URL, or `none`, before all variables; empty leaves it to them."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def to(self, address: str) -> Proxy | None:
        """The proxy for `host:port`; None to dial it straight.

        Straight go loopback, what a variable of `EXCEPTIONS` names, and all when
        no proxy is set. Raises CONFIG_INVALID for a proxy that is not HTTP's.
        """
        host, _, port = address.rpartition(":")
        host = host.strip("[]").lower().rstrip(".")
        found = self._found()
        if found is None or _is_loopback(host):
            return None
        proxy = _parse(*found)
        for name in EXCEPTIONS:
            for entry in self.environ.get(name, "").replace(",", " ").split():
                if _names(entry.lower(), host, port):
                    return None
        return proxy

    def _found(self) -> tuple[str, str] | None:
        """Where a proxy's URL is, and the URL."""
        named = self.configured or self.environ.get("CARPAL_PROXY", "")
        if named:
            variable = self.environ.get("CARPAL_PROXY") == named
            where = "the variable CARPAL_PROXY" if variable else "the setting `proxy`"
            return None if named.lower() == NONE else (where, named)
        for name in VARIABLES:
            if value := self.environ.get(name):
                return f"the variable {name}", value
        return None


def by(proxy: Proxy | None) -> str:
    """Which way, said after who is dialled; nothing of the straight one."""
    return f" by the proxy {proxy.address} ({proxy.source})" if proxy else ""


def channel_options(proxy: Proxy | None) -> list[tuple[str, object]]:
    """What makes gRPC go that way; the channel must be made while `decided`."""
    if proxy is None:
        return [("grpc.enable_http_proxy", 0)]
    return [("grpc.enable_http_proxy", 1), ("grpc.http_proxy", proxy.url)]


@contextmanager
def decided() -> Iterator[None]:
    """While a channel is made: the list of exceptions that gRPC always looks at is empty."""
    name = "no_grpc_proxy"
    before = os.environ.get(name)
    os.environ[name] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _parse(source: str, text: str) -> Proxy:
    """A proxy's URL; nothing of it is said again, since it may hold a password."""
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        host, port = url.hostname, url.port or 80
    except ValueError:
        raise _no_proxy(source, "is not a URL such as http://proxy:3128") from None
    if url.scheme != "http":
        raise _no_proxy(source, f"is a proxy of the kind {url.scheme}://, which cannot be used")
    if not host:
        raise _no_proxy(source, "is not a URL such as http://proxy:3128")
    return Proxy(host, port, source, *_who(url))


def _who(url: SplitResult) -> tuple[str | None, str]:
    if url.username is None:
        return None, ""
    return unquote(url.username), unquote(url.password or "")


def _no_proxy(source: str, problem: str) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        f"{source} {problem}",
        action="set proxy = \"http://HOST:PORT\" in hand.toml or CARPAL_PROXY, or 'none'",
    )


def _names(entry: str, host: str, port: str) -> bool:
    """Whether an entry of a list of exceptions names a host: `*`, a network, or a domain's end."""
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass  # one of them is a name
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and ":" not in name.strip("[]"):
        if number != port:
            return False
        entry = name
    entry = entry.strip("[]").lstrip("*").lstrip(".").rstrip(".")
    within = _ip(host) is None and host.endswith(f".{entry}")
    return bool(entry) and (host == entry or within)


def _is_loopback(host: str) -> bool:
    ip = _ip(host)
    return ip.is_loopback if ip else host == "localhost" or host.endswith(".localhost")


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
