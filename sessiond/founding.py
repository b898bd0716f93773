"""The agent that a session was made with, as an operator said it. Pure.

A brain writes most of a log, and may make sessions too. What it wrote is its own word, and proves
nothing about itself to others; so only an operator's first event counts.
"""

import msgspec

from carpal.identity import Role
from sessiond.rows import EventRow

NAME_MAX = 128
"""Characters; a longer name is none."""


class _Agent(msgspec.Struct):
    name: str = ""


class _Made(msgspec.Struct):
    agent: _Agent = msgspec.field(default_factory=_Agent)


def founding_agent(first: EventRow) -> str:
    """The agent's name in a log's first event; empty when no operator's event says one."""
    if first.position != 1 or first.type != "session.updated" or not _operators(first.source):
        return ""
    try:
        name = msgspec.json.decode(first.data, type=_Made).agent.name
    except (msgspec.DecodeError, msgspec.ValidationError):  # erased, or not an agent's
        return ""
    return name if name.isprintable() and len(name) <= NAME_MAX else ""


def _operators(source: str) -> bool:
    """Of `spiffe://DOMAIN/ROLE/NAME`, whether the role is an operator's."""
    parts = source.split("/")
    return len(parts) == 5 and parts[3] == Role.OPERATOR
