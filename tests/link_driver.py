"""A model of the brains: the log, its drivers, and how they ask over links.

A driver asks as `brain/hands/call_on_hand.py` does: claim, then execute; after a
link ended, claim again. What it learns goes into the log under its epoch.
"""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from carpal.errors import CarpalError, NotFound, Unreachable, from_status
from carpal.link import Closed, Event, Greeted, Replied
from carpal.link_output import Reading
from carpal.link_table import LIVE
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_daemon import FREED, check_end, output
from tests.link_ends import welcome
from tests.link_wire import Attach, Wire

OK, CANCELLED = "ok", "cancelled"


@dataclass
class Call:
    """A call in the log."""

    stopped: bool = False
    """A person interrupted it."""
    outcomes: list[str] = field(default_factory=list)
    content: str = ""


class Log:
    """A session's log."""

    def __init__(self) -> None:
        self.epoch = 1
        self.calls: dict[str, Call] = {}

    def settle(self, epoch: int, call_id: str, outcome: str, content: str = "") -> bool:
        """Append a result; False from a driver that was replaced."""
        if epoch < self.epoch:
            return False
        self.calls[call_id].outcomes.append(outcome)
        self.calls[call_id].content = content
        assert len(self.calls[call_id].outcomes) == 1, f"{call_id} has two outcomes"
        return True


@dataclass(eq=False)
class Asking:
    """A request under way."""

    wire: Wire
    arm: str
    call_id: str
    output: bytearray
    """What its call printed, as far as this driver read it; `?` for each byte left out."""

    def read(self, chunk: hand_pb2.OutputChunk) -> None:
        """More output, which must be the call's own and go on where it was."""
        self.output += b"?" * chunk.dropped_bytes + chunk.data
        assert len(self.output) == chunk.offset + len(chunk.data), "a gap, or a repeat"
        for here, there in zip(self.output, output(self.call_id), strict=False):
            assert here in (there, ord("?")), f"{bytes(self.output)!r} is not {self.call_id}'s"


class Driver:
    """One brain that drives, or still believes so."""

    def __init__(self, log: Log, epoch: int) -> None:
        self.epoch = epoch
        self.asking: dict[tuple[int, int], Asking] = {}
        self.over = False
        self._log = log
        self._sent = set(log.calls)
        """Calls that may have been sent, by an earlier driver too."""
        self._claimed: set[str] = set()
        self._outputs: defaultdict[str, bytearray] = defaultdict(bytearray)

    def step(self, wire: Wire) -> None:
        """Ask for every call that is open and not asked for."""
        under_way = {each.call_id for each in self.asking.values() if each.arm != "cancel"}
        for call_id, call in self._log.calls.items():
            if call.outcomes or call_id in under_way or self.over:
                continue
            if call.stopped and call_id not in self._sent:
                self._log.settle(self.epoch, call_id, CANCELLED)
            elif call_id not in self._claimed:
                self.ask(wire, call_id, claim=hand_pb2.ClaimRequest(call_ids=[call_id]))
            else:
                self._sent.add(call_id)
                self.stop(wire, call_id)
                read = len(self._outputs[call_id])
                execute = hand_pb2.ExecuteRequest(call_id=call_id, output_offset=read)
                self.ask(wire, call_id, execute=execute)

    def stop(self, wire: Wire, call_id: str) -> None:
        """Cancel a call that a person interrupted."""
        if self._log.calls[call_id].stopped and call_id in self._sent:
            self.ask(wire, call_id, cancel=hand_pb2.CancelRequest(call_id=call_id))

    def ask(self, wire: Wire, call_id: str, **arm: Any) -> None:
        """One request."""
        ((name, body),) = arm.items()
        body.driver.epoch = self.epoch
        number = wire.brain.request(pb.Request(**arm))
        self.asking[wire.number, number] = Asking(wire, name, call_id, self._outputs[call_id])

    def abandon(self) -> None:
        """Leave the answers of calls; they are asked for again."""
        for (wire, number), asking in list(self.asking.items()):
            if asking.arm == "execute":
                del self.asking[wire, number]
                asking.wire.unread.add((wire, number))
                asking.wire.brain.abandon(number)

    def replied(self, key: tuple[int, int], reply: pb.Reply) -> None:
        """One message of an answer."""
        assert key in self.asking, f"an answer to {key}, which nobody waits for"
        asking = self.asking[key]
        if reply.last and not reply.attached:
            del self.asking[key]
        if reply.HasField("status"):
            self._refused(asking, from_status(reply.status))
        elif reply.HasField("execute"):
            self.told(asking, reply.execute)
        elif reply.HasField("claim"):
            (info,) = reply.claim.calls
            assert info.call_id == asking.call_id, "another's claim"
            self._claimed.add(info.call_id)
            if info.state == hand_pb2.CALL_STATE_ACKNOWLEDGED:
                self._log.settle(self.epoch, info.call_id, _word(info.outcome))

    def told(self, asking: Asking, response: hand_pb2.ExecuteResponse) -> None:
        """Output, or the result."""
        if response.HasField("output"):
            asking.read(response.output)
            return
        result, call_id = response.result, asking.call_id
        if result.content == FREED:
            assert self.epoch < self._log.epoch, "only who was replaced is too late for a result"
        elif result.outcome == hand_pb2.OUTCOME_OK:
            assert result.content == output(call_id).decode(), f"{call_id} got another's result"
        if self._log.settle(self.epoch, call_id, _word(result.outcome), result.content):
            acknowledge = hand_pb2.AcknowledgeRequest(call_ids=[call_id])
            if asking.wire.brain.state in LIVE:
                self.ask(asking.wire, call_id, acknowledge=acknowledge)
        else:
            self.over = True

    def _refused(self, asking: Asking, error: CarpalError) -> None:
        if error.reason is Reason.STALE_EPOCH:
            assert self.epoch < self._log.epoch, "the driver was refused"
            self.over = True
        elif error.reason is Reason.CALL_CANCELLED:
            self._log.settle(self.epoch, asking.call_id, CANCELLED)
        else:
            assert error.reason is Reason.AT_CAPACITY, f"{asking} was refused: {error}"

    def lost(self, wire: Wire) -> None:
        """A link ended: what was asked there is asked again on another."""
        for key, asking in list(self.asking.items()):
            if asking.wire is wire:
                del self.asking[key]
                self._claimed.discard(asking.call_id)


class BrainModel:
    """The brains' ends of links."""

    def __init__(self) -> None:
        self.log = Log()
        self.epoch = 0
        """The newest link's."""
        self.drivers = [Driver(self.log, 1)]
        self.wires: dict[int, Wire] = {}
        self._hands = 0

    def take(self, wire: Wire, events: list[Event], now: float) -> None:
        """What the brain's end of a link told."""
        for event in events:
            match event:
                case Greeted():
                    self.epoch += 1
                    wire.brain.welcome(welcome(self.epoch), now)
                    for older in self.wires.values():
                        if older.at == wire.at and older.number < wire.number:
                            self.supersede(older)
                case Replied(reply):
                    key = (wire.number, reply.request_id)
                    for driver in self.drivers:
                        if key in driver.asking:
                            driver.replied(key, reply)
                            break
                    else:
                        assert key in wire.unread, f"an answer to {key}, which nobody asked"
                case Closed(error, reason):
                    check_end(wire, error, reason)
                    for driver in self.drivers:
                        driver.lost(wire)

    def supersede(self, wire: Wire) -> None:
        """A newer link of the daemon came."""
        wire.brain.goodbye("superseded")
        for driver in self.drivers:
            driver.lost(wire)

    def linked(self) -> Wire | None:
        """The link that the directory names."""
        live = [wire for wire in self.wires.values() if wire.brain.state in LIVE]
        return max(live, key=lambda wire: wire.brain.epoch, default=None)

    def provision(self, wire: Wire) -> None:
        """Ask for a new hand."""
        self._hands += 1
        asked = hand_pb2.ProvisionRequest(hand_id=f"h{self._hands}")
        with suppress(Unreachable):  # of a link that this brain drains
            self.drivers[-1].ask(wire, "", provision=asked)
            assert not wire.drained, "a brain that drains asked for a new hand"

    def attach(self, attach: Attach) -> None:
        """The next message of an Attach stream comes to the brain at which it was opened."""
        if attach.taken is None:
            here = [w for w in self.wires.values() if w.at == attach.wire.at and w.brain.epoch]
            newest = max(here, key=lambda wire: wire.number)
            try:
                offset = newest.brain.attach(attach.opening)
            except NotFound:
                attach.refused = True
                return
            if offset is None:
                return  # the control stream is behind
            assert newest is attach.wire, "an Attach of another link"
            attach.taken, attach.reading = newest, Reading(offset)
        number = attach.opening.request_id
        key = (attach.taken.number, number)
        asking = next((d.asking[key] for d in self.drivers if key in d.asking), None)
        if attach.taken.brain.state not in LIVE or asking is None:
            attach.broken = True  # the link ended, or the answer was abandoned
        elif attach.up:
            response = hand_pb2.ExecuteResponse.FromString(attach.up.popleft())
            self._read(attach, asking, number, response)

    def _read(
        self, attach: Attach, asking: Asking, number: int, response: hand_pb2.ExecuteResponse
    ) -> None:
        (driver,) = [each for each in self.drivers if asking in each.asking.values()]
        assert attach.opening.call_id == asking.call_id, "another call's answer"
        if response.HasField("result"):
            del driver.asking[asking.wire.number, number]
            asking.wire.brain.finish(number)
            attach.ended = True
            driver.told(asking, response)
        elif chunk := attach.reading.take(response.output):
            driver.told(asking, hand_pb2.ExecuteResponse(output=chunk))
            asking.wire.brain.acknowledge(number, attach.reading.offset)
            attach.down.append(attach.reading.offset)


def _word(outcome: hand_pb2.Outcome.ValueType) -> str:
    return hand_pb2.Outcome.Name(outcome).removeprefix("OUTCOME_").lower()
