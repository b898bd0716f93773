"""Writes of one turn of the loop go out as one."""

import asyncio
from typing import Any, cast

from vault.http.together import HELD_MAX, Together


class Out:
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        self.said: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.said.append(data)

    def close(self) -> None:
        self.said.append("close")

    def abort(self) -> None:
        self.said.append("abort")

    def is_closing(self) -> bool:
        return bool(self.said)


def made() -> tuple[Out, Together]:
    out = Out()
    return out, Together(cast(Any, out), asyncio.get_running_loop())


async def test_a_head_and_its_body_go_out_as_one() -> None:
    out, together = made()
    together.write(b"head ")
    together.write(b"body")
    assert out.said == []
    assert not together.is_closing()
    await asyncio.sleep(0)
    assert out.said == [b"head body"]
    together.write(b"next")
    await asyncio.sleep(0)
    assert out.said == [b"head body", b"next"]


async def test_what_is_large_waits_for_nothing_so_that_a_slow_peer_is_felt() -> None:
    out, together = made()
    for _ in range(4):
        together.write(b"x" * HELD_MAX)
    assert sum(map(len, out.said)) >= 3 * HELD_MAX
    await asyncio.sleep(0)
    assert sum(map(len, out.said)) == 4 * HELD_MAX


async def test_closing_sends_what_waits_and_aborting_does_not() -> None:
    out, together = made()
    together.write(b"last")
    together.close()
    await asyncio.sleep(0)
    assert out.said == [b"last", "close"]
    out, together = made()
    together.write(b"last")
    together.abort()
    await asyncio.sleep(0)
    assert out.said == ["abort"]
