"""What the proxy needs of the rest of the vault, as it needs it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from carpal.identity import Identity
from vault.guard.addresses import Network
from vault.guard.headers import Headers
from vault.mcp.policy import ServerPolicy
from vault.secret import Secret


class Grant(Protocol):
    """What one session may ask through one brain; good when it is given."""

    @property
    def id(self) -> str: ...

    @property
    def session(self) -> str:
        """Session id, unique in all workspaces."""
        ...

    @property
    def workspace(self) -> str: ...

    @property
    def agent(self) -> str:
        """The session's, by sessiond's word; empty when it has none."""
        ...

    @property
    def user(self) -> str:
        """The end user that the session is for, by sessiond's word; empty when it has none."""
        ...

    @property
    def credentials(self) -> Sequence[str]:
        """Ids, in order: the first that fits a server is used with it."""
        ...

    @property
    def vaults(self) -> Sequence[str]:
        """Vaults whose credentials are used too, after those, the oldest of each first."""
        ...

    @property
    def servers(self) -> Mapping[str, ServerPolicy]:
        """By the names that the agent has for them."""
        ...

    @property
    def revoked(self) -> asyncio.Event:
        """Set as soon as the grant is of no use: revoked, superseded, or its time is over."""
        ...


class Grants(Protocol):
    """Who may use what."""

    async def check(self, token: str, caller: Identity, audience: str) -> Grant:
        """The grant of a token.

        Raises GRANT_REFUSED, the same whatever is wrong: unknown, malformed, expired, revoked,
        another's. Which it is, it has written to the audit.
        """
        ...


class Audit(Protocol):
    """What is written down of what nobody did."""

    def denied(self, action: str, reason: str, *, actor: str, **facts: str | int) -> None:
        """It was refused."""
        ...

    def event(self, action: str, **facts: str | int) -> None:
        """It was seen."""
        ...


class Use(Protocol):
    """A credential that is in use for one request. The intent is in the audit already."""

    @property
    def headers(self) -> Headers:
        """To add to the request; none for a server that asks for no credential."""
        ...

    @property
    def private(self) -> tuple[Network, ...]:
        """Private networks that the credential allows the server to be in."""
        ...

    @property
    def secrets(self) -> Sequence[Secret]:
        """All that may not come back: those used, and all live ones beside them."""
        ...

    @property
    def generation(self) -> str:
        """Another one whenever the credential is another: what was learned by it is forgotten."""
        ...

    def outcome(self, status: str, **facts: str | int) -> None:
        """How it went, for the audit."""
        ...

    def reflected(self) -> None:
        """The server sent a secret back; it was struck out."""
        ...

    async def refused(self) -> bool:
        """The server does not take it; whether there is another now, worth one more try."""
        ...


class Credentials(Protocol):
    """What is used for whom."""

    def use(
        self, grant: Grant, policy: ServerPolicy, /, **facts: str | int
    ) -> AbstractAsyncContextManager[Use]:
        """Write down that it will be used, then open it, for as long as the block lasts.

        `facts` are for the audit: `action`, `actor`, `tool`, `call`, and so on. Raises CarpalError:
        AUDIT_NOT_WRITTEN before anything is opened, CREDENTIAL_NOT_FOUND and the like.
        """
        ...
