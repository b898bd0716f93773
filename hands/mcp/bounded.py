"""Answers of an MCP server of the network: bounded, and text, before its client reads them."""

from collections.abc import AsyncIterator

import httpx2

from hands.mcp.said import MOST, answered, mended

_TOO_LONG = f"it answered with more than {MOST} bytes"
_REFUSED = "carpal-refused"
"""The header of the forwarder's own answers."""
_MESSAGES = ("application/json", "text/event-stream")
_BEGINS = b"data:"
_OF_A_BODY = ("content-length", "transfer-encoding")


class Bounded(httpx2.AsyncBaseTransport):
    """Over another transport."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.wrong = ""
        """Why the last message that it was sent had no answer of an MCP server; or empty."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """An answer in time is streamed; any other is here whole, or says why it is not."""
        request.headers["accept-encoding"] = "identity"  # what is packed has no bound
        response = await self._answered(request)
        if request.method == "POST":
            self.wrong = _wrong(str(request.url), response)
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed != "identity":
            await response.aclose()
            return _refusal(f"it packed its answer as {packed[:20]}, which nobody asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Lines(response.stream)
            return response
        data = bytearray()
        try:
            async for chunk in response.stream:
                data += chunk
                if len(data) > MOST:
                    return _refusal(_TOO_LONG)
        finally:
            await response.stream.aclose()
        headers = [each for each in response.headers.multi_items() if each[0] not in _OF_A_BODY]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            content=answered(mended(bytes(data))),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the other."""
        await self._inner.aclose()

    async def _answered(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._inner.handle_async_request(request)
        except httpx2.ProxyError as error:  # of a tunnel, with the forwarder's reason
            self.wrong = f"{request.url}: the hand's way out answered {error}"
            raise


class _Lines(httpx2.AsyncByteStream):
    """Events, by whole lines; how long one may be is its reader's to say."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begun = bytearray()
        async for chunk in self._inner:
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if not end:
                begun += chunk
            else:
                yield _events(mended(bytes(begun) + chunk[:end]))
                begun[:] = chunk[end:]
            if len(begun) > MOST:
                raise httpx2.SSEError(_TOO_LONG)
        yield _events(mended(bytes(begun)))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _events(lines: bytes) -> bytes:
    """Whole lines, of which those with data each hold a message, as servers write them."""
    return b"".join(
        _BEGINS + answered(line[len(_BEGINS) :].strip()) + b"\n"
        if line.startswith(_BEGINS)
        else line
        for line in lines.splitlines(keepends=True)
    )


def _wrong(url: str, response: httpx2.Response) -> str:
    """What an answer says that no MCP server gives; empty of one that it may give."""
    status = response.status_code
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if _REFUSED in response.headers:
        if status == 403:
            return f"{url} answered 403: this hand's egress rules do not allow it"
        why = response.extensions.get("reason_phrase", b"").decode("ascii", "replace")
        return f"{url} is out of reach: the hand's way out answered {status}: {why}"
    if status in (401, 403) and kind not in _MESSAGES:
        return f"{url} answered {status}: it lets nobody in without a credential"
    if kind in _MESSAGES or status == 202:
        return ""
    with_what = f" with {kind[:60]}" if kind and status < 400 else ""
    return f"{url} answered {status}{with_what}: is it an MCP endpoint?"


def _refusal(why: str) -> httpx2.Response:
    """What its client takes for the server's own error."""
    error = {"code": -32603, "message": why}
    return httpx2.Response(400, json={"jsonrpc": "2.0", "id": None, "error": error})
