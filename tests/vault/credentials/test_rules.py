"""What a credential may say."""

from typing import Any

import pytest

from carpal.errors import CarpalError
from vault.credentials.rules import binding, check_secrets, kind_of, url_form

URL = "https://mcp.a.com/mcp"
OAUTH: dict[str, Any] = {
    "mcp_server_url": URL,
    "refresh": {"client_id": "c", "token_endpoint": "https://as.a.com/token"},
}
VARIABLE: dict[str, Any] = {
    "secret_name": "API_KEY",
    "networking": {"type": "limited", "allowed_hosts": ["API.a.com.", "*.b.com"]},
}


def made(kind: str, given: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    return kind_of(kind).policy(given, before)


def wrong(kind: str, given: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    with pytest.raises(CarpalError) as caught:
        made(kind, given, before)
    return caught.value.fields["field"]


@pytest.mark.parametrize(
    "url",
    [
        "https://api.a.com.evil.com/mcp",
        "https://evilapi.a.com/mcp",
        "https://api.a.com:8443/mcp",
        "https://api.a.com/mcp2",
    ],
)
def test_v17_a_url_that_only_looks_like_the_credentials_is_another(url: str) -> None:
    assert url_form(url, "url") != url_form("https://api.a.com/mcp", "url")


@pytest.mark.parametrize("url", ["https://API.A.COM/mcp", "https://api.a.com./mcp"])
def test_v17_case_and_a_dot_at_the_end_make_no_other_host(url: str) -> None:
    assert url_form(url, "url") == "https://api.a.com/mcp"


@pytest.mark.parametrize(
    "url",
    [
        "https://api.a.com@evil/mcp",
        "https://[api.a.com]/mcp",
        "https://api.a.com%00.evil.com/mcp",
        "https://api。a。com/mcp",
        "http://api.a.com/mcp",
        "https://a:b@api.a.com/mcp",
    ],
)
def test_v17_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    assert wrong("static_bearer", {"mcp_server_url": url}) == "policy.mcp_server_url"


@pytest.mark.parametrize(
    "value", [b"secret-\r\nX-Evil: 1", b"secret-\x00-longer", "geheimnis-ä-ö".encode()]
)
def test_v25_a_secret_that_could_end_a_header_is_refused_when_it_comes_in(value: bytes) -> None:
    with pytest.raises(CarpalError) as caught:
        check_secrets(kind_of("static_bearer"), {"token": value}, {}, new=True)
    assert caught.value.fields["field"] == "secrets.token"
    assert value.decode() not in str(caught.value)


def test_a_secret_has_at_least_twelve_bytes() -> None:
    with pytest.raises(CarpalError):
        check_secrets(kind_of("static_bearer"), {"token": b"elevenbytes"}, {}, new=True)
    check_secrets(kind_of("static_bearer"), {"token": b"twelve-bytes"}, {}, new=True)


def test_keys_of_a_policy_never_change() -> None:
    bearer = made("static_bearer", {"mcp_server_url": URL})
    assert (
        wrong("static_bearer", {"mcp_server_url": "https://b.com/"}, bearer)
        == "policy.mcp_server_url"
    )
    oauth = made("mcp_oauth", OAUTH)
    for name, value in (("client_id", "d"), ("token_endpoint", "https://evil.com/token")):
        changed = {"refresh": {name: value}}
        assert wrong("mcp_oauth", changed, oauth) == f"policy.refresh.{name}"
    variable = made("environment_variable", VARIABLE)
    assert wrong("environment_variable", {"secret_name": "X"}, variable) == "policy.secret_name"


def test_a_change_keeps_what_it_does_not_say() -> None:
    oauth = made("mcp_oauth", OAUTH)
    assert made("mcp_oauth", {}, oauth) == oauth
    assert made("mcp_oauth", {"refresh": {"scope": "a b"}}, oauth)["refresh"]["scope"] == "a b"


def test_when_a_token_ends_is_not_what_its_secrets_are_bound_to() -> None:
    oauth = made("mcp_oauth", OAUTH)
    later = made("mcp_oauth", {"expires_at": 12.5}, oauth)
    assert later != oauth
    assert binding("mcp_oauth", later) == binding("mcp_oauth", oauth)


@pytest.mark.parametrize(
    ("given", "places"),
    [
        (None, (True, True)),
        ({"header": True}, (True, False)),
        ({"body": True}, (False, True)),
        ({"header": True, "body": True}, (True, True)),
    ],
)
def test_where_a_variable_is_put_in_when_it_is_made(
    given: dict[str, bool] | None, places: tuple[bool, bool]
) -> None:
    more = {} if given is None else {"injection_location": given}
    told = made("environment_variable", {**VARIABLE, **more})["injection_location"]
    assert (told["header"], told["body"]) == places


@pytest.mark.parametrize(
    "given", [None, {}, {"header": False}, {"header": False, "body": False}, {"body": None}]
)
def test_a_variable_that_would_be_put_in_nowhere_is_refused(given: object) -> None:
    told = {**VARIABLE, "injection_location": given}
    assert wrong("environment_variable", told) == "policy.injection_location"


def test_a_change_of_where_a_variable_is_put_in_merges() -> None:
    before = made("environment_variable", {**VARIABLE, "injection_location": {"header": True}})
    after = made("environment_variable", {"injection_location": {"body": True}}, before)
    assert after["injection_location"] == {"header": True, "body": True}
    off = {"injection_location": {"header": False}}
    assert wrong("environment_variable", off, before) == "policy.injection_location"


def test_hosts_of_a_variable_are_in_their_one_form() -> None:
    told = made("environment_variable", VARIABLE)["networking"]
    assert told == {"type": "limited", "allowed_hosts": ["*.b.com", "api.a.com"]}


@pytest.mark.parametrize(
    "hosts",
    [[], ["a.com"] * 17, ["*.com"], ["*.co.uk"], ["a.com:443"], ["[::1]"], [1], ["a.com/x"]],
)
def test_hosts_that_are_none_too_many_or_everybodys_are_refused(hosts: list[object]) -> None:
    told = {**VARIABLE, "networking": {"type": "limited", "allowed_hosts": hosts}}
    assert wrong("environment_variable", told) == "policy.networking.allowed_hosts"


def test_what_is_no_part_of_a_policy_is_refused() -> None:
    assert wrong("static_bearer", {"mcp_server_url": URL, "hosts": []}) == "policy.hosts"
    with pytest.raises(CarpalError):
        kind_of("basic")
