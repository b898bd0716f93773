"""Hands of an idle session are kept for a while, then released, and never forgotten."""

import pytest

from brain.daemons.fleet import ORPHAN_MARGIN
from brain.hands import housekeeping
from brain.hands.housekeeping import idle_hands
from brain.session.entries import New
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from tests.brain.stage import Stage


async def idle(driven: Stage, *, through: int = 1_000) -> None:
    """The session is idle. The store's clock of these tests is years behind."""
    await driven.driver.append(New("session.status_idle", {"through": through}))


async def test_without_hands_there_is_nothing_to_look_at_again(driven: Stage) -> None:
    await idle(driven)
    assert await idle_hands(driven.driver, driven.fleet, 600.0) is None


async def test_hands_are_kept_while_the_session_is_not_idle_for_long(driven: Stage) -> None:
    await driven.hand()
    await idle(driven)
    ever = 1e12
    again = await idle_hands(driven.driver, driven.fleet, ever)
    assert again is not None
    assert 0 < again < ever
    assert not driven.hands.asked


async def test_hands_are_kept_while_there_is_work(driven: Stage) -> None:
    await driven.hand()
    await driven.call()
    assert await idle_hands(driven.driver, driven.fleet, 0.0) == 1.0
    assert not driven.hands.asked


async def test_hands_of_a_session_idle_for_long_are_released_and_the_log_says_so(
    driven: Stage,
) -> None:
    await driven.hand("hand_1")
    await driven.hand("hand_2")
    await idle(driven)
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert [r.hand_id for r in driven.hands.asked_for("release")] == ["hand_1", "hand_2"]
    assert (await driven.kinds())[-2:] == ["hand.released", "hand.released"]
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert len(driven.hands.asked) == 2


async def test_hands_are_kept_while_a_person_is_in_one(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "WAITING", 1e12)
    await driven.hand("hand_1")
    entered = {"tunnel_id": "t", "hand_id": "hand_1", "name": "shell"}
    await driven.driver.append(New("hand.entered", entered))
    await idle(driven)
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is not None
    assert not driven.hands.asked
    await driven.driver.append(New("hand.left", entered))
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert driven.hands.arms() == ["release"]


async def test_a_hand_out_of_reach_is_tried_again_later(driven: Stage) -> None:
    await driven.hand(deadline=1e12)
    await idle(driven)
    driven.hands.linked = False
    assert await idle_hands(driven.driver, driven.fleet, 1.0) == 1.0
    assert await idle_hands(driven.driver, driven.fleet, 600.0) == 60.0
    assert (await driven.kinds())[-1] == "session.status_idle"


async def test_a_hand_out_of_reach_past_its_orphan_deadline_is_lost(driven: Stage) -> None:
    await driven.hand(deadline=1.0 - ORPHAN_MARGIN)
    await idle(driven)
    driven.hands.linked = False
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert (await driven.kinds())[-1] == "hand.lost"
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert len(driven.hands.asked_for("release")) == 0
    assert (await driven.kinds()).count("hand.lost") == 1, "it is not given up again and again"


async def test_what_a_lost_hand_left_on_its_machine_is_released_too(driven: Stage) -> None:
    await driven.hand("hand_1")
    lost = {"hand_id": "hand_1", "name": "shell", "reason": "its supervisor ended"}
    await driven.driver.append(New("hand.lost", lost))
    await idle(driven)
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert [r.hand_id for r in driven.hands.asked_for("release")] == ["hand_1"]
    assert (await driven.kinds())[-1] == "hand.released"


async def test_a_newer_driver_ends_this_ones_housekeeping(driven: Stage) -> None:
    await driven.hand()
    await idle(driven)
    await driven.end_lease()
    driven.hands.script["release"] = [refuse(Reason.STALE_EPOCH, "newer")]
    with pytest.raises(CarpalError, match="is over"):
        await idle_hands(driven.driver, driven.fleet, 1.0)
    assert (await driven.kinds())[-1] == "session.status_idle"


@pytest.mark.parametrize("reason", [Reason.STALE_EPOCH, Reason.INTERNAL, Reason.LINK_VIOLATION])
async def test_a_hand_that_refuses_to_go_fails_no_drive(driven: Stage, reason: Reason) -> None:
    """It is asked again later; a drive that fails three times would park the session."""
    await driven.hand(deadline=1e12)
    await idle(driven)
    driven.hands.script["release"] = [refuse(reason, "no")]
    assert await idle_hands(driven.driver, driven.fleet, 1.0) == 1.0
    assert await idle_hands(driven.driver, driven.fleet, 1.0) is None
    assert (await driven.kinds())[-1] == "hand.released"
