"""Only what is anybody's is dialled, and what a credential names; never this machine."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault.guard.addresses import AddressRule, Why, private_network
from vault.guard.network import MachineRule

RULE = AddressRule()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", Why.LOOPBACK),
        ("127.8.9.10", Why.LOOPBACK),
        ("0.0.0.0", Why.LOOPBACK),
        ("::1", Why.LOOPBACK),
        ("::", Why.LOOPBACK),
        ("::ffff:127.0.0.1", Why.LOOPBACK),
        ("10.1.2.3", Why.PRIVATE),
        ("172.16.0.1", Why.PRIVATE),
        ("192.168.1.1", Why.PRIVATE),
        ("100.64.0.1", Why.PRIVATE),
        ("fd12::1", Why.PRIVATE),
        ("::ffff:10.0.0.1", Why.PRIVATE),
        ("169.254.169.254", Why.LINK_LOCAL),
        ("169.254.170.2", Why.LINK_LOCAL),
        ("::ffff:169.254.169.254", Why.LINK_LOCAL),
        ("fe80::1", Why.LINK_LOCAL),
        ("fe80::1%eth0", Why.LINK_LOCAL),
        ("fd00:ec2::254", Why.METADATA),
        ("fd20:ce::254", Why.METADATA),
        ("100.100.100.200", Why.METADATA),
        ("168.63.129.16", Why.METADATA),
        ("192.0.0.192", Why.METADATA),
        ("64:ff9b::a9fe:a9fe", Why.RESERVED),
        ("64:ff9b:1::a00:1", Why.RESERVED),
        ("2002:a9fe:a9fe::1", Why.RESERVED),
        ("2001:0:a9fe::1", Why.RESERVED),
        ("::127.0.0.1", Why.RESERVED),
        ("::ffff:0:127.0.0.1", Why.RESERVED),
        ("fec0::1", Why.RESERVED),
        ("192.88.99.1", Why.RESERVED),
        ("224.0.0.1", Why.RESERVED),
        ("ff02::1", Why.RESERVED),
        ("240.0.0.1", Why.RESERVED),
        ("255.255.255.255", Why.RESERVED),
        ("198.18.0.1", Why.RESERVED),
        ("192.0.2.1", Why.RESERVED),
        ("2001:db8::1", Why.RESERVED),
        ("3fff::1", Why.RESERVED),
        ("5f00::1", Why.RESERVED),
        ("2130706433", Why.MALFORMED),
        ("0x7f.1", Why.MALFORMED),
        ("0177.0.0.1", Why.MALFORMED),
        ("localhost", Why.MALFORMED),
    ],
)
def test_what_is_not_anybodys_is_not_dialled_v19(address: str, why: Why) -> None:
    assert RULE.refusal(address, 443) is why


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111"])
def test_what_is_anybodys_is_dialled(address: str) -> None:
    assert RULE.refusal(address, 443) is None


def test_a_credential_opens_the_private_networks_it_names_and_no_other() -> None:
    named = (private_network("10.1.0.0/16"), private_network("fd00::/16"))
    assert RULE.refusal("10.1.2.3", 443, named) is None
    assert RULE.refusal("::ffff:10.1.2.3", 443, named) is None
    assert RULE.refusal("10.2.0.1", 443, named) is Why.PRIVATE
    assert RULE.refusal("fd00:aaaa::1", 443, named) is None
    assert RULE.refusal("fd00:ec2::254", 443, named) is Why.METADATA


@pytest.mark.parametrize(
    "text", ["127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/0", "8.8.8.0/24", "::/0", "10.1.2.3/8", "x"]
)
def test_no_credential_opens_more_than_private_networks_v19(text: str) -> None:
    with pytest.raises(ValueError, match="a network"):
        private_network(text)


def test_what_a_rule_knows_as_its_machines_own_is_never_dialled() -> None:
    class Here(AddressRule):
        def own(self, address: object, port: int) -> bool:
            return str(address) == "10.1.2.3"

    assert Here().refusal("10.1.2.3", 443, (private_network("10.0.0.0/8"),)) is Why.OWN


def test_the_machine_knows_which_addresses_are_its_own() -> None:
    rule = MachineRule()
    assert rule.own(ipaddress.ip_address("127.0.0.1"), 443)
    assert not rule.own(ipaddress.ip_address("192.0.2.77"), 443)
    assert not rule.own(ipaddress.ip_address("2001:db8::77"), 443)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["::ffff:", "::", "64:ff9b::", "::ffff:0:"]))
def test_no_way_to_write_an_ipv4_address_in_ipv6_opens_more_than_it_v19(
    number: int, before: str
) -> None:
    inner = ipaddress.IPv4Address(number)
    if RULE.refusal(str(inner), 443) is not None:
        assert RULE.refusal(f"{before}{inner}", 443) is not None
