"""The MCP servers that an agent names: what a log, a grant and the model know of them. Pure.

    mcp_servers: [{name: tracker, url: "https://mcp.example.com/mcp"}]

A server's tools stand beside those of hands, under its name, and a call of one goes to the vault's
proxy: nothing here, and nothing that a model says, has a part in where that sends it.
"""

import hashlib
import json
import re
from typing import Any

from brain.offers import unfit

Json = dict[str, Any]

TYPE = "mcp_server"
"""Of a server's `context.tools`, where a hand's says the hand's type."""
TOOLS_MAX, BYTES_MAX = 256, 512 * 1024
"""Of one server's tools, in a log: those beyond are left out, and counted."""
_TOOL = re.compile(r"[\x21-\x7e]{1,128}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def servers(agent: Json) -> dict[str, str]:
    """Name → URL, of what an agent in a log says; what is none is left out."""
    said = agent.get("mcp_servers")
    found = [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []
    return {
        each["name"]: each["url"]
        for each in found
        if isinstance(each.get("name"), str) and isinstance(each.get("url"), str)
    }


def per_user(agent: Json) -> set[str]:
    """Names of those that are used by the credential of the session's end user."""
    said = agent.get("mcp_servers")
    found = [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []
    return {str(each.get("name")) for each in found if each.get("credential") == "user"}


def vaults(agent: Json) -> list[str]:
    """Names of the vaults whose credentials the session may use, in their order."""
    said = agent.get("vault_ids")
    return [each for each in said if isinstance(each, str)] if isinstance(said, list) else []


def policy(agent: Json) -> bytes:
    """What a grant of the session says: each server, and all of its tools.

    Which of them the agent has, and which a person must allow, the brain decides, as of hands.
    """
    told: Json = {name: {"url": url, "allow": ["*"]} for name, url in servers(agent).items()}
    for name in told.keys() & per_user(agent):
        told[name]["per_user"] = True
    return json.dumps({"mcp": told}, sort_keys=True).encode()


def grant_id(agent: Json) -> str:
    """The same for the same servers and vaults: with others it is another grant."""
    said = policy(agent) + json.dumps(vaults(agent)).encode()
    return f"mcp-{hashlib.sha256(said).hexdigest()[:16]}"


def unfit_tool(tool: Any) -> str:
    """Why the model cannot be told of a server's tool; nothing when it can be.

    Servers may use more characters in a name than the Messages API: there `_` stands for those.
    """
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return "it has no name"
    if not _TOOL.fullmatch(tool["name"]):
        return "its name is not 1 to 128 visible characters of ASCII"
    return unfit({**tool, "name": _NOT_IN_NAMES.sub("_", tool["name"])})


def context_tools(name: str, url: str, listed: Json) -> Json:
    """Data of the `context.tools` event for what a server's `tools/list` says."""
    told: list[Json] = []
    left_out, size = 0, 0
    for said in listed.get("tools") or ():
        tool = _tool(said)
        size += len(json.dumps(tool))
        if unfit_tool(tool) or len(told) == TOOLS_MAX or size > BYTES_MAX:
            left_out += 1
        else:
            told.append(tool)
    data: Json = {"hand": name, "mcp_server_name": name, "type": TYPE, "url": url, "tools": told}
    changed = (listed.get("_meta") or {}).get("carpal/changed")
    if isinstance(changed, list) and (names := [each for each in changed if isinstance(each, str)]):
        data["changed"] = names
    return data | ({"omitted": left_out} if left_out else {})


def _tool(said: Any) -> Json:
    if not isinstance(said, dict):
        return {}
    description = said.get("description") or said.get("title") or ""
    schema = said.get("inputSchema")
    return {"name": said.get("name"), "description": description, "input_schema": schema}
