"""Settling tool calls on hands: at most once, and the log says what is true.

For each open call, the way of design §5: find or provision its hand, claim
the session's epoch there, ask for the call by its id, append its result, and
only then acknowledge. Asking again is always safe: the hand answers a
`call_id` it knows with what it has, and never runs it twice.
"""

import asyncio
import logging

from brain.call_on_hand import CallOnHand
from brain.driver import Driver
from brain.fleet import Fleet
from brain.hand_line import HandLine
from brain.provision import Provisioner
from brain.results import gone, parted, settled
from brain.transcript import Call, Hand, New
from brain.watch import WatchHub
from carpal.errors import CarpalError
from carpal.fault_points import point
from carpal.status import Reason

log = logging.getLogger(__name__)

_ACKNOWLEDGED_AT_ONCE = 100
"""Results of earlier drivers to acknowledge at a takeover; more are freed at release."""


class Calls:
    """The open calls of one driven session."""

    def __init__(self, driver: Driver, fleet: Fleet, hub: WatchHub) -> None:
        self._driver = driver
        self._fleet = fleet
        self._hub = hub
        self._provisioner = Provisioner(driver, fleet, hub)
        self._lines: dict[str, HandLine] = {}

    async def settle(self, call_ids: tuple[str, ...]) -> None:
        """Give every call its result: in order on one hand, side by side on several."""
        rows: dict[str, list[Call]] = {}
        for call_id in call_ids:
            call = self._driver.transcript.calls[call_id]
            hand = self._driver.transcript.hand_of(call)
            rows.setdefault(hand.hand_id if hand else call.hand, []).append(call)
        async with asyncio.TaskGroup() as group:
            for row in rows.values():
                group.create_task(self._settle_row(row))

    async def claim_all(self) -> None:
        """Fence earlier drivers at every live hand; free what the log already has."""
        transcript = self._driver.transcript
        for hand in transcript.live_hands():
            results = ((call.call_id, call.result) for call in transcript.calls.values())
            logged = [
                c for c, result in results if result and result.get("hand_id") == hand.hand_id
            ]
            try:
                await self._line(hand).claim([])
                await self._line(hand).acknowledge(logged[-_ACKNOWLEDGED_AT_ONCE:])
            except CarpalError as error:
                # Out of reach: claimed on its return, before its next call.
                log.info("hand not claimed", extra={"hand": hand.hand_id, "error": str(error)})

    async def _settle_row(self, row: list[Call]) -> None:
        for call in row:
            await self._settle_one(call)

    async def _settle_one(self, call: Call) -> None:
        if self._driver.transcript.not_inherited(call):
            await self._append(parted(call))
            return
        hand = self._driver.transcript.hand_of(call) or await self._provision(call)
        if hand is None:
            return
        # A call this driver made itself has been sent to no hand before.
        sent = call.position <= self._driver.started_at
        if hand.state != "live":
            await self._driver.append(gone(call, hand, f"it is {hand.state}", sent=sent))
            return
        line = self._line(hand)
        on_hand = CallOnHand(call, line, self._driver, self._fleet, self._hub, sent=sent)
        outcome = await on_hand.outcome()
        point("brain.result.before_appended")
        await self._driver.append(*outcome)
        point("brain.result.appended")
        await line.acknowledge([call.call_id])
        point("brain.result.acknowledged")

    async def _provision(self, call: Call) -> Hand | None:
        """The hand a call waits for; None when the call was settled without one."""
        transcript = self._driver.transcript
        if call.hand not in transcript.hand_specs:
            await self._append(settled(call, "error", f"not run: there is no hand {call.hand!r}"))
            return None
        try:
            made = self._provisioner.provision(call.hand)
            hand = await self._driver.unless(lambda t: t.stopped(call), made)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                raise
            await self._append(settled(call, "error", f"not run: no hand {call.hand!r}: {error}"))
            return None
        if hand is None:
            await self._append(settled(call, "cancelled", "interrupted before it ran"))
        return hand

    async def _append(self, event: New) -> None:
        await self._driver.append(event)

    def _line(self, hand: Hand) -> HandLine:
        if hand.hand_id not in self._lines:
            self._lines[hand.hand_id] = HandLine(hand, self._driver, self._fleet)
        return self._lines[hand.hand_id]
