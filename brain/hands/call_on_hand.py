"""One call on one hand, asked for until it has an outcome.

Whatever cuts the asking short, asking again by the same id is safe. Only a
hand that cannot say what became of a call leaves it `interrupted`.
"""

import asyncio
import logging
from contextlib import aclosing

from brain.daemons.fleet import Fleet
from brain.hands.hand_line import HAND_IS_GONE, HandLine
from brain.session.driver import Driver
from brain.session.entries import Call, Hand, New
from brain.session.results import Failure, gone, result_event, settled, word
from brain.session.watch import WatchHub
from carpal import layers
from carpal.backoff import Backoff
from carpal.errors import Broken, CarpalError, Unreachable, refuse
from carpal.fault_points import point
from carpal.layers import Layer, failure, layer_of
from carpal.link_output import Reading
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2

log = logging.getLogger(__name__)

_OF_THIS_BRAIN = {
    Reason.IDENTITY_INVALID, Reason.CERTIFICATE_EXPIRED, Reason.IDENTITY_REVOKED,
    Reason.ROLE_NOT_ALLOWED,
}  # fmt: skip
"""What the brain that has the daemon's link says of the one that asks: nothing of the call."""

VIOLATIONS_MAX = 3
"""Times that one call is answered against the contract before nothing more is asked of it. Each
ends its daemon's link, and with it the answers of all its other calls."""
_IN_JOURNAL = {
    hand_pb2.CALL_STATE_RUNNING, hand_pb2.CALL_STATE_TERMINAL,
    hand_pb2.CALL_STATE_ACKNOWLEDGED, hand_pb2.CALL_STATE_TOMBSTONE,
}  # fmt: skip
"""States of a call that its hand knows."""


class CallOnHand:
    """One call, and the hand that log says it belongs to."""

    def __init__(
        self,
        call: Call,
        line: HandLine,
        driver: Driver,
        fleet: Fleet,
        hub: WatchHub,
        *,
        sent: bool,
    ) -> None:
        """`sent`: an earlier driver may have sent it already."""
        self._call = call
        self._line = line
        self._driver = driver
        self._fleet = fleet
        self._hub = hub
        self._sent = sent
        """The hand may have it; once it was asked, as far as that is to be believed, it knows."""
        self._reading = Reading()
        """Output told to watchers, also by an earlier link."""
        self._violations = 0
        """Times that it was answered against the contract."""

    async def outcome(self) -> list[New]:
        """The events that say what became of it: its result, and a loss of the hand."""
        backoff = Backoff(0.1, 1.0)
        while True:
            try:
                return await self._ask_once()
            except CarpalError as error:
                if error.reason is Reason.STALE_EPOCH:
                    await self._driver.check_refusal()
                    return self._disowned()
                wrong = error.reason is Reason.LINK_VIOLATION
                self._violations += wrong
                if wrong and self._violations == VIOLATIONS_MAX:
                    return [self._unanswered(error.message)]
                passes = isinstance(error, Unreachable) or error.reason in _OF_THIS_BRAIN
                if not wrong and not passes:
                    return self._refused(error)
                self._line.lose()
                if self._line.given_up:
                    return self._gave_up(error.message)
                if not self._sent and self._driver.transcript.stopped(self._call):
                    return [self._settled("cancelled", "interrupted before it was sent")]
                log.info(
                    "hand out of reach",
                    extra={"hand": self._line.hand.hand_id, "error": str(error)},
                )
                await self._fleet.directory.wait_change(backoff.next())

    async def _ask_once(self) -> list[New]:
        if self._sent or self._line.to_claim:
            claim = await self._line.claim([self._call.call_id])
            if self._sent and (event := self._cannot_say(claim)):
                return [event]
            self._sent = self._sent and claim.calls[0].state != hand_pb2.CALL_STATE_UNKNOWN
        # The claim may have taken its time: nothing starts past the lease.
        self._driver.check_lease()
        result = await self._execute()
        event = result_event(self._call, self._line.hand, result)
        if result.outcome == hand_pb2.OUTCOME_LOST:
            memory = result.out_of_memory
            cause = layers.OUT_OF_MEMORY if memory else layers.SUPERVISOR_ENDED
            return [event, *self._hand_lost("its supervisor ended", (Layer.HAND, cause))]
        return [event]

    def _cannot_say(self, claim: hand_pb2.ClaimResponse) -> New | None:
        """The event for a call whose true result the hand has no more."""
        state = claim.calls[0].state
        # A state that is not known here says as little as one that is not told.
        if state not in _IN_JOURNAL and not never_accepted(self._line.hand, claim):
            why = "the hand's machine or its journal is another now"
            failed = (Layer.DAEMON, layers.MACHINE_CHANGED)
            return self._settled("interrupted", why, failed, maybe=True)
        if state == hand_pb2.CALL_STATE_ACKNOWLEDGED:
            ended = word(claim.calls[0].outcome)
            why = f"it ended as {ended}; its output was already freed"
            failed = (Layer.DAEMON if ended == "interrupted" else Layer.HAND, layers.OUTPUT_FREED)
            well = ended in ("ok", "cancelled")
            maybe = ended in ("interrupted", "lost")
            return self._settled(ended, why, None if well else failed, maybe=maybe)
        return None

    async def _execute(self) -> hand_pb2.Result:
        """Ask for the call; cancel it when a person interrupts."""
        transcript = self._driver.transcript
        if transcript.stopped(self._call):
            await self._line.cancel(self._call.call_id)
            return await self._read()
        running = asyncio.create_task(self._read())
        stopping = asyncio.create_task(self._driver.until(lambda t: t.stopped(self._call)))
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await self._line.cancel(self._call.call_id)
            return await running
        finally:
            running.cancel()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)

    async def _read(self) -> hand_pb2.Result:
        call = self._call
        point("brain.execute.before_asked")
        known, self._sent = self._sent, True
        try:
            async with aclosing(self._line.execute(call, self._reading.offset)) as responses:
                async for response in responses:
                    known = True
                    if response.HasField("result"):
                        point("brain.result.received")
                        result: hand_pb2.Result = response.result
                        return result
                    if chunk := self._reading.take(response.output):
                        output = orchestrator_pb2.ToolOutput(call_id=call.call_id, chunk=chunk)
                        moment = orchestrator_pb2.WatchResponse(output=output)
                        self._hub.tell(self._driver.session_id, moment)
        except CarpalError as error:
            if error.reason in HAND_IS_GONE:
                self._sent = known  # its hand was gone before it came
            raise
        raise refuse(Reason.LINK_VIOLATION, f"call {call.call_id} ended without a result")

    def _refused(self, error: CarpalError) -> list[New]:
        """The events for a refusal: "could not start", unless the daemon itself broke."""
        if error.reason in HAND_IS_GONE:
            failed = (Layer.HAND, error.reason)
            hand = self._line.hand
            lost = gone(self._call, hand, error.message, sent=self._sent, failed=failed)
            return [lost, *self._hand_lost(error.message, failed)]
        if error.reason is Reason.CALL_CANCELLED:
            return [self._settled("cancelled", "cancelled before it ran")]
        # ID_REUSED: the hand knows the call, by an input that another brain wrote otherwise.
        if isinstance(error, Broken) or error.reason is Reason.ID_REUSED:
            failed = (Layer.DAEMON, error.reason)
            return [self._settled("interrupted", error.message, failed, maybe=True, given_up=True)]
        failed = (layer_of(error.reason, Layer.DAEMON), error.reason)
        return [self._settled("error", f"not run: {error.message}", failed)]

    def _unanswered(self, why: str) -> New:
        """The event for a call of which its daemon tells nothing that can be understood."""
        told = f"its daemon answered it against the contract {VIOLATIONS_MAX} times: {why}"
        failed = (Layer.DAEMON, Reason.LINK_VIOLATION)
        return self._settled("interrupted", told, failed, maybe=True, given_up=True)

    def _disowned(self) -> list[New]:
        """The events for a hand that takes this driver for replaced, which sessiond denies.

        It refuses all that this session asks; the session may go on with another.
        """
        reason = "it refuses the session's driver as replaced, and the session store says it is not"
        failed = (Layer.HAND, Reason.STALE_EPOCH)
        if self._sent:
            why = f"the hand is at fault: {reason}"
            told = self._settled("interrupted", why, failed, maybe=True)
        else:
            told = gone(self._call, self._line.hand, reason, sent=False, failed=failed)
        return [told, *self._hand_lost(reason, failed)]

    def _gave_up(self, why: str) -> list[New]:
        """The events for a hand that was silent for so long that it has ended itself.

        The session may go on with another. Should this one come back all the
        same, the call is cancelled there, and what it tells of it is added.
        """
        reason = f"out of reach past its orphan deadline: {why}"
        failed = (Layer.LINK, layers.OUT_OF_REACH)
        if self._sent:
            told = self._settled("interrupted", reason, failed, maybe=True, given_up=True)
        else:
            told = gone(self._call, self._line.hand, reason, sent=False, failed=failed)
        return [told, *self._hand_lost(reason, failed)]

    def _hand_lost(self, reason: str, failed: Failure) -> list[New]:
        """The event that says the hand is lost, unless the log has it."""
        hand = self._line.hand
        if hand.state != "live":
            return []
        data = {"hand_id": hand.hand_id, "name": hand.name, "reason": reason}
        return [New("hand.lost", data | failure(*failed))]

    def _settled(
        self,
        outcome: str,
        text: str,
        failed: Failure | None = None,
        *,
        maybe: bool = False,
        given_up: bool = False,
    ) -> New:
        more = "; the call may have partly happened" if maybe else ""
        hand = self._line.hand
        return settled(self._call, outcome, text + more, hand, given_up=given_up, failed=failed)


def never_accepted(hand: Hand, claim: hand_pb2.ClaimResponse) -> bool:
    """Whether "not in the journal" can be believed (design §4).

    Only of the same journal on the same boot, and only when the journal has
    not gone back behind what the log noted of it.
    """
    return (
        claim.journal_id == hand.journal_id
        and claim.boot_id == hand.boot_id
        and claim.sequence >= hand.sequence
    )
