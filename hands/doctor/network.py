"""The way to a brain, step by step: a proxy or none, the name, the port, and whose certificate."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from carpal.errors import CarpalError
from carpal.identity import Role, identity_in, verified_identity
from carpal.proof import ca_pin
from carpal.proxy import Proxy
from hands.doctor.rows import Row, fail, ok, refused, skip
from hands.doctor.subject import Subject
from hands.doctor.threads import in_thread
from hands.presented import connection, presented

_DNS = 10.0
"""Seconds for a name; a resolver that does not answer takes 5 to 30."""
_PORTS = "have whoever keeps the firewall let this machine dial"


@dataclass(frozen=True)
class Trusted:
    """What is held against a chain: the authorities of an identity, or the pins of a token."""

    ca: bytes = b""
    pins: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Way:
    """What was found of the way to one address."""

    rows: list[Row]
    open: bool = False
    """A connection can be made, and who answers is a brain."""
    ca: bytes = b""
    """By which that was told, PEM."""
    domain: str = ""
    """The trust domain of who answers."""


async def way(subject: Subject, address: str, trusted: Trusted) -> Way:
    """Each step to `host:port`, up to the first that fails."""
    rows: list[Row] = []
    try:
        proxy = subject.way.to(address)
    except CarpalError as error:
        return Way([refused(f"proxy {address}", error)])
    rows.append(_by(address, proxy))
    name, where = await _dns(address, proxy)
    rows += name
    if not where:
        return Way(rows)
    reached = await _tcp(address, proxy)
    rows.append(reached)
    if reached.action:
        return Way(rows)
    told = await _chain(subject, address, proxy, trusted)
    return Way([*rows, *told.rows], told.open, told.ca, told.domain)


def _by(address: str, proxy: Proxy | None) -> Row:
    if proxy is None:
        return ok(f"proxy {address}", "none: it is dialled straight")
    who = " with a user and a password" if proxy.user is not None else ""
    return ok(f"proxy {address}", f"by http://{proxy.address}{who}: {proxy.source} says so")


async def _dns(address: str, proxy: Proxy | None) -> tuple[list[Row], bool]:
    """Whether the name of who is dialled first is known here."""
    host = (proxy.host if proxy else address.rpartition(":")[0]).strip("[]")
    rows = []
    if proxy is not None:
        rows.append(skip(f"dns {address.rpartition(':')[0]}", "the proxy looks it up"))
    try:
        async with asyncio.timeout(_DNS):
            found = await in_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else _words(error)
        action = _mend(proxy, "the name") or (
            "correct the name where brains are advertised (`--advertise`), or have this machine's "
            "resolver (/etc/resolv.conf, /etc/hosts) know it"
        )
        return [*rows, fail(f"dns {host}", f"the name is not known here: {why}", action)], False
    there = sorted({str(one[4][0]) for one in found})
    return [*rows, ok(f"dns {host}", f"is {', '.join(there[:4])}")], True


async def _tcp(address: str, proxy: Proxy | None) -> Row:
    """Whether the port takes connections, by the proxy where there is one."""
    target = f"tcp {address}"
    try:
        raw = await in_thread(lambda: connection(address, proxy))
    except CarpalError as error:  # a proxy's own answer
        return fail(target, error.message, _of_proxy(error.message, address))
    except OSError as error:
        if proxy is not None:
            detail = f"the proxy {proxy.address} ({proxy.source}) does not answer: {_words(error)}"
            return fail(target, detail, _mend(proxy, "the address"))
        if isinstance(error, ConnectionRefusedError):
            action = f"start the brain, or what listens there for it; else correct {address}"
        else:
            action = f"{_PORTS} {address} (TCP, outbound), or set a proxy: `proxy` in hand.toml"
        return fail(target, f"the port does not answer: {_words(error)}", action)
    with contextlib.closing(raw):
        return ok(target, "it takes connections" + (" through the proxy" if proxy else ""))


async def _chain(subject: Subject, address: str, proxy: Proxy | None, trusted: Trusted) -> Way:
    """Who shows which certificate, and by whom it is."""
    target = f"tls {address}"
    try:
        shown = await in_thread(lambda: presented(address, proxy))
    except CarpalError as error:
        action = (
            f"see what listens at {address}: it must be a brain, and nothing before it may end TLS"
        )
        return Way([fail(target, error.message, action)])
    chain = [x509.load_der_x509_certificate(der) for der in shown]
    leaf, now = chain[0], subject.now()
    pinned = [one for one, der in zip(chain, shown, strict=True) if ca_pin(der) in trusted.pins]
    ca = trusted.ca or b"".join(map(_pem, pinned))
    issuer = f"issued by {_who(leaf.issuer)}"
    # Of one that is outside its dates it is said first whether it is ours at all.
    moment = min(max(now, leaf.not_valid_before_utc), leaf.not_valid_after_utc)
    try:
        brain = verified_identity(b"".join(map(_pem, chain)), ca, moment) if ca else None
    except CarpalError:
        brain = None
    if brain is None:
        return Way([_not_ours(target, leaf, address)])
    if brain.role is not Role.BRAIN:
        detail = f"what answers is {brain.uri}, not a brain"
        return Way([fail(target, detail, f"correct the address {address}")])
    if brain.expired(now) or brain.not_yet_valid(now):
        detail = (
            f"the certificate of {brain.uri} is valid from {brain.not_before:%F %T} to "
            f"{brain.not_after:%F %T} UTC, and it is {now:%F %T} here"
        )
        action = (
            "set the clock that is wrong, as the row `clock` says; if none is, see why that brain "
            "does not renew its certificate, and issue it anew: `carpal vault issue`"
        )
        return Way([fail(target, detail, action)], ca=ca, domain=brain.trust_domain)
    by = "an authority that is pinned" if pinned and not trusted.ca else "our authority"
    return Way([ok(target, f"{brain.uri}, {issuer}: {by}")], True, ca, brain.trust_domain)


def _not_ours(target: str, leaf: x509.Certificate, address: str) -> Row:
    """A certificate of somebody else's: another Carpal's, or of whoever opens TLS on the way."""
    issuer = _who(leaf.issuer)
    try:
        who = identity_in(leaf)
    except CarpalError:
        detail = (
            f"shows a certificate for {_who(leaf.subject)} that {issuer} issued: something between "
            "here and the brain opens TLS to look inside, or this is no brain"
        )
        action = (
            f"have {issuer} let {address} pass unopened (a TLS inspection bypass): the daemon "
            "takes no certificate but its own authority's"
        )
        return fail(target, detail, action)
    detail = f"shows {who.uri}, which another authority ({issuer}) issued than is trusted here"
    action = (
        "correct the address; if the authority was replaced while this machine was away, enrol "
        "anew with a new token: carpal hand enroll --token-file FILE"
    )
    return fail(target, detail, action)


def _of_proxy(message: str, address: str) -> str:
    if "407" in message:
        return "put user and password into the proxy's URL: http://USER:PASSWORD@HOST:PORT"
    return f"have the proxy allow CONNECT to {address}"


def _mend(proxy: Proxy | None, what: str) -> str:
    if proxy is None:
        return ""
    return f'correct {what} of the proxy in {proxy.source}, or say proxy = "none" in hand.toml'


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def _who(name: x509.Name) -> str:
    """A subject or an issuer, in few words."""
    words = [
        str(one.value)
        for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
        for one in name.get_attributes_for_oid(oid)
    ]
    return repr(", ".join(words)[:120]) if words else "nobody who is named"


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
