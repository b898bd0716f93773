"""Durable append of 1 KB events to the real sessiond over mutual TLS, beside the machine's limits.

Groups of one event, each of its own session under a lease, on one Append stream; `in flight` is
how many wait for their ack. The limits are measured in the same rounds on the same disk: a raw
SQLite commit per event, one per 64 events, and `fdatasync` of 4 KiB. Numbers are medians of the
rounds; only the ratios, `of_…`, mean anything elsewhere. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import statistics
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


class Driver:
    """A brain with as many sessions under lease as may be in flight."""

    def __init__(self, stub: "SessionAsyncStub") -> None:
        self._stub = stub
        self._epochs: dict[str, int] = {}

    async def take(self) -> None:
        """Create the sessions, or acquire their leases anew."""
        for session_id in list(self._epochs) or [new_id("sesn") for _ in range(MANY)]:
            await self._stub.CreateSession(
                pb.CreateSessionRequest(session_id=session_id, workspace="default")
            )
            request = pb.AcquireLeaseRequest(resource=f"session/{session_id}")
            request.term.FromSeconds(60)
            self._epochs[session_id] = (await self._stub.AcquireLease(request)).lease.epoch

    async def measure(self, in_flight: int, seconds: float) -> dict[str, float]:
        """Rate and latencies with so many in flight."""
        await self.take()
        load = Load(self._stub, self._epochs, in_flight)
        rate = await load.run(seconds)
        ordered = sorted(load.latencies)
        return {
            f"rate_{in_flight}": rate,
            f"p50_ms_{in_flight}": 1000 * ordered[len(ordered) // 2],
            f"p99_ms_{in_flight}": 1000 * ordered[len(ordered) * 99 // 100],
        }


async def measure(address: str, root: Path, rounds: int, seconds: float) -> list[dict[str, float]]:
    """Each round measures the limits and then us, since the disk's speed wanders."""
    results = []
    files = IdentityFiles(root / "state/brain/brain-1/identity")
    async with dial(address, Role.SESSIOND, files) as channel:
        driver = Driver(SessionStub(channel))
        for _ in range(rounds):
            result = {"fdatasync": raw_sync(root / "sync", seconds)}
            for in_flight in (1, MANY):
                raw = raw_sqlite(root / f"raw{in_flight}.db", in_flight, seconds)
                result |= await driver.measure(in_flight, seconds)
                result |= {
                    f"sqlite_{in_flight}": raw,
                    f"of_sqlite_{in_flight}": result[f"rate_{in_flight}"] / raw,
                }
            results.append(result)
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        root = Path(folder)
        with sessiond(root / "state") as address:
            rounds = asyncio.run(measure(address, root, options.rounds, options.seconds))
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    results = {name: round(value, 3 if value < 100 else None) for name, value in medians.items()}
    for name, value in results.items():
        print(f"{name:>14} {value:>12,}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
