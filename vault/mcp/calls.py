"""What a brain asks for, done: allowed, in its turn, written down, and only then sent."""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from carpal.fault_points import point
from vault.guard.transport import Guard
from vault.mcp import elicit, headers
from vault.mcp.asked import CHANGED, Ask, approval
from vault.mcp.endings import in_words_of_ours, outcome, settle
from vault.mcp.journal import Journal, Sending
from vault.mcp.listing import Tool
from vault.mcp.pins import Pins
from vault.mcp.policy import ServerPolicy, Verdict
from vault.mcp.ports import Audit, Credentials, Grant, Use
from vault.mcp.rate import Rates
from vault.mcp.refusals import Refusal, Why
from vault.mcp.reply import Unauthorized
from vault.mcp.slots import Slots
from vault.mcp.upstream import Progress, Upstream
from vault.mcp.upstreams import Upstreams

T = TypeVar("T")
_KEPT = ("content", "structuredContent", "isError")
_OTHER = {
    "resources/list": ("resources", "nextCursor"),
    "resources/templates/list": ("resourceTemplates", "nextCursor"),
    "resources/read": ("contents",),
    "prompts/list": ("prompts", "nextCursor"),
    "prompts/get": ("description", "messages"),
}
"""What of a result goes on: whatever else a server says is for nobody here."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One request, and by what right it is made."""

    grant: Grant
    policy: ServerPolicy
    ask: Ask
    actor: str
    trace: headers.Headers


class Calls:
    """Of all sessions."""

    def __init__(
        self,
        *,
        guard: Guard,
        credentials: Credentials,
        journal: Journal,
        pins: Pins,
        audit: Audit,
        slots: Slots | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._credentials = credentials
        self._journal = journal
        self._pins = pins
        self._audit = audit
        self._slots = slots or Slots()
        self._rates = Rates(clock)
        self._key = secrets.token_bytes(32)
        """Marks what servers want back; after a restart such a call is to be made anew."""
        self.upstreams = Upstreams(guard, credentials)

    async def tools(self, asking: Asking) -> Mapping[str, Any]:
        """The tools that the session may call, and names of those that are not what they were."""

        async def listed(use: Use, upstream: Upstream) -> Mapping[str, Any]:
            listing = await upstream.relist(use)
            changed = await self._changed(asking, listing.digests())
            tools = [tool.said for tool in listing.tools.values()]
            return {"tools": tools, **({"_meta": {CHANGED: sorted(changed)}} if changed else {})}

        if "cursor" in asking.ask.params:
            raise Refusal(Why.PARAMS_INVALID)  # we never gave one
        return await self._used(asking, listed)

    async def call(self, asking: Asking, progress: Progress | None) -> Mapping[str, Any]:
        """Call a tool, at most once."""
        name = str(asking.ask.params["name"])
        if asking.policy.verdict(name) is Verdict.DENY:
            raise self._refused(asking, Why.TOOL_DENIED)
        rate = asking.policy.rate
        if rate and not self._rates.take(asking.grant.session, asking.policy.url, rate):
            raise self._refused(asking, Why.AT_CAPACITY)
        sending: Sending | None = None

        async def called(use: Use, upstream: Upstream) -> Mapping[str, Any]:
            nonlocal sending
            listing = await upstream.ready(use)
            tool = listing.tools.get(name)
            if tool is None:
                raise self._refused(asking, Why.TOOL_DENIED)
            await self._allowed(asking, upstream, tool)
            more = [*asking.trace, *_headers(tool, asking.ask)]
            about = _about_call(asking, tool)
            answered = elicit.answered(asking.ask.params, self._key, about)
            turn = answered.turn if answered else 0
            if sending is None:  # a second turn, with a newer credential, is the same sending
                point("vault.mcp_call.before_written")
                sending = await self._journal.sending(
                    asking.grant.session, asking.ask.call, asking.policy.name, turn
                )
            params = {"name": name, "arguments": asking.ask.params.get("arguments", {})}
            params |= answered.params if answered else {}
            point("vault.mcp_call.written")
            result = await upstream.ask(use, "tools/call", params, more=more, progress=progress)
            point("vault.mcp_call.answered")
            if result.get("resultType", "complete") == "complete":
                return _result(result)
            if not (asking.policy.elicitation and asking.ask.modern):
                raise Refusal(Why.INPUT_REFUSED, "nobody said that there was anyone to ask")
            return elicit.put(elicit.asked(result), turn, self._key, about)

        try:
            found = await self._used(asking, called)
        except BaseException as error:
            lacking = isinstance(error, Refusal) and error.why is Why.CONSENT_REQUIRED
            if lacking and sending is None:
                # What is said to be unsent was never sent, by an earlier driver either.
                await self._journal.unsent(asking.grant.session, asking.ask.call)
            elif lacking:
                error = Refusal(Why.AUTHENTICATION_FAILED, "401")
            if sending is not None:
                settle(sending, error)
            raise error from None
        assert sending is not None
        if "inputRequests" in found:
            sending.settled("asked")
        else:
            sending.settled("error" if found.get("isError") else "ok")
        return found

    async def other(self, asking: Asking) -> Mapping[str, Any]:
        """Resources and prompts, where the grant has them."""
        method = asking.ask.method
        allowed = asking.policy.prompts if method[0] == "p" else asking.policy.resources
        if not allowed:
            raise self._refused(asking, Why.TOOL_DENIED)

        async def asked(use: Use, upstream: Upstream) -> Mapping[str, Any]:
            await upstream.open(use)
            return await upstream.ask(use, method, asking.ask.params, more=asking.trace)

        result = await self._used(asking, asked)
        return {key: result[key] for key in _OTHER[method] if key in result}

    async def _used(self, asking: Asking, work: Callable[[Use, Upstream], Awaitable[T]]) -> T:
        """Do `work` with the credential; once more if the server took none of it, and it may."""
        try:
            return await self._used_by(asking, work)
        except Refusal as refusal:
            if refusal.why is Why.CONSENT_REQUIRED:
                facts = {**_about(asking), "user": asking.grant.user}
                self._audit.denied(_action(asking), refusal.why.name, **facts)
            raise

    async def _used_by(self, asking: Asking, work: Callable[[Use, Upstream], Awaitable[T]]) -> T:
        grant, policy = asking.grant, asking.policy
        async with self._slots.held(grant.session, policy.url, policy.concurrency):
            for last in (False, True):
                with in_words_of_ours(grant.user if policy.per_user else ""):
                    async with self._credentials.use(
                        grant, policy, action=_action(asking), **_about(asking)
                    ) as use:
                        with outcome(use):
                            upstream = self.upstreams.of(grant, policy, use)
                            try:
                                return await work(use, upstream)
                            except Unauthorized:
                                if last or not await use.refused():
                                    raise _unauthorized(grant, policy, upstream) from None
                        use.outcome("refused")
            raise AssertionError  # the second turn returns or raises

    async def _allowed(self, asking: Asking, upstream: Upstream, tool: Tool) -> None:
        """Raises TOOL_DENIED, and APPROVAL_REQUIRED with the digest of what is to be approved."""
        grant, policy, name = asking.grant, asking.policy, str(tool.said["name"])
        verdict = policy.verdict(name)
        changed: set[str] = set()
        if upstream.seen.get(name) != tool.digest:
            changed = await self._changed(asking, {name: tool.digest})
            if not changed:
                upstream.seen[name] = tool.digest
        if changed and policy.changed is not Verdict.ALLOW:
            verdict = max(verdict, policy.changed, key=_strictness)
        if verdict is Verdict.DENY:
            raise self._refused(asking, Why.TOOL_DENIED)
        if verdict is Verdict.ASK:
            wanted = approval(grant.session, policy.name, asking.ask, tool.digest)
            if asking.ask.approval != wanted:
                raise Refusal(Why.APPROVAL_REQUIRED, approval=wanted, changed=bool(changed))
            if changed:
                await self._pins.agreed(grant.session, policy.name, name, tool.digest)

    async def _changed(self, asking: Asking, digests: Mapping[str, str]) -> set[str]:
        grant, policy = asking.grant, asking.policy
        changed = await self._pins.changed(grant.session, policy.name, digests)
        for name in sorted(changed):
            self._audit.event("tool_changed", **{**_about(asking), "tool": name})
        return changed

    async def close(self) -> None:
        """Forget all."""
        await self.upstreams.close()

    def _refused(self, asking: Asking, why: Why) -> Refusal:
        self._audit.denied(_action(asking), why.name, **_about(asking))
        return Refusal(why)


def _unauthorized(grant: Grant, policy: ServerPolicy, upstream: Upstream) -> Refusal:
    """A server took no credential. A user has to give another of theirs.

    The next call looks at the tools first, and so is not written down before it is taken.
    """
    if not policy.per_user:
        return Refusal(Why.AUTHENTICATION_FAILED, "401")
    upstream.listing = None
    return Refusal(Why.CONSENT_REQUIRED, "401", user=grant.user)


def _action(asking: Asking) -> str:
    return f"mcp.{asking.ask.method}"


def _about(asking: Asking) -> dict[str, Any]:
    ask = asking.ask
    facts = {
        "actor": asking.actor,
        "session": asking.grant.session,
        "workspace": asking.grant.workspace,
        "grant": asking.grant.id,
        "server": asking.policy.name,
    }
    if ask.method == "tools/call":
        facts |= {"tool": str(ask.params["name"]), "call": ask.call}
    return facts


def _headers(tool: Tool, ask: Ask) -> headers.Headers:
    try:
        return headers.of_arguments(tool.headers, ask.params.get("arguments", {}))
    except headers.Unsendable as error:
        raise Refusal(Why.NOT_SENDABLE, str(error)) from None


def _about_call(asking: Asking, tool: Tool) -> bytes:
    about = approval(asking.grant.session, asking.policy.url, asking.ask, tool.digest)
    return about.encode()


def _result(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool's result."""
    if not isinstance(result.get("content", []), list):
        raise Refusal(Why.SERVER_BROKEN, "no content")
    return {"content": [], **{key: result[key] for key in _KEPT if key in result}}


def _strictness(verdict: Verdict) -> int:
    return (Verdict.ALLOW, Verdict.ASK, Verdict.DENY).index(verdict)
