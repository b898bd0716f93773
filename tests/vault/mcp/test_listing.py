"""A server's tools, as a session may know them."""

from typing import Any

from vault.mcp.listing import BYTES_MAX, TOOLS_MAX, Listing
from vault.mcp.policy import server_policy

POLICY = server_policy("a", {"url": "https://a.test/", "allow": ["*"], "deny": ["drop*"]})


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def listed(*tools: Any) -> Listing:
    listing = Listing(POLICY)
    listing.add(list(tools))
    return listing


def test_v41_a_denied_tool_is_not_listed() -> None:
    assert list(listed(tool("a"), tool("drop_all"), tool("b")).tools) == ["a", "b"]


def test_of_two_tools_of_one_name_the_first_counts() -> None:
    listing = listed(tool("a", description="first"), tool("a", description="second"))
    assert (listing.tools["a"].said["description"], listing.left_out) == ("first", 1)


def test_what_is_no_tool_is_left_out() -> None:
    bad_header = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "a\n"}}}
    wrong = [
        None,
        {},
        tool(7),
        tool("a\r\nb"),
        tool("a", inputSchema=None),
        tool("b", description=7),
        tool("c", inputSchema=bad_header),
        tool("d", outputSchema=[]),
    ]
    assert listed(*wrong).tools == {}
    assert listed(*wrong).left_out == len(wrong)
    listing = Listing(POLICY)
    listing.add("no list")
    assert not listing.tools


def test_v42_tools_have_a_most_in_number_and_in_bytes() -> None:
    many = listed(*(tool(f"t{n}") for n in range(TOOLS_MAX + 5)))
    assert (len(many.tools), many.left_out, many.full) == (TOOLS_MAX, 5, True)
    large = listed(*(tool(f"t{n}", description="x" * (BYTES_MAX // 4)) for n in range(9)))
    assert len(large.tools) == 3


def test_v41_a_digest_covers_all_that_is_said_of_a_tool_and_nothing_else() -> None:
    one = listed(tool("a", description="x")).digests()
    assert one == listed(tool("a", description="x", _meta={"seen": 1})).digests()
    for other in (
        tool("a", description="y"),
        tool("a", description="x", title="t"),
        tool("a", description="x", inputSchema={"type": "object", "properties": {}}),
        tool("a", description="x", annotations={"readOnlyHint": True}),
    ):
        assert one != listed(other).digests()
