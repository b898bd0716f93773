"""The MCP hand: any MCP server, in a sandbox or a container of its own, or by the forwarder.

What runs in there is `hands/mcp/`, which the daemon does not import but for what reads a
listing. The server's tools are the hand's: told once, checked here, and the same for its life.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpal import extras
from carpal.errors import invalid
from hands.builtin import common, egress, noted
from hands.builtin.plugin import PluginHand
from hands.builtin.sandboxed import NAMESPACES, Kind, SandboxedType
from hands.builtin.supervised import PULSE, Pulse
from hands.contract import (
    LISTS_TOOLS,
    Description,
    HandLost,
    Health,
    Order,
    Provisioned,
    ProvisionFailed,
    Result,
    Tool,
)
from hands.inside.history import KEPT
from hands.mcp.listing import LISTED_MAX, checked

if TYPE_CHECKING:
    from hands.builtin.container_hosted import HostedContainers

_TEXT = {"type": "string", "minLength": 1}
_CONFIG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {
            "type": "array",
            "items": _TEXT,
            "minItems": 1,
            "description": "The server's program, as its sandbox or image has it, and arguments.",
        },
        "url": {
            **_TEXT,
            "description": "In its place, a server's address; `egress` must allow it.",
        },
        "image": {
            **common.IMAGE,
            "description": f"Run it in a container. {common.IMAGE['description']}",
        },
        "runtime": common.RUNTIME,
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

    def __init__(
        self,
        pulse: Pulse = PULSE,
        *,
        engine: str | None = None,
        pythons: Path | None = None,
    ) -> None:
        """`pulse`: how a supervisor that hangs is noticed; the others as of the container type."""
        super().__init__(_KIND, pulse)
        self._engine = engine
        self._pythons = pythons
        self._made: HostedContainers | None = None

    async def probe(self) -> Health:
        """Ready where a sandbox can be made; or a container, if nothing else."""
        health = await super().probe()
        if not health.broken:
            return health
        try:
            boxed = await self._containers.probe()
        except ProvisionFailed:
            return health
        return boxed if boxed.ready else health

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """As every such type; its config names one server. Raises INVALID_FIELD for another."""
        # A name that is mistyped is said before what is missing for want of it.
        config = common.checked(_CONFIG_SCHEMA, order, apart=_KIND.apart)
        given = [name for name in ("command", "url") if name in config]
        if len(given) != 1:
            raise invalid("config.command", "say a server's command, or its url, and not both")
        url = config.get("url")
        if isinstance(url, str) and not url.startswith(("http://", "https://")):
            raise invalid("config.url", "is no http:// or https:// address")
        if isinstance(url, str) and "@" in url.split("/")[2]:
            what = "has a name or a password in it, which everyone who reads the session would see"
            raise invalid("config.url", what)
        if url and "image" in config:
            raise invalid("config.image", "is of a server with a command: who has a url runs none")
        if "runtime" in config and "image" not in config:
            raise invalid("config.runtime", "is a container's: say its image too")
        if config.get(NAMESPACES) and "image" in config:
            raise invalid(f"config.{NAMESPACES}", "cannot be in a container, whose filter stays")
        if "image" in config:
            return await self._containers.provision(order, progress)
        return await super().provision(order, progress)

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> PluginHand:
        """Connect to the very supervisor that was started, in whichever it was."""
        if "container" in state:
            if not _has_containers():
                raise HandLost(f"it is in a container: {extras.how('container')}")
            return await self._containers.adopt(hand_id, folder, state)
        return await super().adopt(hand_id, folder, state)

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Kill what is left of it, and remove its container if it had one."""
        if noted.holds(folder) and _has_containers():
            return await self._containers.reap(hand_id, folder)
        return await super().reap(hand_id, folder)

    @property
    def _containers(self) -> "HostedContainers":
        """What makes those in containers. Raises ProvisionFailed where its package is missing."""
        if not _has_containers():
            raise ProvisionFailed("the package docker is not installed", extras.how("container"))
        # Not before: who has no such hands need not have the package.
        from hands.builtin.container_hosted import HostedContainers

        if self._made is None:
            engine, pythons = self._engine, self._pythons
            self._made = HostedContainers(_KIND, self._pulse, engine=engine, pythons=pythons)
        return self._made


def _has_containers() -> bool:
    return find_spec("docker") is not None


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


_KIND = Kind(
    Description(
        type="mcp",
        description="An MCP server, in a sandbox or a container of its own.",
        tools=(),
        config_schema=_CONFIG_SCHEMA,
        capabilities=("adopt", "isolated", LISTS_TOOLS),
    ),
    target="hands.mcp.hand:Mcp",
    defaults={"memory_bytes": _MEMORY},
    least=_LEAST,
    unready=unready,
    provision_limit=_MAKING,
    apart=True,
    listed=_listed,
)
