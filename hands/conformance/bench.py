"""What a check works with: a connection of its own, fresh ids, and hands that end with it."""

import asyncio
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from carpal.client import from_rpc, held
from carpal.ids import new_id
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import PEER, Failed, Skipped, explain, must
from hands.conformance import refusals
from hands.conformance.hand import HandAt
from hands.conformance.held import RESET, Held
from hands.conformance.own import OwnServer
from hands.conformance.subject import WORKSPACE, Subject, dialled
from hands.conformance.waits import END, RESULT, Waits

if TYPE_CHECKING:
    from carpal.v1.hand_pb2_grpc import HandAsyncStub  # known to the stubs alone

ORPHAN_DEADLINE = 120
"""Seconds after which hands end that a killed check left behind."""
_LAST_EPOCH = 2**62
"""Above any that a check claims a hand with."""
_NONE_THERE = {Reason.HAND_NOT_FOUND, Reason.HAND_GONE, Reason.INVALID_FIELD}
_HAND_ID = re.compile(r"hand_\w+")
_ENDING = 10.0
"""Seconds to release a hand at a check's end."""
NO_RESULT = "Provision sent no result"
_RESULT = "Have Provision send one `result` as soon as the hand can run a call, or refuse."
_LAST = "End Provision's stream, with the status OK, right after its one `result`."
_RELEASE = "Have Release end the hand and all it started, and answer it every time."
_RESET = (
    "Have ResetUnit bring a unit that Describe names to the state in which each hand finds it, "
    "within a minute, however often."
)
_AGAIN = 0.2
"""Seconds between tries at a unit that is being reset."""
_SOMEONE = 54_321
"""A user id, where root may choose one."""
_MIB = 1024 * 1024


class Bench:
    """One check's own. Use `open_bench`."""

    def __init__(self, subject: Subject, scale: float, waits: Waits | None = None) -> None:
        self.subject = subject
        self.scale = scale
        self.waits = waits or Waits(scale)
        self.held = Held(subject)
        """The units of its hands."""
        self.not_reset: Failed | None = None
        """What a reset at the end failed with."""
        self._hands: list[HandAt] = []
        self._made: dict[str, str] = {}
        """The session of each hand, by its id: what a check claims to be afterwards is its own."""
        self._connection = AsyncExitStack()
        self._stub: HandAsyncStub | None = None

    @property
    def stub(self) -> "HandAsyncStub":
        """The connection there is."""
        assert self._stub is not None
        return self._stub

    @property
    def own(self) -> OwnServer:
        """The server, or Skipped when it is not ours to kill."""
        if self.subject.own is None:
            raise Skipped("needs --type: another's server is not ours to kill")
        return self.subject.own

    def slow(self, seconds: float) -> float:
        """Seconds, on this machine."""
        return seconds * self.scale

    async def dial(self) -> None:
        """Open the connection, or cut it and open another."""
        await self._connection.aclose()
        self._stub = await self._connection.enter_async_context(dialled(self.subject.socket))

    # Hands.

    def driver(self, session_id: str = "", epoch: int = 1) -> pb.Driver:
        """A driver, of a session of its own unless one is named."""
        session = session_id or new_id("sesn")
        return pb.Driver(session_id=session, epoch=epoch, workspace=WORKSPACE)

    def order(self, **config: Any) -> pb.ProvisionRequest:
        """A hand to provision, of a fresh id."""
        request = pb.ProvisionRequest(
            driver=self.driver(),
            hand_id=new_id("hand"),
            type=self.subject.type.type,
            config=json.dumps({**self.subject.config, **config}).encode(),
        )
        request.orphan_deadline.FromSeconds(int(self.slow(ORPHAN_DEADLINE)))
        return request

    async def provision(
        self, request: pb.ProvisionRequest, patience: float = 0.0, *, beyond: bool = False
    ) -> pb.ProvisionResult:
        """Provision, and see to the hand's end; its result, which must come last and alone.

        It may take `patience` seconds, or as long as any. Skipped when the type has too few units,
        unless one `beyond` all of them is meant.
        """
        taken = not beyond and self.held.take(request.hand_id)
        self._hands.append(self.at(request))
        self._made[request.hand_id] = request.driver.session_id
        if taken and self.held.ours:
            request.unit_id = self.held.unit_of(request.hand_id)
            await self.reset(request.unit_id)
        try:
            return await self._provision_soon(request, patience, wait=taken)
        except grpc.aio.AioRpcError:
            if taken:
                self.held.give_back(request.hand_id)
            raise

    async def _provision_soon(
        self, request: pb.ProvisionRequest, patience: float, *, wait: bool
    ) -> pb.ProvisionResult:
        """Provision; after the server was killed, `wait` for units that it resets at its start."""
        own = self.subject.own
        ends = time.monotonic() + self.slow(RESET)
        while True:
            try:
                return await self._provision(request, patience)
            except grpc.aio.AioRpcError as error:
                full = from_rpc(error, PEER).reason is Reason.AT_CAPACITY
                if not (wait and full and own and own.killed and time.monotonic() < ends):
                    raise
            await asyncio.sleep(_AGAIN)  # nothing announces it

    async def _provision(self, request: pb.ProvisionRequest, patience: float) -> pb.ProvisionResult:
        with self.waits.of("Provision"), held(self.stub.Provision(request)) as making:
            steps = aiter(making)
            async with self.waits.within(patience or RESULT, NO_RESULT, _RESULT):
                async for step in steps:
                    if step.HasField("result"):
                        break
                else:
                    raise Failed("Provision ended without a result", _RESULT)
            otherwise = "Provision sent its result and did not end its stream"
            async with self.waits.within(END, otherwise, _LAST):
                more = await anext(steps, None)
            must(more is None, "something came after the result", _LAST)
        return step.result

    def at(self, request: pb.ProvisionRequest) -> HandAt:
        """The hand of a request."""
        lacks = frozenset(self.subject.lacks)
        limit = self.subject.limit
        return HandAt(
            lambda: self.stub,
            request.hand_id,
            request.driver,
            lacks=lacks,
            limit=limit,
            waits=self.waits,
            over=lambda: self._over(request.hand_id),
        )

    async def units(self) -> dict[str, pb.UnitInfo]:
        """What Describe says of the type's units now, by id."""
        async with self.waits.answer("Describe"):
            types = (await self.stub.Describe(pb.DescribeRequest())).types
        name = self.subject.type.type
        return {each.unit_id: each for kind in types if kind.type == name for each in kind.units}

    async def reset(self, unit_id: str) -> None:
        """Have the server reset a unit, as a daemon does. Failed when it does not."""
        request = pb.ResetUnitRequest(type=self.subject.type.type, unit_id=unit_id)
        async with self.waits.within(RESET, f"ResetUnit of {unit_id} was not answered", _RESET):
            try:
                await self.stub.ResetUnit(request)
            except grpc.aio.AioRpcError as error:
                missing = error.code() is grpc.StatusCode.UNIMPLEMENTED
                change = refusals.change("ResetUnit", error.code()) if missing else _RESET
                raise Failed(f"ResetUnit of {unit_id}: {explain(error)}", change) from None

    async def _over(self, hand_id: str) -> None:
        """A hand was released: its unit is reset, and may be another's."""
        if (unit_id := self.held.give_back(hand_id)) and self.held.ours:
            await self.reset(unit_id)

    async def hand(self, limits: Mapping[str, int] | None = None, **config: Any) -> HandAt:
        """A new hand."""
        request = self.order(**config)
        for name, value in (limits or {}).items():
            setattr(request.limits, name, value)
        await self.provision(request)
        return self._hands[-1]

    async def limited(self, limit: str, value: int) -> HandAt:
        """A new hand with a limit; Skipped where that is not enforced."""
        if not self.subject.enforces(limit):
            raise Skipped(f"the type does not enforce {limit} here")
        return await self.hand({limit: value})

    def plain_call(self) -> tuple[str, dict[str, Any]]:
        """A tool of the type and an input that does no harm."""
        if self.subject.plain is not None:
            return self.subject.plain
        calls: dict[str, dict[str, Any]] = {
            "bash": {"command": "echo plain"},
            "write": {"file_path": "plain", "content": "plain"},
            "screenshot": {},
        }
        for tool in self.subject.type.tools:
            if tool.name in calls:
                return tool.name, calls[tool.name]
        raise Skipped("the checks know none of its tools: say one with --call")

    def long_call(self) -> tuple[str, dict[str, Any]]:
        """A tool of the type and an input that last until they are cancelled."""
        if self.subject.long is not None:
            return self.subject.long
        if "bash" in [tool.name for tool in self.subject.type.tools]:
            return "bash", {"command": "sleep 600"}
        raise Skipped("the checks know no call of it that lasts: say one with --long")

    # What is outside hands.

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder of this machine that anyone may write to; gone when the block ends.

        It is no folder of root's, whose files no hand may be given.
        """
        with tempfile.TemporaryDirectory(prefix="carpal-outside-") as path:
            folder = Path(path)
            folder.chmod(0o777)
            if os.geteuid() == 0:
                os.chown(folder, _SOMEONE, _SOMEONE)
            yield folder

    @asynccontextmanager
    async def growth(self) -> AsyncIterator["Growth"]:
        """How much memory the server took at most in the block, beyond what it had."""
        growth = Growth(self.subject.server_pid)
        looking = asyncio.create_task(growth.look())
        try:
            yield growth
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    async def close(self) -> list[str]:
        """End its hands and hang up; says which of them are still there, and why."""
        left = []
        for hand_id, session_id in self._made.items():
            try:
                async with asyncio.timeout(self.slow(_ENDING)):
                    if why := await self._end(hand_id, session_id):
                        left.append(f"{hand_id}: {why}")
                await self._over(hand_id)
            except Failed as error:
                self.not_reset = error
            except TimeoutError:
                left.append(f"{hand_id}: Release was not answered")
            except grpc.RpcError as error:
                left.append(f"{hand_id}: {explain(error)}")
        await self._connection.aclose()
        return left

    async def _end(self, hand_id: str, session_id: str) -> str:
        """Release a hand as its driver of the highest epoch; what is left of it, in words."""
        driver = pb.Driver(session_id=session_id, epoch=_LAST_EPOCH, workspace=WORKSPACE)
        try:
            await self.stub.Release(pb.ReleaseRequest(driver=driver, hand_id=hand_id))
        except grpc.aio.AioRpcError as error:
            if from_rpc(error, PEER).reason not in _NONE_THERE:
                raise
        if _HAND_ID.fullmatch(hand_id) and self.subject.own is not None:
            return ", ".join(self.subject.own.remains(hand_id))
        return ""


class Growth:
    """The memory of one process while it is looked at."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._first = _resident(pid)
        self._most = self._first

    @property
    def mib(self) -> float:
        """MiB at most beyond the first look; Skipped when there is no process to see."""
        if not self._first:
            raise Skipped("the server's process is not to be seen from here")
        return (max(self._most, _resident(self._pid)) - self._first) / _MIB

    async def look(self) -> None:
        """Look often, until cancelled."""
        while True:
            self._most = max(self._most, _resident(self._pid))
            await asyncio.sleep(0.02)  # memory has no event, and a peak may be short


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def open_bench(
    subject: Subject, scale: float = 1.0, waits: Waits | None = None
) -> AsyncIterator[Bench]:
    """A bench, connected; at the end the hands made at it are gone, or it has Failed."""
    bench = Bench(subject, scale, waits)
    await bench.dial()
    try:
        yield bench
    except BaseException:
        await bench.close()  # what it failed with says more
        raise
    if left := await bench.close():
        raise Failed(f"left behind: {'; '.join(left)}", _RELEASE)
    if bench.not_reset:
        raise bench.not_reset


def number() -> str:
    """A number of seconds that nobody else sleeps: it tells a check's processes from all others."""
    return f"9{secrets.randbelow(10**8):08}"


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """So far."""
        return time.monotonic() - self._begun
