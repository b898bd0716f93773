"""The vault's MCP proxy, asked over mutual TLS. One of a brain, for all its sessions.

What is asked ends as one of three: a result, `Refused`, or `Unanswered`, which says whether the
vault may have begun. Each wait has a bound: the proxy says every 15 seconds that it still goes on.
"""

import asyncio
import itertools
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2

from brain.mcp import wire
from brain.mcp.wire import Json, Refused
from carpal.errors import CarpalError
from carpal.identity import Role, server_name
from carpal.tls import IdentityFiles, stamp

log = logging.getLogger(__name__)

REPLY_MAX = 64 * 1024 * 1024
"""Bytes of a reply: 10 MiB of a server's, however they are spelt."""
_ON_THE_LOOP = 256 * 1024
"""Bytes of a reply that are read on the event loop; larger ones elsewhere."""
_TOTAL = 960.0
"""Seconds of one request: the proxy's own bound is 900."""
_TIMEOUT = httpx2.Timeout(connect=5.0, read=45.0, write=30.0, pool=30.0)
_LIMITS = httpx2.Limits(max_connections=300, max_keepalive_connections=32)


class Unanswered(Exception):
    """The vault did not answer; `sent` when it may have heard the request."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class _Line:
    """A client that shows one certificate, for as long as anybody uses it."""

    def __init__(self, files: IdentityFiles) -> None:
        self.seen = stamp(files)
        context = ssl.create_default_context(cadata=files.look().ca.decode("ascii"))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(files.certificate, files.key)
        # No variable of the environment leads anywhere else than to the vault.
        self.client = httpx2.AsyncClient(
            verify=context, timeout=_TIMEOUT, limits=_LIMITS, trust_env=False
        )
        self.used = 0


class Proxy(AbstractAsyncContextManager["Proxy"]):
    """Where brains reach MCP servers."""

    def __init__(self, address: str, files: IdentityFiles) -> None:
        self.identity = files.identity()
        self._address = address
        self._files = files
        self._vault = server_name(Role.VAULT, self.identity.trust_domain)
        self._line: _Line | None = None
        self._numbers = itertools.count(1)

    async def ask(self, server: str, token: str, method: str, params: Json, **meta: str) -> Json:
        """The result of one request. Raises Refused and Unanswered."""
        try:
            body = wire.request(next(self._numbers), method, params, meta)
        except (TypeError, ValueError, RecursionError):
            raise Refused("PARAMS_INVALID", "the arguments are no JSON") from None
        headers = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        url = f"https://{self._address}/mcp/{server}"
        named = {"sni_hostname": self._vault}
        try:
            async with asyncio.timeout(_TOTAL), self._held() as client:
                asked = client.stream("POST", url, headers=headers, content=body, extensions=named)
                async with asked as reply:
                    kind = reply.headers.get("content-type", "")
                    data = await _read(reply)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Unanswered(type(error).__name__, sent=False) from None
        except (httpx2.TransportError, TimeoutError) as error:
            raise Unanswered(type(error).__name__, sent=True) from None
        if len(data) < _ON_THE_LOOP:
            return wire.result(data, kind)
        return await asyncio.to_thread(wire.result, data, kind)

    async def __aexit__(self, *_: object) -> None:
        if self._line is not None:
            await self._line.client.aclose()

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[httpx2.AsyncClient]:
        """The client of now; one of before is closed once nobody uses it."""
        if self._line is None or self._line.seen != stamp(self._files):
            before = self._line
            try:
                self._line = _Line(self._files)
            except (CarpalError, ssl.SSLError, OSError) as error:
                # Between two files of a promotion they do not belong together.
                if self._line is None:
                    raise Unanswered(f"the identity: {error}", sent=False) from None
                log.warning("identity not reloaded", extra={"kind": type(error).__name__})
            else:
                if before is not None and not before.used:
                    await before.client.aclose()
        line = self._line
        line.used += 1
        try:
            yield line.client
        finally:
            line.used -= 1
            if line is not self._line and not line.used:
                await line.client.aclose()


async def _read(reply: httpx2.Response) -> bytes:
    data = bytearray()
    async for part in reply.aiter_bytes():
        data += part
        if len(data) > REPLY_MAX:
            raise Refused("RESULT_TOO_LARGE", "the answer is larger than a brain takes")
    return bytes(data)
