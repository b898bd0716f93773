"""A process to be told to stop: `python -m tests.process_child load LOOP FOLDER`, or `stuck`."""

import asyncio
import os
import sys
import threading
from pathlib import Path

from carpal import process
from carpal.client import dial
from carpal.identity import Role
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.server import serve
from carpal.tls import server_credentials
from tests.pki import Pki

CALLERS = 50
_REQUEST = health_pb2.HealthCheckRequest()


async def load(stop: asyncio.Event) -> None:
    """Serve and call, both without pause, and leave all of it to its end at the stop."""
    pki = Pki(Path(sys.argv[3]))
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    async with (
        serve("127.0.0.1:0", credentials, lambda server: None) as server,
        dial(server.address, Role.BRAIN, pki.issue(Role.DAEMON, "d"), retry=False) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        answered = asyncio.Event()

        async def call() -> None:
            while True:
                await stub.Check(_REQUEST)
                answered.set()

        async def watch() -> None:
            async for _ in stub.Watch(_REQUEST):
                pass

        calling = [asyncio.create_task(each()) for each in (call, watch) for _ in range(CALLERS)]
        await answered.wait()
        os.write(1, b"at work\n")
        await stop.wait()
        del calling  # they go on


async def stuck(stop: asyncio.Event) -> None:
    """Wait in a thread for what never comes."""
    waiting = asyncio.create_task(asyncio.to_thread(threading.Event().wait))
    await asyncio.sleep(0)
    os.write(1, b"at work\n")
    await stop.wait()
    waiting.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "load":
        process.run(load, server=sys.argv[2] == "uvloop")
    else:
        process.run(stuck)
