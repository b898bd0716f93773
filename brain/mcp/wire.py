"""What a brain says to the vault's MCP proxy, and what it hears. Pure.

The reference is docs/reference/mcp-proxy.md.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

CALL_ID, APPROVAL = "carpal/callId", "carpal/approval"
VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/protocolVersion"
_REASON = re.compile(r"[A-Z][A-Z_]{0,63}")
BROKEN = "ANSWER_BROKEN"
"""Stands for a reason where the answer is none of the proxy's."""


class Refused(Exception):
    """The proxy answered, and not with a result."""

    def __init__(self, reason: str, words: str = "", data: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        """Of the proxy's table."""
        self.words = words
        """The proxy's, of that reason: nothing of a server's is in them."""
        self.data = dict(data or {})


def request(number: int, method: str, params: Json, meta: Json) -> bytes:
    """One request, of which the proxy says how far it is: so its silence is the vault's."""
    told = {**params, "_meta": {_META: VERSION, "progressToken": number, **meta}}
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": told}
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()


def result(body: bytes, kind: str) -> Json:
    """The result in a reply's body. Raises Refused for all else."""
    if kind.partition(";")[0].strip().lower() == "text/event-stream":
        body = _last_event(body)
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(BROKEN) from None
    if not isinstance(reply, dict):
        raise Refused(BROKEN)
    if isinstance(found := reply.get("result"), dict):
        return found
    error = reply.get("error")
    if not isinstance(error, dict):
        raise Refused(BROKEN)
    told = error.get("data")
    data: Json = told if isinstance(told, dict) else {}
    reason = str(data.get("reason") or error.get("reason"))
    words = error.get("message")
    if not _REASON.fullmatch(reason):
        raise Refused(BROKEN)
    raise Refused(reason, words if isinstance(words, str) else "", data)


def _last_event(body: bytes) -> bytes:
    """What the last event of a stream says: those before it are of how far it is."""
    data = b""
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        data = b"\n".join(lines) or data
    return data
