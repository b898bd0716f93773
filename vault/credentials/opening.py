"""Opening a credential: from the safe, or from the secret manager that its value lies in.

Nothing is kept of it: it is opened, or fetched, for each request. Who opens has written that down.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.audit.audit import Audit, Record
from vault.audit.wrap import fingerprint_key
from vault.credentials.rows import Row, Rows
from vault.issuer.tokens import Token
from vault.secret import Secret
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed

Fetch = Callable[[str, Reference], Awaitable[Secret]]
"""A value of a secret manager, for credentials of a workspace. Raises SourceFailed."""
TOKENS = {"static_bearer": "token", "mcp_oauth": "access_token"}
"""Kinds whose secret a server of MCP is sent, and which one that is."""
_MAIN = {**TOKENS, "environment_variable": "secret_value"}
"""What of any kind is used, but of one that is made."""
MADE = "agent_identity"
"""The kind that is made anew for each request."""
OF_SERVERS = frozenset({*TOKENS, MADE})
"""Kinds that a server of MCP is used with."""
Make = Callable[[Row], Token]
"""Makes a token of that kind, in the store's thread."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A credential as it is now, in the store."""

    row: Row
    value: Secret | None
    """What of it is used; None: it lies elsewhere."""
    others: list[Secret]
    """All else that its vault holds: a reply may have none of it."""
    key: bytes
    """Of fingerprints."""
    facts: dict[str, str]
    """About a token that was made, for the audit."""


class Opener:
    """Of one vault process."""

    def __init__(
        self,
        rows: Rows,
        audit: Audit,
        do: Callable[[Callable[[], Any]], Awaitable[Any]],
        fetch: Fetch | None = None,
    ) -> None:
        """`do` calls in the thread of the store; without `fetch` there is no secret manager."""
        self._rows = rows
        self._audit = audit
        self._do = do
        self._fetch = fetch or _nowhere

    async def open(
        self, row: Row, record: Record, make: Make | None = None
    ) -> tuple[Opened, Secret]:
        """As it is now, with the value that is used; `make` is for one that is made anew.

        Raises CREDENTIAL_CORRUPT, CREDENTIAL_NOT_FETCHED, and what `make` raises.
        """
        try:
            opened: Opened = await self._do(lambda: self._opened(row, make))
        except CarpalError as error:
            if error.reason is Reason.CREDENTIAL_CORRUPT:
                self._audit.event("credential_corrupt", credential=row.key.id)
            raise
        value = opened.value or await self.fetched(opened)
        record.add(fingerprint=value.fingerprint, generation=opened.row.generation, **opened.facts)
        return opened, value

    async def fetched(self, opened: Opened) -> Secret:
        """The value of one that lies elsewhere, as it is there now. CREDENTIAL_NOT_FETCHED."""
        row = opened.row
        reference = row.elsewhere[_MAIN[row.kind]]
        try:
            value = await self._fetch(row.key.workspace, reference)
        except SourceFailed as failed:
            self._audit.event(
                "credential_not_fetched",
                workspace=row.key.workspace,
                credential=row.key.id,
                source=reference.source,
                reason=f"{failed.failure}: {failed.detail}",
            )
            raise refuse(
                Reason.CREDENTIAL_NOT_FETCHED,
                f"the value of the credential {row.key.id!r} was not fetched from its source",
                why=str(failed.failure),
            ) from None
        return Secret(value.reveal(), opened.key)

    def _opened(self, row: Row, make: Make | None) -> Opened:
        row = self._rows.get(row.key.workspace, row.key.id)
        held: dict[str, bytes] = self._rows.secrets(row)
        facts: dict[str, str] = {}
        found: bytes | None
        if row.kind == MADE and make is not None:
            made = make(row)
            found, facts = made.text, {"jti": made.id, "kid": made.key}
        else:
            main = _MAIN.get(row.kind, "")
            found = held.pop(main) if main in held else None
            if found is None and main not in row.elsewhere:
                raise refuse(
                    Reason.CREDENTIAL_CORRUPT, f"the credential {row.key.id!r} has no secret"
                )
        key = fingerprint_key(self._rows.safe)
        value = None if found is None else Secret(found, key)
        others = [Secret(each) for each in held.values()]
        for beside in self._rows.whole(row.key.workspace, row.key.vault_id, row.owner):
            if beside.archived is None and beside.key != row.key:
                try:
                    others += [Secret(each) for each in self._rows.secrets(beside).values()]
                except CarpalError as error:  # what does not open can be sent by nobody either
                    if error.reason is not Reason.CREDENTIAL_CORRUPT:
                        raise
        return Opened(row, value, others, key, facts)


def about(row: Row) -> dict[str, str | int]:
    """Of a credential, what the audit is told before it is opened."""
    source = row.elsewhere.get(_MAIN.get(row.kind, ""))
    return {
        "credential": row.key.id,
        "vault_id": row.key.vault_id,
        "generation": row.generation,
        "source": "" if source is None else source.source,
    }


async def _nowhere(workspace: str, reference: Reference) -> Secret:
    raise SourceFailed(Failure.NOT_CONFIGURED, "this vault has no sources")
