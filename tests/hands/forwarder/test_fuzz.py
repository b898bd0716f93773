"""Requests broken at random: none ends a forwarder, hangs, or reaches what no rule allows."""

import logging
import random
import secrets
from pathlib import Path

import pytest

from hands.forwarder.exchange import Way
from tests.hands.forwarder.place import forwarding, host, nowhere
from tests.pace import SEED, times

_PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b":",
        b"\r\n\r\n",
        b"0\r\n\r\n",
        b"\xff",
        b"@",
        b"#",
    ),
    *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: evil.example\r\n"),
    *(b"GET http://evil.example/ HTTP/1.1\r\n", b"HTTP/1.0", b"CONNECT ", b"//", b"/../", b"%2e"),
)
_WHOLE = (
    b"GET http://127.0.0.1:%d/ok HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX: y\r\n\r\n",
    b"POST http://127.0.0.1:%d/ok HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 3\r\n\r\nabc",
    b"POST http://127.0.0.1:%d/ok HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\nGET /ok HTTP/1.1\r\n\r\n",
)


def broken(chance: random.Random, port: int, other: int) -> bytes:
    """One of the whole requests, for one of two ports, with a few changes."""
    numbers = tuple(chance.choice((port, port, port, other)) for _ in range(2))
    data = bytearray(chance.choice(_WHOLE) % numbers)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[at:at] = chance.choice(_PIECES)
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
        data = data or bytearray(b"\r\n")
    return bytes(data)


async def test_no_broken_request_reaches_another_host_or_ends_the_forwarder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = SEED or secrets.randbits(32)
    chance = random.Random(seed)
    caplog.set_level(logging.ERROR)
    async with host() as there, host() as other:
        rule = {"host": f"127.0.0.1:{there.port}", "methods": ["GET", "POST"], "paths": ["/ok*"]}
        async with forwarding(tmp_path, rule, way=Way(nowhere, head_limit=2.0)) as client:
            for number in range(times(300, 30_000)):
                data = broken(chance, there.port, other.port)
                where = f"CARPAL_TEST_SEED={seed}, request {number}: {data!r}"
                before = len(there.heads)
                said = await client.send(data, end=True)
                assert said.startswith(b"HTTP/1.") or not said, where
                passed = there.heads[before:]
                assert len(passed) <= 1, where
                for head in passed:
                    method, target, _ = head.split(b" ", 2)
                    assert method in (b"GET", b"POST"), where
                    assert target.startswith(b"/ok"), where
                    assert head.count(b"\r\nHost: 127.0.0.1:") == 1, where
                assert not other.heads, where
                assert not caplog.records, where
