"""What an agent says of MCP servers, and what of a server's tools a log and the model know."""

import json
from typing import Any

import pytest

from brain import servers
from brain.permissions import evaluate

SCHEMA = {"type": "object"}
AGENT: dict[str, Any] = {"mcp_servers": [{"name": "a", "url": "https://a/mcp"}], "vault_ids": ["v"]}


@pytest.mark.parametrize("said", [None, "a", [], ["a"], [{"name": "a"}], [{"name": 1, "url": "u"}]])
def test_what_is_no_server_is_none(said: object) -> None:
    assert servers.servers({"mcp_servers": said}) == {}


def test_a_grant_says_each_server_and_another_agent_has_another() -> None:
    assert json.loads(servers.policy(AGENT)) == {
        "mcp": {"a": {"url": "https://a/mcp", "allow": ["*"]}}
    }
    assert servers.grant_id(AGENT) == servers.grant_id(json.loads(json.dumps(AGENT)))
    assert servers.grant_id(AGENT) != servers.grant_id({**AGENT, "vault_ids": []})


def test_a_servers_tools_are_kept_as_the_model_can_be_told_of_them_and_the_others_counted() -> None:
    listed = {
        "tools": [
            {"name": "files.list", "title": "Files", "inputSchema": SCHEMA},
            {"name": "no schema"},
            {"name": "spa ce", "inputSchema": SCHEMA},
            "none",
            {"name": "b", "description": "x" * 40_000, "inputSchema": SCHEMA},
        ],
        "_meta": {"carpal/changed": ["files.list"]},
    }
    assert servers.context_tools("a", "https://a/mcp", listed) == {
        "hand": "a",
        "mcp_server_name": "a",
        "type": "mcp_server",
        "url": "https://a/mcp",
        "tools": [{"name": "files.list", "description": "Files", "input_schema": SCHEMA}],
        "changed": ["files.list"],
        "omitted": 4,
    }


def test_tools_beyond_what_an_event_holds_are_left_out() -> None:
    tools = [
        {"name": f"t{n}", "description": "x" * 10_000, "inputSchema": SCHEMA} for n in range(300)
    ]
    told = servers.context_tools("a", "https://a/mcp", {"tools": tools})
    assert len(told["tools"]) + told["omitted"] == 300
    assert len(json.dumps(told)) < 600 * 1024


@pytest.mark.parametrize(
    ("permissions", "hands", "servers_"),
    [
        (None, "allow", "ask"),
        ({"default": "always_allow"}, "allow", "allow"),
        ({"default": "always_ask"}, "ask", "ask"),
        ({"tools": {"a__*": "always_allow"}}, "allow", "allow"),
        ({"tools": {"a__x": "always_ask", "a__*": "always_allow"}}, "ask", "ask"),
    ],
)
def test_a_servers_tool_needs_a_person_where_nothing_is_said(
    permissions: Any, hands: str, servers_: str
) -> None:
    agent = {"permissions": permissions} if permissions else {}
    assert evaluate(agent, "a__x", "a") == hands
    assert evaluate(agent, "a__x", "a", of_server=True) == servers_
