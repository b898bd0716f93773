"""Hosts in their one form, and which of them a credential is for. Pure.

A host is a name in lower case without a dot at its end, or an address in its shortest form. Two
that are not the same text are not the same host. What could be read in two ways is refused, not
repaired: only case and one dot at the end are taken off.
"""

import ipaddress
import re
from dataclasses import dataclass
from functools import cache
from typing import Self

from publicsuffixlist import PublicSuffixList

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
NAME_MAX = 253
"""Characters, as DNS has it."""


class NoHost(ValueError):
    """Text that is no host; says what is wrong with it, and does not repeat it."""


def canonical(text: str) -> str:
    """The one form of a host, an IPv6 address without brackets. NoHost for anything else."""
    if not text.isascii():
        raise NoHost("a host is written in ASCII: in its xn-- form if it has other letters")
    text = text.lower()
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    name = text[:-1] if text.endswith(".") else text
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    if len(name) > NAME_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise NoHost("a host is labels of letters, digits and hyphens with dots between them")
    return name


def is_address(host: str) -> bool:
    """Whether a host in its one form is an address, not a name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def bracketed(host: str) -> str:
    """The host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def _ipv4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))  # four decimal numbers, nothing else
    except ValueError:
        raise NoHost("an IPv4 address is four decimal numbers with dots between them") from None


def _ipv6(text: str) -> str:
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        raise NoHost("an IPv6 address was expected between the brackets") from None
    if found.scope_id is not None:
        raise NoHost("an address of one link only is no host")
    return str(found)


@dataclass(frozen=True, slots=True)
class HostPattern:
    """What a credential says of hosts: one host, or `*.` and a name for all that are below it."""

    host: str
    below: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `api.example.com` or `*.example.com`. NoHost says what is wrong.

        Below a public suffix (`*.co.uk`, `*.github.io`) are hosts of everybody, so there is no
        such pattern.
        """
        if not text.startswith("*."):
            return cls(canonical(text), below=False)
        name = canonical(text[2:])
        if is_address(name):
            raise NoHost("nothing is below an address")
        if _suffixes().publicsuffix(name) == name:
            raise NoHost("below a public suffix are hosts of everybody: name a domain below it")
        return cls(name, below=True)

    def matches(self, host: str) -> bool:
        """Whether a host in its one form is meant."""
        if not self.below:
            return host == self.host
        return host.endswith(f".{self.host}") and len(host) > len(self.host) + 1

    def __str__(self) -> str:
        return f"*.{self.host}" if self.below else self.host


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=True, only_icann=False)
