"""What a grant lets a session ask."""

import pytest

from carpal.errors import BadInput
from vault.mcp.policy import Verdict, server_policy

URL = "https://mcp.a.test/mcp"


def test_what_no_list_names_is_denied() -> None:
    policy = server_policy("a", {"url": URL})
    assert policy.verdict("anything") is Verdict.DENY


def test_the_strictest_list_that_names_a_tool_decides() -> None:
    policy = server_policy(
        "a", {"url": URL, "allow": ["*"], "ask": ["write_*"], "deny": ["write_all", "drop*"]}
    )
    said = {
        name: policy.verdict(name).value
        for name in ("read", "write_one", "write_all", "drop", "dropped", "Drop")
    }
    assert said == {
        "read": "allow",
        "write_one": "ask",
        "write_all": "deny",
        "drop": "deny",
        "dropped": "deny",
        "Drop": "allow",
    }


def test_a_name_without_a_star_is_that_name_alone() -> None:
    policy = server_policy("a", {"url": URL, "allow": ["get", "list_*"]})
    assert policy.verdict("get") is Verdict.ALLOW
    assert policy.verdict("get_all") is Verdict.DENY
    assert policy.verdict("list_") is Verdict.ALLOW
    assert policy.verdict("list") is Verdict.DENY


@pytest.mark.parametrize("name", ["a\r\nb", "a\x00", "é", "a b", "", "x" * 129, "a\u200b"])
def test_v25_a_tool_by_a_name_that_no_header_holds_is_denied(name: str) -> None:
    assert server_policy("a", {"url": URL, "allow": ["*"]}).verdict(name) is Verdict.DENY


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"url": "http://mcp.a.test/mcp"},
        {"url": URL, "alow": []},
        {"url": URL, "allow": "x"},
        {"url": URL, "allow": ["a*b"]},
        {"url": URL, "allow": [""]},
        {"url": URL, "allow": [1]},
        {"url": URL, "resources": 1},
        {"url": URL, "concurrency": True},
        {"url": URL, "concurrency": 0},
        {"url": URL, "result_bytes": 2**40},
        {"url": URL, "first_byte": 601},
        {"url": URL, "changed": "maybe"},
        [],
    ],
)
def test_a_policy_that_is_none_is_refused_by_field(value: object) -> None:
    with pytest.raises(BadInput):
        server_policy("a", value)


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "a" * 64])
def test_a_servers_name_is_one_part_of_a_path(name: str) -> None:
    with pytest.raises(BadInput):
        server_policy(name, {"url": URL})
