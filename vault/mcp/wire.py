"""What a client of MCP says to a server, of both generations of the protocol. Pure.

2026-07-28 has no sessions: each request says all of itself, in its `_meta` and in headers. Before,
a client began with `initialize`. Neither is told of anything that we could do for a server: no
model, no folders, no person. So a server that keeps to the protocol asks for none.
"""

from collections.abc import Mapping
from typing import Any

from vault.mcp.jsonrpc import Json, Malformed

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Those that begin with `initialize`, the newest first."""
SERVED = (MODERN, LEGACY[0])
"""What brains are offered."""

_META = "io.modelcontextprotocol/"
VERSION, CLIENT, CAPABILITIES = (
    f"{_META}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")
)
UNSUPPORTED = -32022
US = {"name": "carpal-vault", "version": "1"}
_SESSION_MAX = 1024


def modern_params(params: Mapping[str, Any], token: str | None, may_ask: bool) -> Json:
    """Params of a request of 2026-07-28; `token` is where it is to say how far it is."""
    meta: Json = {VERSION: MODERN, CLIENT: US, CAPABILITIES: {"elicitation": {}} if may_ask else {}}
    if token is not None:
        meta["progressToken"] = token
    return {**params, "_meta": meta}


def legacy_params(params: Mapping[str, Any], token: str | None) -> Json:
    """Params of a request of before."""
    return {**params, **({} if token is None else {"_meta": {"progressToken": token}})}


def initialize() -> Json:
    """Params of the request that begins a session."""
    return {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": US}


def agreed(result: Mapping[str, Any]) -> str:
    """The version that a server chose. Raises Malformed when it is none that we speak."""
    version = result.get("protocolVersion")
    if version not in LEGACY:
        raise Malformed("it speaks no version that we do")
    return str(version)


def discovered(result: Mapping[str, Any]) -> bool:
    """Whether a server says that it serves 2026-07-28."""
    versions = result.get("supportedVersions")
    return isinstance(versions, list) and MODERN in versions


def session_id(value: str) -> str:
    """A server's id of a session, as it may stand in a header. Raises Malformed."""
    if len(value) > _SESSION_MAX or not all("\x21" <= each <= "\x7e" for each in value):
        raise Malformed("its session's id is none")
    return value


def cancelled(request_id: int) -> Json:
    """Says that nobody waits for a reply any more."""
    return {"method": "notifications/cancelled", "params": {"requestId": request_id}}


def refused(request_id: Any) -> Json:
    """Our reply to whatever a server asks of us."""
    return {"id": request_id, "error": {"code": -32601, "message": "Method not found"}}
