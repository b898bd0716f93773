"""The hand service as the daemon speaks it: one method an RPC, no transport in it.

It fences by epoch, refuses what is malformed, and answers what was asked
before from the journal. Links come and go; what was started here goes on.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator

from carpal import __version__
from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_id
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.link_terms import ORPHAN_DEADLINE
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import orchestrator_pb2
from hands import describe, requests, results
from hands.contract import LISTS_TOOLS, Description, HandLost, HandType, Order, having_units
from hands.inventory import Inventory
from hands.journal import CallRow, HandRow
from hands.life import mounts
from hands.life.running import Running
from hands.life.spool import Spool
from hands.life.unit_choice import labels_wanted
from hands.people.tunnels import Tunnels

_STATES: dict[str, pb.CallState.ValueType] = {
    "accepted": pb.CALL_STATE_RUNNING,
    "starting": pb.CALL_STATE_RUNNING,
    "running": pb.CALL_STATE_RUNNING,
    "terminal": pb.CALL_STATE_TERMINAL,
    "acknowledged": pb.CALL_STATE_ACKNOWLEDGED,
    "tombstone": pb.CALL_STATE_TOMBSTONE,
}
_SHOWN = 128
"""Characters of an id that nobody looked at yet, in the audit."""
_EVENTS_WAIT = 60.0
"""Seconds after which who waits for what hands say is answered that there is nothing."""


class HandService:
    """The RPCs of `hand.proto`, for the hands of one daemon."""

    def __init__(self, inventory: Inventory, daemon_id: str, workspace: str) -> None:
        """`workspace` is the daemon's own: no other's sessions are served."""
        self._hands = inventory
        self.gate = inventory.gate
        self._journal = inventory.journal
        self._daemon_id = daemon_id
        self._workspace = workspace
        self._descriptions: dict[str, Description] = {}
        self.tunnels = Tunnels(inventory, workspace)

    # What there is.

    async def describe(self, _request: pb.DescribeRequest) -> pb.DescribeResponse:
        """Types and versions."""
        return pb.DescribeResponse(
            types=self.types(),
            version=__version__,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
        )

    def types(self) -> list[pb.HandTypeInfo]:
        """The types, by name, as far as the machine's owner allows them, and their tools."""
        policy = self.gate.policy
        return [
            self.gate.outward.described(
                describe.type_info(
                    kind.describe(),
                    policy.offers_tool,
                    self._hands.units.infos(name) if having_units(kind) else None,
                )
            )
            for name, kind in sorted(self._hands.types.items())
            if policy.offers(name)
        ]

    async def probe(self, request: pb.ProbeRequest) -> pb.ProbeResponse:
        """Whether a type can provision now."""
        return self.gate.outward.health(describe.health(await self._type(request.type).probe()))

    async def list_hands(self, request: pb.ListHandsRequest) -> pb.ListHandsResponse:
        """Live and lost hands, all or one session's."""
        rows = self._journal.hands()
        infos = [self._info(row) for row in rows if row.state != "provisioning"]
        wanted = request.session_id
        return pb.ListHandsResponse(
            hands=[info for info in infos if not wanted or wanted in info.session_ids],
            journal_id=self._journal.journal_id,
            boot_id=self._hands.boot_id,
            sequence=self._journal.sequence,
            tunnels=self.tunnels.infos(),
        )

    # Hands.

    async def provision(self, request: pb.ProvisionRequest) -> AsyncIterator[pb.ProvisionResponse]:
        """Make a hand, or answer as the first time."""
        with self.gate.asked(
            "provision", hand=request.hand_id[:_SHOWN], type=request.type[:_SHOWN]
        ):
            async for step in self._provision(request):
                yield self.gate.outward.made(step, request.type)

    async def _provision(self, request: pb.ProvisionRequest) -> AsyncIterator[pb.ProvisionResponse]:
        driver = requests.driver(request.driver, self._workspace)
        hand_id = check_id(request.hand_id, "hand_id")
        config = requests.config(request.config)
        if request.unit_id:
            raise invalid("unit_id", "is the daemon's to choose: ask for labels, by config.unit")
        wanted = labels_wanted(config) if having_units(self._type(request.type)) else {}
        order = Order(
            hand_id=hand_id,
            folder=self._hands.folder_of(hand_id),
            config=config,
            limits=requests.limits(request.limits),
            orphan_deadline=requests.seconds(
                request, "orphan_deadline", ORPHAN_DEADLINE, least=1.0
            ),
        )
        mounted = mounts.read(request.mounts, self._description(request.type))
        self._fence(driver)
        digest = requests.provision_digest(request)
        row = self._journal.hand(hand_id)
        if row is not None:
            if row.state in ("released", "lost"):
                raise _gone(row)
            if row.digest != digest:
                raise refuse(Reason.ID_REUSED, f"hand {hand_id!r} exists with other content")
            if row.state == "live":
                yield pb.ProvisionResponse(result=pb.ProvisionResult.FromString(row.result))
                return
            making = self._hands.making[hand_id]
        else:
            description = self._description(request.type)
            order = self.gate.provision(request, order, description, mounted, digest)
            row = HandRow(
                hand_id=hand_id,
                state="provisioning",
                type=request.type,
                workspace=driver.workspace,
                digest=digest,
                boot_id=self._hands.boot_id,
                provisioned=time.time(),
                orphan_deadline=order.orphan_deadline,
            )
            making = self._hands.provision(row, driver.session_id, order, mounted, wanted)
        try:
            async for step in making.watch():
                yield step
        except CarpalError as error:
            raise self.gate.of_owner(error, requests.limits(request.limits)) from error

    async def claim(self, request: pb.ClaimRequest) -> pb.ClaimResponse:
        """Raise the session's epoch; say how its calls stand."""
        row = self._hand(request.driver, request.hand_id)
        return pb.ClaimResponse(
            journal_id=self._journal.journal_id,
            boot_id=self._hands.boot_id,
            sequence=self._journal.sequence,
            calls=[self._call_info(row.hand_id, call_id) for call_id in request.call_ids],
        )

    async def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        """End the session's share; the last one ends the hand."""
        driver = requests.driver(request.driver, self._workspace)
        self._fence(driver)
        row = self._journal.hand(request.hand_id)
        if row is None or row.state == "released":
            return pb.ReleaseResponse(ended=True)
        shares = self._journal.sessions_of(row.hand_id)
        if driver.session_id not in shares:
            return pb.ReleaseResponse(ended=False)
        if len(shares) > 1:
            self._journal.unshare(row.hand_id, driver.session_id)
            return pb.ReleaseResponse(ended=False)
        try:
            await self._hands.release(row)
        except (HandLost, OSError) as error:
            raise refuse(
                Reason.INTERNAL,
                f"hand {row.hand_id!r} is not ended: {error}",
                action="ask again; if it stays so, see to it on its machine",
            ) from error
        return pb.ReleaseResponse(ended=True)

    async def drain_hands(
        self, request: orchestrator_pb2.DrainHandsRequest
    ) -> orchestrator_pb2.DrainHandsResponse:
        """Take no new hands, or take them again, as an operator says."""
        if request.lift:
            self._hands.lift()
        else:
            self._hands.drain(request.reason)
        return orchestrator_pb2.DrainHandsResponse(capacity=self._hands.capacity)

    async def settle_tunnels(
        self, request: orchestrator_pb2.SettleTunnelsRequest
    ) -> orchestrator_pb2.SettleTunnelsResponse:
        """Forget tunnels of which the logs have all."""
        self.tunnels.records.settle(list(request.tunnel_ids))
        return orchestrator_pb2.SettleTunnelsResponse()

    # Calls.

    def execute(self, request: pb.ExecuteRequest) -> Running:
        """Run a call, attach to it, or replay it: to be watched from the request's offset on."""
        with self.gate.asked("call", hand=request.hand_id[:_SHOWN], call=request.call_id[:_SHOWN]):
            running = self._execute(request)
        running.redactor = lambda: self.gate.outward.redactor
        running.passes = self.gate.outward.result
        return running

    def _execute(self, request: pb.ExecuteRequest) -> Running:
        row = self._hand(request.driver, request.hand_id)
        call_id = check_id(request.call_id, "call_id")
        digest = results.input_digest(request.name, request.input)
        known = self._journal.call(row.hand_id, call_id)
        keeper = self._hands.keepers.get(row.hand_id)
        if known is None:
            call = requests.call(request, self._described(row))
            if row.state == "lost" or keeper is None:
                raise _gone(row)
            call = self.gate.call(
                request.driver, (row.hand_id, row.type), call, request.input, digest
            )
            self._hands.counts.input_bytes += len(request.input)
            return keeper.submit(call, digest)
        if known.state == "tombstone":
            raise refuse(Reason.CALL_CANCELLED, f"call {call_id!r} was cancelled before it came")
        if known.digest != digest:
            raise refuse(Reason.ID_REUSED, f"call {call_id!r} exists with other content")
        if known.result is not None or known.state == "acknowledged":
            return self._ended(known)
        if keeper is None or call_id not in keeper.open:
            raise refuse(Reason.UNAVAILABLE, f"hand {row.hand_id!r} is just being ended")
        return keeper.open[call_id]

    async def acknowledge(self, request: pb.AcknowledgeRequest) -> pb.AcknowledgeResponse:
        """Free the results that are in the log; all or none."""
        row = self._hand(request.driver, request.hand_id)
        calls = [self._journal.call(row.hand_id, call_id) for call_id in request.call_ids]
        for call in calls:
            if call is not None and call.state in ("accepted", "starting", "running"):
                raise refuse(Reason.CALL_RUNNING, f"call {call.call_id!r} has no result yet")
        ended = [call for call in calls if call is not None and call.state == "terminal"]
        for call in ended:
            self._journal.acknowledged(row.hand_id, call.call_id)
        for call in ended:
            await asyncio.to_thread(self._spool(call).remove)
        return pb.AcknowledgeResponse()

    async def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        """Stop a call; one never seen is refused from now on."""
        row = self._hand(request.driver, request.hand_id)
        call_id = check_id(request.call_id, "call_id")
        grace = requests.seconds(request, "grace", requests.CANCEL_GRACE)
        if self._journal.call(row.hand_id, call_id) is None:
            self._journal.tombstone(row.hand_id, call_id)
        keeper = self._hands.keepers.get(row.hand_id)
        if keeper is not None and call_id in keeper.open:
            await keeper.cancel(call_id, grace)
        return pb.CancelResponse(state=self._call_info(row.hand_id, call_id).state)

    async def save(self, request: pb.SaveRequest) -> AsyncIterator[pb.SaveResponse]:
        """A hand's workspace as a blob, or the answer as the first time."""
        row = self._hand(request.driver, request.hand_id)
        save_id = check_id(request.save_id, "save_id")
        keeper = self._hands.keepers.get(row.hand_id)
        if row.state == "lost" or keeper is None:
            raise _gone(row)
        with self.gate.asked("save", hand=row.hand_id, save=save_id):
            self.gate.save(request.driver, row.hand_id, row.type, save_id)
        progress = pb.ProvisionProgress(message="saving the workspace")
        yield pb.SaveResponse(progress=progress)
        if self._hands.keepers.get(row.hand_id) is not keeper:  # released meanwhile
            raise _gone(row)
        saved = await self._hands.saves.save(keeper, request.driver.session_id, save_id)
        saved.name = self.gate.outward.text(saved.name)
        yield pb.SaveResponse(saved=saved)

    # What hands say.

    async def events(self, request: pb.EventsRequest) -> AsyncIterator[pb.EventsResponse]:
        """What hands said unasked; free what logs have of it before."""
        for hand_id in request.hand_ids:
            row = self._journal.hand(hand_id)
            if row is None or row.state == "released":
                why = f"no hand {hand_id[:_SHOWN]!r} here"
                raise refuse(Reason.HAND_NOT_FOUND, why, field="hand_ids")
        unasked = self._hands.unasked
        unasked.settle((key.hand_id, key.event_id) for key in request.acknowledged)
        for said in await unasked.more(list(request.hand_ids), _EVENTS_WAIT):
            if not unasked.waits(said):
                continue  # while those before it went
            if not self.gate.outward.passes(said.event_id, said.kind):
                unasked.withhold(said)  # both are as they are, or nothing
                continue
            shares = self._journal.sessions_of(said.hand_id)
            message = said.message(shares, self.gate.outward.text)
            if unasked.leaves(said):
                self.gate.says(message)
            yield message

    # What comes later.

    async def transfer(self, _request: pb.TransferRequest) -> pb.TransferResponse:
        """Not built."""
        raise refuse(Reason.NOT_BUILT, "Transfer is not built yet")

    # What they share.

    def _spool(self, call: CallRow, head: bytes = b"", total: int = 0) -> Spool:
        return Spool(self._hands.folder_of(call.hand_id), call.call_id, head, total)

    def _ended(self, call: CallRow) -> Running:
        """A call that has its result, with the output kept until that is acknowledged."""
        head, total = self._journal.output(call.hand_id, call.call_id)
        result = (
            results.freed(call.outcome)
            if call.result is None
            else pb.Result.FromString(call.result)
        )
        return Running(call.call_id, None, self._spool(call, head, total), result)

    def _type(self, name: str) -> HandType:
        if name not in self._hands.types:
            there = ", ".join(sorted(self._hands.types)) or "none"
            raise refuse(
                Reason.HAND_TYPE_NOT_FOUND,
                f"no hand type {name!r} here; there is {there}",
                field="type",
            )
        return self._hands.types[name]

    def _description(self, name: str) -> Description:
        """It stays the same for the life of the daemon, and each call is checked against it."""
        if name not in self._descriptions:
            self._descriptions[name] = self._type(name).describe()
        return self._descriptions[name]

    def _described(self, row: HandRow) -> Description:
        """What a hand's calls are checked against: its type's tools, or those it has by itself."""
        description = self._description(row.type)
        if LISTS_TOOLS not in description.capabilities:
            return description
        return dataclasses.replace(description, tools=describe.own_tools(row.result))

    def _hand(self, driver: pb.Driver, hand_id: str) -> HandRow:
        """A hand that the driver's session has a share of, and no newer driver claimed."""
        requests.driver(driver, self._workspace)
        # First of all: what a driver of before asks for is no question any more.
        self._check_epoch(driver)
        row = self._journal.hand(check_id(hand_id, "hand_id"))
        if (
            row is None
            or row.state not in ("live", "lost")
            or driver.session_id not in self._journal.sessions_of(hand_id)
        ):
            why = f"no hand {hand_id!r} of this session here"
            raise refuse(Reason.HAND_NOT_FOUND, why, field="hand_id")
        self._fence(driver)
        return row

    def _fence(self, driver: pb.Driver) -> None:
        if driver.epoch > self._check_epoch(driver):
            self._journal.raise_epoch(driver.session_id, driver.epoch)

    def _check_epoch(self, driver: pb.Driver) -> int:
        """The highest epoch seen of the session; STALE_EPOCH when the driver's is below it."""
        highest = self._journal.epoch(driver.session_id)
        if driver.epoch < highest:
            raise refuse(
                Reason.STALE_EPOCH,
                f"epoch {driver.epoch} of session {driver.session_id!r} is below {highest}, "
                "seen before",
            )
        return highest

    def _call_info(self, hand_id: str, call_id: str) -> pb.CallInfo:
        row = self._journal.call(hand_id, call_id)
        if row is None:
            return pb.CallInfo(call_id=call_id, state=pb.CALL_STATE_UNKNOWN)
        info = pb.CallInfo(call_id=call_id, state=_STATES[row.state], input_digest=row.digest)
        if row.outcome:
            info.outcome = results.OUTCOMES[row.outcome]
        return info

    def _info(self, row: HandRow) -> pb.HandInfo:
        keeper = self._hands.keepers.get(row.hand_id)
        info = pb.HandInfo(
            hand_id=row.hand_id,
            type=row.type,
            daemon_id=self._daemon_id,
            session_ids=self._journal.sessions_of(row.hand_id),
            open_call_ids=[] if keeper is None else list(keeper.open),
            lost=row.state == "lost",
            reason=self.gate.outward.text(row.reason),
            unacknowledged_call_ids=self._journal.ended_calls(row.hand_id),
        )
        info.provisioned.FromNanoseconds(int(row.provisioned * 1e9))
        if keeper is not None:
            info.orphan_in.FromNanoseconds(int(keeper.orphan_in * 1e9))
        return info


def _gone(row: HandRow) -> Exception:
    why = f" ({row.reason})" if row.reason else ""
    return refuse(Reason.HAND_GONE, f"hand {row.hand_id!r} is gone{why}", field="hand_id")
