"""Hands of an idle session: kept for a while, then released."""

import logging
import time

from brain.driver import Driver
from brain.fleet import Fleet
from brain.hands_at import one
from brain.provision import driver_of
from brain.transcript import New
from carpal.errors import CarpalError
from carpal.v1 import hand_pb2

log = logging.getLogger(__name__)

_AGAIN = 60.0
"""Seconds until a hand whose daemon is out of reach is tried again."""


async def idle_hands(driver: Driver, fleet: Fleet, keep: float) -> float | None:
    """Release the hands of a session idle for `keep` seconds.

    Returns in how many seconds to look again; None when no hand is left. A
    session waits for that asleep: no brain holds anything for it.
    """
    transcript = driver.transcript
    if not transcript.live_hands():
        return None
    left = keep - (time.time() - transcript.last_time)
    if left > 0 or transcript.has_work():
        return max(left, 1.0)
    for hand in transcript.live_hands():
        request = hand_pb2.ReleaseRequest(driver=driver_of(driver), hand_id=hand.hand_id)
        try:
            connection = await fleet.connection(hand.daemon)
            await one(connection.call("release", request))
        except CarpalError as error:
            log.info("hand not released", extra={"hand": hand.hand_id, "error": str(error)})
            return _AGAIN
        await driver.append(New("hand.released", {"hand_id": hand.hand_id, "name": hand.name}))
    return None
