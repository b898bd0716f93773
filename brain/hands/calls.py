"""Settling tool calls on hands: at most once, and the log says what is true.

For each open call, the way of design §5: find or provision its hand, claim
the session's epoch there, ask for the call by its id, append its result, and
only then acknowledge. Asking again is always safe: the hand answers a
`call_id` it knows with what it has, and never runs it twice.
"""

import asyncio
import logging
from bisect import insort
from collections.abc import Coroutine
from typing import Any

from brain.daemons.fleet import Fleet
from brain.hands.call_on_hand import CallOnHand
from brain.hands.hand_line import HAND_IS_GONE, HandLine
from brain.hands.late import hear_late, to_hear
from brain.hands.provision import Provisioner
from brain.mcp.session_servers import SessionServers
from brain.permissions import denial, undecided
from brain.session import consents
from brain.session.driver import Driver
from brain.session.entries import Call, Hand, New
from brain.session.results import gone, parted, settled
from brain.session.watch import WatchHub
from brain.tools.own_calls import OwnCalls
from carpal import layers
from carpal.agent import OWN_HAND
from carpal.errors import CarpalError, invalid
from carpal.fault_points import point
from carpal.layers import Layer, layer_of
from carpal.status import Reason

log = logging.getLogger(__name__)

_LOOK = 5.0
"""Seconds between looks at hands that are out of reach, when no daemon comes or goes."""

_SAYS_NO_MORE = {*HAND_IS_GONE, Reason.LINK_VIOLATION, Reason.STALE_EPOCH}
"""Refusals after which a hand is not asked again for what was given up: the fault is its own, or
the drive is over."""


class Calls:
    """The open calls of one driven session."""

    def __init__(
        self, driver: Driver, fleet: Fleet, hub: WatchHub, servers: SessionServers | None = None
    ) -> None:
        self._driver = driver
        self._servers = servers or SessionServers(driver, None)
        self._fleet = fleet
        self._hub = hub
        self._provisioner = Provisioner(driver, fleet, hub)
        self._own = OwnCalls(driver)
        self._lines: dict[str, HandLine] = {}
        self._freed: set[str] = set()
        """Hands where the results of earlier drivers were acknowledged."""
        self.claimed = asyncio.Event()
        """Each live hand was asked once, and told its epoch if it can be reached."""

    async def settle(self, call_ids: tuple[str, ...]) -> None:
        """Give every call its result: in order on one hand, side by side on several.

        One that a person must allow is left open, unless they decide it while others run.
        """
        transcript = self._driver.transcript
        calls = [transcript.calls[call_id] for call_id in call_ids]
        rows: dict[str, list[Call]] = {}
        tasks: dict[str, asyncio.Task[None]] = {}
        begun: set[str] = set()
        """Calls in a row, or settled. One that its user must consent to first is in none again."""
        async with asyncio.TaskGroup() as group:
            while True:
                left = [c for c in calls if c.result is None and transcript.waits(c)]
                for call in calls:
                    if call.result is not None or call.call_id in begun or call in left:
                        continue
                    begun.add(call.call_id)
                    # By the name: a hand has no id before its first call.
                    insort(rows.setdefault(call.hand, []), call, key=lambda each: each.position)
                for name, row in rows.items():
                    if row and (name not in tasks or tasks[name].done()):
                        tasks[name] = group.create_task(self._settle_row(row, begun))
                running = [task for task in tasks.values() if not task.done()]
                if not running or not left:
                    return
                await _first(self._decided(left), *running)

    async def _decided(self, waiting: list[Call]) -> None:
        """Wait until a person decided one of them, or interrupted."""
        await self._driver.until(lambda t: not all(map(t.waits, waiting)))

    async def provision(self, name: str, *, called: bool = True) -> None:
        """Have a named hand; the log says why when there is none.

        Not `called`, it says so to the model. Raises INVALID_FIELD for a name that the session has
        no hand by, and STALE_EPOCH.
        """
        transcript = self._driver.transcript
        if name not in transcript.hand_specs:
            raise invalid("hand", f"the session names no hand {name!r}")
        since = transcript.interrupted
        made = self._provisioner.provision(name, called=called)
        try:
            await self._driver.unless(lambda t: t.interrupted > since, made)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                await self._driver.check_refusal()
            log.info("not provisioned", extra={"hand": name, "error": str(error)})

    async def look_after(self) -> None:
        """Claim each hand as soon as it can be reached, and hear what it tells late.

        Runs until cancelled. A hand out of reach delays only its own calls.
        """
        while True:
            await self.claim_all()
            self.claimed.set()
            await self._fleet.directory.wait_change(_LOOK)

    async def claim_all(self) -> None:
        """Fence earlier drivers at every live hand; free what the log already has."""
        hands = self._driver.transcript.live_hands()
        await asyncio.gather(*(self._claim(hand) for hand in hands))
        await self.hear_all()

    async def hear_all(self) -> None:
        """Ask the hands of calls that were given up what became of them; each once."""
        transcript = self._driver.transcript
        live = [hand for hand in transcript.live_hands() if transcript.given_up_calls(hand)]
        await asyncio.gather(*(self._hear(hand) for hand in live + transcript.may_return()))

    async def _claim(self, hand: Hand) -> None:
        line = self._line(hand)
        if hand.hand_id in self._freed and not line.to_claim and not line.to_free:
            return
        try:
            await line.claim([])
            # What was given up is freed once its hand was heard.
            settled = self._driver.transcript.settled_calls(hand)
            await line.acknowledge([call.call_id for call in settled])
        except CarpalError as error:
            # Out of reach: claimed on its return, before its next call.
            log.info("hand not claimed", extra={"hand": hand.hand_id, "error": str(error)})
        else:
            self._freed.add(hand.hand_id)

    async def _hear(self, hand: Hand) -> None:
        line = self._line(hand)
        if hand.hand_id in self._freed and not line.to_free and not to_hear(line, self._driver):
            return
        try:
            await hear_late(line, self._driver)
        except (CarpalError, TimeoutError) as error:
            log.info("hand not heard", extra={"hand": hand.hand_id, "error": str(error)})
            if not isinstance(error, CarpalError) or error.reason not in _SAYS_NO_MORE:
                return
            line.heard.update(call.call_id for call in to_hear(line, self._driver))
        self._freed.add(hand.hand_id)

    async def _settle_row(self, row: list[Call], begun: set[str]) -> None:
        """Settle calls of one hand, the oldest first, also of those that come meanwhile."""
        while row:
            call = row.pop(0)
            if not self._driver.transcript.waits(call):
                await self._settle_one(call)
            if call.result is None:
                begun.discard(call.call_id)

    async def _settle_one(self, call: Call) -> None:
        if call.hand == OWN_HAND:
            await self._own.settle(call)
            return
        if self._driver.transcript.not_inherited(call):
            await self._append(parted(call))
            return
        if why := denial(call):
            await self._append(settled(call, "denied", why))
            return
        if undecided(call):
            await self._append(settled(call, "cancelled", "interrupted before a person decided"))
            return
        if call.consent is not None and not call.consent.allowed:
            why = consents.denied(call.server, call.consent.message)
            await self._append(settled(call, "denied", why))
            return
        if call.unsent and self._driver.transcript.stopped(call):
            await self._append(settled(call, "cancelled", "interrupted before its user consented"))
            return
        if call.server:
            await self._servers.settle(call)
            return
        hand = self._driver.transcript.hand_of(call) or await self._provision(call)
        if hand is None:
            return
        # A call that this driver made itself, or saw allowed, has been sent to no hand before.
        sent = call.since <= self._driver.started_at
        if hand.state != "live":
            # Of one that is lost it may still be heard, should it come back.
            maybe = sent and hand.state == "lost"
            why = f"it is {hand.state}"
            failed = (Layer.LINK if hand.given_up else Layer.HAND, Reason.HAND_GONE)
            await self._append(gone(call, hand, why, sent=sent, failed=failed, given_up=maybe))
            return
        if call.position < hand.provisioned and call.name in hand.outdated:
            # A function of the log: no driver has sent it.
            why = f"not run: hand {hand.name!r} was made anew, and its tool {call.name!r} is gone, "
            why += "or takes something else now: see the tools that it has"
            failed = (Layer.HAND, Reason.TOOL_NOT_FOUND)
            await self._append(settled(call, "error", why, hand, failed=failed))
            return
        line = self._line(hand)
        on_hand = CallOnHand(call, line, self._driver, self._fleet, self._hub, sent=sent)
        outcome = await on_hand.outcome()
        point("brain.result.before_appended")
        await self._driver.append(*outcome)
        point("brain.result.appended")
        if outcome[0].data.get("given_up"):
            return  # what became of it is still to be heard
        await line.acknowledge([call.call_id])
        point("brain.result.acknowledged")

    async def _provision(self, call: Call) -> Hand | None:
        """The hand a call waits for; None when the call was settled without one."""
        transcript = self._driver.transcript
        if call.hand not in transcript.hand_specs:
            why = f"not run: there is no hand {call.hand!r}"
            failed = (Layer.HARNESS, layers.HAND_UNKNOWN)
            await self._append(settled(call, "error", why, failed=failed))
            return None
        try:
            made = self._provisioner.provision(call.hand)
            hand = await self._driver.unless(lambda t: t.stopped(call), made)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                await self._driver.check_refusal()
            why = f"not run: no hand {call.hand!r}: {error}"
            failed = (layer_of(error.reason, Layer.DAEMON), error.reason)
            await self._append(settled(call, "error", why, failed=failed))
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


async def _first(waiting: Coroutine[Any, Any, None], *running: "asyncio.Task[None]") -> None:
    """Wait until one of them is done; the first one is given up then."""
    task = asyncio.create_task(waiting)
    try:
        await asyncio.wait({task, *running}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
