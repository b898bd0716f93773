"""Requests of one link whose answers are not complete, at either end. Pure.

An answer travels on the control stream until its last reply. A large one
moves: its last reply there says `attached`, and the rest, the result too,
comes on an Attach stream, acknowledged by offset. A link takes its answers
with it: on the next one the call is asked for again, by its id.
"""

from dataclasses import dataclass, field

from carpal.errors import CarpalError, refuse
from carpal.link_output import Reading
from carpal.link_table import MOVES
from carpal.link_terms import UNARY
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb

_RESULTS = frozenset({"provision", "execute"})
"""Requests with an answer of many messages, of which one is the result."""
_OWING = UNARY | _RESULTS | {"tunnel"}
"""Requests whose answer must say what became of them, here or by where it moves."""


@dataclass
class Answer:
    """One request's answer, as far as it has come or gone."""

    arm: str
    """Which request it is: a name of `Request.call`."""
    call_id: str = ""
    reading: Reading = field(default_factory=Reading)
    """Output on the control stream: how far it came, or went."""
    moved: bool = False
    """Its last reply came, or went, and said `attached`."""
    acknowledged: int = 0
    """Output below this offset was read by the brain."""
    unread: bool = False
    """Nobody reads it any more: it was abandoned."""
    told: bool = False
    """What the request was asked for has come."""

    def wrong(self, reply: pb.Reply) -> str:
        """What makes a reply no answer to this request, in words, or nothing.

        Its last reply must leave nothing open: without a result, a refusal, or a stream to move
        to, nobody would know what became of the request.
        """
        kind = reply.WhichOneof("answer")
        if kind not in (None, "status", self.arm):
            return f"a request to {self.arm} was answered as one to {kind}"
        if reply.attached and self.arm not in MOVES:
            return f"the answer of a request to {self.arm} moved"
        if kind == self.arm:
            self.told |= self.arm in UNARY or _is_result(reply, self.arm)
        open_end = reply.last and not reply.attached and kind != "status"
        if self.arm in _OWING and open_end and not self.told and not self.unread:
            return f"the answer of a request to {self.arm} ended without a result"
        return ""

    def new(self, reply: pb.Reply) -> bool:
        """Whether a reply says anything new; what it repeats of the output is cut from it."""
        if reply.execute.WhichOneof("step") != "output":
            return True
        chunk = self.reading.take(reply.execute.output)
        if chunk is None:
            reply.execute.ClearField("output")
            return reply.last or reply.attached
        reply.execute.output.CopyFrom(chunk)
        return True


class Answers:
    """The answers of one link that are not complete."""

    def __init__(self) -> None:
        self._open: dict[int, Answer] = {}

    def begin(self, request: pb.Request) -> None:
        """A request was asked, or came."""
        arm = request.WhichOneof("call") or ""
        answer = self._open[request.request_id] = Answer(arm)
        if arm == "execute":
            answer.call_id = request.execute.call_id
            answer.reading = Reading(request.execute.output_offset)
        elif arm == "tunnel":
            answer.call_id = request.tunnel.tunnel_id

    def on_control(self, request_id: int) -> Answer | None:
        """The answer, while it travels on the control stream."""
        answer = self._open.get(request_id)
        return None if answer is None or answer.moved else answer

    def last_reply(self, request_id: int, *, attached: bool) -> None:
        """The control stream carries no more of it: it ended, or moved."""
        answer = self._open[request_id]
        if attached and not answer.unread:
            answer.moved = True
            # Nothing overtakes on the control stream: both ends stand here.
            answer.acknowledged = answer.reading.offset
        else:
            del self._open[request_id]

    def attach(self, opening: pb.AttachOpen) -> int | None:
        """The offset from which the stream that opens here carries the answer.

        None while the reply that says so has not come, for streams do not
        wait for each other. CALL_NOT_FOUND when there is no such answer.
        """
        answer = self._open.get(opening.request_id)
        if (
            answer is None
            or answer.unread
            or answer.arm not in MOVES
            or answer.call_id != opening.call_id
        ):
            raise not_here(opening)
        return answer.acknowledged if answer.moved else None

    def acknowledge(self, request_id: int, offset: int) -> None:
        """Output below `offset` was read; one that is lower than before changes nothing."""
        if answer := self._open.get(request_id):
            answer.acknowledged = max(answer.acknowledged, offset)

    def leave(self, request_id: int) -> bool:
        """Nobody reads it any more. False when that is nothing new.

        While the control stream still owes its last reply, it is remembered.
        """
        answer = self._open.get(request_id)
        if answer is None or answer.unread:
            return False
        answer.unread = True
        if answer.moved:
            del self._open[request_id]
        return True

    @property
    def ids(self) -> frozenset[int]:
        """Requests whose answer is not complete."""
        return frozenset(self._open)

    @property
    def moved(self) -> dict[int, int]:
        """Requests whose answer moved → the offset acknowledged."""
        return {number: a.acknowledged for number, a in self._open.items() if a.moved}


def _is_result(reply: pb.Reply, arm: str) -> bool:
    return arm in _RESULTS and bool(getattr(reply, arm).HasField("result"))


def not_here(opening: pb.AttachOpen) -> CarpalError:
    """The refusal of an Attach stream that belongs to no answer of the link."""
    return refuse(
        Reason.CALL_NOT_FOUND,
        f"no answer of call {opening.call_id!r} moves here by request {opening.request_id}",
        action="keep its output; the brain asks for it again",
    )
