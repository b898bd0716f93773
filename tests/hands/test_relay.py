"""The relay inside a hand, as the process that it is there, before a forwarder and without one."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hands.forwarder.exchange import Way
from hands.inside import relay, tree
from tests.hands.forwarder.place import forwarding, host, nowhere
from tests.hands.place import PATIENCE, until

ROOT = Path(__file__).parents[2]
_RUN = """
import os, socket, sys, time
sys.path.append(sys.argv[1])
from pathlib import Path
from hands.inside import relay, runner
listener = socket.socket(fileno=int(sys.argv[2]))
children = runner.Children()
relaying = relay.Relaying(children, listener, Path(sys.argv[3]))
while True:
    children.reap()
    relaying.tick(time.monotonic())
    time.sleep(0.02)
"""
"""What of the supervisor the relay needs."""


@asynccontextmanager
async def relaying(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """A relay for that folder: its port, and the pid of its parent."""
    with relay.listen(0) as listener:
        port = listener.getsockname()[1]
        number = listener.fileno()
        command = [sys.executable, "-I", "-S", "-c", _RUN, str(ROOT), str(number), str(folder)]
        parent = await asyncio.create_subprocess_exec(*command, pass_fds=[number])
    try:
        yield port, parent.pid
    finally:
        tree.kill_tree(parent.pid, tree.start_time(parent.pid))
        async with asyncio.timeout(PATIENCE):
            await parent.wait()


async def ask(port: int, data: bytes, *, end: bool = False) -> bytes:
    """All that comes back."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        if end:
            writer.write_eof()
        said = await reader.read()
        writer.close()
        return said


def get(port: int) -> bytes:
    return b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (port, port)


async def test_h38_a_program_reaches_an_allowed_host_by_the_loopback_port_and_no_other(
    tmp_path: Path,
) -> None:
    async with (
        host() as there,
        host() as other,
        forwarding(tmp_path, {"host": f"127.0.0.1:{there.port}"}),
        relaying(tmp_path) as (port, _),
    ):
        assert (await ask(port, get(there.port))).endswith(b"\r\n\r\nhi\n")
        assert b"HTTP/1.1 403 " in await ask(port, get(other.port))
        assert not other.heads


async def test_a_tunnel_carries_much_both_ways_and_the_end_of_each(tmp_path: Path) -> None:
    much = os.urandom(1024 * 1024)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())

    async with (
        host(b"", echo) as there,
        forwarding(tmp_path, {"host": f"127.0.0.1:{there.port}"}),
        relaying(tmp_path) as (port, _),
    ):
        connect = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost:\r\n\r\n" % there.port
        said = await ask(port, connect + b"head\r\n\r\n" + much, end=True)
        assert said == b"HTTP/1.1 200 Connected\r\n\r\n" + much


async def test_while_the_daemon_is_away_a_program_is_told_so_and_afterwards_served(
    tmp_path: Path,
) -> None:
    async with host() as there, relaying(tmp_path) as (port, _):
        # Its request is still unread then; the answer arrives all the same.
        said = await ask(port, get(there.port) + b"x" * 300_000, end=True)
        assert said.startswith(b"HTTP/1.1 503 The daemon is away")
        async with forwarding(tmp_path, {"host": f"127.0.0.1:{there.port}"}):
            assert b" 200 " in await ask(port, get(there.port))
        assert b" 503 " in await ask(port, get(there.port))


async def test_a_refusal_arrives_though_the_program_goes_on_sending(tmp_path: Path) -> None:
    async with forwarding(tmp_path), relaying(tmp_path) as (port, _):
        said = await ask(port, get(9) + b"x" * 3_000_000, end=True)
        assert said.startswith(b"HTTP/1.1 403 ")


async def test_a_relay_that_was_killed_is_there_again(tmp_path: Path) -> None:
    def running(parent: int) -> list[tree.Process]:
        return tree.descendants(parent)

    async with (
        host() as there,
        forwarding(tmp_path, {"host": f"127.0.0.1:{there.port}"}),
        relaying(tmp_path) as (port, parent),
    ):
        assert b" 200 " in await ask(port, get(there.port))
        (old,) = running(parent)
        tree.send(old, 9)
        await until(lambda: not tree.alive(old.pid, old.start), "it lives on")
        assert b" 200 " in await ask(port, get(there.port))  # in the port's queue meanwhile
        assert running(parent)[0].pid != old.pid


async def test_more_connections_than_it_holds_wait_and_are_served(tmp_path: Path) -> None:
    way = Way(nowhere, head_limit=PATIENCE)
    async with (
        host() as there,
        forwarding(tmp_path, {"host": f"127.0.0.1:{there.port}"}, way=way),
        relaying(tmp_path) as (port, _),
        asyncio.timeout(PATIENCE),
    ):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        served = await asyncio.gather(*(ask(port, get(there.port)) for _ in range(40)))
        assert all(b" 200 " in said for said in served)
        for one in silent:
            one.close()
        assert b" 200 " in await ask(port, get(there.port))
