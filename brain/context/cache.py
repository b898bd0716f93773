"""Cache breakpoints: up to where a request is what the next one begins with too. Pure.

The API keeps what it read of a request up to each breakpoint, and takes a
tenth of the price, and less time, for what a later request begins with. So
one stands after tools and system, which hardly ever change; one at the end of
the messages, where the next request goes on; and one where the request before
this one ended, for the API looks back from a breakpoint over 20 blocks only,
and a turn with a hundred calls has more.
"""

from typing import Any

Json = dict[str, Any]

MARK = {"type": "ephemeral"}
_NEVER = ("thinking", "redacted_thinking")
"""Blocks that take no breakpoint."""


def marked(request: Json) -> Json:
    """The request with its breakpoints: three at most, of the four the API takes."""
    request = dict(request)
    if system := request.get("system"):
        blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
        request["system"] = _last_marked(blocks)
    elif tools := request.get("tools"):
        request["tools"] = _last_marked(tools)
    messages = list(request["messages"])
    asked = [index for index, turn in enumerate(messages) if turn["role"] == "user"]
    for index in asked[-2:]:
        turn = messages[index]
        if turn["content"][-1]["type"] not in _NEVER:
            messages[index] = {**turn, "content": _last_marked(turn["content"])}
    request["messages"] = messages
    return request


def _last_marked(blocks: list[Json]) -> list[Json]:
    return [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]
