"""A server's tools, as a session may know them: what it may call, bounded, and as it was. Pure.

What a server says of its tools is read by a model, and may change after a person has agreed to it.
So each tool has a digest of all that is said of it, which is kept for the session.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vault.mcp import headers
from vault.mcp.policy import TOOL, ServerPolicy, Verdict

TOOLS_MAX, BYTES_MAX, PAGES_MAX = 512, 1024 * 1024, 100
LEFT_OUT_MAX = 10_000
_KEPT = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    said: Mapping[str, Any]
    """What the brain is told."""
    digest: str
    headers: headers.Annotations


@dataclass(slots=True)
class Listing:
    """The tools of one server, page by page."""

    policy: ServerPolicy
    tools: dict[str, Tool] = field(default_factory=dict)
    left_out: int = 0
    """Tools that are not allowed, malformed, of a name that another has, or too many."""
    _bytes: int = 0

    def add(self, page: Any) -> None:
        """The `tools` of one page; whatever is none of them is left out."""
        for said in page if isinstance(page, list) else []:
            tool = _tool(said)
            size = len(json.dumps(tool.said)) if tool else 0
            if (
                tool is None
                or tool.said["name"] in self.tools
                or self.policy.verdict(tool.said["name"]) is Verdict.DENY
                or len(self.tools) == TOOLS_MAX
                or self._bytes + size > BYTES_MAX
            ):
                self.left_out += 1
                continue
            self._bytes += size
            self.tools[tool.said["name"]] = tool

    @property
    def full(self) -> bool:
        """Whether no more is taken: a server may have more pages than anyone wants to read."""
        return len(self.tools) == TOOLS_MAX or self.left_out > LEFT_OUT_MAX

    def digests(self) -> dict[str, str]:
        """Of each tool."""
        return {name: tool.digest for name, tool in self.tools.items()}


def _tool(said: Any) -> Tool | None:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    if not TOOL.fullmatch(said["name"]):
        return None
    kept = {key: said[key] for key in _KEPT if said.get(key) is not None}
    schema = kept.get("inputSchema")
    texts = (kept["name"], kept.get("title", ""), kept.get("description", ""))
    if not all(isinstance(each, str) for each in texts) or not isinstance(schema, dict):
        return None
    if not all(isinstance(kept.get(key, {}), dict) for key in ("outputSchema", "annotations")):
        return None
    try:
        asked = headers.annotations(schema)
    except headers.Unsendable:
        return None
    whole = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return Tool(kept, hashlib.sha256(whole.encode()).hexdigest(), asked)
