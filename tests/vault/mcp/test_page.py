"""The page of the proxy says what the code does."""

from pathlib import Path

import vault.mcp
from vault.mcp.asked import APPROVAL, CALL_ID, CHANGED
from vault.mcp.refusals import Why

PAGE = (Path(vault.mcp.__file__).parents[2] / "docs/reference/mcp-proxy.md").read_text()


def test_the_page_has_every_reason_and_no_other() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") and " | -32" in line]
    assert rows == [f"| `{w.name}` | {w.code} | {w.status} | {w.words} |" for w in Why]


def test_the_page_has_every_name_of_ours_in_a_message() -> None:
    assert all(f"`{name}`" in PAGE for name in (CALL_ID, APPROVAL, CHANGED))
