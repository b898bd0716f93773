"""One driver's line to one hand: claimed before use, and known to be silent or not."""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from brain.driver import Driver
from brain.fleet import Fleet
from brain.hands_at import one
from brain.provision import ORPHAN_MARGIN, driver_of
from brain.transcript import Hand
from carpal.errors import CarpalError
from carpal.v1 import hand_pb2

log = logging.getLogger(__name__)


class HandLine:
    """What a driver asks of one hand."""

    def __init__(self, hand: Hand, driver: Driver, fleet: Fleet) -> None:
        self.hand = hand
        self.claimed = False
        """The hand knows this driver's epoch."""
        self._driver = driver
        self._fleet = fleet
        self._heard = time.monotonic()

    async def claim(self, call_ids: list[str]) -> hand_pb2.ClaimResponse:
        """Raise the session's epoch at the hand, and learn the state of calls.

        Calls the log gave up as interrupted are cancelled ahead of all else:
        if they still run, nobody waits for them.
        """
        request = hand_pb2.ClaimRequest(
            driver=driver_of(self._driver), hand_id=self.hand.hand_id, call_ids=call_ids
        )
        answer: hand_pb2.ClaimResponse = await one(self.ask("claim", request))
        if not self.claimed:
            for call_id in self._given_up():
                await self.cancel(call_id)
        self.claimed = True
        return answer

    async def cancel(self, call_id: str) -> None:
        """TERM, grace, KILL; a tombstone when the hand never saw it."""
        request = hand_pb2.CancelRequest(
            driver=driver_of(self._driver), hand_id=self.hand.hand_id, call_id=call_id
        )
        await one(self.ask("cancel", request))

    async def acknowledge(self, call_ids: list[str]) -> None:
        """Let the hand free what is in the log; the next driver repeats what was missed."""
        if not call_ids:
            return
        request = hand_pb2.AcknowledgeRequest(
            driver=driver_of(self._driver), hand_id=self.hand.hand_id, call_ids=call_ids
        )
        try:
            await one(self.ask("acknowledge", request))
        except CarpalError as error:
            log.info("not acknowledged", extra={"hand": self.hand.hand_id, "error": str(error)})

    async def ask(self, arm: str, request: Message) -> AsyncGenerator[Any, None]:
        """One request of the Hand service, wherever the daemon's link is."""
        connection = await self._fleet.connection(self.hand.daemon, self._driver.workspace)
        async with aclosing(connection.call(arm, request)) as answers:
            async for answer in answers:
                self._heard = time.monotonic()
                yield answer

    @property
    def given_up(self) -> bool:
        """Silent past its orphan deadline and a margin: it has ended itself by now."""
        silent = time.monotonic() - self._heard
        return silent > self.hand.orphan_deadline + ORPHAN_MARGIN

    def _given_up(self) -> list[str]:
        results = ((c.call_id, c.result) for c in self._driver.transcript.calls.values())
        return [
            call_id
            for call_id, result in results
            if result
            and result.get("hand_id") == self.hand.hand_id
            and result.get("outcome") == "interrupted"
        ]
