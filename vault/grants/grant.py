"""What a grant is, and the token that stands for it. Pure, but for the event that ends it.

    avs_<kind>_<id, 16 of base32>.<secret, 43 of base64url>

The vault keeps a hash of the secret. A token is good for one caller, one audience and one session,
so whoever else has it has nothing.
"""

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from carpal.errors import invalid
from vault.credentials.rules import parsed
from vault.mcp.policy import ServerPolicy, server_policy
from vault.seal.envelope import bound

AUDIENCES = ("mcp", "git", "egress")
OF_BRAINS = "mcp"
"""The audience whose grants are a brain's, and end when another one drives the session."""
SERVERS_MAX = 64
_TOKEN = re.compile(r"avs_(mcp|git|egress)_([a-z2-7]{16})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Terms:
    """What is granted, to whom: the same again is the same grant."""

    session: str
    workspace: str
    audience: str
    caller: str
    """URI of whoever may use it: a brain, or a daemon."""
    hand: str
    """The hand of that daemon that it is for; empty of a brain."""
    credentials: tuple[str, ...]
    policy: bytes
    epoch: int
    """Of the driver that asked, of a brain's; 0 of a hand's, which outlives drivers."""
    agent: str = ""
    """The session's, as its ticket says: who drives has no say in it."""
    vaults: tuple[str, ...] = ()
    """Whose credentials it may use too, as each is at the time."""
    user: str = ""
    """The end user that the session is for, as its ticket says."""


@dataclass(slots=True, eq=False)
class Grant:
    """One that was given: `vault.mcp.ports.Grant`."""

    id: str
    """By which the audit has it, and the token finds it; no secret."""
    name: str
    """As its driver calls it."""
    terms: Terms
    servers: Mapping[str, ServerPolicy]
    digest: bytes = field(repr=False)
    """Of the token's secret."""
    nonce: bytes = field(repr=False)
    """Of this grant alone: one that has ended is never given again."""
    until: float = 0.0
    """On the loop's clock."""
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def session(self) -> str:
        """Whose it is."""
        return self.terms.session

    @property
    def workspace(self) -> str:
        """Where its credentials are."""
        return self.terms.workspace

    @property
    def agent(self) -> str:
        """The session's, as sessiond said."""
        return self.terms.agent

    @property
    def user(self) -> str:
        """Whose credentials it may use of servers that are used in a user's name."""
        return self.terms.user

    @property
    def credentials(self) -> tuple[str, ...]:
        """Which ones it may use, the first that fits."""
        return self.terms.credentials

    @property
    def vaults(self) -> tuple[str, ...]:
        """Whose credentials it may use after those."""
        return self.terms.vaults


def servers_of(policy: bytes) -> Mapping[str, ServerPolicy]:
    """What a grant for MCP says of servers. INVALID_FIELD."""
    told = parsed(policy)
    found = told.get("mcp", {})
    if set(told) - {"mcp"} or not isinstance(found, dict):
        raise invalid("policy", 'must be {"mcp": {NAME: {"url": …}}}')
    if len(found) > SERVERS_MAX:
        raise invalid("policy.mcp", f"must have at most {SERVERS_MAX} servers")
    return {name: server_policy(name, value) for name, value in found.items()}


def minted(key: bytes, name: str, terms: Terms, nonce: bytes) -> tuple[str, str]:
    """The id and the secret of a grant: the same ones for the same grant, and nobody's else.

    `key` lives in memory alone, and only who has it makes the token anew.
    """
    to = bound(
        name.encode(),
        terms.session.encode(),
        terms.audience.encode(),
        terms.caller.encode(),
        nonce,
    )
    found = hmac.new(key, b"id" + to, hashlib.sha256).digest()[:10]
    secret = hmac.new(key, b"secret" + to, hashlib.sha256).digest()
    return base64.b32encode(found).decode().lower(), _text(secret)


def token_of(audience: str, grant_id: str, secret: str) -> str:
    """The token."""
    return f"avs_{audience}_{grant_id}.{secret}"


def taken_apart(token: str) -> tuple[str, str, str]:
    """Audience, id and secret of a token; all empty for what is none."""
    found = _TOKEN.fullmatch(token)
    return (found[1], found[2], found[3]) if found else ("", "", "")


def digest_of(secret: str) -> bytes:
    """What is kept of it."""
    return hashlib.sha256(secret.encode()).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
