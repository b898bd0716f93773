"""A credential in use for one request: written down, opened, and forgotten at the end of it.

Which one it is follows from the grant, in its order, and from where the server is; it is looked up
anew each time, so what an operator changes or archives holds from the next request on.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.audit.audit import Audit, Record
from vault.audit_wrap import fingerprint_key
from vault.credentials.rows import Row, Rows
from vault.credentials.rules import Key, url_form
from vault.guard.addresses import Network, private_network
from vault.guard.headers import Headers, bearer
from vault.guard.targets import Target
from vault.issuer import issuer
from vault.issuer.tokens import Subject, Token
from vault.issuer.tokens import token as signed
from vault.mcp.policy import ServerPolicy
from vault.secret import Secret

_TOKENS = {"static_bearer": "token", "mcp_oauth": "access_token"}
"""Kinds whose secret a server of MCP is sent, and which one that is."""
_MADE = "agent_identity"
"""The kind that is made anew for each request."""
_OF_SERVERS = {*_TOKENS, _MADE}


class Granted(Protocol):
    """Of a grant, what decides which credential it is."""

    @property
    def workspace(self) -> str: ...

    @property
    def session(self) -> str:
        """Whose it is; empty where an operator tries a credential."""
        ...

    @property
    def agent(self) -> str:
        """Of that session, by sessiond's word; empty when it has none."""
        ...

    @property
    def credentials(self) -> Sequence[str]:
        """Ids; the first that fits is used."""
        ...

    @property
    def vaults(self) -> Sequence[str]:
        """Those whose credentials are looked through after these."""
        ...


class Refresher(Protocol):
    """Who gets new access tokens."""

    async def fresh(self, key: Key) -> None:
        """The access token that is kept is good by now, as far as anybody knows. CarpalError."""
        ...

    async def refused(self, key: Key, generation: int) -> bool:
        """The server took none of this generation; whether there is another now."""
        ...


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


class Uses:
    """`vault.mcp.ports.Credentials` over the rows."""

    def __init__(
        self,
        rows: Rows,
        audit: Audit,
        do: Callable[[Callable[[], Any]], Awaitable[Any]],
        refresher: Refresher | None = None,
    ) -> None:
        """`do` calls in the thread of the store."""
        self._rows = rows
        self._audit = audit
        self._do = do
        self._refresher = refresher

    @asynccontextmanager
    async def use(
        self, grant: Granted, policy: ServerPolicy, /, **facts: str | int
    ) -> AsyncIterator[InUse]:
        """Around one request. Raises CREDENTIAL_CORRUPT, CREDENTIAL_NOT_FOUND, AUDIT_NOT_WRITTEN.

        CREDENTIAL_NOT_FOUND is of a grant whose credential is archived by now; where a grant has
        none for this server, and never had, nothing is added to the request. Nor where its vaults
        have none for it now.
        """
        target = Target.parse(policy.url)
        row: Row | None = await self._do(lambda: self._chosen(grant, policy.url))
        told = {"host": target.host, "port": target.port, **facts}
        told["workspace"] = grant.workspace
        if row is not None:
            told |= {"credential": row.key.id, "vault_id": row.key.vault_id}
            told |= {"generation": row.generation}
        action, actor = str(told.pop("action")), str(told.pop("actor"))
        async with self._audit.intent(action, actor=actor, **told) as record:
            if row is None:
                yield InUse(record, self._audit, row=None, token=None, secrets=(), newer=_never)
                return
            if row.kind == "mcp_oauth" and self._refresher is not None:
                await self._refresher.fresh(row.key)
            try:
                opened, token, secrets, made = await self._do(
                    lambda: self._opened(row, grant, target)
                )
            except CarpalError as error:
                if error.reason is Reason.CREDENTIAL_CORRUPT:
                    self._audit.event("credential_corrupt", credential=row.key.id)
                raise
            record.add(fingerprint=token.fingerprint, generation=opened.generation, **made)

            async def newer() -> bool:
                return await self._newer(opened)

            yield InUse(record, self._audit, row=opened, token=token, secrets=secrets, newer=newer)

    def _chosen(self, grant: Granted, url: str) -> Row | None:
        wanted, gone = url_form(url, "url"), ""
        for each in grant.credentials:
            row = self._rows.find(grant.workspace, each)
            if row is None or row.archived is not None:
                if row is None or row.unique == wanted:
                    gone = each
                continue
            if row.kind in _OF_SERVERS and row.unique == wanted:
                return row
        for vault_id in grant.vaults:
            for row in self._rows.all(grant.workspace, vault_id):
                if row.archived is None and row.kind in _OF_SERVERS and row.unique == wanted:
                    return row
        if gone:
            raise refuse(Reason.CREDENTIAL_NOT_FOUND, f"the credential {gone!r} is no more")
        return None

    def _opened(
        self, row: Row, grant: Granted, target: Target
    ) -> tuple[Row, Secret, list[Secret], dict[str, str]]:
        """As it is now, its token, all that may not come back, and facts about the token.

        That is all that its vault holds: a reply may have none of it.
        """
        row = self._rows.get(row.key.workspace, row.key.id)
        facts: dict[str, str] = {}
        held: dict[str, bytes] = {}
        if row.kind == _MADE:
            made = self._made(row, grant, target)
            value, facts = made.text, {"jti": made.id, "kid": made.key}
        else:
            held = self._rows.secrets(row)
            if (found := held.pop(_TOKENS[row.kind], None)) is None:
                raise refuse(
                    Reason.CREDENTIAL_CORRUPT, f"the credential {row.key.id!r} has no secret"
                )
            value = found
        token = Secret(value, fingerprint_key(self._rows.safe))
        others = [Secret(each) for each in held.values()]
        for beside in self._rows.all(row.key.workspace, row.key.vault_id):
            if beside.archived is None and beside.key != row.key:
                try:
                    others += [Secret(each) for each in self._rows.secrets(beside).values()]
                except CarpalError as error:  # what does not open can be sent by nobody either
                    if error.reason is not Reason.CREDENTIAL_CORRUPT:
                        raise
        return row, token, [token, *others], facts

    def _made(self, row: Row, grant: Granted, target: Target) -> Token:
        """A token of this session's, for this server alone. CONFIG_INVALID without an issuer."""
        self._rows.check(row)
        who = Subject(grant.workspace, grant.agent, grant.session)
        return signed(issuer.load(self._rows.safe), who, target, int(time.time()))

    async def _newer(self, row: Row) -> bool:
        def changed() -> bool:
            return self._rows.get(row.key.workspace, row.key.id).generation != row.generation

        if await self._do(changed):
            return True
        if row.kind != "mcp_oauth" or self._refresher is None:
            return False
        return await self._refresher.refused(row.key, row.generation)


async def _never() -> bool:
    return False
