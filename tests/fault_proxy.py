"""A network that fails: a TCP proxy that does to bytes what networks do.

It stands between who dials and who listens, on loopback. Each fault is for one
connection or for all, for one direction or both, and can be healed.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum


class Way(Enum):
    """A direction of a connection."""

    UP = "from who dialled"
    DOWN = "to who dialled"


BOTH = (Way.UP, Way.DOWN)
_STALLED, _NOT_CONNECTED, _FULL = "stalled", "not connected", "full"
"""Why bytes wait."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER such that closing sends RST."""


class Flow(asyncio.Protocol):
    """What one end of a connection sends, on its way to the other end."""

    def __init__(self, connection: "Connection", way: Way) -> None:
        self.way = way
        self.passed = 0
        """Bytes passed on so far."""
        self.swallowed = 0
        """Bytes that were lost."""
        self.swallowing = False
        self.delay = 0.0
        self.left: int | None = None
        """Bytes to pass on until the connection is reset."""
        self.ended = False
        self.closed = asyncio.Event()
        """Its socket is gone, or never was."""
        self.closed.set()
        self.transport: asyncio.Transport | None = None
        self._connection = connection
        self._holds: set[str] = set()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _other(self) -> "Flow":
        return self._connection.flows[Way.DOWN if self.way is Way.UP else Way.UP]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Its socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.closed.clear()
        if self._connection.over:
            self.abort()
        elif self._holds:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Pass on, late or in part or not at all."""
        if self.swallowing:
            self.swallowed += len(data)
            return
        due = asyncio.get_running_loop().time() + self.delay
        if self.left is None:
            self._pass(due, data)
            return
        data, self.left = data[: self.left], max(0, self.left - len(data))
        self._pass(due, data)
        if self.left == 0:
            self._connection.cut()

    def eof_received(self) -> bool:
        """The end of what it sends."""
        if not self.swallowing:
            self._pass(asyncio.get_running_loop().time() + self.delay, b"")
        return True  # the way back stays

    def connection_lost(self, error: Exception | None) -> None:
        """Its end is gone: the other is told, if anything gets through."""
        self.closed.set()
        if not self.swallowing:
            self._connection.cut()

    def pause_writing(self) -> None:
        """This end reads too slowly for what comes to it."""
        self._other.hold(_FULL)

    def resume_writing(self) -> None:
        """It reads again."""
        self._other.release(_FULL)

    def hold(self, why: str) -> None:
        """Read no more of what this end sends."""
        if not self._holds and self.transport:
            self.transport.pause_reading()
        self._holds.add(why)

    def release(self, why: str) -> None:
        """Read on, unless there is another reason not to."""
        if self._holds and not (self._holds - {why}) and self.transport:
            self.transport.resume_reading()
        self._holds.discard(why)
        self._drain()

    def abort(self) -> None:
        """RST to this end."""
        if self._timer:
            self._timer.cancel()
        if self.transport and not self.transport.is_closing():
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()

    def _pass(self, due: float, data: bytes) -> None:
        self._waiting.append((due, data))
        self._drain()

    def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        # A transport may give what it had read before it was told to pause.
        while self._waiting and not self._holds & {_STALLED, _NOT_CONNECTED}:
            due, data = self._waiting[0]
            if due > loop.time():
                self._timer = loop.call_at(due, self._drain)
                return
            self._waiting.popleft()
            to = self._other.transport
            if to is None or to.is_closing():
                return
            if data:
                self.passed += len(data)
                to.write(data)
            else:
                self.ended = True
                to.write_eof()
                if self._other.ended:
                    self._connection.close()


class Connection:
    """One connection through the proxy, with a fault for each."""

    def __init__(self) -> None:
        self.flows = {way: Flow(self, way) for way in BOTH}
        self.gone = False
        """Neither end is connected to the other any more."""
        self.over = False
        """It was cut, or ended."""

    @property
    def up(self) -> Flow:
        """What who dialled sends."""
        return self.flows[Way.UP]

    @property
    def down(self) -> Flow:
        """What comes back."""
        return self.flows[Way.DOWN]

    def dialled(self) -> None:
        """Who listens was dialled, with or without success; meanwhile it may have been cut."""
        if self.over or self.down.transport is None:
            self.cut()
        else:
            self.up.release(_NOT_CONNECTED)

    def cut(self) -> None:
        """RST to both ends."""
        self.gone = self.over = True
        for flow in self.flows.values():
            flow.abort()

    def close(self) -> None:
        """Both ends said all."""
        self.gone = self.over = True
        for flow in self.flows.values():
            if flow.transport:
                flow.transport.close()

    def blackhole(self, *ways: Way) -> None:
        """Bytes and ends are swallowed; sockets stay open, and nobody is told."""
        for way in ways or BOTH:
            self.flows[way].swallowing = True

    def stall(self, *ways: Way) -> None:
        """Bytes wait where they are, as on a path that drops packets, until it is healed."""
        for way in ways or BOTH:
            self.flows[way].hold(_STALLED)

    def delay(self, seconds: float, *ways: Way) -> None:
        """Bytes come that much later, in order."""
        for way in ways or BOTH:
            self.flows[way].delay = seconds

    def half_open(self, told: Way = Way.DOWN) -> None:
        """Close one end and never tell the other.

        `told` says which, by the way that its bytes come from: who answers, unless said.
        """
        self.blackhole()
        self.gone = True
        self.flows[told].abort()

    def reset_after(self, count: int, way: Way) -> None:
        """Pass on so many bytes more in one direction, and cut in the middle of whatever it is."""
        self.flows[way].left = count

    def heal(self) -> None:
        """Nothing is wrong any more; what was swallowed is lost, and what is gone stays gone."""
        for flow in self.flows.values():
            flow.swallowing, flow.delay, flow.left = False, 0.0, None
            flow.release(_STALLED)


class FaultProxy:
    """Between all who dial `address` and who listens at `target`; use `fault_proxy`.

    Each fault hits every connection there is, and `blackhole`, `stall`, `delay`
    and `refuse` also those that come, until `heal`.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        """`host:port`; may change, and may have nobody listening yet."""
        self.address = ""
        self.connections: list[Connection] = []
        """All there ever were."""
        self.refusing = False
        self._standing: Callable[[Connection], None] | None = None
        self._changed = asyncio.Event()
        self._dialling: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> list[Connection]:
        """Those with both ends."""
        return [connection for connection in self.connections if not connection.gone]

    def cut(self) -> None:
        """RST to all."""
        for connection in self.open:
            connection.cut()

    def refuse(self) -> None:
        """Cut, and reset all that come: nobody listens there."""
        self.refusing = True
        self.cut()

    def blackhole(self, *ways: Way) -> None:
        """See Connection; who dials now is connected, and hears nothing."""
        self._from_now_on(lambda connection: connection.blackhole(*ways))

    def stall(self, *ways: Way) -> None:
        """See Connection."""
        self._from_now_on(lambda connection: connection.stall(*ways))

    def delay(self, seconds: float, *ways: Way) -> None:
        """See Connection."""
        self._from_now_on(lambda connection: connection.delay(seconds, *ways))

    def half_open(self, told: Way = Way.DOWN) -> None:
        """See Connection."""
        for connection in self.open:
            connection.half_open(told)

    def reset_after(self, count: int, way: Way) -> None:
        """See Connection."""
        for connection in self.open:
            connection.reset_after(count, way)

    def heal(self) -> None:
        """For all, and for those that come."""
        self.refusing, self._standing = False, None
        for connection in self.connections:
            connection.heal()

    async def connected(self, count: int, seconds: float) -> Connection:
        """Until so many connections have come in all; the last of them."""
        async with asyncio.timeout(seconds):
            while len(self.connections) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.connections[count - 1]

    async def end(self) -> None:
        """Cut all, and leave nothing behind."""
        self.refuse()
        await asyncio.gather(*self._dialling)
        for connection in self.connections:
            connection.cut()
            await asyncio.gather(*(flow.closed.wait() for flow in connection.flows.values()))

    def _from_now_on(self, fault: Callable[[Connection], None]) -> None:
        self._standing = fault
        for connection in self.open:
            fault(connection)

    def _accept(self) -> Flow:
        connection = Connection()
        self.connections.append(connection)
        if self._standing:
            self._standing(connection)
        connection.up.hold(_NOT_CONNECTED)
        # Awaited when the proxy ends.
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        self._changed.set()
        return connection.up

    async def _connect(self, connection: Connection) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            if not self.refusing:
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: connection.down, host, int(port))
        except OSError:
            pass  # nobody listens
        connection.dialled()


@asynccontextmanager
async def fault_proxy(target: str, listen: str = "127.0.0.1") -> AsyncIterator[FaultProxy]:
    """A proxy on a free port of `listen`; nothing of it is left at the end."""
    proxy = FaultProxy(target)
    server = await asyncio.get_running_loop().create_server(proxy._accept, listen, 0)
    host, port = server.sockets[0].getsockname()[:2]
    proxy.address = f"{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
