"""One driver's line to one hand: claimed before use, and known to be silent or not."""

import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import one
from brain.hands.provision import driver_of
from brain.session.driver import Driver
from brain.session.entries import Call, Hand
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2

log = logging.getLogger(__name__)

ACKNOWLEDGED_AT_ONCE = 100
"""The newest results to acknowledge in one request; what is older is freed at the release."""


HAND_IS_GONE = {Reason.HAND_NOT_FOUND, Reason.HAND_GONE}
"""What a daemon says that has nothing of a hand any more."""


class HandLine:
    """What a driver asks of one hand."""

    def __init__(self, hand: Hand, driver: Driver, fleet: Fleet) -> None:
        self.hand = hand
        self.claimed = False
        """The hand knows this driver's epoch."""
        self._driver = driver
        self._fleet = fleet
        self._heard = time.monotonic()
        self._cancelled: set[str] = set()
        """Calls the log gave up, cancelled since the hand was last out of reach."""
        self.heard: set[str] = set()
        """Calls the log gave up of which it said what it knows, if that was no news."""
        self.to_free: dict[str, None] = {}
        """Calls that it was to free and did not yet, oldest first."""

    async def claim(self, call_ids: list[str]) -> hand_pb2.ClaimResponse:
        """Raise the session's epoch at the hand, and learn the state of calls.

        Calls the log gave up are cancelled ahead of all else: if they still run,
        or are still on their way, nobody waits for them.
        """
        request = hand_pb2.ClaimRequest(
            driver=driver_of(self._driver), hand_id=self.hand.hand_id, call_ids=call_ids
        )
        answer: hand_pb2.ClaimResponse = await one(self.ask("claim", request))
        if [told.call_id for told in answer.calls] != call_ids:
            raise refuse(
                Reason.LINK_VIOLATION, "a claim was answered about other calls than it asked for"
            )
        for call_id in self._to_cancel():
            await self.cancel(call_id)
            self._cancelled.add(call_id)
        self.claimed = True
        return answer

    @property
    def to_claim(self) -> bool:
        """Whether a claim must come before anything else."""
        return not self.claimed or bool(self._to_cancel())

    def lose(self) -> None:
        """It went out of reach: it is claimed on its return before anything else."""
        self.claimed = False
        self._cancelled.clear()

    async def cancel(self, call_id: str) -> None:
        """TERM, grace, KILL; a tombstone when the hand never saw it."""
        request = hand_pb2.CancelRequest(
            driver=driver_of(self._driver), hand_id=self.hand.hand_id, call_id=call_id
        )
        await one(self.ask("cancel", request))

    async def acknowledge(self, call_ids: list[str]) -> None:
        """Let the hand free what is in the log, and what it did not free before.

        What it refuses to free stays in `to_free`.
        """
        self.to_free |= dict.fromkeys(call_ids)
        telling = list(self.to_free)[-ACKNOWLEDGED_AT_ONCE:]
        self.to_free = dict.fromkeys(telling)
        if telling and await self._free(telling) is Reason.CALL_RUNNING:
            # It frees all or none, and one of them has not ended yet.
            for call_id in telling:
                if await self._free([call_id]) not in (None, Reason.CALL_RUNNING):
                    return

    async def _free(self, call_ids: list[str]) -> Reason | None:
        """Have it free these, all or none; why not, if it did not."""
        request = hand_pb2.AcknowledgeRequest(
            driver=driver_of(self._driver), hand_id=self.hand.hand_id, call_ids=call_ids
        )
        try:
            await one(self.ask("acknowledge", request))
        except CarpalError as error:
            log.info("not acknowledged", extra={"hand": self.hand.hand_id, "error": str(error)})
            if error.reason in HAND_IS_GONE:
                self.to_free.clear()
            return error.reason
        for call_id in call_ids:
            self.to_free.pop(call_id, None)
        return None

    async def ask(self, arm: str, request: Message) -> AsyncGenerator[Any, None]:
        """One request of the Hand service, wherever the daemon's link is."""
        connection = await self._fleet.connection(self.hand.daemon, self._driver.workspace)
        try:
            async with aclosing(connection.call(arm, request)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            # Until now there was a link, also while the hand had nothing to say.
            self._heard = time.monotonic()

    def execute(
        self, call: Call, offset: int = 0
    ) -> AsyncGenerator[hand_pb2.ExecuteResponse, None]:
        """Run a call, attach to its output from `offset` on, or replay it: the hand knows which."""
        request = hand_pb2.ExecuteRequest(
            driver=driver_of(self._driver),
            hand_id=self.hand.hand_id,
            call_id=call.call_id,
            name=call.name,
            # One text for one input: the hand tells by it that the call is the same.
            input=json.dumps(call.input, sort_keys=True, separators=(",", ":")).encode(),
            output_offset=offset,
        )
        return self.ask("execute", request)

    @property
    def given_up(self) -> bool:
        """Silent past its orphan deadline and a margin: it has ended itself by now."""
        silent = time.monotonic() - self._heard
        return silent > self.hand.orphan_deadline + self._fleet.orphan_margin

    def _to_cancel(self) -> list[str]:
        given_up = self._driver.transcript.given_up_calls(self.hand)
        done = self._cancelled | self.heard
        return [call.call_id for call in given_up if call.call_id not in done]
