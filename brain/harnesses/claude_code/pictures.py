"""Pictures and documents, kept from Claude Code, which would change them. Pure.

It makes a large one smaller, leaves out one that it cannot read, and says beside it where on
this machine it put it. So it is told of a mark in its place, and what it asks has the picture
again, as the log has it: what the model's service refuses of it is then said as ever.
"""

from typing import Any

from brain.models.media import source_digest

Json = dict[str, Any]
_KINDS = ("image", "document")


class Pictures:
    """Those of one conversation, by the marks that stand for them."""

    def __init__(self) -> None:
        self._known: dict[str, Json] = {}

    def hidden(self, content: list[Json]) -> list[Json]:
        """A message's content, a mark in each one's place, in the results of calls too."""
        return [self._hidden(block) for block in content]

    def _hidden(self, block: Json) -> Json:
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            return {**block, "content": self.hidden(block["content"])}
        return self._mark(block) if block["type"] in _KINDS else block

    def _mark(self, block: Json) -> Json:
        mark = f"[carpal: {block['type']} {source_digest(block)}]"
        self._known[mark] = block
        return {"type": "text", "text": mark}

    def shown(self, request: Json) -> Json:
        """The request, with what the marks stand for."""
        if not self._known:
            return request

        def true(block: Json) -> Json:
            inner = block.get("content")
            if block.get("type") == "tool_result" and isinstance(inner, list):
                return {**block, "content": [true(each) for each in inner]}
            known = self._known.get(str(block.get("text")).strip())
            if known is None or block.get("type") != "text":
                return block
            cache = {key: value for key, value in block.items() if key == "cache_control"}
            return {**known, **cache}

        messages = [
            message
            if isinstance(message["content"], str)
            else {**message, "content": [true(block) for block in message["content"]]}
            for message in request["messages"]
        ]
        return {**request, "messages": messages}
