"""One MCP server, as one grant uses it with one credential: nothing of it is shared with another.

Which generation of the protocol it speaks is found out once, by asking. A session that it forgot
is begun anew, once. Its requests to us are refused, and what it says on the way is bounded.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from vault.guard.errors import GuardError
from vault.guard.headers import Slot
from vault.guard.limits import Limits
from vault.guard.response import Response
from vault.guard.targets import Target
from vault.guard.transport import Guard, Request
from vault.mcp import headers, wire
from vault.mcp.jsonrpc import Json, Malformed, Notification, Reply, written
from vault.mcp.jsonrpc import Request as Asked
from vault.mcp.listing import PAGES_MAX, Listing
from vault.mcp.policy import ServerPolicy
from vault.mcp.ports import Use
from vault.mcp.refusals import Refusal, Why
from vault.mcp.reply import Refused, reply_to
from vault.mcp.unescaped import without

TOTAL = 900.0
"""Seconds for an answer, whatever the server says on the way."""
IDLE = 60.0
_LISTING = Limits(total=60.0, first_byte=30.0, reply_bytes=4 * 1024 * 1024)
_ASIDE = Limits(total=5.0, first_byte=5.0, reply_bytes=64 * 1024)
_CANCEL_LIMIT = 2.0
_STATE_MAX = 64 * 1024
_WANTED = ("content-type", "mcp-session-id")

Progress = Callable[[Mapping[str, Any]], Awaitable[None]]


class Upstream:
    """The server."""

    def __init__(self, guard: Guard, policy: ServerPolicy, lane: object) -> None:
        self.policy = policy
        self.listing: Listing | None = None
        """Its tools, once they were asked for; None again when it says that they are others."""
        self.seen: dict[str, str] = {}
        """Digests of tools that are what they were when the session first saw them."""
        self._guard = guard
        self._lane = lane
        self._target = Target.parse(policy.url)
        self._version: str | None = None
        self._session: str | None = None
        self._opening = asyncio.Lock()
        self._last_id = 0

    async def ready(self, use: Use) -> Listing:
        """Know which protocol it speaks, and its tools. Raises as `ask`."""
        if self.listing is None:
            async with self._opening:
                if self.listing is None:
                    self.listing = await self._list(use)
        return self.listing

    async def relist(self, use: Use) -> Listing:
        """Its tools as they are now."""
        async with self._opening:
            self.listing = await self._list(use)
            return self.listing

    async def open(self, use: Use) -> None:
        """Know which protocol it speaks."""
        async with self._opening:
            await self._open(use)

    @property
    def in_session(self) -> bool:
        """Whether the server keeps a session for us."""
        return self._session is not None

    async def end(self, use: Use) -> None:
        """End that session. Whether it is heard changes nothing for us; raises GuardError."""
        found = self._session_headers(self._version)
        async with self._send(use, found, b"", _ASIDE, method="DELETE") as response:
            async for _ in response:
                pass
        self._session = self._version = None

    async def ask(
        self,
        use: Use,
        method: str,
        params: Json,
        *,
        more: Sequence[tuple[str, str]] = (),
        progress: Progress | None = None,
        limits: Limits | None = None,
    ) -> Json:
        """The result of one request.

        Raises Refusal, Unauthorized, GuardError; one whose `sent` is false reached nobody.
        """
        limits = limits or Limits(
            first_byte=self.policy.first_byte,
            idle=IDLE,
            total=TOTAL,
            reply_bytes=self.policy.result_bytes,
        )
        session = self._session
        try:
            reply = await self._asked(
                use, method, params, limits=limits, more=more, progress=progress
            )
        except Refused as refused:
            if refused.status != 404 or session is None:
                raise Refusal(Why.SERVER_REFUSED, str(refused), status=refused.status) from None
            # It has forgotten the session, and so did nothing: once more, in a new one.
            if self._session == session:
                self._version = self._session = None
            await self.open(use)
            try:
                reply = await self._asked(
                    use, method, params, limits=limits, more=more, progress=progress
                )
            except Refused as again:
                raise Refusal(Why.SERVER_REFUSED, str(again), status=again.status) from None
        if reply.error is not None:
            raise Refusal(Why.SERVER_REFUSED, "an error", code=reply.error["code"])
        assert reply.result is not None
        return reply.result

    async def _list(self, use: Use) -> Listing:
        await self._open(use)
        listing, cursor = Listing(self.policy), None
        for _ in range(PAGES_MAX):
            params: Json = {} if cursor is None else {"cursor": cursor}
            page = await self.ask(use, "tools/list", params, limits=_LISTING)
            listing.add(page.get("tools"))
            cursor = page.get("nextCursor")
            if cursor is None or listing.full:
                break
            if not isinstance(cursor, str) or len(cursor) > _STATE_MAX:
                raise Refusal(Why.SERVER_BROKEN, "its cursor is none")
        return listing

    async def _open(self, use: Use) -> None:
        if self._version is not None:
            return
        try:
            reply = await self._asked(
                use, "server/discover", {}, limits=_LISTING, version=wire.MODERN
            )
        except Refused as refused:
            if refused.status >= 500 or refused.status in (408, 429):
                raise Refusal(Why.SERVER_REFUSED, str(refused), status=refused.status) from None
        else:
            if reply.result is not None and wire.discovered(reply.result):
                self._version = wire.MODERN
                return
        await self._initialize(use)

    async def _initialize(self, use: Use) -> None:
        self._session = None
        try:
            reply = await self._asked(
                use, "initialize", wire.initialize(), limits=_LISTING, version=""
            )
            if reply.result is None:
                raise Refusal(Why.SERVER_REFUSED, "an error")
            version = wire.agreed(reply.result)
        except Refused as refused:
            self._session = None
            raise Refusal(Why.SERVER_REFUSED, str(refused), status=refused.status) from None
        except Malformed as error:
            raise Refusal(Why.SERVER_BROKEN, str(error)) from None
        await self._say(use, {"method": "notifications/initialized"}, version)
        self._version = version

    async def _asked(
        self,
        use: Use,
        method: str,
        params: Json,
        *,
        limits: Limits,
        more: Sequence[tuple[str, str]] = (),
        progress: Progress | None = None,
        version: str | None = None,
    ) -> Reply:
        version = self._version if version is None else version
        self._last_id += 1
        request_id = self._last_id
        token = f"p{request_id}" if progress is not None else None
        if version == wire.MODERN:
            params = wire.modern_params(params, token, self.policy.elicitation)
            found = headers.of_message(method, params, version)
        else:
            params = wire.legacy_params(params, token)
            found = self._session_headers(version)
        body = written({"id": request_id, "method": method, "params": params})

        async def told(said: Notification) -> None:
            if said.method == "notifications/tools/list_changed":
                self.listing = None
                return
            ours = said.method == "notifications/progress"
            if ours and progress is not None and said.params.get("progressToken") == token:
                await progress(said.params)

        async def asked(each: Asked) -> None:
            # Whoever asks for a model, folders or a person: we never said that we had any.
            await self._say(use, wire.refused(each.id), version or "")

        def clean(result: Json) -> Json:
            slots = [value.secret for _, value in use.headers if isinstance(value, Slot)]
            result, reflected = without(result, [*use.secrets, *slots])
            if reflected:
                use.reflected()
            return result

        try:
            async with self._send(use, [*found, *more], body, limits) as response:
                reply = await reply_to(
                    response,
                    request_id,
                    told=told,
                    asked=asked,
                    clean=clean,
                    event_max=limits.reply_bytes,
                )
                if method == "initialize":
                    self._session = self._new_session(response)
                return reply
        except asyncio.CancelledError:
            if version != wire.MODERN and method != "initialize":
                await self._cancelled(use, request_id, version or "")
            raise

    def _new_session(self, response: Response) -> str | None:
        try:
            return wire.session_id(response.headers.get("mcp-session-id", "")) or None
        except Malformed as error:
            raise Refusal(Why.SERVER_BROKEN, str(error)) from None

    async def _cancelled(self, use: Use, request_id: int, version: str) -> None:
        """Tell a server of before that nobody waits any more: it takes a lost stream for none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_LIMIT):
                await self._say(use, wire.cancelled(request_id), version)

    async def _say(self, use: Use, message: Json, version: str) -> None:
        """Send what has no reply; whether it is heard changes nothing for us."""
        with contextlib.suppress(GuardError):
            found = self._session_headers(version)
            async with self._send(use, found, written(message), _ASIDE) as response:
                async for _ in response:
                    pass

    def _session_headers(self, version: str | None) -> headers.Headers:
        found = [("MCP-Protocol-Version", version)] if version else []
        return found + ([("Mcp-Session-Id", self._session)] if self._session else [])

    @contextlib.asynccontextmanager
    async def _send(
        self,
        use: Use,
        more: headers.Headers,
        body: bytes,
        limits: Limits,
        *,
        method: str = "POST",
    ) -> AsyncIterator[Response]:
        found: list[Any] = [
            *([("Content-Type", "application/json")] if body else []),
            ("Accept", "application/json, text/event-stream"),
            *headers.checked(more),
            *use.headers,
        ]
        async with self._guard.send(
            Request(method, self._target, found, body),
            secrets=use.secrets,
            limits=limits,
            private=use.private,
            wanted=_WANTED,
            lane=self._lane,
        ) as response:
            try:
                yield response
            finally:
                if response.reflected:
                    use.reflected()
