"""One hand of a server on a unix socket, bounded by the daemon where the server is not.

A call that does not end in its time is cancelled, and a hand whose call does not end then either is
lost. So is one whose brain was not heard for the orphan deadline.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import grpc

from carpal.v1 import hand_pb2 as pb
from hands.builtin import socket_said
from hands.builtin.socket_server import ANSWER, Server, driver
from hands.contract import Call, Event, HandLost, Result, Step

log = logging.getLogger(__name__)

_MARGIN = 5.0
"""Seconds beyond its time that a server has to end a call by itself."""
_GRACE = 2.0
_RELEASE = 10.0
_HEARD_MAX = 64
"""Events after which the server is told that they were heard, and asked again."""
_ID_MAX = 128
"""Characters of an event's id."""
_ASK_AGAIN = 0.5
"""Seconds between questions for what the server says unasked."""

Stream = grpc.aio.UnaryStreamCall[pb.ExecuteRequest, pb.ExecuteResponse]


class SocketHand:
    """One hand."""

    replays = False
    """Whether its server keeps calls whose watcher left, and answers them again."""
    speaks = False
    """Whether its server has Events."""
    limits: Mapping[str, float] = MappingProxyType({})
    """Seconds that a call of each tool may take when it is given none."""

    def __init__(
        self,
        server: Server,
        hand_id: str,
        folder: Path,
        deadline: float,
        held: frozenset[str] = frozenset(),
    ) -> None:
        """`deadline` is the orphan deadline, in seconds; `held` the calls its server holds."""
        self.held = held
        self.quiet = 0.0
        self._server = server
        self._hand_id = hand_id
        self._folder = folder
        self._deadline = deadline
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._streams: set[Stream] = set()
        self._heard: list[str] = []
        self._stopped: set[str] = set()
        """Calls under way that the server was told to stop."""
        self._overdue: set[str] = set()
        """Those of them whose time was over."""
        self._no_more = server.on_loss(self._lose)
        self._orphan: asyncio.TimerHandle | None = None
        if deadline:
            self._rearm()

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        """Tell the server once; it runs."""
        limit = call.within(self.limits.get(call.tool, socket_said.DEFAULT_LIMIT))
        request = pb.ExecuteRequest(
            driver=driver(self._hand_id),
            hand_id=self._hand_id,
            call_id=call.call_id,
            name=call.tool,
            input=json.dumps(call.input).encode(),
        )
        request.time_limit.FromNanoseconds(int(limit * 1e9))
        if self.replays:
            self._path(call.call_id).write_bytes(request.SerializeToString())
        async for step in self._watch(request):
            yield step

    async def attach(self, call_id: str) -> AsyncIterator[Step]:
        """Ask a server that replays for a call again, as it was told it."""
        try:
            request = pb.ExecuteRequest.FromString(self._path(call_id).read_bytes())
        except (OSError, ValueError) as error:
            raise HandLost(f"what call {call_id} asked for is not kept: {error}") from error
        async for step in self._watch(request, began=True):
            yield step

    async def cancel(self, call_id: str, grace: float) -> None:
        """Have the server stop it; who does not answer loses the hand when the time is over."""
        self._stopped.add(call_id)
        request = pb.CancelRequest(
            driver=driver(self._hand_id), hand_id=self._hand_id, call_id=call_id
        )
        request.grace.FromNanoseconds(int(grace * 1e9))
        with suppress(grpc.RpcError):
            await self._server.stub.Cancel(request, timeout=ANSWER)

    async def acknowledge(self, call_id: str) -> None:
        """A server that keeps results may forget this one."""
        if not self.replays:
            return
        request = pb.AcknowledgeRequest(
            driver=driver(self._hand_id), hand_id=self._hand_id, call_ids=[call_id]
        )
        with suppress(grpc.RpcError):
            await self._server.stub.Acknowledge(request, timeout=ANSWER)
        self._path(call_id).unlink(missing_ok=True)

    async def events(self) -> AsyncIterator[Event]:
        """What the server says of it unasked: asked for again as often as an answer ends."""
        while self.speaks and not self._lost.done():
            keys = [pb.EventKey(hand_id=self._hand_id, event_id=each) for each in self._heard]
            request = pb.EventsRequest(hand_ids=[self._hand_id], acknowledged=keys)
            stream = self._server.stub.Events(request)
            try:
                said_now = 0
                async for said in stream:
                    yield socket_said.event(said)
                    said_now += 1
                    if said_now >= _HEARD_MAX:
                        break  # a server that never ends its answer is told all the same
                del self._heard[: len(keys)]
            except grpc.aio.AioRpcError as error:
                about = {"hand_id": self._hand_id, "why": self._server.why(error)}
                log.info("what a hand says is not heard", extra=about)
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return
            finally:
                stream.cancel()
            await asyncio.wait({self._lost}, timeout=_ASK_AGAIN)

    async def heard(self, event_id: str) -> None:
        """The server is told with the next question."""
        if len(event_id) <= _ID_MAX:  # else it was no event, and all of it is kept until told
            self._heard.append(event_id)

    async def contact(self) -> None:
        """The orphan deadline starts over."""
        self._rearm()

    async def wait_lost(self) -> str:
        """Why, once it is."""
        return await asyncio.shield(self._lost)

    async def release(self) -> None:
        """Have the server end it. Raises HandLost when it does not say that it did."""
        request = pb.ReleaseRequest(driver=driver(self._hand_id), hand_id=self._hand_id)
        try:
            said = await self._server.stub.Release(request, timeout=_RELEASE)
            if not said.ended:  # nobody shares it there
                raise HandLost("its server did not release it: it says that it has not ended")
        except grpc.RpcError as error:
            raise HandLost(f"its server did not release it: {self._server.why(error)}") from None
        finally:
            await self.detach()

    async def detach(self) -> None:
        """Leave it to its server."""
        self._no_more()
        if self._orphan:
            self._orphan.cancel()
        for stream in self._streams:
            stream.cancel()

    async def _watch(
        self, request: pb.ExecuteRequest, *, began: bool = False
    ) -> AsyncIterator[Step]:
        stream = self._server.stub.Execute(request)
        self._streams.add(stream)
        late = asyncio.create_task(self._see_to_its_end(request))
        progress = socket_said.Progress()
        try:
            async for step in stream:
                if step.HasField("result"):
                    ended = socket_said.result(step.result, self._folder)
                    if request.call_id in self._overdue:
                        ended = socket_said.overdue(ended, _seconds(request))
                    yield ended
                    return
                yield progress.output(step.output)
                began = True
                await asyncio.sleep(0)  # a flood of it is one hand's turn, not all turns
        except ValueError as error:
            await self.cancel(request.call_id, _GRACE)
            yield self._wrong(str(error))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._lose(self._server.why(error))
            if self._lost.done():
                raise HandLost(self._lost.result()) from None
            yield socket_said.failed(error.code(), self._server.why(error), began=began)
        except asyncio.CancelledError:
            # Its stream was cancelled, and not the task that reads it.
            task = asyncio.current_task()
            if self._lost.done() and task and not task.cancelling():
                raise HandLost(self._lost.result()) from None
            raise
        finally:
            late.cancel()
            stream.cancel()  # of one that ended this is nothing
            await stream.code()
            self._streams.discard(stream)
            self._stopped.discard(request.call_id)
            self._overdue.discard(request.call_id)

    def _wrong(self, why: str) -> Result:
        why = f"it answered wrongly: {why}"
        return socket_said.failed(grpc.StatusCode.INTERNAL, why, began=True)

    async def _see_to_its_end(self, request: pb.ExecuteRequest) -> None:
        limit = _seconds(request)
        await asyncio.sleep(limit + _MARGIN)
        if request.call_id not in self._stopped:  # else it ends as who stopped it says
            self._overdue.add(request.call_id)
        await self.cancel(request.call_id, _GRACE)
        await asyncio.sleep(_GRACE + _MARGIN)
        self._lose(f"its call did not end after its {limit:g} s, nor when it was cancelled")

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
        for stream in self._streams:
            stream.cancel()

    def _rearm(self) -> None:
        if self._orphan:
            self._orphan.cancel()
        loop = asyncio.get_running_loop()
        why = f"no brain was heard for {self._deadline:g} s"
        self._orphan = loop.call_later(self._deadline, self._lose, why)

    def _path(self, call_id: str) -> Path:
        return self._folder / f"asked.{call_id}"


def _seconds(request: pb.ExecuteRequest) -> float:
    """What a call may take."""
    return request.time_limit.ToNanoseconds() / 1e9
