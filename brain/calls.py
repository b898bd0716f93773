"""Settling tool calls on hands: at most once, and the log says what is true.

For each open call, the way of design §5: find or provision its hand, claim
the session's epoch there, ask for the call by its id, append its result, and
only then acknowledge. Asking again is always safe: the hand answers a
`call_id` it knows with what it has, and never runs it twice.
"""

import asyncio
import json
import logging
import time
from typing import Any

from brain.driver import Driver
from brain.fleet import Fleet
from brain.hands_at import one
from brain.provision import Provisioner, driver_of
from brain.results import gone, result_event, settled
from brain.transcript import Call, Hand, New
from brain.watch import WatchHub
from carpal.backoff import Backoff
from carpal.errors import CarpalError, Unreachable
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2

log = logging.getLogger(__name__)

ORPHAN_MARGIN = 30.0
"""Seconds past a hand's orphan deadline before its calls are given up."""

_NOT_RUN = {Reason.TOOL_NOT_FOUND, Reason.INPUT_INVALID, Reason.POLICY_FORBIDS}
"""Refusals of Execute that the model can act on; nothing ran."""
_HAND_IS_GONE = {Reason.HAND_NOT_FOUND, Reason.HAND_GONE}


class Calls:
    """The open calls of one driven session."""

    def __init__(self, driver: Driver, fleet: Fleet, hub: WatchHub) -> None:
        self._driver = driver
        self._fleet = fleet
        self._hub = hub
        self._provisioner = Provisioner(driver, fleet, hub)
        self._claimed: set[str] = set()
        """Hands where this driver's epoch is known."""

    async def settle(self, call_ids: tuple[str, ...]) -> None:
        """Give every call its result: in order on one hand, side by side on several."""
        lines: dict[str, list[Call]] = {}
        for call_id in call_ids:
            call = self._driver.transcript.calls[call_id]
            hand = self._driver.transcript.hand_of(call)
            lines.setdefault(hand.hand_id if hand else call.hand, []).append(call)
        async with asyncio.TaskGroup() as group:
            for line in lines.values():
                group.create_task(self._settle_line(line))

    async def claim_all(self) -> None:
        """Fence earlier drivers at every live hand; free what the log already has."""
        transcript = self._driver.transcript
        for hand in transcript.live_hands():
            logged = [
                c.call_id
                for c in transcript.calls.values()
                if c.result and c.result.get("hand_id") == hand.hand_id
            ]
            try:
                await self._claim(hand, [])
                await self._acknowledge(hand, logged[-100:])
            except CarpalError as error:
                # Out of reach: claimed on its return, before its next call.
                log.info("hand not claimed", extra={"hand": hand.hand_id, "error": str(error)})

    async def _settle_line(self, line: list[Call]) -> None:
        for call in line:
            await self._settle_one(call)

    async def _settle_one(self, call: Call) -> None:
        transcript = self._driver.transcript
        hand = transcript.hand_of(call)
        if hand is None:
            if transcript.stopped(call):
                await self._append(settled(call, "cancelled", "interrupted before it ran"))
                return
            try:
                hand = await self._provisioner.provision(call.hand)
            except CarpalError as error:
                if error.reason is Reason.STALE_EPOCH:
                    raise
                await self._append(
                    settled(call, "error", f"not run: no hand {call.hand!r}: {error}")
                )
                return
        if hand.state != "live":
            await self._append(
                gone(call, hand, f"it is {hand.state}", sent=self._may_have_been_sent(call))
            )
            return
        await self._driver.append(*await self._on_hand(call, hand))
        await self._acknowledge(hand, [call.call_id])

    async def _on_hand(self, call: Call, hand: Hand) -> list[New]:
        """Ask the hand for the call until it has an outcome; the events that say it."""
        sent = self._may_have_been_sent(call)
        backoff = Backoff(0.1, 1.0)
        silent_since = time.monotonic()
        while True:
            self._driver.check_lease()
            try:
                if sent or hand.hand_id not in self._claimed:
                    event = await self._claimed_outcome(call, hand, sent)
                    if event is not None:
                        return [event]
                sent = True
                result = await self._execute(call, hand)
                events = [result_event(call, hand, result)]
                if result.outcome == hand_pb2.OUTCOME_LOST:
                    events += self._lost(hand, "its supervisor ended")
                return events
            except Unreachable as error:
                if time.monotonic() - silent_since > self._patience(hand):
                    text = f"{error.message}; the call may have partly happened"
                    return [settled(call, "interrupted", text, hand)]
                log.info("hand out of reach", extra={"hand": hand.hand_id, "error": str(error)})
                self._claimed.discard(hand.hand_id)
                await self._fleet.directory.wait_change(backoff.next())
            except CarpalError as error:
                events = self._refused(call, hand, error, sent)
                if not events:
                    raise
                return events

    def _may_have_been_sent(self, call: Call) -> bool:
        """Not when this driver made the call itself and has not sent it yet."""
        return call.position <= self._driver.started_at

    async def _claimed_outcome(self, call: Call, hand: Hand, sent: bool) -> New | None:
        """Claim, and settle the call when the hand cannot say what became of it."""
        claim = await self._claim(hand, [call.call_id])
        if not sent:
            return None
        state = claim.calls[0].state
        if state == hand_pb2.CALL_STATE_UNKNOWN and not never_accepted(hand, claim):
            text = "the hand's machine or its journal changed; the call may have partly happened"
            return settled(call, "interrupted", text, hand)
        if state == hand_pb2.CALL_STATE_ACKNOWLEDGED:
            outcome = hand_pb2.Outcome.Name(claim.calls[0].outcome)
            word = outcome.removeprefix("OUTCOME_").lower()
            return settled(call, word, f"it ended as {word}; its output was already freed", hand)
        return None

    async def _claim(self, hand: Hand, call_ids: list[str]) -> hand_pb2.ClaimResponse:
        request = hand_pb2.ClaimRequest(
            driver=driver_of(self._driver), hand_id=hand.hand_id, call_ids=call_ids
        )
        claim: hand_pb2.ClaimResponse = await one(await self._ask(hand, "claim", request))
        self._claimed.add(hand.hand_id)
        return claim

    async def _execute(self, call: Call, hand: Hand) -> hand_pb2.Result:
        """Ask for the call; cancel it when a person interrupts."""
        if self._driver.transcript.stopped(call):
            await self._cancel(call, hand)
        running = asyncio.create_task(self._read(call, hand))
        stopping = asyncio.create_task(self._driver.until(lambda t: t.stopped(call)))
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await self._cancel(call, hand)
            return await running
        finally:
            running.cancel()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)

    async def _read(self, call: Call, hand: Hand) -> hand_pb2.Result:
        request = hand_pb2.ExecuteRequest(
            driver=driver_of(self._driver),
            hand_id=hand.hand_id,
            call_id=call.call_id,
            name=call.name,
            input=json.dumps(call.input, ensure_ascii=False).encode(),
        )
        result: hand_pb2.Result | None = None
        async for response in await self._ask(hand, "execute", request):
            if response.HasField("result"):
                result = response.result
            else:
                output = orchestrator_pb2.ToolOutput(call_id=call.call_id, chunk=response.output)
                moment = orchestrator_pb2.WatchResponse(output=output)
                self._hub.tell(self._driver.session_id, moment)
        if result is None:
            raise RuntimeError(f"hand {hand.hand_id} ended call {call.call_id} without a result")
        return result

    def _refused(self, call: Call, hand: Hand, error: CarpalError, sent: bool) -> list[New]:
        """The events for a refusal that settles the call; none when it does not."""
        if error.reason in _NOT_RUN:
            return [settled(call, "error", f"not run: {error.message}", hand)]
        if error.reason is Reason.CALL_CANCELLED:
            return [settled(call, "cancelled", "cancelled before it ran", hand)]
        if error.reason in _HAND_IS_GONE:
            return [gone(call, hand, error.message, sent=sent), *self._lost(hand, error.message)]
        return []

    def _lost(self, hand: Hand, reason: str) -> list[New]:
        """The event that says a hand is lost, unless the log has it."""
        if hand.state != "live":
            return []
        return [New("hand.lost", {"hand_id": hand.hand_id, "name": hand.name, "reason": reason})]

    async def _cancel(self, call: Call, hand: Hand) -> None:
        request = hand_pb2.CancelRequest(
            driver=driver_of(self._driver), hand_id=hand.hand_id, call_id=call.call_id
        )
        await one(await self._ask(hand, "cancel", request))

    async def _acknowledge(self, hand: Hand, call_ids: list[str]) -> None:
        """Let the hand free what is in the log; the next driver repeats what was missed."""
        if not call_ids:
            return
        request = hand_pb2.AcknowledgeRequest(
            driver=driver_of(self._driver), hand_id=hand.hand_id, call_ids=call_ids
        )
        try:
            await one(await self._ask(hand, "acknowledge", request))
        except CarpalError as error:
            log.info("not acknowledged", extra={"hand": hand.hand_id, "error": str(error)})

    async def _ask(self, hand: Hand, arm: str, request: Any) -> Any:
        connection = await self._fleet.connection(hand.daemon)
        return connection.call(arm, request)

    async def _append(self, event: New) -> None:
        await self._driver.append(event)

    def _patience(self, hand: Hand) -> float:
        return hand.orphan_deadline + ORPHAN_MARGIN


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
