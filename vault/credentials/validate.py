"""Trying a credential against its server, without doing anything there: whether it is taken.

What the server says in words is nobody's business: a verdict is one of ours.
"""

from dataclasses import dataclass, replace

from carpal.errors import CarpalError
from carpal.status import Reason
from vault.credentials.rows import Row
from vault.credentials.uses import Uses
from vault.guard.errors import GuardError
from vault.guard.transport import Guard
from vault.mcp.policy import ServerPolicy
from vault.mcp.refusals import Refusal, Why
from vault.mcp.reply import Unauthorized
from vault.mcp.upstream import Upstream
from vault.sources.source import Failure

_UNAVAILABLE = (Reason.AUDIT_NOT_WRITTEN, Reason.STORE_FULL, Reason.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found."""

    verdict: str
    """`valid`, `invalid` or `unknown`."""
    step: str = ""
    """Where it ended; empty of one that is valid.

    `refresh`, `open`, `fetch`, `reach`, `authenticate` or `protocol`.
    """
    detail: str = ""
    refresh: str = ""
    """How refreshing it went, as `Uses.renewed` has it; empty where there was no need."""


_AGAIN = Verdict("", "again")
"""The server took it not, and there is another now: as for a session, that one is tried once."""


@dataclass(frozen=True, slots=True)
class _Alone:
    """A grant of this one credential."""

    workspace: str
    credentials: tuple[str, ...]
    vaults: tuple[str, ...] = ()
    session: str = ""
    agent: str = ""
    user: str = ""


async def validated(row: Row, actor: str, uses: Uses, guard: Guard) -> Verdict:
    """Ask its server for its tools, with a fresh token. Raises AUDIT_NOT_WRITTEN."""
    refresh = await uses.renewed(row)
    found = await _found(row, actor, uses, guard)
    if found is _AGAIN:
        refresh, found = "succeeded", await _found(row, actor, uses, guard, last=True)
    return replace(found, refresh=refresh)


async def _found(row: Row, actor: str, uses: Uses, guard: Guard, *, last: bool = False) -> Verdict:
    action = "credential.validate"
    url = row.policy.get("mcp_server_url")
    try:
        if url is None:
            await uses.tried(row, action=action, actor=actor)
            return Verdict("unknown", "reach", "nothing says how a variable is tried")
        policy = ServerPolicy(name="validate", url=url, allow=("*",), per_user=bool(row.owner))
        alone = _Alone(row.key.workspace, (row.key.id,), user=row.owner)
        async with uses.use(alone, policy, action=action, actor=actor) as use:
            verdict = await _asked(Upstream(guard, policy, None), use)
            if verdict.step == "authenticate" and not last and await use.refused():
                use.outcome("refused")
                return _AGAIN
            use.outcome("ok", verdict=verdict.verdict, reason=verdict.detail)
            return verdict
    except CarpalError as error:
        if error.reason in _UNAVAILABLE:
            raise
        if error.reason is Reason.CREDENTIAL_NOT_FETCHED:
            failure = Failure(error.fields["why"])
            return Verdict("invalid" if failure.final else "unknown", "fetch", failure.value)
        if error.reason is Reason.CREDENTIAL_NEEDS_CONSENT:
            return Verdict("invalid", "refresh", "consent is needed")
        if error.reason is Reason.CREDENTIAL_NOT_REFRESHED:
            return Verdict("unknown", "refresh", "the authorization server gives no token now")
        return Verdict("invalid", "open", f"it does not open: {error.reason}")


async def _asked(upstream: Upstream, use: object) -> Verdict:
    try:
        await upstream.ready(use)  # type: ignore[arg-type]
    except Unauthorized:
        return Verdict("invalid", "authenticate", "the server does not take it")
    except GuardError as error:
        return Verdict("unknown", "protocol" if error.sent else "reach", error.code)
    except Refusal as refusal:
        if refusal.why is Why.AUTHENTICATION_FAILED:
            return Verdict("invalid", "authenticate", "the server forbids it")
        return Verdict("unknown", "protocol", refusal.why.name)
    return Verdict("valid")
