"""A credential in use for one request: what the request gets of it, and what the audit is told."""

from collections.abc import Awaitable, Callable, Sequence

from vault.audit.audit import Audit, Record
from vault.credentials.rows import Row
from vault.guard.addresses import Network, private_network
from vault.guard.headers import Headers, bearer
from vault.secret import Secret


class InUse:
    """One, for one request: `vault.mcp.ports.Use`."""

    def __init__(
        self,
        record: Record,
        audit: Audit,
        *,
        row: Row | None,
        token: Secret | None,
        secrets: Sequence[Secret],
        newer: Callable[[], Awaitable[bool]],
    ) -> None:
        self.headers: Headers = [] if token is None else [("Authorization", bearer(token))]
        self.private: tuple[Network, ...] = ()
        self.secrets = secrets
        self.generation = "none"
        self._credential = ""
        if row is not None:
            self.private = tuple(private_network(each) for each in row.policy["private_networks"])
            self.generation = f"{row.key.vault_id}/{row.key.id}/{row.generation}"
            if row.elsewhere and token is not None:  # another value there is another credential
                self.generation += f"/{token.fingerprint}"
            self._credential = row.key.id
        self._record = record
        self._audit = audit
        self._newer = newer
        self._told = False

    def outcome(self, status: str, **facts: str | int) -> None:
        """How it went."""
        self._record.outcome(status, **facts)

    def reflected(self) -> None:
        """Said once a request."""
        if not self._told:
            self._told = True
            self._audit.event(
                "secret_reflected", credential=self._credential, of=self._record.number
            )

    async def refused(self) -> bool:
        """Whether there is another one by now."""
        return await self._newer()
