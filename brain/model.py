"""The model: the one door to the `anthropic` package.

`ANTHROPIC_BASE_URL` points it at any server that speaks the Messages API.
Retries are the harness's, so that each attempt is in the log; the package's
own are off.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2

from brain.effects import Failed
from brain.text import clean
from carpal.json_in import DEPTH_MAX, deeper

Json = dict[str, Any]
Delta = Callable[[str, bool], None]
"""Called with text as it comes, and whether it is thinking."""

REPLY_DEPTH = DEPTH_MAX - 10
"""Objects and lists within each other in a reply: its events must be read back."""
_KINDS: dict[int, tuple[str, bool]] = {
    401: ("authentication_error", False),
    403: ("billing_error", False),
    429: ("model_rate_limited_error", True),
    529: ("model_overloaded_error", True),
}
"""HTTP status → error type in the log, and whether the same request may succeed later."""


@dataclass(frozen=True)
class Reply:
    """What the model said, complete."""

    blocks: list[Json]
    """Content blocks as the API gave them."""
    stop_reason: str
    usage: Json


class Model:
    """Calls Claude, or whatever `ANTHROPIC_BASE_URL` names."""

    def __init__(self, client: anthropic.AsyncAnthropic | None = None) -> None:
        self._client = client or anthropic.AsyncAnthropic(max_retries=0)

    @staticmethod
    async def warm() -> None:
        """Load what the package loads at its first call: some 30 ms, better spent at start.

        The call goes to a port of this process that refuses it.
        """

        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            async with anthropic.AsyncAnthropic(
                base_url=f"http://{host}:{port}", api_key="none", max_retries=0, timeout=5
            ) as nobody:
                await Model(nobody).call(
                    {"model": "none", "max_tokens": 1, "messages": []}, lambda text, thinking: None
                )

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    @property
    def has_key(self) -> bool:
        """Whether there is anything to authenticate with."""
        client = self._client
        return bool(client.api_key or client.auth_token or client.credentials)

    async def call(self, parameters: Json, delta: Delta) -> Reply | Failed:
        """Stream one reply. Failures of the service are a `Failed`; bugs raise."""
        if not self.has_key:
            # The package would raise a TypeError about headers.
            why = "the brain has no key for the model: start it with ANTHROPIC_API_KEY set"
            return Failed("authentication_error", why, retryable=False)
        whole = False
        try:
            async with self._client.messages.stream(**parameters) as stream:
                async for event in stream:
                    if event.type == "text":
                        delta(event.text, False)
                    elif event.type == "thinking":
                        delta(event.thinking, True)
                    whole = event.type == "message_stop"
                message = await stream.get_final_message() if whole else None
        except anthropic.APIError as error:
            return _failed(error)
        except ValueError as error:
            # Tool input that is not JSON, or half a character: the package lets it out as it is.
            return _cut(f"the reply cannot be read: {error}")
        except httpx2.HTTPError as error:
            # A cut in the middle of a stream passes the package unwrapped.
            return _cut(f"the connection was cut: {error}")
        if message is None or message.stop_reason is None:
            return _cut("the stream ended before the message did")
        blocks = [block.model_dump(mode="json", exclude_none=True) for block in message.content]
        if deeper(blocks, REPLY_DEPTH):
            return _cut(f"the reply is nested more than {REPLY_DEPTH} deep")
        return Reply(
            blocks=clean(blocks),
            stop_reason=message.stop_reason,
            usage=message.usage.model_dump(mode="json", exclude_none=True),
        )


def _cut(message: str) -> Failed:
    return Failed("model_request_failed_error", message, retryable=True)


def _failed(error: anthropic.APIError) -> Failed:
    if isinstance(error, anthropic.APIStatusError):
        status = error.status_code
        if status == 200:  # an error event inside a stream
            overloaded = "overloaded" in error.message.lower()
            kind = "model_overloaded_error" if overloaded else "model_request_failed_error"
            return Failed(kind, error.message, retryable=True)
        kind, retryable = _KINDS.get(status, ("model_request_failed_error", status >= 500))
        return Failed(kind, error.message, retryable, _retry_after(error))
    return _cut(f"{type(error).__name__}: {error}")


def _retry_after(error: anthropic.APIStatusError) -> float | None:
    try:
        return max(0.0, float(error.response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
