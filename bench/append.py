"""Durable append of 1 KB events to the real sessiond over mutual TLS, beside the machine's limits.

Run as `python -m bench.append [--seconds N]`. Groups of one event, each of its own session under
a lease, on one Append stream; `in flight` is how many wait for their ack. The limits are measured
in the same run on the same disk: a raw SQLite commit per event, one per 64 events, and
`fdatasync` of 4 KiB. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from carpal.client import dial
from carpal.identity import Role
from carpal.ids import new_id
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

DATA = os.urandom(512).hex().encode()
"""1 KiB."""
MANY = 64


@contextmanager
def sessiond(state: Path) -> Iterator[str]:
    """A real one in a process of its own; its address."""
    carpal, where = [sys.executable, "-m", "carpal"], ["--state-dir", str(state)]
    subprocess.run([*carpal, "vault", "init", *where], check=True, stdout=subprocess.DEVNULL)
    read, write = os.pipe()
    command = [*carpal, "sessiond", "run", *where, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--ready-fd", str(write)], pass_fds=[write], stderr=subprocess.DEVNULL
    )
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            yield str(json.loads(ready.readline())["address"])
    finally:
        process.terminate()
        process.wait(30)


class Load:
    """One Append stream that keeps a number of groups in flight, coalesced as a brain does."""

    def __init__(self, stub: "SessionAsyncStub", epochs: dict[str, int], in_flight: int) -> None:
        self._stub = stub
        self._sessions = deque(epochs.items())
        self._in_flight = in_flight
        self._sent: dict[int, float] = {}
        self._acked = asyncio.Event()
        self._until = 0.0
        self.latencies: list[float] = []

    async def run(self, seconds: float) -> float:
        """Append for that long; events per second."""
        started = time.perf_counter()
        self._until = started + seconds
        async for response in self._stub.Append(self._frames()):
            now = time.perf_counter()
            for ack in response.acks:
                if ack.HasField("status"):
                    raise RuntimeError(ack.status.message)
                self.latencies.append(now - self._sent.pop(ack.sequence))
            self._acked.set()
        return len(self.latencies) / (time.perf_counter() - started)

    async def _frames(self) -> AsyncIterator[pb.AppendRequest]:
        sequence = 0
        while (now := time.perf_counter()) < self._until:
            frame = pb.AppendRequest()
            while len(self._sent) < self._in_flight:
                sequence += 1
                self._sessions.rotate(1)
                session_id, epoch = self._sessions[0]
                event = types_pb2.NewEvent(id=new_id("sevt"), type="agent.message", data=DATA)
                frame.groups.add(
                    sequence=sequence, session_id=session_id, events=[event], epoch=epoch
                )
                self._sent[sequence] = now
            if frame.groups:
                yield frame
            self._acked.clear()
            await self._acked.wait()


async def measure(address: str, state: Path, seconds: float) -> dict[str, float]:
    """Rates and latencies at 1 and at 64 in flight."""
    results: dict[str, float] = {}
    async with dial(address, Role.SESSIOND, IdentityFiles(state / "brain/brain-1/identity")) as to:
        stub = SessionStub(to)
        epochs = {}
        for _ in range(MANY):
            session_id = new_id("sesn")
            await stub.CreateSession(
                pb.CreateSessionRequest(session_id=session_id, workspace="default")
            )
            request = pb.AcquireLeaseRequest(resource=f"session/{session_id}")
            request.term.FromSeconds(60)
            epochs[session_id] = (await stub.AcquireLease(request)).lease.epoch
        for in_flight in (1, MANY):
            load = Load(stub, epochs, in_flight)
            results[f"rate_{in_flight}"] = round(await load.run(seconds))
            ordered = sorted(load.latencies)
            results[f"p50_ms_{in_flight}"] = round(1000 * ordered[len(ordered) // 2], 3)
            results[f"p99_ms_{in_flight}"] = round(1000 * ordered[len(ordered) * 99 // 100], 3)
    return results


def raw_sqlite(path: Path, batch: int, seconds: float) -> float:
    """Events per second of the barest durable log in SQLite, `batch` to a commit."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS e (session, position, data);"
        "CREATE INDEX IF NOT EXISTS i ON e (session, position)"
    )
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        rows = [(n % MANY, n, DATA) for n in range(count, count + batch)]
        with connection:
            connection.executemany("INSERT INTO e VALUES (?, ?, ?)", rows)
        count += batch
    rate = count / (time.perf_counter() - started)
    connection.close()
    return rate


def raw_sync(path: Path, seconds: float) -> float:
    """Appends of 4 KiB per second, each with fdatasync."""
    count, started = 0, time.perf_counter()
    with path.open("ab", buffering=0) as file:
        while time.perf_counter() - started < seconds:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            count += 1
    return count / (time.perf_counter() - started)


def main() -> None:
    """Measure, print, and end with JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        root = Path(folder)
        with sessiond(root / "state") as address:
            results = asyncio.run(measure(address, root / "state", seconds))
        results["fdatasync"] = round(raw_sync(root / "sync", seconds / 2))
        for batch in (1, MANY):
            raw = raw_sqlite(root / f"raw{batch}.db", batch, seconds / 2)
            results[f"sqlite_{batch}"] = round(raw)
            results[f"of_sqlite_{batch}"] = round(results[f"rate_{batch}"] / raw, 3)
    for name, value in results.items():
        print(f"{name:>14} {value:>12,}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
