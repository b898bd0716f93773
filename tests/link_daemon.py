"""A model of a daemon: its journal, its hand, and how it answers on links.

The hand outlives the daemon; `ran` is the world's own count of what happened.
"""

from collections import Counter
from dataclasses import dataclass

from carpal.errors import CarpalError, refuse, to_status
from carpal.link import Abandoned, Closed, Event, Requested, Welcomed
from carpal.link_table import LIVE
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_wire import Attach, Wire

INLINE = 8
"""Bytes of output on the control stream before the answer moves."""
FREED = "[freed]"
"""What is left of the text of a result that is in the log."""
OPEN = ("accepted", "starting", "running")
STATES = {
    **dict.fromkeys(OPEN, hand_pb2.CALL_STATE_RUNNING),
    "terminal": hand_pb2.CALL_STATE_TERMINAL,
    "acknowledged": hand_pb2.CALL_STATE_ACKNOWLEDGED,
    "tombstone": hand_pb2.CALL_STATE_TOMBSTONE,
}


def output(call_id: str) -> bytes:
    """All that a call prints; of every second one more than fits inline."""
    return f"{call_id}:".encode() + b"0123456789" * (2 * (int(call_id[1:]) % 2))


@dataclass
class Row:
    """A call in the journal."""

    state: str
    outcome: hand_pb2.Outcome.ValueType = hand_pb2.OUTCOME_UNSPECIFIED
    content: str = ""


@dataclass
class Running:
    """A call in the hand."""

    printed: int = 0
    ended: hand_pb2.Outcome.ValueType = hand_pb2.OUTCOME_UNSPECIFIED


@dataclass
class Watch:
    """An answer under way: which call, and how far its output went."""

    call_id: str
    offset: int
    inline: int = 0
    attach: Attach | None = None


class DaemonModel:
    """One daemon, whose process may die while its hand goes on."""

    def __init__(self) -> None:
        self.alive = True
        self.draining = False
        self.last_epoch = 0
        self.epoch = 0
        """Of the session, in the journal."""
        self.calls: dict[str, Row] = {}
        self.hands: Counter[str] = Counter()
        self.hand: dict[str, Running] = {}
        self.ran: Counter[str] = Counter()
        self.attaches: list[Attach] = []
        self._watches: dict[tuple[int, int], Watch] = {}
        self._handed: set[tuple[int, int]] = set()

    # On links.

    def take(self, wire: Wire, events: list[Event]) -> None:
        """What the daemon's end of a link told."""
        for event in events:
            match event:
                case Welcomed(welcome):
                    self._welcomed(wire, welcome.epoch)
                case Requested(request):
                    key = (wire.number, request.request_id)
                    assert key not in self._handed, f"{key} was handed over twice"
                    self._handed.add(key)
                    self._answer(wire, request)
                case Closed(error, reason):
                    check_end(wire, error, reason)
                case Abandoned(request_id):
                    watch = self._watches.pop((wire.number, request_id), None)
                    if watch and watch.attach:
                        watch.attach.broken = True
                    elif watch:
                        self._refuse(wire, request_id, refuse(Reason.UNAVAILABLE, "abandoned"))

    def _welcomed(self, wire: Wire, epoch: int) -> None:
        assert epoch > wire.said, "it obeyed a link that is not newer than the last"
        if epoch <= self.last_epoch:
            wire.daemon.goodbye("a newer link was welcomed first")
            return
        self.last_epoch = epoch
        for older in self.wires.values():
            if older is not wire and older.daemon.state in LIVE:
                older.daemon.goodbye("a newer link was welcomed")

    def _answer(self, wire: Wire, request: pb.Request) -> None:
        arm = request.WhichOneof("call") or ""
        body = getattr(request, arm)
        try:
            if body.driver.epoch < self.epoch:
                raise refuse(Reason.STALE_EPOCH, "another drives")
            self.epoch = body.driver.epoch
            answer = getattr(self, f"_{arm}")(wire, request.request_id, body)
        except CarpalError as error:
            self._refuse(wire, request.request_id, error)
            return
        if answer is not None:
            wire.daemon.reply(pb.Reply(request_id=request.request_id, last=True, **{arm: answer}))

    def _refuse(self, wire: Wire, request_id: int, error: CarpalError) -> None:
        status = to_status(error)
        wire.daemon.reply(pb.Reply(request_id=request_id, last=True, status=status))

    def _provision(
        self, _: Wire, __: int, asked: hand_pb2.ProvisionRequest
    ) -> hand_pb2.ProvisionResponse:
        if asked.hand_id not in self.hands:
            if self.draining:
                raise refuse(Reason.AT_CAPACITY, "draining")
            self.hands[asked.hand_id] += 1
        return hand_pb2.ProvisionResponse(result=hand_pb2.ProvisionResult(note=asked.hand_id))

    def _claim(self, _: Wire, __: int, asked: hand_pb2.ClaimRequest) -> hand_pb2.ClaimResponse:
        return hand_pb2.ClaimResponse(calls=[self._info(each) for each in asked.call_ids])

    def _info(self, call_id: str) -> hand_pb2.CallInfo:
        row = self.calls.get(call_id)
        if row is None:
            return hand_pb2.CallInfo(call_id=call_id, state=hand_pb2.CALL_STATE_UNKNOWN)
        return hand_pb2.CallInfo(call_id=call_id, state=STATES[row.state], outcome=row.outcome)

    def _execute(self, wire: Wire, number: int, asked: hand_pb2.ExecuteRequest) -> None:
        row = self.calls.setdefault(asked.call_id, Row("accepted"))
        if row.state == "tombstone":
            raise refuse(Reason.CALL_CANCELLED, "cancelled before it came")
        self._watches[wire.number, number] = Watch(asked.call_id, asked.output_offset)
        self.forward()

    def _cancel(self, _: Wire, __: int, asked: hand_pb2.CancelRequest) -> hand_pb2.CancelResponse:
        row = self.calls.setdefault(asked.call_id, Row("tombstone"))
        if row.state == "accepted":
            self._settle(asked.call_id, hand_pb2.OUTCOME_CANCELLED)
        elif asked.call_id in self.hand and not self.hand[asked.call_id].ended:
            self.hand[asked.call_id].ended = hand_pb2.OUTCOME_CANCELLED
        return hand_pb2.CancelResponse()

    def _acknowledge(
        self, _: Wire, __: int, asked: hand_pb2.AcknowledgeRequest
    ) -> hand_pb2.AcknowledgeResponse:
        for call_id in asked.call_ids:
            row = self.calls[call_id]
            assert row.state not in OPEN, f"{call_id} was acknowledged before it ended"
            if row.state == "terminal":
                row.state, row.content = "acknowledged", FREED
        return hand_pb2.AcknowledgeResponse()

    # What becomes of calls.

    def start(self) -> None:
        """The next step of a call that waits: say that it starts, then tell the hand."""
        for call_id, row in self.calls.items():
            if row.state == "starting":
                if call_id not in self.hand:
                    self.hand[call_id] = Running()
                    self.ran[call_id] += 1
                    return  # it may die here, before it notes that it runs
                row.state = "running"
                return
        for row in self.calls.values():
            if row.state == "accepted":
                row.state = "starting"
                return

    def work(self, amount: int) -> None:
        """The hand prints, or ends a call that has printed all."""
        for call_id, running in self.hand.items():
            if not running.ended:
                if running.printed == len(output(call_id)):
                    running.ended = hand_pb2.OUTCOME_OK
                running.printed = min(running.printed + amount, len(output(call_id)))
                return

    def hear(self) -> None:
        """The daemon learns from the hand what ended, and tells who watches."""
        for call_id, running in list(self.hand.items()):
            if running.ended and self.calls[call_id].state in OPEN:
                self._settle(call_id, running.ended)
                del self.hand[call_id]
        self.forward()

    def _settle(self, call_id: str, outcome: hand_pb2.Outcome.ValueType) -> None:
        row = self.calls[call_id]
        row.state, row.outcome = "terminal", outcome
        row.content = output(call_id).decode() if outcome == hand_pb2.OUTCOME_OK else "[none]"

    def lose_hand(self) -> None:
        """The hand dies, with all its calls."""
        self.hand.clear()
        for call_id, row in self.calls.items():
            if row.state in OPEN:
                self._settle(call_id, hand_pb2.OUTCOME_LOST)

    def die(self) -> None:
        """The process is killed; the journal and the hand stay."""
        self.alive = False
        for attach in self.attaches:
            attach.broken = True
        self.attaches.clear()
        self._watches.clear()

    def restart(self) -> None:
        """It adopts what the hand holds and settles the rest."""
        self.alive, self.draining = True, False
        for call_id, row in list(self.calls.items()):
            if row.state in OPEN and call_id not in self.hand:
                if row.state == "accepted":
                    del self.calls[call_id]
                else:
                    self._settle(call_id, hand_pb2.OUTCOME_INTERRUPTED)

    # Answers on their way.

    def forward(self) -> None:
        """Send each watcher what is new."""
        for wire, request_id, watch in self._live_watches():
            row = self.calls[watch.call_id]
            printed = self.hand[watch.call_id].printed if watch.call_id in self.hand else 0
            data = output(watch.call_id)[watch.offset : printed]
            if data and watch.attach is None and watch.inline + len(data) > INLINE:
                wire.daemon.reply(pb.Reply(request_id=request_id, attached=True, last=True))
                self._open_attach(wire, request_id, watch)
            if data:
                chunk = hand_pb2.OutputChunk(offset=watch.offset, data=data)
                self._say(wire, request_id, watch, hand_pb2.ExecuteResponse(output=chunk))
                watch.inline += len(data)
                watch.offset += len(data)
            if row.state not in OPEN:
                result = hand_pb2.Result(outcome=row.outcome, content=row.content)
                self._say(wire, request_id, watch, hand_pb2.ExecuteResponse(result=result))
                del self._watches[wire.number, request_id]

    def reopen(self) -> None:
        """Attach streams that broke alone are opened again, from what was acknowledged."""
        for attach in [each for each in self.attaches if each.broken or each.refused]:
            self.attaches.remove(attach)
            number = attach.opening.request_id
            if attach.refused:
                attach.wire.daemon.finish(number)
            if number not in attach.wire.daemon.attached or attach.wire.daemon.state not in LIVE:
                self._watches.pop((attach.wire.number, number), None)
                continue
            offset = attach.wire.daemon.attached[number]
            watch = Watch(attach.opening.call_id, offset)
            self._open_attach(attach.wire, number, watch)
            self._watches[attach.wire.number, number] = watch
        self.forward()

    def _open_attach(self, wire: Wire, number: int, watch: Watch) -> None:
        opening = pb.AttachOpen(request_id=number, call_id=watch.call_id, epoch=wire.daemon.epoch)
        watch.attach = Attach(wire, opening, watch.offset)
        self.attaches.append(watch.attach)

    def _say(
        self, wire: Wire, number: int, watch: Watch, response: hand_pb2.ExecuteResponse
    ) -> None:
        if watch.attach is not None:
            watch.attach.say(response)
        else:
            last = response.HasField("result")
            wire.daemon.reply(pb.Reply(request_id=number, last=last, execute=response))

    def _live_watches(self) -> list[tuple[Wire, int, Watch]]:
        return [
            (self.wires[number], request_id, watch)
            for (number, request_id), watch in self._watches.items()
            if self.wires[number].daemon.state in LIVE
        ]

    wires: dict[int, Wire]
    """The links there are, by number; set by the world."""


def check_end(wire: Wire, error: CarpalError | None, reason: str) -> None:
    """Ends that say only what they may offend nobody."""
    violated = error is not None and error.reason is Reason.LINK_VIOLATION
    assert wire.repeated or not violated, reason
