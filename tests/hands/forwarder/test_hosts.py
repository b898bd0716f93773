"""Hosts in their one form."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands.forwarder import hosts


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("PyPI.org", "pypi.org"),
        ("pypi.org.", "pypi.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example.", "xn--bcher-kva.example"),
        ("_svc.example", "_svc.example"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:DB8:0:0::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::ffff:7f00:1]", "127.0.0.1"),
    ],
)
def test_a_host_has_one_form_however_it_is_written(written: str, host: str) -> None:
    assert hosts.normal(written) == host


@pytest.mark.parametrize(
    "written",
    [
        *("", ".", "..", "a..b", ".a", "a b", "a/b", "a@b", "a\0b", "-a.b", "a-.b", "*", "*.a"),
        *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "1.2.3.4.5", "a.0x1"),
        *("[::1", "::1]", "[127.0.0.1", "[pypi.org]", "fe80::1%eth0", "1:2", "a" * 64, "a." * 128),
    ],
)
def test_what_resolvers_read_differently_is_no_host(written: str) -> None:
    with pytest.raises(ValueError, match=r"host|name|address"):
        hosts.normal(written)


@given(st.text(max_size=40))
def test_the_form_of_a_form_is_itself(text: str) -> None:
    try:
        host = hosts.normal(text)
    except ValueError:
        return
    assert hosts.normal(host) == host
    assert host.isascii()
    assert hosts.split(hosts.joined(host, 81)) == (host, 81)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.b", ("a.b", None)),
        ("a.b:8080", ("a.b", 8080)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", None)),
        ("::1", ("::1", None)),
    ],
)
def test_a_port_stands_behind_the_host(text: str, found: tuple[str, int | None]) -> None:
    assert hosts.split(text) == found


@pytest.mark.parametrize("text", ["a:", "a:0", "a:65536", "a:+80", "a:8 0", "a:80:80", "[::1]:x"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|address"):
        hosts.split(text)


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1"),
        *("240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254"),
        *("ff02::1", "2001:db8::1", "::ffff:8.8.8.8", "::ffff:10.0.0.1", "2002:7f00:1::"),
        *("2002:808:808::", "2001:0:808:808::", "64:ff9b::7f00:1", "64:ff9b:1::808:808"),
        *("fec0::1", "::127.0.0.1"),
    ],
)
def test_h38_what_is_private_local_reserved_or_wraps_another_is_not_public(text: str) -> None:
    assert not hosts.public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "151.101.0.223", "2a04:4e42::223", "64:ff9b::808:808"])
def test_anybodys_address_is_public(text: str) -> None:
    assert hosts.public(ipaddress.ip_address(text))
