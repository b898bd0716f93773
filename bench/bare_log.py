"""The limit of our append: the same stream over mutual TLS, and commits of nothing but the events.

No lease, no duplicate looked for, no hash, no index by id, no tail, no check of any kind; one
thread and one SQLite file with `synchronous=FULL`, one ack frame for each commit. What sessiond
costs beyond this is the price of what it promises.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import apsw
import grpc
import uvloop

from carpal.client import dial
from carpal.identity import Role
from carpal.server import serve
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import session_pb2, types_pb2
from carpal.v1.session_pb2_grpc import SessionStub

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

_SECONDS = 30.0
"""To start."""
_SCHEMA = """
PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE events
  (number INTEGER PRIMARY KEY, session TEXT, position INT, id TEXT, type TEXT, data BLOB) STRICT;
CREATE UNIQUE INDEX by_position ON events (session, position);
"""
_INSERT = "INSERT INTO events (session, position, id, type, data) VALUES (?, ?, ?, ?, ?)"

_Answers = asyncio.Queue["list[types_pb2.AppendAck] | None"]
_Waiting = SimpleQueue["tuple[session_pb2.AppendRequest, _Answers]"]


@asynccontextmanager
async def bare_log(
    server: IdentityFiles, client: IdentityFiles, file: Path
) -> AsyncIterator["SessionAsyncStub"]:
    """One in a process of its own, which serves until the block ends."""
    run = "from bench import bare_log; bare_log.main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", run, str(server.directory), str(file)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            port = int(await process.stdout.readline())
        async with dial(f"127.0.0.1:{port}", Role.SESSIOND, client) as channel:
            yield SessionStub(channel)
    finally:
        process.kill()
        await process.wait()


class _Log:
    def __init__(self, file: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: _Waiting = SimpleQueue()
        threading.Thread(target=self._write, args=(file,), daemon=True).start()

    async def append(
        self, frames: AsyncIterable[session_pb2.AppendRequest], _context: object
    ) -> AsyncIterator[session_pb2.AppendResponse]:
        answers: _Answers = asyncio.Queue()

        async def read() -> None:
            async for frame in frames:
                self._waiting.put((frame, answers))
            answers.put_nowait(None)

        reading = asyncio.create_task(read())
        while (acks := await answers.get()) is not None:
            yield session_pb2.AppendResponse(acks=acks)
        await reading

    def _write(self, file: str) -> None:
        connection = apsw.Connection(file)
        connection.execute(_SCHEMA).fetchall()
        heads: Counter[str] = Counter()
        while True:
            frames = [self._waiting.get()]
            while not self._waiting.empty():
                frames.append(self._waiting.get())
            rows, acked = [], []
            for frame, answers in frames:
                acks = []
                for group in frame.groups:
                    heads[group.session_id] += 1
                    head = heads[group.session_id]
                    (event,) = group.events
                    rows.append((group.session_id, head, event.id, event.type, event.data))
                    acks.append(types_pb2.AppendAck(sequence=group.sequence, position=head))
                acked.append((answers, acks))
            with connection:
                connection.executemany(_INSERT, rows)
            self._loop.call_soon_threadsafe(self._answer, acked)

    @staticmethod
    def _answer(acked: "list[tuple[_Answers, list[types_pb2.AppendAck]]]") -> None:
        for answers, acks in acked:
            answers.put_nowait(acks)


async def _serve(identity: str, file: str) -> None:
    handler: Any = grpc.stream_stream_rpc_method_handler(
        _Log(file).append,
        request_deserializer=session_pb2.AppendRequest.FromString,
        response_serializer=session_pb2.AppendResponse.SerializeToString,
    )
    rpcs = grpc.method_handlers_generic_handler("carpal.v1.Session", {"Append": handler})
    credentials = server_credentials(IdentityFiles(Path(identity)))
    async with serve(
        "127.0.0.1:0", credentials, lambda server: server.add_generic_rpc_handlers((rpcs,))
    ) as serving:
        print(serving.address.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve one, as told by the command line, and print its port."""
    uvloop.run(_serve(sys.argv[1], sys.argv[2]))
