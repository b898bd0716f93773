"""The MCP hand: any MCP server, in a sandbox of its own, or one that is reached by the forwarder.

What runs in the sandbox is `hands/mcp/`, which the daemon does not import but for what reads a
listing. The server's tools are the hand's: told once, checked here, and the same for its life.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from carpal import extras
from carpal.errors import invalid
from hands.builtin import common, egress
from hands.builtin.sandboxed import NAMESPACES, Kind, SandboxedType
from hands.builtin.supervised import PULSE, Pulse
from hands.contract import (
    LISTS_TOOLS,
    Description,
    Order,
    Provisioned,
    ProvisionFailed,
    Result,
    Tool,
)
from hands.inside.history import KEPT
from hands.mcp.listing import LISTED_MAX, checked

_TEXT = {"type": "string", "minLength": 1}
_CONFIG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {
            "type": "array",
            "items": _TEXT,
            "minItems": 1,
            "description": "The server's program, as the sandbox has it, and its arguments.",
        },
        "url": {
            **_TEXT,
            "description": "In its place, a server's address; `egress` must allow it.",
        },
        "env": {**common.ENV, "description": "All that the server gets, besides the usual."},
        "workspace": common.WORKSPACE,
        "egress": egress.SCHEMA,
        NAMESPACES: {
            "type": "boolean",
            "description": "The server starts what makes a sandbox of its own, as browsers do.",
        },
    },
    "additionalProperties": False,
}
_MEMORY = 1024**3
"""Bytes, where nothing else is asked for."""
_LEAST = {"memory_bytes": 192 * 1024**2, "processes": 64}
"""Client, server and supervisor; a server in Node.js alone has a dozen threads."""
_MAKING = 75.0
"""Seconds: a server has 30 to start, and 30 for each page of its tools."""


def unready() -> str:
    """What an MCP hand lacks on this machine; empty when nothing."""
    if find_spec("mcp") is None:
        return f"the package mcp is not installed: {extras.how('mcp')}"
    return ""


class McpType(SandboxedType):
    """Hands that are MCP servers."""

    def __init__(self, pulse: Pulse = PULSE) -> None:
        """`pulse`: how a supervisor that hangs is noticed."""
        super().__init__(
            Kind(
                Description(
                    type="mcp",
                    description="An MCP server, in a sandbox of its own.",
                    tools=(),
                    config_schema=_CONFIG_SCHEMA,
                    capabilities=("adopt", "isolated", LISTS_TOOLS),
                ),
                target="hands.mcp.hand:Mcp",
                defaults={"memory_bytes": _MEMORY},
                least=_LEAST,
                unready=unready,
                provision_limit=_MAKING,
                listed=_listed,
            ),
            pulse,
        )

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """As every such type; its config names one server. Raises INVALID_FIELD for another."""
        given = [name for name in ("command", "url") if name in order.config]
        if len(given) != 1:
            raise invalid("config.command", "say a server's command, or its url, and not both")
        url = order.config.get("url")
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            raise invalid("config.url", "is no http:// or https:// address")
        return await super().provision(order, progress)


def _listed(folder: Path, made: Result) -> Sequence[Tool]:
    """The tools that came out of the sandbox with a new hand. Raises ProvisionFailed."""
    try:
        (told,) = made.attachments
        data = _read(folder / KEPT, told.digest)
        return checked(data)
    except (OSError, ValueError) as error:
        raise ProvisionFailed(f"mcp: the hand lists its tools wrongly: {error}") from error


def _read(folder: Path, digest: bytes) -> bytes:
    """A small file of the hand's, and no link, pipe or other bytes in its place."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    inside = os.open(folder, flags | os.O_DIRECTORY)
    try:
        handle = os.open(digest.hex(), flags | os.O_NONBLOCK, dir_fd=inside)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ValueError("the listing is no file")
            data = file.read(LISTED_MAX + 1)
            os.unlink(digest.hex(), dir_fd=inside)
    finally:
        os.close(inside)
    if len(data) > LISTED_MAX or hashlib.sha256(data).digest() != digest:
        raise ValueError("the listing is too large, or another")
    return data
