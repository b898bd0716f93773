"""What refreshing needs of the credentials beside it, and what it gives to who sends requests.

Whoever keeps credentials implements `Credentials` over the same database, synchronously: it is
called in the one thread of the store, and what changes anything within `Safe.transaction()`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from vault.guard.addresses import Network
from vault.secret import Secret


class Key(NamedTuple):
    """Which credential."""

    workspace: str
    vault_id: str
    id: str


class Authentication(StrEnum):
    """How a client says who it is at the token endpoint."""

    NONE = "none"
    BASIC = "client_secret_basic"
    POST = "client_secret_post"


@dataclass(frozen=True, slots=True)
class Client:
    """Who refreshes, and where. Part of the credential's policy: none of it can be changed."""

    token_endpoint: str
    """The one place where the refresh token is ever sent."""
    client_id: str
    authentication: Authentication = Authentication.NONE
    resource: str | None = None
    """As at enrolment; None for a server that was not told one."""
    scope: str | None = None
    """Only where it was configured: a refresh asks for what there is otherwise."""
    private: tuple[Network, ...] = ()
    """Private networks that the endpoint may be in."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the authorization server gave last."""

    access: Secret
    refresh: Secret | None
    """None: nothing can be refreshed."""
    expires: float | None = None
    """Unix seconds; None when the server never said, and a 401 is the only sign."""
    lifetime: float | None = None
    """Seconds, as the server said last."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One OAuth credential, opened."""

    key: Key
    generation: int
    """Another with each change of its tokens, by whomever."""
    client: Client
    tokens: Tokens = field(repr=False)
    client_secret: Secret | None = None


class Credentials(Protocol):
    """Where they are kept."""

    def generation(self, key: Key) -> int:
        """Of now, without opening anything. CREDENTIAL_NOT_FOUND."""
        ...

    def load(self, key: Key) -> Credential:
        """Opened; the intent is in the audit. CREDENTIAL_NOT_FOUND, CREDENTIAL_CORRUPT."""
        ...

    def commit(self, key: Key, tokens: Tokens) -> int:
        """New tokens instead of those there are, in the transaction of the caller.

        The generation they have.
        """
        ...
