"""A request goes out as it was told, once, and what goes wrong with it has a type."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.pace import AT_ONCE, SCALE
from tests.vault.guard.upstream import (
    HOST,
    Asked,
    Names,
    Upstream,
    guarded,
    reply,
    says,
)
from vault.guard.errors import (
    BadRequest,
    BodyTooLarge,
    Cut,
    GuardError,
    Malformed,
    TimedOut,
)
from vault.guard.headers import bearer
from vault.guard.limits import Limits
from vault.guard.targets import Target
from vault.guard.transport import Guard, Request
from vault.secret import Secret

TOKEN = "tok_0123456789abcdefghij"


def to(there: Upstream, path: str = "/mcp", host: str = HOST) -> Target:
    return Target(host, there.port, path)


def get(there: Upstream, path: str = "/mcp") -> Request:
    return Request("GET", to(there, path), [("Authorization", bearer(Secret(TOKEN)))])


async def test_a_request_is_sent_as_it_was_told_and_its_reply_read(tmp_path: Path) -> None:
    async with guarded(tmp_path, says(reply(b'{"ok":1}'))) as (guard, [there]):
        request = Request(
            "POST",
            to(there, "/mcp?x=1"),
            [("Authorization", bearer(Secret(TOKEN))), ("Content-Type", "application/json")],
            b'{"id":1}',
        )
        async with guard.send(request) as response:
            assert response.status == 200
            assert response.headers == {"content-type": "application/json"}
            assert await response.read() == b'{"ok":1}'
            assert not response.reflected
    [asked] = there.requests
    lines = asked.head.decode().strip().split("\r\n")
    assert lines == [
        "POST /mcp?x=1 HTTP/1.1",
        f"Host: {HOST}:{there.port}",
        "Accept-Encoding: identity",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        "Content-Length: 8",
    ]
    assert asked.body == b'{"id":1}'


async def test_a_body_in_parts_is_sent_as_it_comes(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"", b"two"):
            yield part

    async with guarded(tmp_path, says(reply(b""))) as (guard, [there]):
        for length in (None, 7):
            request = Request("PUT", to(there), body=parts(), length=length)
            async with guard.send(request) as response:
                assert response.status == 200
        assert [each.body for each in there.requests] == [b"one two"] * 2
        with pytest.raises(BodyTooLarge):
            async with guard.send(Request("PUT", to(there), body=parts(), length=9)):
                pass
        with pytest.raises(BodyTooLarge):
            async with guard.send(Request("PUT", to(there), body=parts(), length=5)):
                pass
        with pytest.raises(BodyTooLarge):
            async with guard.send(
                Request("PUT", to(there), body=parts()), limits=Limits(request_bytes=6)
            ):
                pass


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
@pytest.mark.parametrize("kind", ["other host", "cleartext", "other port", "user", "same"])
async def test_a_redirect_is_not_followed_and_told_only_within_its_origin_v24(
    tmp_path: Path, status: str, kind: str
) -> None:
    canary = says(reply(b"caught"))
    where = {"port": 0}

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        location = {
            "other host": f"https://evil.test:{where['port']}/",
            "cleartext": f"http://{HOST}/",
            "other port": f"https://{HOST}:{where['port']}/",
            "user": f"https://u:p@{HOST}/",
            "same": "/elsewhere",
        }[kind]
        writer.write(reply(b"", f"Location: {location}", status=status))

    names = Names({HOST: [["127.0.0.1"]], "evil.test": [["127.0.0.1"]]})
    async with guarded(tmp_path, answer, canary, names=names) as (guard, [there, other]):
        where["port"] = other.port
        request = Request(
            "POST",
            to(there),
            [("Authorization", bearer(Secret(TOKEN))), ("X-Api-Key", "k"), ("Accept", "a/b")],
            b"body",
        )
        async with guard.send(request, wanted={"location"}) as response:
            assert response.status == int(status[:3])
            assert response.headers == ({"location": "/elsewhere"} if kind == "same" else {})
            await response.read()
        assert len(there.requests) == 1
        assert (other.connections, names.asked) == (0, [HOST])


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", Target(HOST, 1, "/"), [("X-Tool", "a\r\nX-Evil: 1")]),
        Request("GET", Target(HOST, 1, "/"), [("X-Evil\r\n", "1")]),
        Request("GET", Target(HOST, 1, "/"), [("Authorization", bearer(Secret("abcd\r\nefgh")))]),
        Request("GET\r\n", Target(HOST, 1, "/")),
        Request("get", Target(HOST, 1, "/")),
        Request("TRACE", Target(HOST, 1, "/")),
        Request("CONNECT", Target(HOST, 1, "/")),
        Request("GET", Target(HOST, 1, "/"), [("Authorization", bearer(Secret("short")))]),
    ],
)
async def test_what_is_malformed_is_refused_before_anything_is_looked_up_v25(
    request_: Request,
) -> None:
    names = Names({HOST: [["127.0.0.1"]]})
    async with Guard(resolver=names) as guard:
        with pytest.raises(BadRequest) as refused:
            async with guard.send(request_):
                pass
    assert names.asked == []
    assert not refused.value.sent


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", Cut),
        (b"HTTP/1.1 200 OK\r\nContent-", Cut),
        (f"220 {TOKEN} ESMTP\r\n\r\n".encode(), Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", Malformed),
        (reply(b"", "Content-Type: c/d"), Malformed),
        (reply(b"0\r\n\r\n", "Transfer-Encoding: chunked"), Malformed),
        (f"HTTP/1.1 200 OK\r\nX:{TOKEN}\x00\r\n\r\n".encode(), Malformed),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Malformed),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 0\r\n\r\n", Malformed),
    ],
)
async def test_a_reply_that_is_none_is_a_typed_error_without_a_word_of_it_v29(
    tmp_path: Path, raw: bytes, error: type[GuardError]
) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close()

    async with guarded(tmp_path, answer) as (guard, [there]):
        with pytest.raises(error) as failed:
            async with guard.send(get(there)):
                pass
        assert failed.value.sent
        told = [repr(failed.value.fields), *traceback.format_exception(failed.value)]
        assert TOKEN not in "".join(told)


async def test_a_reply_cut_within_its_body_is_an_error_and_stays_one(tmp_path: Path) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with guarded(tmp_path, answer) as (guard, [there]), guard.send(get(there)) as response:
        assert await anext(response) == b"hello"
        for _ in range(2):
            with pytest.raises(Cut):
                await anext(response)


async def test_a_lane_keeps_its_connection_and_shares_it_with_no_other(tmp_path: Path) -> None:
    async with guarded(tmp_path, says(reply(b"x"))) as (guard, [there]):

        async def ask(lane: object) -> int:
            async with guard.send(get(there), lane=lane) as response:
                await response.read()
            return there.requests[-1].connection

        assert [await ask("g1"), await ask("g1")] == [1, 1]
        assert await ask("g2") == 2
        assert [await ask(None), await ask(None)] == [3, 4]
        assert await ask("g1") == 1
        there.gone.clear()
        await guard.forget("g1")
        async with asyncio.timeout(AT_ONCE):
            await there.gone.wait()
        assert await ask("g1") == 5
        assert await ask("g2") == 2


async def test_what_is_left_unread_is_never_met_by_the_next_request(tmp_path: Path) -> None:
    async with guarded(tmp_path, says(reply(b"y" * 1_000_000))) as (guard, [there]):
        for number in (1, 2):
            async with guard.send(get(there), lane="g") as response:
                await anext(response)
            assert there.requests[-1].connection == number


async def test_a_kept_connection_that_ended_is_an_error_and_not_tried_again(tmp_path: Path) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if there_requests == 0:
            writer.write(reply(b"first"))
        else:
            writer.close()

    there_requests = 0
    async with guarded(tmp_path, answer) as (guard, [there]):
        async with guard.send(get(there), lane="g") as response:
            await response.read()
        there_requests = 1
        with pytest.raises(Cut):
            async with guard.send(get(there), lane="g"):
                pass
        assert len(there.requests) == 2


async def test_a_caller_that_is_cancelled_ends_the_connection(tmp_path: Path) -> None:
    asked_one = asyncio.Event()

    async def never(asked: Asked, writer: asyncio.StreamWriter) -> None:
        asked_one.set()
        await asyncio.Event().wait()

    async with guarded(tmp_path, never) as (guard, [there]):

        async def call() -> None:
            async with guard.send(get(there), lane="g"):
                pass

        task = asyncio.create_task(call())
        async with asyncio.timeout(AT_ONCE):
            await asked_one.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert guard._lanes._lanes["g", (), 10.0, 4.0].pool.connections == []


async def test_an_error_of_the_callers_own_passes_as_it_is(tmp_path: Path) -> None:
    async with guarded(tmp_path, says(reply(b"x"))) as (guard, [there]):
        with pytest.raises(ZeroDivisionError):
            async with guard.send(get(there)):
                raise ZeroDivisionError

        async def broken() -> AsyncIterator[bytes]:
            yield b"x"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            async with guard.send(Request("PUT", to(there), body=broken())):
                pass


def test_a_request_prints_as_its_method_and_host_v31() -> None:
    target = Target.parse(f"https://a.com/x?access_token={TOKEN}")
    request = Request("GET", target, [("A", TOKEN)], TOKEN.encode())
    assert repr(request) == str(request) == "Request(GET https://a.com)"


async def test_a_server_that_never_answers_times_out_and_says_it_may_have_been_sent_v43(
    tmp_path: Path,
) -> None:
    async def never(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with guarded(tmp_path, never) as (guard, [there]):
        for limits, limit in (
            (Limits(first_byte=0.05), "first_byte"),
            (Limits(total=SCALE), "total"),
        ):
            with pytest.raises(TimedOut) as late:
                async with guard.send(get(there), limits=limits):
                    pass
            assert late.value.fields["limit"] == limit
            assert late.value.sent


async def test_a_timeout_of_the_bodys_source_is_the_callers_own(tmp_path: Path) -> None:
    async def late() -> AsyncIterator[bytes]:
        yield b"x"
        raise TimeoutError("mine")

    async with guarded(tmp_path, says(reply(b"x"))) as (guard, [there]):
        with pytest.raises(TimeoutError, match="mine"):
            async with guard.send(Request("PUT", to(there), body=late())):
                pass
