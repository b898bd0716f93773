"""What a session was made with, and for whom, as an operator said it. Pure.

A brain writes most of a log, and may make sessions too. What it wrote is its own word, and proves
nothing about itself to others; so only an operator's first event counts.
"""

from typing import NamedTuple

import msgspec

from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.users import check_user
from sessiond.rows import EventRow

NAME_MAX = 128
"""Characters; a longer name is none."""


class _Agent(msgspec.Struct):
    name: str = ""


class _Made(msgspec.Struct):
    agent: _Agent = msgspec.field(default_factory=_Agent)
    user: str = ""


class Founding(NamedTuple):
    """What a log's first event says."""

    agent: str = ""
    """The agent's name."""
    user: str = ""
    """The end user whose credentials the session may use: fixed by that event, for good."""


def founding(first: EventRow) -> Founding:
    """Of a log's first event; empty of what no operator's event says."""
    if first.position != 1 or first.type != "session.updated" or not _operators(first.source):
        return Founding()
    try:
        made = msgspec.json.decode(first.data, type=_Made)
    except (msgspec.DecodeError, msgspec.ValidationError):  # erased, or not an agent's
        return Founding()
    name = made.agent.name
    agent = name if name.isprintable() and len(name) <= NAME_MAX else ""
    return Founding(agent, _user(made.user))


def _user(said: str) -> str:
    try:
        return check_user(said, "user") if said else ""
    except CarpalError:
        return ""


def _operators(source: str) -> bool:
    """Of `spiffe://DOMAIN/ROLE/NAME`, whether the role is an operator's."""
    parts = source.split("/")
    return len(parts) == 5 and parts[3] == Role.OPERATOR
