"""`carpal hand forward`: a port of this machine's loopback leads to one in the hand's network."""

import asyncio
import json
from contextlib import suppress

import click

from carpal.errors import CarpalError, invalid
from carpal.operator.connection import Found
from carpal.v1 import orchestrator_pb2 as pb
from hands.visit import terminal
from hands.visit.entering import Visit, Way, entered

AT_ONCE = 32
"""Connections; more wait."""
_READ = 64 * 1024
_HOST = "127.0.0.1"


def ports(text: str) -> tuple[int, int]:
    """`LOCAL:REMOTE`; 0 is any free port of this machine."""
    local, colon, there = text.partition(":")
    if not (colon and local.isdecimal() and there.isdecimal()):
        raise invalid("PORTS", f"{text!r} is not LOCAL:REMOTE")
    if int(local) > 65535 or not 0 < int(there) < 65536:
        raise invalid("PORTS", f"{text!r} names no ports")
    return int(local), int(there)


async def forward(found: Found, session_id: str, hand: str, pair: str, *, take: bool) -> None:
    """Serve connections until cancelled. Raises what ended it."""
    local, there = ports(pair)
    opening = pb.EnterOpen(session_id=session_id, hand=hand, kind="forward", take=take)
    async with entered(found, opening) as (way, visit):
        forwarding = _Forward(way, visit, opening, there)
        try:
            server = await asyncio.start_server(forwarding.accepted, _HOST, local)
        except OSError as error:
            raise invalid("PORTS", f"port {local} of {_HOST}: {error.strerror}") from None
        port = server.sockets[0].getsockname()[1]
        name = visit.opened.hand
        click.echo(f"{_HOST}:{port} leads to port {there} in hand {name}; Ctrl-C ends it", err=True)
        async with server:
            try:
                async for said in visit.came():
                    if said.HasField("end") and said.end.problem:
                        click.echo(f"carpal: {terminal.plain(said.end.problem)}", err=True)
            finally:
                await forwarding.end()


class _Forward:
    def __init__(self, way: Way, visit: Visit, opening: pb.EnterOpen, there: int) -> None:
        self._way = way
        self._opening = pb.EnterOpen(
            session_id=opening.session_id,
            hand=visit.opened.hand_id,
            kind="forward",
            options=json.dumps({"port": there}).encode(),
            within=visit.opened.tunnel_id,
        )
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One more connection."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """All of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._slots, self._way.enter(self._opening) as visit:
                sending = asyncio.create_task(_send(reader, visit))
                try:
                    await _give(visit, writer)
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})
        except CarpalError as error:
            click.echo(f"carpal: {error}", err=True)
        except ConnectionError:
            pass  # the program here went away
        finally:
            writer.close()
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(5.0):
                    await writer.wait_closed()


async def _send(reader: asyncio.StreamReader, visit: Visit) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_READ):
            await visit.send(data)
    await visit.end()


async def _give(visit: Visit, writer: asyncio.StreamWriter) -> None:
    async for said in visit.came():
        match said.WhichOneof("message"):
            case "data" if said.data:
                writer.write(said.data)
                await writer.drain()
            case "data":
                writer.write_eof()
            case "end" if said.end.problem:
                click.echo(f"carpal: {terminal.plain(said.end.problem)}", err=True)
                writer.transport.abort()
