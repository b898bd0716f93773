"""Hosts, each written in one way: so that what a rule names and what is asked for compare.

Pure. A host is a name in lower case, as DNS has it (IDNA, no dot at its end),
or an address in its shortest form. The many other ways to write an IPv4 address
(`127.1`, `0x7f000001`, `2130706433`) are no hosts here: each resolver reads them
differently.
"""

import ipaddress
import re

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that was ever given to anybody."""


def normal(text: str) -> str:
    """The host, in its one form; an IPv6 address comes with or without brackets.

    ValueError says what is wrong with it.
    """
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    found = address(inner)
    if found is not None:
        return str(found)
    if inner is not text or ":" in text:
        raise ValueError(f"{text!r} is no address")
    return _name(text)


def _name(text: str) -> str:
    try:
        name = text.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        raise ValueError(f"{text!r} is no host's name") from None
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is no host's name")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"{text!r} is neither a name nor an address such as 192.0.2.1")
    return name


def address(text: str) -> Address | None:
    """The address that `text` is, an IPv4 one where it only wraps that; None when it is none."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return None  # it means something on one machine alone
        return found.ipv4_mapped or found
    return found


def split(text: str) -> tuple[str, int | None]:
    """`host:port` or `host`, the host in its one form. ValueError says what is wrong."""
    host, port = text, ""
    colon = text.rfind(":")
    if colon > text.rfind("]") and (text.startswith("[") or text.count(":") == 1):
        host, port = text[:colon], text[colon + 1 :]
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            raise ValueError(f"{port!r} is no port: it is a number from 1 to 65535")
    return normal(host), int(port) if port else None


def joined(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """The host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def public(found: Address) -> bool:
    """Whether an address is anybody's on the internet: not private, local, reserved or many."""
    if isinstance(found, ipaddress.IPv6Address):
        # What only wraps an IPv4 address ends up there.
        if found in _NAT64:
            return public(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
        if found not in _UNICAST or found.sixtofour or found.teredo:
            return False
    return found.is_global and not (found.is_multicast or found.is_reserved)
