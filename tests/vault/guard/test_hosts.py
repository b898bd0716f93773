"""A host has one form, and a credential is for the hosts it names and no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault.guard.errors import BadTarget
from vault.guard.hosts import HostPattern, NoHost, canonical
from vault.guard.targets import Target

API = HostPattern.parse("api.a.com")


@pytest.mark.parametrize("text", ["api.a.com", "API.A.COM", "Api.a.Com.", "api.a.com."])
def test_only_case_and_a_dot_at_the_end_make_no_other_host_v17(text: str) -> None:
    assert canonical(text) == "api.a.com"
    assert API.matches(canonical(text))


@pytest.mark.parametrize(
    "text", ["api.a.com.evil.com", "evilapi.a.com", "a.com", "x.api.a.com", "api.a.com-evil.com"]
)
def test_another_host_does_not_match_v17(text: str) -> None:
    assert not API.matches(canonical(text))
    assert not HostPattern.parse("*.api.a.com").matches("evilapi.a.com")


@pytest.mark.parametrize(
    "text",
    [
        "api.a.com:8443",
        "api.a.com@evil",
        "evil@api.a.com",
        "[api.a.com]",
        "api.a.com%00.evil.com",
        "api。a。com",
        "аpi.a.com",  # its first letter is Cyrillic
        "api.a.com..",
        ".api.a.com",
        "api..a.com",
        "api.a.com/",
        "api.a.com\\evil",
        "api.a.com\n",
        " api.a.com",
        "api.a.com\0",
        "-api.a.com",
        "",
        ".",
        "*.a.com",
        "a" * 64 + ".com",
        ".".join(["a" * 60] * 5),
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "1.2.3.4.5",
        "[fe80::1%eth0]",
        "fe80::1%25eth0",
        "[::1",
        "::1]",
        "1:2",
    ],
)
def test_what_could_be_read_in_two_ways_is_no_host_v17(text: str) -> None:
    if text == "127.0.0.1.":
        assert canonical(text) == "127.0.0.1"  # a dot at the end, as for any host
        return
    with pytest.raises(NoHost) as refused:
        canonical(text)
    assert not text.strip(" .*") or text not in str(refused.value)


def test_addresses_are_hosts_in_their_shortest_form() -> None:
    assert canonical("[2001:DB8:0::1]") == "2001:db8::1"
    assert canonical("192.0.2.1") == "192.0.2.1"
    assert HostPattern.parse("192.0.2.1").matches(canonical("192.0.2.1"))


def test_a_star_is_for_one_label_or_more_below_and_never_for_the_name_itself() -> None:
    below = HostPattern.parse("*.Example.com")
    assert below.matches("a.example.com")
    assert below.matches("a.b.example.com")
    assert not below.matches("example.com")
    assert not below.matches(".example.com")
    assert not below.matches("evilexample.com")
    assert not below.matches("example.com.evil.com")
    assert str(below) == "*.example.com"


@pytest.mark.parametrize(
    "text",
    ["*.com", "*.co.uk", "*.github.io", "*.local", "*.192.0.2.1", "*.", "*", "a.*.com", "*.*.com"],
)
def test_no_pattern_is_for_everybodys_hosts(text: str) -> None:
    with pytest.raises(NoHost):
        HostPattern.parse(text)


@given(st.text(max_size=40))
def test_the_one_form_of_a_host_is_its_own_one_form(text: str) -> None:
    try:
        once = canonical(text)
    except NoHost:
        return
    assert canonical(once) == once
    assert once.isascii()
    assert once == once.lower()


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://api.a.com/", "scheme"),
        ("ftp://api.a.com/", "scheme"),
        ("https://user:pw@api.a.com/", "form"),
        ("https://api.a.com\\@evil.com/", "form"),
        ("https://api.a.com/\\evil.com", "form"),
        ("https://api.a.com/a b", "form"),
        ("https://api.a.com/a\r\nX: y", "form"),
        ("https://api.a.com/#frag", "form"),
        ("https://api.a.com/é", "form"),
        ("https://api.a.com%00.evil.com/", "form"),
        ("https://api.a.com:0/", "port"),
        ("https://api.a.com:65536/", "port"),
        ("https://api.a.com:8443x/", "form"),
        ("https:///path", "form"),
        ("//api.a.com/", "form"),
        ("https://api。a。com/", "host"),
        ("https://2130706433/", "host"),
        ("https://a.com/" + "x" * 20000, "length"),
    ],
)
def test_what_is_no_plain_https_address_is_refused_by_its_part_alone_v31(
    url: str, part: str
) -> None:
    with pytest.raises(BadTarget) as refused:
        Target.parse(url)
    assert refused.value.fields["part"] == part
    assert not refused.value.sent
    assert "api.a" not in str(refused.value) + repr(refused.value.fields)


def test_a_target_is_kept_as_it_was_found_and_printed_without_path_and_query_v31() -> None:
    target = Target.parse("HTTPS://API.a.com.:8443/v1/%2e%2e/x?access_token=SEKRET")
    assert (target.host, target.port) == ("api.a.com", 8443)
    assert target.path == "/v1/%2e%2e/x?access_token=SEKRET"
    assert f"{target} {target!r}" == "https://api.a.com:8443 Target(https://api.a.com:8443)"
    assert Target.parse("https://a.com").path == "/"
    assert Target.parse("https://a.com?q=1").path == "/?q=1"
    assert Target.parse("https://[2001:db8::1]:444/").authority == "[2001:db8::1]:444"


def test_only_the_same_host_and_port_under_tls_is_the_same_origin_v24() -> None:
    target = Target.parse("https://a.com/x")
    assert target.same_origin("/y")
    assert target.same_origin("https://A.com:443/y")
    for other in (
        "//evil.com/",
        "/\\evil.com",
        "http://a.com/",
        "https://a.com:444/",
        "https://u@a.com/",
    ):
        assert not target.same_origin(other)


@pytest.mark.parametrize(
    ("host", "port", "path"),
    [
        ("API.a.com", 443, "/"),
        ("api.a.com.", 443, "/"),
        ("api.a.com@evil.com", 443, "/"),
        ("api.a.com", 0, "/"),
        ("api.a.com", 443, ""),
        ("api.a.com", 443, "x"),
        ("api.a.com", 443, "/a b"),
        ("api.a.com", 443, "/a\r\nX: y"),
        ("api.a.com", 443, "/a#b"),
        ("api.a.com", 443, "/a\\b"),
        ("api.a.com", 443, "/é"),
    ],
)
def test_a_target_made_of_parts_is_held_to_the_same(host: str, port: int, path: str) -> None:
    with pytest.raises(BadTarget):
        Target(host, port, path)


@given(st.text(alphabet=st.characters(max_codepoint=0x180), max_size=40))
def test_whatever_is_a_target_is_sent_as_one_line_of_visible_ascii(rest: str) -> None:
    try:
        target = Target.parse(f"https://a.com{rest}")
    except BadTarget:
        return
    assert target.host.isascii()
    assert all("!" <= letter <= "~" and letter not in "\\#" for letter in target.path)
