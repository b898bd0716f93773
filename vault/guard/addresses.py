"""Which addresses may be dialled. Pure.

Only what is anybody's on the internet, and private networks that a credential names. Never this
machine, its links, or where a cloud keeps a machine's own credentials, whatever a credential says.
Python's `is_global` alone is not enough: it has ways around to a private address (NAT64, 6to4 and
the like) and some clouds' services for public, so what is refused beyond it is listed here.
"""

import ipaddress
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that was ever given to anybody."""
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure's wire server
            "100.100.100.200/32",  # Alibaba's metadata
            "192.0.0.0/24",  # protocols' own; Oracle's metadata at .192
            "fd00:ec2::/32",  # Amazon's metadata and what is beside it
            "fd20:ce::254/128",  # Google's metadata
        ),
    )
)
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.88.99.0/24",  # relays of 6to4
            "2001::/23",  # protocols' own, with Teredo, which leads to IPv4
            "2002::/16",  # 6to4: an IPv4 address inside
            "3fff::/20",  # documentation
        ),
    )
)
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    )
)


class Why(StrEnum):
    """Why an address is not dialled; for the audit."""

    MALFORMED = "malformed"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    OWN = "own"
    PRIVATE = "private"
    RESERVED = "reserved"


def private_network(text: str) -> Network:
    """A network that a credential may name. ValueError says what is wrong."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("a network is written as 10.1.2.0/24, without bits of a host") from None
    if not any(_within(network, each) for each in _PRIVATE):
        raise ValueError(
            "a network must be within 10/8, 172.16/12, 192.168/16, 100.64/10 or fc00::/7"
        )
    return network


class AddressRule:
    """Decides; what a test needs beyond it is a class of the test's own."""

    def refusal(self, text: str, port: int, private: Iterable[Network] = ()) -> Why | None:
        """Why nothing is dialled there, or None. `private` is what the credential names."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return Why.MALFORMED
        if isinstance(address, ipaddress.IPv6Address):
            if address.scope_id is not None:
                return Why.LINK_LOCAL
            address = address.ipv4_mapped or address
        if address.is_loopback or address.is_unspecified:
            return Why.LOOPBACK
        if address.is_link_local:
            return Why.LINK_LOCAL
        if any(address in each for each in _NEVER):
            return Why.METADATA
        if self.own(address, port):
            return Why.OWN
        if any(address in each for each in private):
            return None
        if any(address in each for each in _PRIVATE):
            return Why.PRIVATE
        return None if _public(address) else Why.RESERVED

    def own(self, address: Address, port: int) -> bool:
        """Whether it is this machine's; here unknown, so nobody's."""
        return False


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    if any(address in each for each in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and inner.subnet_of(outer)
