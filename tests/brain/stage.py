"""A driven session on a real sessiond, with a daemon's hands that a test scripts."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.message import Message

from brain.daemons.directory import Directory, Row
from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import HandConnection, Peers
from brain.daemons.links import Links
from brain.daemons.planned import PlannedEnds
from brain.hands.calls import Calls
from brain.session.driver import Driver
from brain.session.entries import New
from brain.session.leases import LeaseKeeper
from brain.session.log import Appender
from brain.session.watch import WatchHub
from carpal.errors import refuse
from carpal.identity import Role
from carpal.ids import new_id
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2, types_pb2
from tests.pace import SCALE
from tests.sessiond.desk import identity
from tests.sessiond.serving import Serving

WAIT = 10.0 * SCALE
ME = identity(Role.BRAIN, "brain-1")
UNLINKED = refuse(Reason.DAEMON_NOT_LINKED, "daemon d1 is not linked anywhere")

Answer = Exception | list[Message] | Callable[[Any], AsyncGenerator[Message, None]]


class Hands:
    """One daemon's hands: what is scripted for an arm comes first, then what a good hand says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.script: dict[str, list[Answer]] = {}
        self.states: dict[str, hand_pb2.CallInfo] = {}
        self.journal_id, self.boot_id, self.sequence = "j", "b", 1
        self.linked = True
        self.tools = ["bash"]
        """Names of the tools that it offers."""

    def arms(self) -> list[str]:
        """What was asked, in order."""
        return [arm for arm, _ in self.asked]

    def asked_for(self, arm: str) -> list[Any]:
        """The requests of one kind."""
        return [request for each, request in self.asked if each == arm]

    async def call(self, arm: str, request: Message) -> AsyncGenerator[Any, None]:
        """See HandConnection."""
        self.asked.append((arm, request))
        scripted = self.script.get(arm)
        answer = scripted.pop(0) if scripted else getattr(self, "_" + arm)(request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            for message in answer:
                yield message
        else:
            async for message in answer(request):
                yield message

    def _provision(self, _: hand_pb2.ProvisionRequest) -> list[Message]:
        result = hand_pb2.ProvisionResult(
            journal_id=self.journal_id, boot_id=self.boot_id, sequence=self.sequence
        )
        return [hand_pb2.ProvisionResponse(result=result)]

    def _claim(self, request: hand_pb2.ClaimRequest) -> list[Message]:
        unknown = hand_pb2.CALL_STATE_UNKNOWN
        calls = [
            self.states.get(each, hand_pb2.CallInfo(call_id=each, state=unknown))
            for each in request.call_ids
        ]
        answer = hand_pb2.ClaimResponse(
            journal_id=self.journal_id,
            boot_id=self.boot_id,
            sequence=self.sequence,
            calls=calls,
        )
        return [answer]

    def _execute(self, _: hand_pb2.ExecuteRequest) -> list[Message]:
        return [result("done")]

    def _acknowledge(self, _: Message) -> list[Message]:
        return [hand_pb2.AcknowledgeResponse()]

    def _cancel(self, _: Message) -> list[Message]:
        return [hand_pb2.CancelResponse()]

    def _release(self, _: Message) -> list[Message]:
        return [hand_pb2.ReleaseResponse(ended=True)]

    def _describe(self, _: Message) -> list[Message]:
        tools = [
            hand_pb2.ToolInfo(name=name, description="runs", input_schema=b'{"type":"object"}')
            for name in self.tools
        ]
        kind = hand_pb2.HandTypeInfo(type="process", tools=tools)
        return [hand_pb2.DescribeResponse(types=[kind])]


def result(text: str, outcome: hand_pb2.Outcome.ValueType = hand_pb2.OUTCOME_OK) -> Message:
    """A call's end."""
    made = hand_pb2.Result(outcome=outcome, content=text, sequence=2)
    return hand_pb2.ExecuteResponse(result=made)


class ScriptedFleet(Fleet):
    """The fleet, but every way to a daemon leads to the scripted hands."""

    def __init__(self, directory: Directory, keeper: LeaseKeeper, peers: Peers) -> None:
        links = Links(directory, keeper, ME, PlannedEnds(lambda: ME))
        super().__init__(directory, links, peers, ME)
        self.hands = Hands()

    async def connection(self, daemon_id: str, workspace: str) -> HandConnection:
        """The hands, unless the daemon is out of reach."""
        if not self.hands.linked:
            raise UNLINKED
        return self.hands


class Stage:
    """One session, its driver, and the hands."""

    def __init__(self, sessions: Serving, driver: Driver, fleet: ScriptedFleet) -> None:
        self.sessions = sessions
        self.driver = driver
        self.fleet = fleet
        self.hands = fleet.hands
        self.hub = WatchHub()
        self.calls = Calls(driver, fleet, self.hub)

    async def hand(self, hand_id: str = "hand_1", deadline: float = 600.0) -> None:
        """A hand, asked for and made, as far as the log says."""
        asked = {
            "hand_id": hand_id,
            "name": "shell",
            "type": "process",
            "daemon": "d1",
            "orphan_deadline": deadline,
        }
        made = {"hand_id": hand_id, "journal_id": "j", "boot_id": "b", "sequence": 1}
        await self.driver.append(
            New("hand.provision_requested", asked), New("hand.provisioned", made)
        )

    async def call(self, *, earlier: bool = False) -> str:
        """A call the model made; by an earlier driver, which may have sent it."""
        request, call_id = new_id("sevt"), new_id("sevt")
        use = {"name": "bash", "input": {"command": "x"}, "hand": "shell"}
        through = self.driver.transcript.head
        await self.driver.append(
            New("span.model_request_start", {"through": through}, id=request),
            New("agent.tool_use", use | {"model_request_start_id": request}, id=call_id),
            New("span.model_request_end", {"model_request_start_id": request}),
        )
        if earlier:
            self.driver.started_at = self.driver.transcript.head
        return call_id

    async def settle(self, *call_ids: str) -> list[dict[str, Any]]:
        """Settle calls; the results the log has then."""
        async with asyncio.timeout(WAIT):
            await self.calls.settle(call_ids)
        return [self.driver.transcript.calls[each].result or {} for each in call_ids]

    async def interrupt(self) -> None:
        """A person does."""
        await emit(self.sessions, self.driver.session_id, "user.interrupt", {})

    async def end_lease(self) -> None:
        """Sessiond takes the driver's lease for over; the driver was not told."""
        lease = self.driver.lease
        request = session_pb2.ReleaseLeaseRequest(resource=lease.resource, epoch=lease.epoch)
        await (await self.sessions.brain()).ReleaseLease(request, timeout=WAIT)

    async def kinds(self) -> list[str]:
        """The types of the log's events."""
        return [event.type for event in await self.events()]

    async def datas(self) -> list[dict[str, Any]]:
        """The data of the log's events; of a redacted one nothing."""
        return [json.loads(event.data or b"{}") for event in await self.events()]

    async def events(self) -> list[types_pb2.Event]:
        """The log's events."""
        stub = await self.sessions.operator()
        request = session_pb2.GetEventsRequest(session_id=self.driver.session_id, limit=1000)
        return list((await stub.GetEvents(request, timeout=WAIT)).events)


async def emit(sessions: Serving, session_id: str, kind: str, data: dict[str, Any]) -> None:
    """An operator's event."""
    event = types_pb2.NewEvent(id=new_id("sevt"), type=kind, data=json.dumps(data).encode())
    request = session_pb2.EmitEventRequest(session_id=session_id, event=event, wake=True)
    await (await sessions.operator()).EmitEvent(request, timeout=WAIT)


async def create(sessions: Serving, session_id: str = "sesn_1", *, wake: bool = False) -> None:
    """A session with one hand in its name and a message."""
    agent = {"name": "a", "model": "m", "max_tokens": 100}
    updated = {"agent": agent, "hands": {"shell": {"type": "process"}}}
    said = {"content": [{"type": "text", "text": "hi"}]}
    events = [
        types_pb2.NewEvent(id=new_id("sevt"), type=kind, data=json.dumps(data).encode())
        for kind, data in (("session.updated", updated), ("user.message", said))
    ]
    request = session_pb2.CreateSessionRequest(session_id=session_id, events=events, wake=wake)
    await (await sessions.operator()).CreateSession(request, timeout=WAIT)


def daemon_row(*, live: bool = True, types: str = "process", **said: str) -> Row:
    """A daemon as the directory has it."""
    lease = types_pb2.LeaseInfo(
        resource="daemon/d1",
        holder="spiffe://carpal.internal/brain/brain-2",
        address="brain-2:1",
        workspace="default",
        epoch=1,
        attributes={"types": types, "hands_max": "4", **said},
    )
    return Row(lease, live, time.monotonic())


@asynccontextmanager
async def scripted(sessions: Serving) -> AsyncIterator[ScriptedFleet]:
    """A fleet of one daemon, `d1`, linked elsewhere."""
    stub = await sessions.brain()
    directory = Directory(stub)
    directory.daemons["d1"] = daemon_row()
    peers = Peers(sessions.pki.issue(Role.BRAIN, "brain-1"))
    yield ScriptedFleet(directory, LeaseKeeper(stub, 10.0), peers)
    await peers.close()


@asynccontextmanager
async def stage(sessions: Serving) -> AsyncIterator[Stage]:
    """A session `sesn_1` that `brain-1` drives."""
    await create(sessions)
    stub = await sessions.brain()
    appender = Appender(stub)
    keeper = LeaseKeeper(stub, 10.0)
    lease, info = await keeper.acquire("session/sesn_1")
    driver = Driver("sesn_1", info.workspace, lease, stub, appender)
    async with scripted(sessions) as fleet:
        helpers = [asyncio.create_task(appender.run()), asyncio.create_task(driver.follow())]
        try:
            async with asyncio.timeout(WAIT):
                await driver.until(lambda t: t.head >= info.head.position)
            yield Stage(sessions, driver, fleet)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
