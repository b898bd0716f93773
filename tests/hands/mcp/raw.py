"""An MCP server for tests that breaks the protocol, each tool in another way; by a pipe or HTTP.

Each tool is a function that gives messages as bytes, and may do what it likes in between.
"""

import gzip
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
ANY = {"type": "object"}
HALF = b'"a \\ud83d b \\ude00"'
"""No text: two halves that are no pair."""


def dumped(**message: Any) -> bytes:
    """A message."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def text(asked: Message, said: str, **more: Any) -> bytes:
    """A result."""
    return dumped(id=asked["id"], result={"content": [{"type": "text", "text": said}], **more})


def plain(asked: Message) -> Iterator[bytes]:
    """Behave."""
    yield text(asked, "fine")


def busy(asked: Message) -> Iterator[bytes]:
    """Refuse by the code that clients use for a connection that is closed."""
    yield dumped(id=asked["id"], error={"code": -32000, "message": "the database is busy"})


def half(asked: Message) -> Iterator[bytes]:
    """Text, a resource, a picture and what is structured, none of it text."""
    block = b'{"type": "text", "text": %s}' % HALF
    resource = b'{"type": "resource", "resource": {"uri": "file:///a", "text": %s}}' % HALF
    picture = b'{"type": "image", "mimeType": "image/png", "data": %s}' % HALF
    parts = b", ".join([block, resource, picture])
    result = b'{"content": [%s], "structuredContent": {"k": %s}}' % (parts, HALF)
    yield b'{"jsonrpc": "2.0", "id": %d, "result": %s}' % (asked["id"], result)


def half_structured(asked: Message) -> Iterator[bytes]:
    """Nothing but what is structured, and that no text."""
    result = b'{"content": [], "structuredContent": {"k": %s}}' % HALF
    yield b'{"jsonrpc": "2.0", "id": %d, "result": %s}' % (asked["id"], result)


def half_refused(asked: Message) -> Iterator[bytes]:
    """An error whose message is no text."""
    error = b'{"code": -32602, "message": %s}' % HALF
    yield b'{"jsonrpc": "2.0", "id": %d, "error": %s}' % (asked["id"], error)


def half_progress(asked: Message) -> Iterator[bytes]:
    """Progress that is no text."""
    params = b'{"progressToken": %d, "progress": 1, "message": %s}' % (asked["id"], HALF)
    yield b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": %s}' % params
    yield text(asked, "fine")


def latin(asked: Message) -> Iterator[bytes]:
    """Bytes that are no UTF-8."""
    yield text(asked, "CAFE").replace(b"CAFE", b"caf\xe9")


def wrong(asked: Message) -> Iterator[bytes]:
    """A result that is none."""
    yield dumped(id=asked["id"], result={"content": 5})


def listed(asked: Message) -> Iterator[bytes]:
    """An answer whose result is no object."""
    yield dumped(id=asked["id"], result=[1])


def empty(asked: Message) -> Iterator[bytes]:
    """An answer without any."""
    yield dumped(id=asked["id"])


def twice(asked: Message) -> Iterator[bytes]:
    """Two answers to one question, and one that nobody asked."""
    yield dumped(id=987_654, result={"content": []})
    yield text(asked, "first")
    yield text(asked, "second")


def asks(asked: Message) -> Iterator[bytes]:
    """Many questions of its own at once."""
    for number in range(300):
        method = ("sampling/createMessage", "roots/list", "elicitation/create")[number % 3]
        yield dumped(id=f"q{number}", method=method, params={"messages": [], "maxTokens": 1})
    yield text(asked, "asked")


def notes(asked: Message) -> Iterator[bytes]:
    """A hundred thousand notifications."""
    note = {"level": "info", "data": "x" * 50}
    yield from itertools.repeat(dumped(method="notifications/message", params=note), 100_000)
    yield text(asked, "noted")


def progress(asked: Message) -> Iterator[bytes]:
    """A flood of progress."""
    for step in range(5_000):
        params = {"progressToken": asked["id"], "progress": step, "message": "on it"}
        yield dumped(method="notifications/progress", params=params)
    yield text(asked, "done")


def grows(asked: Message) -> Iterator[bytes]:
    """Have other tools from now on, it says."""
    yield dumped(method="notifications/tools/list_changed")
    yield text(asked, "grown")


def deaf(asked: Message) -> Iterator[bytes]:
    """Hear of no cancel for a while."""
    yield dumped(
        method="notifications/progress", params={"progressToken": asked["id"], "progress": 0}
    )
    time.sleep(2)  # the cancel comes meanwhile, which this server does not read
    yield text(asked, "late")


def structured(asked: Message) -> Iterator[bytes]:
    """Much of it."""
    rows = [{"row": number, "text": "y" * 100} for number in range(50_000)]
    content: list[Message] = []
    yield dumped(id=asked["id"], result={"content": content, "structuredContent": {"rows": rows}})


def large(asked: Message) -> Iterator[bytes]:
    """A line that is within bounds."""
    yield text(asked, "z" * 12_000_000)


def endless(asked: Message) -> Iterator[bytes]:
    """A line that never ends."""
    yield from itertools.repeat(b"z" * 65536, 100_000)


def die(asked: Message) -> Iterator[bytes]:
    """End in the call."""
    os._exit(7)


def closes(asked: Message) -> Iterator[bytes]:
    """Close what it writes to, and live on."""
    os.close(1)
    time.sleep(600)
    return iter(())


def stops_reading(asked: Message) -> Iterator[bytes]:
    """Close what it reads, and live on."""
    yield text(asked, "deaf from now on")
    os.close(0)
    time.sleep(600)


def forks(asked: Message) -> Iterator[bytes]:
    """End, and leave a child that holds its pipes."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)


TOOLS: dict[str, Callable[[Message], Iterator[bytes]]] = {
    each.__name__: each
    for each in (
        *(plain, busy, half, half_structured, half_refused, half_progress, latin, wrong, twice),
        *(listed, empty),
        *(
            asks,
            notes,
            progress,
            grows,
            deaf,
            structured,
            large,
            endless,
            die,
            closes,
            stops_reading,
        ),
        *(forks,),
    )
}
NO_TEXT = [
    b'{"name": %s, "inputSchema": {"type": "object"}}' % HALF,
    b'{"name": "described", "description": %s, "inputSchema": {"type": "object"}}' % HALF,
    b'{"name": "shaped", "inputSchema": {"type": "object", "properties": {"a": {"enum": [%s]}}}}'
    % HALF,
]
"""Tools that no model could be told of."""


def answers(asked: Message) -> Iterator[bytes]:
    """What it says to a message."""
    match asked.get("method"):
        case "initialize":
            info = {"name": "raw", "version": "1"}
            about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            yield dumped(id=asked["id"], result={**about, "serverInfo": info})
        case "tools/list":
            well = [json.dumps({"name": name, "inputSchema": ANY}).encode() for name in TOOLS]
            tools = b", ".join(well + NO_TEXT)
            yield b'{"jsonrpc": "2.0", "id": %d, "result": {"tools": [%s]}}' % (asked["id"], tools)
        case "tools/call":
            yield from TOOLS[asked["params"]["name"]](asked)
        case _ if "method" in asked and "id" in asked:
            yield dumped(id=asked["id"], error={"code": -32601, "message": "no such method"})


def by_pipe() -> None:
    """One message a line."""
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        for message in answers(asked):
            end = b"" if asked.get("params", {}).get("name") == "endless" else b"\n"
            sys.stdout.buffer.write(message + end)
            sys.stdout.buffer.flush()


class Http(BaseHTTPRequestHandler):
    """One answer a request, as JSON or, with `events`, as events."""

    protocol_version = "HTTP/1.1"
    session = ""

    def do_POST(self) -> None:
        """A message."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, session = asked.get("method"), self.headers.get("mcp-session-id")
        if method == "initialize":
            Http.session = str(time.monotonic_ns())
        elif session and session != Http.session:
            self._whole(404, b"", "text/plain")
            return
        if "id" not in asked or "method" not in asked:
            self._whole(202, b"", "text/plain")
        elif asked.get("params", {}).get("name") == "packed":
            self._whole(200, gzip.compress(b" " * 10_000_000), "application/json", "gzip")
        elif asked.get("params", {}).get("name") == "forgets":
            Http.session = "another"
            self._whole(404, b"", "text/plain")
        elif self.path == "/events" and method == "tools/call":
            self._streamed(asked, "text/event-stream", b"data: ", b"\n\n")
        elif asked.get("params", {}).get("name") == "endless":
            self._streamed(asked, "application/json", b"", b"")
        else:
            (message,) = answers(asked)
            self._whole(200, message, "application/json")

    def _whole(self, status: int, body: bytes, kind: str, packed: str = "identity") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if Http.session:
            self.send_header("mcp-session-id", Http.session)
        # Servers may say also that it is not packed, and in letters of any case.
        self.send_header("content-encoding", packed.title())
        self.end_headers()
        self.wfile.write(body)

    def _streamed(self, asked: Message, kind: str, before: bytes, after: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        if endless := asked["params"]["name"] == "endless":
            self.wfile.write(before)
        for message in answers(asked):
            self.wfile.write(message if endless else before + message + after)

    def do_GET(self) -> None:
        """Nothing unasked."""
        self._whole(405, b"", "text/plain")

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Not a word."""


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        TOOLS |= {"packed": plain, "forgets": plain}
        served = ThreadingHTTPServer(("127.0.0.1", 0), Http)
        os.write(1, b"%d\n" % served.server_port)
        served.serve_forever()
    else:
        by_pipe()
