"""What docs/reference/mcp-hand.md says is so."""

import re
from typing import Any

import pytest
import yaml

from hands.builtin.browser import PROGRAM
from hands.builtin.mcp import McpType
from hands.inside.schema import check
from tests import mcp_servers
from tests.command import ROOT

PAGE = (ROOT / "docs" / "reference" / "mcp-hand.md").read_text(encoding="utf-8")
SCHEMA = McpType().describe().config_schema
HANDS: dict[str, dict[str, Any]] = {
    name: hand
    for snippet in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    for name, hand in yaml.safe_load(snippet)["hands"].items()
}
"""The page's, by their names."""


def test_the_page_has_every_field_of_the_config() -> None:
    table = PAGE.partition("## Configuration")[2].partition("**Where")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == [*SCHEMA["properties"]]


@pytest.mark.parametrize("name", HANDS)
def test_a_hand_of_the_page_is_one(name: str) -> None:
    assert HANDS[name]["type"] == "mcp"
    assert check(SCHEMA, HANDS[name]["config"], "config") is None


def test_the_page_starts_servers_as_the_tests_do() -> None:
    """But for where they are."""
    for name, server in (("files", "filesystem"), ("pages", "playwright")):
        node, program = HANDS[name]["config"]["command"][:2]
        package = mcp_servers.NODE[server].rpartition("@")[0]
        assert (node, program) == (
            "node",
            f"/usr/local/lib/mcp/node_modules/{mcp_servers.PROGRAMS[server]}",
        )
        assert program.startswith(f"/usr/local/lib/mcp/node_modules/{package}/")
    assert f"--executable-path={PROGRAM}" in HANDS["pages"]["config"]["command"]
