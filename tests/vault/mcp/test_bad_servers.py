"""What a server may do instead of answering: the brain gets words of ours, the vault goes on."""

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from carpal.errors import refuse
from carpal.status import Reason
from tests.vault.guard.upstream import Asked, Upstream, reply, upstream
from tests.vault.mcp.world import CANARY, HOST, LIMIT, Brain, World
from vault.guard.limits import Limits
from vault.mcp import upstream as ours
from vault.mcp.wire import MODERN

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("go", "other")]
Called = Callable[[Asked, Any, asyncio.StreamWriter], Awaitable[None]]


def result(request_id: Any, **fields: Any) -> bytes:
    said = {"jsonrpc": "2.0", "id": request_id, "result": {"resultType": "complete", **fields}}
    return json.dumps(said).encode()


def text(request_id: Any, what: str) -> bytes:
    return result(request_id, content=[{"type": "text", "text": what}])


@asynccontextmanager
async def scripted(
    there: World, called: Called, **policy: Any
) -> AsyncIterator[tuple[Brain, Upstream]]:
    """A server of 2026-07-28 that lists two tools; what a call gets, a test says."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        message = json.loads(asked.body)
        match message["method"]:
            case "server/discover":
                data = reply(result(message["id"], supportedVersions=[MODERN], capabilities={}))
            case "tools/list":
                data = reply(result(message["id"], tools=TOOLS))
            case _:
                await called(asked, message["id"], writer)
                return
        writer.write(data)
        await writer.drain()

    async with upstream(there.authority, answer, HOST) as server:
        yield there.grant(server.port, **policy), server


def raw(data: bytes | Callable[[Any], bytes]) -> Called:
    async def called(asked: Asked, request_id: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(data if isinstance(data, bytes) else data(request_id))
        await writer.drain()

    return called


def sse(*events: bytes) -> bytes:
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    return reply(body, kind="text/event-stream")


@contextmanager
def growing_less_than(megabytes: float) -> Iterator[None]:
    """The most memory that this process has meanwhile, against what it has before."""
    Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
    before = memory("VmRSS")
    yield
    assert memory("VmHWM") - before < megabytes


def memory(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


BASIC = base64.b64encode(b"user:" + CANARY.encode()).decode()
ECHOES: dict[str, Callable[[Any], bytes]] = {
    "json": lambda i: reply(text(i, f"you are {CANARY}")),
    "json, all escaped": lambda i: reply(
        text(i, "@@@").replace(b"@@@", "".join(f"\\u{ord(c):04x}" for c in CANARY).encode())
    ),
    "events": lambda i: sse(text(i, f"you are {CANARY}")),
    "base64": lambda i: reply(text(i, f"Basic {BASIC}")),
    "url": lambda i: reply(text(i, f"https://x.test/?t={quote(CANARY, safe='')}")),
    "hex": lambda i: reply(text(i, CANARY.encode().hex())),
    "gzip": lambda i: reply(gzip.compress(text(i, CANARY)), "Content-Encoding: gzip"),
    "header": lambda i: reply(text(i, "x"), f"X-Token: {CANARY}", f"Mcp-Session-Id: {CANARY}"),
    "error": lambda i: reply(
        json.dumps(
            {"jsonrpc": "2.0", "id": i, "error": {"code": -32602, "message": f"bad {CANARY}"}}
        ).encode()
    ),
    "structured": lambda i: reply(result(i, content=[], structuredContent={CANARY: CANARY})),
}


@pytest.mark.parametrize("how", ECHOES)
async def test_v28_a_server_that_says_the_secret_is_not_heard(there: World, how: str) -> None:
    async with scripted(there, raw(ECHOES[how])) as (brain, _):
        said = await brain.call("go")
        whole = json.dumps(said)
        assert CANARY not in whole
        assert BASIC not in whole
        assert CANARY.encode().hex() not in whole
        assert there.credentials.last.reflections == 1


async def test_v28_also_when_it_comes_in_pieces(there: World) -> None:
    async def called(asked: Asked, request_id: Any, writer: asyncio.StreamWriter) -> None:
        for byte in sse(text(request_id, f"you are {CANARY}!")):
            writer.write(bytes([byte]))
            await writer.drain()

    async with scripted(there, called) as (brain, _):
        said = await brain.call("go")
        assert said["result"]["content"][0]["text"] == "you are [REDACTED]!"


BROKEN = {
    "no json": reply(b'{"token": "' + CANARY.encode()[:-2]),
    "html": reply(b"<html>it went wrong</html>", kind="text/html"),
    "no kind": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "like json": reply(b"{}", kind="application/jsonp"),
    "another's reply": reply(text(4711, "not yours")),
    "a text for an id": reply(text("3", "not yours")),
    "no reply": reply(b'{"jsonrpc":"2.0","method":"x"}'),
    "a batch": reply(b"[" + text(3, "x") + b"]"),
    "a name twice": reply(b'{"jsonrpc":"2.0","id":3,"id":3,"result":{}}'),
    "202": reply(b"", status="202 Accepted"),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.mark.parametrize("how", BROKEN)
async def test_v29_an_answer_that_is_none_is_told_in_words_of_ours(there: World, how: str) -> None:
    async with scripted(there, raw(BROKEN[how])) as (brain, _):
        said = await brain.call("go", call="c1")
        assert said["error"] == {
            "code": -32030,
            "message": "the server's answer is none",
            "data": {"reason": "SERVER_BROKEN"},
        }
        again = await brain.call("go", call="c1")
        assert again["error"]["data"] == {"reason": "CALL_SENT", "outcome": "unknown"}


REFUSED = {
    "403": (reply(b"no", status="403 Forbidden"), "AUTHENTICATION_FAILED"),
    "401": (
        reply(b"", 'WWW-Authenticate: Bearer resource_metadata="http://x/"', status="401 No"),
        "AUTHENTICATION_FAILED",
    ),
    "302": (reply(b"", "Location: https://evil.test/", status="302 Found"), "SERVER_REFUSED"),
    "307": (reply(b"", f"Location: https://{HOST}:1/", status="307 Temporary"), "SERVER_REFUSED"),
    "500": (reply(b"oops", status="500 Oops"), "SERVER_REFUSED"),
    "404": (reply(b"oops", status="404 Not Found"), "SERVER_REFUSED"),
    "cut": (reply(b"{").replace(b"Length: 1", b"Length: 9"), None),
}


@pytest.mark.parametrize("how", REFUSED)
async def test_v24_what_a_server_refuses_is_sent_nowhere_else(there: World, how: str) -> None:
    data, reason = REFUSED[how]

    async def called(asked: Asked, request_id: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if reason is None:
            writer.close()

    async with scripted(there, called) as (brain, server):
        assert await brain.refused("go") == (reason or "SERVER_GONE")
        assert sum(b"tools/call" in asked.body for asked in server.requests) == 1


async def test_v37_a_refused_credential_is_renewed_and_sent_once_more(there: World) -> None:
    async def called(asked: Asked, request_id: Any, writer: asyncio.StreamWriter) -> None:
        new = b"tok-NEWER-000111222" in asked.head
        writer.write(reply(text(request_id, "yes")) if new else reply(b"", status="401 Who"))
        await writer.drain()

    there.credentials.newer = "tok-NEWER-000111222"
    async with scripted(there, called) as (brain, server):
        said = await brain.call("go", call="c1")
        assert said["result"]["content"][0]["text"] == "yes"
        sent = [asked for asked in server.requests if b"tools/call" in asked.body]
        assert len(sent) == 2
        assert sent[0].connection != sent[1].connection  # another credential, another connection
        again = await brain.call("go", call="c1")
        assert again["error"]["data"] == {"reason": "CALL_SENT", "outcome": "ok"}


async def test_v32_without_an_audit_nothing_is_sent(there: World) -> None:
    async with scripted(there, raw(b"")) as (brain, server):
        there.credentials.problem = refuse(Reason.AUDIT_NOT_WRITTEN, "no audit")
        assert await brain.refused("go") == "UNAVAILABLE"
        assert not server.requests
        there.credentials.problem = refuse(Reason.CREDENTIAL_NOT_FOUND, "no credential")
        assert await brain.refused("go") == "CREDENTIAL_UNAVAILABLE"
        assert not server.requests


async def test_a_call_that_reached_nobody_may_be_sent_again(there: World) -> None:
    async with scripted(there, raw(lambda i: reply(text(i, "yes"), "Connection: close"))) as (
        brain,
        server,
    ):
        assert "result" in await brain.call("other")
        there.rule.ports.discard(server.port)  # from now on it is not dialled
        for _ in range(2):
            said = await brain.call("go", call="c1")
            assert said["error"]["data"]["reason"] == "UNREACHABLE"
        there.rule.ports.add(server.port)
        assert "result" in await brain.call("go", call="c1")
        assert "error" in await brain.call("go", call="c1")


@pytest.mark.parametrize("how", ["json", "events", "an event"])
async def test_v42_an_endless_answer_is_cut_and_takes_no_room(there: World, how: str) -> None:
    """200 MB and more, of which no more than a few are ever held."""
    sent = 0

    async def called(asked: Asked, request_id: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        kind = b"application/json" if how == "json" else b"text/event-stream"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n\r\n")
        part = {
            "json": b"[" + b"1," * 32768,
            "events": b"data: {}\n\n" * 6553,
            "an event": b"data: " + b"x" * 65536 + b"\n",
        }[how]
        if how == "events":
            progress = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": "b" * 900}}
            part = (b"data: " + json.dumps(progress).encode() + b"\n\n") * 60
        while sent < 200 * 1024 * 1024:
            writer.write(part)
            sent += len(part)
            await writer.drain()

    async with scripted(there, called) as (brain, _):
        with growing_less_than(64):
            assert await brain.refused("go") == "RESULT_TOO_LARGE"
    assert sent < 100 * 1024 * 1024


async def test_v42_tiny_events_and_bombs_are_cut_too(there: World) -> None:
    bomb = gzip.compress(b"[" + b" " * 100_000_000)
    assert len(bomb) < 500_000
    deflated = zlib.compress(b" " * 100_000_000)
    for data in (
        reply(b":\n" * 150_000, kind="text/event-stream"),
        reply(bomb, "Content-Encoding: gzip"),
        reply(deflated, "Content-Encoding: deflate"),
    ):
        async with scripted(there, raw(data)) as (brain, _):
            with growing_less_than(64):
                assert await brain.refused("go") == "RESULT_TOO_LARGE"


async def test_v42_pages_without_end_are_not_turned_for_ever(there: World) -> None:
    pages = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal pages
        message = json.loads(asked.body)
        if message["method"] == "server/discover":
            data = result(message["id"], supportedVersions=[MODERN])
        else:
            pages += 1
            tool = {"name": f"t{pages}", "inputSchema": {"type": "object"}}
            data = result(message["id"], tools=[tool], nextCursor=f"c{pages}")
        writer.write(reply(data))
        await writer.drain()

    async with upstream(there.authority, answer, HOST) as server:
        brain = there.grant(server.port)
        listed = await brain.ask("tools/list")
    assert pages == len(listed["result"]["tools"]) == 100


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "TOTAL", 1.5)
    monkeypatch.setattr(ours, "IDLE", 0.6)
    monkeypatch.setattr(ours, "_LISTING", Limits(total=5.0, first_byte=5.0))


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("how", ["never", "a byte now and then", "progress for ever", "half"])
async def test_v43_a_server_that_stalls_is_left_and_its_place_is_free(
    there: World, how: str
) -> None:
    async def called(asked: Asked, request_id: Any, writer: asyncio.StreamWriter) -> None:
        if how == "never":
            await asyncio.Event().wait()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n\r\n"
        if how == "half":
            writer.write(head % b"application/json" + b'{"jsonrpc"')
            await writer.drain()
            await asyncio.Event().wait()
        body = b"data: {}" if how == "a byte now and then" else b""
        writer.write(head % b"text/event-stream")
        progress = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
        for turn in range(1000):
            writer.write(body[turn % 8 : turn % 8 + 1] or b"data: " + progress + b"\n\n")
            await writer.drain()
            await asyncio.wait([asyncio.ensure_future(writer.wait_closed())], timeout=0.1)

    async with scripted(there, called, concurrency=1, first_byte=0.5) as (brain, _):
        for _ in range(2):
            async with asyncio.timeout(LIMIT):
                assert await brain.refused("go") == "TIMED_OUT"


async def test_v44_a_result_that_asks_for_input_is_none(there: World) -> None:
    asks = {
        "resultType": "input_required",
        "requestState": "x",
        "inputRequests": {
            "a": {"method": "elicitation/create", "params": {"mode": "url", "url": "javascript:1"}},
            "b": {"method": "sampling/createMessage", "params": {}},
            "c": {"method": "roots/list", "params": {}},
        },
    }
    async with scripted(there, raw(lambda i: reply(result(i, **asks)))) as (brain, _):
        assert await brain.refused("go") == "INPUT_REFUSED"


async def test_v40_tools_of_one_are_never_those_of_another(there: World) -> None:
    """A server that lists others for other tokens, and says that all may be kept by all."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        message = json.loads(asked.body)
        if message["method"] == "server/discover":
            data = result(message["id"], supportedVersions=[MODERN])
        elif message["method"] == "tools/list":
            name = "mine" if CANARY.encode() in asked.head else "theirs"
            tool = {"name": name, "inputSchema": {"type": "object"}}
            data = result(message["id"], tools=[tool], ttlMs=10**6, cacheScope="public")
        else:
            data = text(message["id"], "yes")
        writer.write(reply(data))
        await writer.drain()

    async with upstream(there.authority, answer, HOST) as server:
        one = there.grant(server.port)
        listed = (await one.ask("tools/list"))["result"]
        assert [tool["name"] for tool in listed["tools"]] == ["mine"]
        assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
        assert "result" in await one.call("mine")
        there.credentials.token, there.credentials.generation = "tok-OTHER-99887766", 2
        two = there.grant(server.port, session="s2")
        assert [t["name"] for t in (await two.ask("tools/list"))["result"]["tools"]] == ["theirs"]
        assert await one.refused("mine") == "TOOL_DENIED"


async def test_v38_what_is_malformed_is_refused_before_anything_is_asked(there: World) -> None:
    async with scripted(there, raw(b"")) as (brain, server):
        for data, kind in (
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call"}', None),
            (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', None),
            (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', None),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', "application/jsonx"),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', "text/plain"),
            (b'{"jsonrpc":"2.0","id":1,"result":{}}', None),
            (b"x" * (4 * 1024 * 1024 + 1), None),
        ):
            headers = {**brain.headers(), **({"content-type": kind} if kind else {})}
            said = await brain.http.post(brain.url, headers=headers, content=data)
            assert said.status_code == 400
            assert said.json()["id"] is None
        assert not server.requests
