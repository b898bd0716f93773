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
from vault.audit.audit import Audit
from vault.credentials.in_use import InUse
from vault.credentials.opening import OF_SERVERS, Fetch, Opened, Opener, about
from vault.credentials.rows import Row, Rows
from vault.credentials.rules import Key, url_form
from vault.guard.targets import Target
from vault.issuer import issuer
from vault.issuer.tokens import Subject, Token
from vault.issuer.tokens import token as signed
from vault.mcp.policy import ServerPolicy
from vault.secret import Secret


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
    def user(self) -> str:
        """The end user that the session is for, by sessiond's word; empty when it has none."""
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

    async def renewed(self, key: Key) -> str:
        """Refresh one that is due or doubted.

        `succeeded`, `failed`, `connect_error`, `no_refresh_token`, or empty: there was no need.
        """
        ...

    async def refused(self, key: Key, generation: int) -> bool:
        """The server took none of this generation; whether there is another now."""
        ...


class Uses:
    """`vault.mcp.ports.Credentials` over the rows."""

    def __init__(
        self,
        rows: Rows,
        audit: Audit,
        do: Callable[[Callable[[], Any]], Awaitable[Any]],
        refresher: Refresher | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        """`do` calls in the thread of the store; without `fetch` there is no secret manager."""
        self._rows = rows
        self._audit = audit
        self._do = do
        self._refresher = refresher
        self._opener = Opener(rows, audit, do, fetch)

    @asynccontextmanager
    async def use(
        self, grant: Granted, policy: ServerPolicy, /, **facts: str | int
    ) -> AsyncIterator[InUse]:
        """Around one request. Raises CREDENTIAL_CORRUPT, CREDENTIAL_NOT_FOUND, AUDIT_NOT_WRITTEN.

        CREDENTIAL_NOT_FETCHED is of one whose value lies in a secret manager.

        CREDENTIAL_NOT_FOUND is of a grant whose credential is archived by now; where a grant has
        none for this server, and never had, nothing is added to the request. Nor where its vaults
        have none for it now.

        CREDENTIAL_NEEDS_CONSENT is of a server that is used in a user's name, and the session's
        user has no credential for it, or one that is no good any more.
        """
        target = Target.parse(policy.url)
        row: Row | None = await self._do(lambda: self._chosen(grant, policy))
        told = {"host": target.host, "port": target.port, **facts}
        told["workspace"] = grant.workspace
        if policy.per_user:
            told["user"] = grant.user
        if row is not None:
            told |= about(row)
        action, actor = str(told.pop("action")), str(told.pop("actor"))
        async with self._audit.intent(action, actor=actor, **told) as record:
            if row is None:
                yield InUse(record, self._audit, row=None, token=None, secrets=(), newer=_never)
                return
            if row.kind == "mcp_oauth" and self._refresher is not None:
                await self._refresher.fresh(row.key)
            made = lambda row: self._made(row, grant, target)  # noqa: E731
            opened, token = await self._opener.open(row, record, made)

            async def newer() -> bool:
                return await self._newer(opened, token)

            secrets = [token, *opened.others]
            yield InUse(
                record, self._audit, row=opened.row, token=token, secrets=secrets, newer=newer
            )

    async def renewed(self, row: Row) -> str:
        """As `Refresher.renewed`; empty of one that is not refreshed."""
        if row.kind != "mcp_oauth" or self._refresher is None:
            return ""
        return await self._refresher.renewed(row.key)

    async def tried(self, row: Row, *, action: str, actor: str) -> None:
        """Open one, wherever it lies, and send it nowhere. Raises as `use`."""
        async with self._audit.intent(
            action, actor=actor, workspace=row.key.workspace, **about(row)
        ) as record:
            await self._opener.open(row, record)

    def _chosen(self, grant: Granted, policy: ServerPolicy) -> Row | None:
        wanted, gone = url_form(policy.url, "url"), ""
        owner = grant.user if policy.per_user else ""
        if policy.per_user and not owner:
            raise refuse(
                Reason.CREDENTIAL_NOT_FOUND, "the session is for no user whose credential it were"
            )
        for each in grant.credentials:
            row = self._rows.find(grant.workspace, each)
            if row is None or row.archived is not None:
                if row is None or row.unique == wanted:
                    gone = each
                continue
            if _fits(row, wanted, owner):
                return row
        for vault_id in grant.vaults:
            for row in self._rows.whole(grant.workspace, vault_id, owner):
                if row.archived is None and _fits(row, wanted, owner):
                    return row
        if owner:
            raise refuse(
                Reason.CREDENTIAL_NEEDS_CONSENT, "the session's user has no credential for it"
            )
        if gone:
            raise refuse(Reason.CREDENTIAL_NOT_FOUND, f"the credential {gone!r} is no more")
        return None

    def _made(self, row: Row, grant: Granted, target: Target) -> Token:
        """A token of this session's, for this server alone. CONFIG_INVALID without an issuer."""
        self._rows.check(row)
        who = Subject(grant.workspace, grant.agent, grant.session)
        return signed(issuer.load(self._rows.safe), who, target, int(time.time()))

    async def _newer(self, opened: Opened, used: Secret) -> bool:
        row = opened.row

        def changed() -> bool:
            return self._rows.get(row.key.workspace, row.key.id).generation != row.generation

        if await self._do(changed):
            return True
        if row.elsewhere:
            try:  # its owner may have just replaced it
                return await self._opener.fetched(opened) != used
            except CarpalError as error:
                if error.reason is not Reason.CREDENTIAL_NOT_FETCHED:
                    raise
                return False  # the server's no is the answer; why there is no other is audited
        if row.kind != "mcp_oauth" or self._refresher is None:
            return False
        return await self._refresher.refused(row.key, row.generation)


def _fits(row: Row, url: str, owner: str) -> bool:
    return row.kind in OF_SERVERS and (row.unique, row.owner) == (url, owner)


async def _never() -> bool:
    return False
