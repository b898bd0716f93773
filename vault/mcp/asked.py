"""What a brain asks of the proxy, read from its message alone. Pure.

Both generations of the protocol are taken: a request of 2026-07-28 says its version in its
`_meta`, one of before says nothing there. Headers that repeat parts of the body are not read: who
decides by the one and sends on the other decides about something else.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vault.mcp import wire
from vault.mcp.jsonrpc import Id, Json, Request
from vault.mcp.refusals import Refusal, Why

CALL_ID = "carpal/callId"
APPROVAL = "carpal/approval"
CHANGED = "carpal/changed"
_CALL_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_APPROVAL = re.compile(r"[0-9a-f]{64}")
_PARAMS = {
    "tools/list": frozenset({"cursor"}),
    "tools/call": frozenset({"name", "arguments", "inputResponses", "requestState"}),
    "resources/list": frozenset({"cursor"}),
    "resources/templates/list": frozenset({"cursor"}),
    "resources/read": frozenset({"uri"}),
    "prompts/list": frozenset({"cursor"}),
    "prompts/get": frozenset({"name", "arguments"}),
    "ping": frozenset[str](),
    "server/discover": frozenset[str](),
    "initialize": frozenset({"protocolVersion", "capabilities", "clientInfo"}),
}
"""What is served, and what each may say."""
_TEXT_MAX = 8192


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    id: Id
    method: str
    params: Json
    """Without `_meta`."""
    modern: bool
    progress: Id | None
    """Where the brain wants to hear how far it is."""
    call: str
    """The call's id; empty but for `tools/call`."""
    approval: str
    """The digest that a person has approved; empty without."""


def read(request: Request) -> Ask:
    """What is asked. Raises Refusal."""
    known = _PARAMS.get(request.method)
    if known is None:
        raise Refusal(Why.METHOD_UNKNOWN)
    params = dict(request.params)
    meta = params.pop("_meta", {})
    if not isinstance(meta, dict) or not known.issuperset(params):
        raise Refusal(Why.PARAMS_INVALID)
    version = meta.get(wire.VERSION)
    if version is not None and version != wire.MODERN:
        raise Refusal(Why.VERSION_UNSUPPORTED, supported=[wire.MODERN], requested=str(version)[:32])
    for key in ("name", "uri", "cursor"):
        _check(not isinstance(params.get(key, ""), str) or len(params.get(key, "")) > _TEXT_MAX)
    _check(not isinstance(params.get("arguments", {}), dict))
    progress = meta.get("progressToken")
    _check(progress is not None and type(progress) not in (str, int))
    call = meta.get(CALL_ID, "")
    if request.method == "tools/call":
        _check("name" not in params)
        if not isinstance(call, str) or not _CALL_ID.fullmatch(call):
            raise Refusal(Why.CALL_ID_MISSING)
    approval = meta.get(APPROVAL, "")
    _check(not isinstance(approval, str) or (bool(approval) and not _APPROVAL.fullmatch(approval)))
    return Ask(
        request.id, request.method, params, version is not None, progress, str(call), approval
    )


def approval(session: str, server: str, ask: Ask, tool: str) -> str:
    """What a person approves: this very call, of a tool that is just so, and nothing else.

    What a server asks for in the middle of a call is bound to the same.
    """
    arguments = json.dumps(ask.params.get("arguments", {}), sort_keys=True, separators=(",", ":"))
    parts = (session, server, ask.call, str(ask.params["name"]), tool, arguments)
    digest = hashlib.sha256(b"carpal/v1/mcp-approval")
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def answer(ask: Ask, result: Mapping[str, Any]) -> Json:
    """The reply, in the brain's generation of the protocol; nothing in it may be cached."""
    said = {key: value for key, value in result.items() if key not in ("ttlMs", "cacheScope")}
    if ask.modern:
        said = {"resultType": "complete", **said}
        if ask.method.endswith("/list") or ask.method in ("resources/read", "server/discover"):
            said |= {"ttlMs": 0, "cacheScope": "private"}
    else:
        said.pop("resultType", None)
    return {"id": ask.id, "result": said}


def greeting(ask: Ask, server: str, tools_only: bool) -> Json:
    """Our own answer to who begins: what there is behind us, as far as the grant goes."""
    offered: Json = {"tools": {}}
    if not tools_only:
        offered |= {"resources": {}, "prompts": {}}
    us = {"name": server, "version": wire.US["version"]}
    if ask.method == "initialize":
        wanted = ask.params.get("protocolVersion")
        version = wanted if wanted in wire.LEGACY else wire.LEGACY[0]
        return {"protocolVersion": version, "capabilities": offered, "serverInfo": us}
    return {"supportedVersions": list(wire.SERVED), "capabilities": offered, "serverInfo": us}


def _check(wrong: bool) -> None:
    if wrong:
        raise Refusal(Why.PARAMS_INVALID)
