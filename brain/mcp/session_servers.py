"""The MCP servers of one driven session: their tools, and calls of them.

The vault may be down, and a server too: the session goes on with the tools that its log has, and a
call says what failed. One that was cut short is asked for again by its id: the vault sends no call
twice, and says what it knows.
"""

import asyncio
import logging
import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from brain import servers
from brain.mcp import answers, outcomes
from brain.mcp.answers import Attached
from brain.mcp.grants import Door, SessionGrant, is_away
from brain.mcp.proxy import Unanswered
from brain.mcp.wire import APPROVAL, CALL_ID, Json, Refused
from brain.session import consents
from brain.session.driver import Driver
from brain.session.entries import Call, New
from brain.session.results import TEXT_BYTES, of_server
from brain.text import clean, json_bytes
from carpal import layers
from carpal.backoff import Backoff
from carpal.errors import CarpalError
from carpal.fault_points import point
from carpal.layers import Layer
from carpal.status import Reason

log = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds that a call waits for a vault that is away: one that is restarted is back by then."""
LISTING = 10.0
"""Seconds that the first word of the model waits for a server's tools, and for the vault."""
_GRANT_REFUSED = frozenset({"GRANT_REFUSED", "GRANT_ENDED"})
_AWAY = frozenset({"VAULT_SEALED", "UNAVAILABLE"})
_CONSENT = "CONSENT_REQUIRED"
"""Nothing was sent: the session's user has no credential for the server, or none that is good."""
_RELIST = frozenset({"TOOL_DENIED", "APPROVAL_REQUIRED"})
_CREDENTIAL = frozenset({"AUTHENTICATION_FAILED", "CREDENTIAL_UNAVAILABLE"})


class SessionServers(AbstractAsyncContextManager["SessionServers"]):
    """Of one drive; at its end the grant ends too."""

    def __init__(self, driver: Driver, door: Door | None) -> None:
        """`door` is None of a brain that knows no vault: each call says that it does not answer."""
        self._driver = driver
        self._grant = SessionGrant(driver, door)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A brain that stops does not wait: the next driver's ticket ends the grant.
        if not isinstance(error, asyncio.CancelledError):
            await self._grant.revoke()

    async def keep(self) -> None:
        """Have the grant, as long as the agent names servers; runs until cancelled."""
        await self._driver.until(lambda t: bool(servers.servers(t.agent)))
        await self._grant.keep()

    async def learn(self) -> list[New]:
        """Events for what servers offer, of those whose tools the log does not have yet."""
        transcript = self._driver.transcript
        wanted = [
            (name, url)
            for name, url in servers.servers(transcript.agent).items()
            if transcript.tools.get(name, {}).get("url") != url
        ]
        told = await asyncio.gather(*(self._learn(name, url) for name, url in wanted))
        return [event for each in told for event in each]

    async def settle(self, call: Call) -> None:
        """Give a call its result; what it says of the server's tools is learned.

        It is left open when its user must consent first: the log says so.
        """
        going = _Going(sent=call.since <= self._driver.started_at)
        events: list[New] | None = None
        if not self._driver.transcript.stopped(call):
            events = await self._driver.unless(lambda t: t.stopped(call), self._ask(call, going))
        if events is None:
            events = [outcomes.cancelled(call, sent=going.sent)]
        point("brain.mcp_result.before_appended")
        await self._driver.append(*events)
        point("brain.mcp_result.appended")
        if going.relist:
            await self._relist(call.server)

    async def _ask(self, call: Call, going: "_Going") -> list[New]:
        params: Json = {"name": call.name, "arguments": call.input}
        meta = {CALL_ID: call.call_id}
        patience = _Patience()
        while True:
            try:
                token = await self._grant.token()
            except CarpalError as error:
                if error.reason is Reason.STALE_EPOCH:
                    raise
                if is_away(error) and await patience.left():
                    continue
                return [_no_grant(call, error, sent=going.sent)]
            self._driver.check_lease()
            try:
                point("brain.mcp_call.before_sent")
                before, going.sent = going.sent, True
                result = await self._grant.proxy.ask(
                    call.server, token, "tools/call", params, **meta
                )
                point("brain.mcp_call.answered")
            except Unanswered as error:
                going.sent = before or error.sent
                if await patience.left():
                    continue
                why = "the vault does not answer"
                return [outcomes.no_vault(call, why, Reason.VAULT_UNAVAILABLE, sent=going.sent)]
            except Refused as refusal:
                going.sent = before or refusal.reason == "GRANT_ENDED"
                if refusal.reason in _GRANT_REFUSED:
                    self._grant.doubt(token)
                again = refusal.reason in _GRANT_REFUSED | _AWAY
                if again and await patience.left():
                    continue
                wanted = str(refusal.data.get("approval", ""))
                if refusal.reason == "APPROVAL_REQUIRED" and _approved(call, wanted, meta):
                    meta[APPROVAL] = wanted
                    continue
                return [self._refused(call, refusal, going)]
            going.relist = APPROVAL in meta
            return [await self._answered(call, result)]

    def _refused(self, call: Call, refusal: Refused, going: "_Going") -> New:
        if refusal.reason == _CONSENT:
            return self._required(call.server, refusal, call.call_id)
        going.relist = refusal.reason in _RELIST
        if refusal.reason in _GRANT_REFUSED:
            why = "the vault does not take the session's grant"
            return outcomes.no_vault(call, why, Reason.GRANT_REFUSED, sent=going.sent)
        if refusal.reason == "VAULT_SEALED":
            why = "the vault is sealed"
            return outcomes.no_vault(call, why, Reason.VAULT_SEALED, sent=going.sent)
        return outcomes.refused(call, refusal)

    def _required(self, name: str, refusal: Refused, call_id: str = "") -> New:
        agent = self._driver.transcript.agent
        user = clean(str(refusal.data.get("user", "")))
        url, vaults = servers.servers(agent).get(name, ""), servers.vaults(agent)
        return New(consents.REQUIRED, consents.required(name, url, user, vaults, call_id))

    async def _answered(self, call: Call, result: Json) -> New:
        text, attached = answers.rendered(result)
        text = clean(text)
        if len(text) * 6 > TEXT_BYTES and json_bytes(text) > TEXT_BYTES:
            # The event has its begin and its end; all of it is beside it.
            attached.append(Attached(text.encode(), "text/plain", "result.txt"))
        told = []
        for each in attached:
            media = clean(each.media_type)
            blob = await self._driver.keep(each.data, media)
            told.append(
                {"blob": blob, "media_type": media, "size": len(each.data), "name": each.name}
            )
        return of_server(call, text, told, failed=result.get("isError") is True)

    async def _relist(self, name: str) -> None:
        url = servers.servers(self._driver.transcript.agent).get(name)
        if url is not None and (events := await self._learn(name, url)):
            await self._driver.append(*events)

    async def _learn(self, name: str, url: str) -> list[New]:
        """The event for what it offers, if that is news, or for why that is not known."""
        try:
            async with asyncio.timeout(LISTING):
                token = await self._grant.token()
                try:
                    listed = await self._grant.proxy.ask(name, token, "tools/list", {})
                except Refused as refusal:
                    if refusal.reason in _GRANT_REFUSED:
                        self._grant.doubt(token)
                        token = await self._grant.token()
                        listed = await self._grant.proxy.ask(name, token, "tools/list", {})
                    else:
                        raise
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                raise
            return [_unknown(name, str(error), str(error.reason))]
        except Refused as refusal:
            if refusal.reason == "VAULT_SEALED":
                return [_unknown(name, "the vault is sealed", Reason.VAULT_SEALED)]
            if refusal.reason == _CONSENT:
                # Once: also of one that was denied, until it is there all the same.
                asked = self._driver.transcript.consents.get(name)
                given = asked is not None and asked.decision is not None and asked.decision.allowed
                return [] if asked is not None and not given else [self._required(name, refusal)]
            text, cause = outcomes.why(refusal)
            return [_unknown(name, text, cause, credential=refusal.reason in _CREDENTIAL)]
        except Unanswered:
            return [_unknown(name, "the vault does not answer", Reason.VAULT_UNAVAILABLE)]
        except TimeoutError:
            why = f"its tools were not known within {LISTING:g} s"
            return [_unknown(name, why, layers.MCP_UNANSWERED)]
        told = clean(servers.context_tools(name, url, listed))
        return [New("context.tools", told)] if told != self._known(name) else []

    def _known(self, name: str) -> Json | None:
        return self._driver.transcript.tools.get(name)


class _Going:
    """How far a call is."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent
        """The server may have it."""
        self.relist = False
        """Its server's tools are others than the log says."""


class _Patience:
    """How long a call waits for a vault that is away, from when it is first missed."""

    def __init__(self) -> None:
        self._backoff = Backoff(0.1, 1.0)
        self._until: float | None = None

    async def left(self) -> bool:
        """Wait a moment for another try; False when there is none."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + PATIENCE
        if now >= self._until:
            return False
        await asyncio.sleep(self._backoff.next())  # a vault that starts announces it to nobody
        return True


def _approved(call: Call, wanted: str, meta: Json) -> bool:
    """Whether a person allowed this very call, and the vault was not told yet."""
    return bool(wanted) and APPROVAL not in meta and bool(call.decision and call.decision.allowed)


def _no_grant(call: Call, error: CarpalError, *, sent: bool) -> New:
    why = "the vault does not answer" if is_away(error) else f"no grant: {error.message}"
    if error.reason is Reason.VAULT_SEALED:
        why = "the vault is sealed"
    cause = Reason.VAULT_UNAVAILABLE if is_away(error) else error.reason
    if error.reason is Reason.VAULT_SEALED:
        cause = error.reason
    return outcomes.no_vault(call, why, cause, sent=sent)


def _unknown(name: str, why: str, cause: str, *, credential: bool = False) -> New:
    kind = "mcp_authentication_failed_error" if credential else "mcp_connection_failed_error"
    said = {
        "type": kind,
        "message": f"MCP server {name!r}: {why}",
        "retry_status": {"type": "retrying"},
        "layer": str(Layer.VAULT),
        "cause": str(cause),
    }
    return New("session.error", {"error": said, "mcp_server_name": name})
