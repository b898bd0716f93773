"""Hands of an idle session: kept for a while, then released."""

import logging
import time

from brain.daemons.fleet import Fleet
from brain.daemons.hands_at import one
from brain.hands.provision import driver_of
from brain.session.driver import Driver
from brain.session.entries import New
from carpal import layers
from carpal.errors import CarpalError
from carpal.layers import Layer, failure
from carpal.status import Reason
from carpal.v1 import hand_pb2

log = logging.getLogger(__name__)

_AGAIN = 60.0
"""Seconds until a hand whose daemon is out of reach is tried again; sooner where hands of idle
sessions are kept for less."""


WAITING = 24 * 3600.0
"""Seconds that hands are kept, at least, while a person is in one, or must allow a call."""


async def idle_hands(driver: Driver, fleet: Fleet, keep: float) -> float | None:
    """Release the hands of a session idle for `keep` seconds, or a day while a person must decide.

    Returns in how many seconds to look again; None when no hand is left. A
    session waits for that asleep: no brain holds anything for it.
    """
    transcript = driver.transcript
    hands = transcript.unreleased_hands()
    if not hands:
        return None
    if transcript.waiting_calls():
        keep = max(keep, WAITING)
    if transcript.people:  # nobody is thrown out of a hand meanwhile
        keep = max(keep, WAITING)
    idle = time.time() - transcript.last_time
    if idle < keep or transcript.has_work():
        return max(keep - idle, 1.0)
    for hand in hands:
        request = hand_pb2.ReleaseRequest(driver=driver_of(driver), hand_id=hand.hand_id)
        name = {"hand_id": hand.hand_id, "name": hand.name}
        try:
            connection = await fleet.connection(hand.daemon, driver.workspace)
            await one(connection.call("release", request))
        except CarpalError as error:
            # Whatever a hand refuses, this is no reason to drive its session again and again.
            if error.reason is Reason.STALE_EPOCH:
                await driver.check_refusal()
            if idle < keep + hand.orphan_deadline + fleet.orphan_margin:
                log.info("hand not released", extra={"hand": hand.hand_id, "error": str(error)})
                return min(_AGAIN, max(keep, 1.0))
            # Without a brain that long it has ended itself; its daemon may never come back.
            data = {**name, "reason": error.message, "given_up": True}
            data |= failure(Layer.LINK, layers.OUT_OF_REACH)
            await driver.append(New("hand.lost", data))
        else:
            await driver.append(New("hand.released", name))
    return None
