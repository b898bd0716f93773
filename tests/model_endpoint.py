"""A server that answers model requests with the bytes a test wants, over TLS if it wants.

It is no model and checks nothing: what a service may do wrong, it does.
"""

import asyncio
import base64
import json
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass
class Asked:
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Json
    subject: str = ""
    """Common name of the certificate its sender showed."""


class Wire:
    """What an answer writes to."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Bytes, at once."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int = 200, **headers: str) -> None:
        """The status line and the headers; the body ends with the connection."""
        lines = [f"HTTP/1.1 {status} X", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    def reset(self) -> None:
        """The connection breaks."""
        self._writer.transport.abort()


Answer = Callable[[Wire, Asked], Awaitable[None]]


class Endpoint:
    """What was asked, and what is answered, in order; the last answer stays."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []
        self.address = ""
        """`host:port`."""
        self.url = ""
        self.standing = asyncio.Event()
        """Set to let what stands still go on, at the end."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            asked = await _read(reader, writer)
            self.asked.append(asked)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await answer(Wire(writer), asked)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    # Answers.

    def says(self, *texts: str, **more: Any) -> Answer:
        """A reply of text blocks."""
        return self.streams(events([{"type": "text", "text": text} for text in texts], **more))

    def streams(self, of: Sequence[Json], *, cut: bool = False) -> Answer:
        """Server-sent events; `cut`: the connection breaks after them."""

        async def answer(wire: Wire, _: Asked) -> None:
            await wire.head(content_type="text/event-stream")
            await wire.send(sse(of))
            if cut:
                wire.reset()

        return answer

    def stands_still(self, of: Sequence[Json] | None = None) -> Answer:
        """The events and then nothing; not even headers when None."""

        async def answer(wire: Wire, _: Asked) -> None:
            if of is not None:
                await wire.head(content_type="text/event-stream")
                await wire.send(sse(of))
            await self.standing.wait()

        return answer

    def refuses(self, status: int, kind: str = "", message: str = "no", **headers: str) -> Answer:
        """An error in the API's shape."""
        body = {"type": "error", "error": {"type": kind or "api_error", "message": message}}

        async def answer(wire: Wire, _: Asked) -> None:
            await wire.head(status, content_type="application/json", **headers)
            await wire.send(json.dumps(body).encode())

        return answer

    def gives(self, data: bytes, status: int = 200, **headers: str) -> Answer:
        """Any bytes."""

        async def answer(wire: Wire, _: Asked) -> None:
            await wire.head(status, **headers)
            await wire.send(data)

        return answer


@asynccontextmanager
async def endpoint(tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """One on a free port of this machine."""
    served = Endpoint()
    async with await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls) as server:
        host, port = server.sockets[0].getsockname()
        served.address = f"{host}:{port}"
        served.url = f"{'https' if tls else 'http'}://{'localhost' if tls else host}:{port}"
        served.answers = [served.says("hello")]
        try:
            yield served
        finally:
            served.standing.set()
            server.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    shown = (writer.get_extra_info("peercert") or {}).get("subject", ())
    subject = next((value for ((name, value),) in shown if name == "commonName"), "")
    body = json.loads(raw) if raw.startswith(b"{") else {"raw": raw.decode()}
    return Asked(method, path, headers, body, subject)


def events(
    blocks: Sequence[Json],
    stop_reason: str | None = "end_turn",
    usage: Json | None = None,
    **stop: Any,
) -> list[Json]:
    """A reply as the events of a stream."""
    counts = {"input_tokens": 10, "output_tokens": 5, **(usage or {})}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    made: list[Json] = [
        {"type": "message_start", "message": {**message, "usage": {**counts, "output_tokens": 1}}}
    ]
    for index, block in enumerate(blocks):
        made += _block(index, block)
    delta = {"stop_reason": stop_reason, "stop_sequence": None, **stop}
    made.append({"type": "message_delta", "delta": delta, "usage": counts})
    return [*made, {"type": "message_stop"}]


def tool_use(raw: str, name: str = "bash") -> Json:
    """A tool_use block whose input is these characters."""
    return {"type": "tool_use", "id": "toolu_1", "name": name, "raw": raw}


def _block(index: int, block: Json) -> list[Json]:
    opened, deltas = dict(block), []
    if "raw" in opened:
        raw = opened.pop("raw")
        opened["input"] = {}
        half = len(raw) // 2
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in (raw[:half], raw[half:])]
    elif block["type"] == "text":
        opened["text"] = ""
        deltas = [{"type": "text_delta", "text": block["text"]}]
    elif block["type"] == "thinking":
        opened |= {"thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block.get("signature", "s")},
        ]
    start = {"type": "content_block_start", "index": index, "content_block": opened}
    each = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [start, *each, {"type": "content_block_stop", "index": index}]


def sse(of: Sequence[Json]) -> bytes:
    """Events on the wire of the Messages API."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in of
    )


def aws(event: Json) -> bytes:
    """An event on the wire of Bedrock: a message of AWS's event streams."""
    chunk = base64.b64encode(json.dumps(event).encode()).decode()
    return _frame(json.dumps({"bytes": chunk}).encode(), event_type="chunk", message_type="event")


def aws_exception(kind: str, message: str) -> bytes:
    """An exception inside one of AWS's event streams."""
    return _frame(
        json.dumps({"message": message}).encode(), exception_type=kind, message_type="exception"
    )


def _frame(payload: bytes, **headers: str) -> bytes:
    packed = b""
    for name, value in {**headers, "content_type": "application/json"}.items():
        key = (":" + name.replace("_", "-")).encode()
        packed += bytes([len(key)]) + key + b"\x07" + struct.pack("!H", len(value)) + value.encode()
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    prelude += struct.pack("!I", zlib.crc32(prelude))
    body = prelude + packed + payload
    return body + struct.pack("!I", zlib.crc32(body))
