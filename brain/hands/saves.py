"""Saving workspaces at a person's word: `user.save` in the log, then what became of it.

The hand is asked under the event's id, so a driver that takes over asks for
the same save, and a hand that made it answers as before.
"""

import logging
import time
from contextlib import aclosing
from typing import Any

from brain.daemons.fleet import Fleet
from brain.hands.hand_line import HandLine
from brain.hands.patience import Patience
from brain.hands.provision import driver_of
from brain.session.driver import Driver
from brain.session.entries import Hand, New, Save
from brain.text import clean, shorten
from carpal.backoff import Backoff
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.layers import Layer, layer_of
from carpal.status import Reason
from carpal.v1 import hand_pb2

log = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds to wait for a hand that is out of reach."""
_SAID_MAX = 1000
"""Bytes of what a hand says of a save."""
_DIGEST = 32


class Saves:
    """The saves that one driven session was asked for."""

    def __init__(self, driver: Driver, fleet: Fleet) -> None:
        self._driver = driver
        self._fleet = fleet

    async def settle(self) -> None:
        """Answer every one in the log. None is open when this returns."""
        while saves := list(self._driver.transcript.saves.values()):
            for save in saves:
                await self._driver.append(await self._outcome(save))

    async def _outcome(self, save: Save) -> New:
        """The event that says what became of one."""
        transcript = self._driver.transcript
        name = save.hand or transcript.default_hand
        hand = next((each for each in transcript.live_hands() if each.name == name), None)
        if hand is None:
            why = f"there is no live hand {name!r}: one is made at its first call, and released"
            why += " when the session is idle for long"
            return _failed(save, name, refuse(Reason.HAND_NOT_FOUND, why))
        try:
            asking = self._ask(hand, save)
            saved = await self._driver.unless(lambda t: t.interrupted > save.position, asking)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                await self._driver.check_refusal()
            log.info("not saved", extra={"hand": hand.hand_id, "error": str(error)})
            return _failed(save, name, error)
        if saved is None:
            return _failed(save, name, refuse(Reason.CALL_CANCELLED, "a person interrupted"))
        data = {
            "save_id": save.save_id,
            "hand_id": hand.hand_id,
            "name": name,
            "blob": f"sha256:{saved.digest.hex()}",
            "size": saved.size,
            "said": shorten(clean(saved.name), _SAID_MAX),
        }
        return New("hand.saved", data)

    async def _ask(self, hand: Hand, save: Save) -> hand_pb2.Attachment:
        line = HandLine(hand, self._driver, self._fleet)
        backoff, patience = Backoff(0.1, 2.0), Patience(PATIENCE)
        while True:
            self._driver.check_lease()
            began = time.monotonic()
            try:
                if line.to_claim:
                    await line.claim([])
                return await self._ask_once(line, save)
            except Unreachable as error:
                if patience.over(began, time.monotonic()):
                    raise
                log.info("save waits", extra={"hand": hand.hand_id, "error": str(error)})
                line.lose()
                await self._fleet.directory.wait_change(backoff.next())

    async def _ask_once(self, line: HandLine, save: Save) -> hand_pb2.Attachment:
        request = hand_pb2.SaveRequest(
            driver=driver_of(self._driver), hand_id=line.hand.hand_id, save_id=save.save_id
        )
        saved: hand_pb2.Attachment | None = None
        async with aclosing(line.ask("save", request)) as answers:
            async for answer in answers:
                if answer.HasField("saved"):
                    saved = answer.saved
        if saved is None or len(saved.digest) != _DIGEST:
            raise refuse(Reason.LINK_VIOLATION, "a save was answered without a blob")
        return saved


def _failed(save: Save, name: str, error: CarpalError) -> New:
    data: dict[str, Any] = {
        "save_id": save.save_id,
        "name": name,
        "reason": error.reason,
        "message": str(error),
    }
    if error.reason is not Reason.CALL_CANCELLED:  # a person did that
        data["layer"] = str(layer_of(error.reason, Layer.DAEMON))
    return New("hand.save_failed", data)
