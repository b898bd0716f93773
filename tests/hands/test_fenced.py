"""What comes late is refused: from a brain that lost its session, or after a cancel."""

from typing import Any

import pytest

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from tests.hands.place import Place, until
from tests.hands.test_service import refused
from tests.leftovers import nothing_orphaned


async def _acknowledge(place: Place, request: pb.ExecuteRequest, epoch: int) -> None:
    await place.service.acknowledge(
        pb.AcknowledgeRequest(
            driver=place.driver(epoch=epoch),
            hand_id=request.hand_id,
            call_ids=[request.call_id],
        )
    )


async def _never(place: Place, request: pb.ExecuteRequest) -> None:
    """The call never came before."""


async def _ended(place: Place, request: pb.ExecuteRequest) -> None:
    await place.steps(request)


async def _acknowledged(place: Place, request: pb.ExecuteRequest) -> None:
    await place.steps(request)
    await _acknowledge(place, request, 1)


async def _cancelled(place: Place, request: pb.ExecuteRequest) -> None:
    await place.service.cancel(
        pb.CancelRequest(driver=place.driver(), hand_id=request.hand_id, call_id=request.call_id)
    )


async def _released(place: Place, request: pb.ExecuteRequest) -> None:
    await place.release(request.hand_id)


@pytest.mark.parametrize("before", [_never, _ended, _acknowledged, _cancelled, _released])
async def test_a_late_execute_of_a_brain_that_lost_its_session_is_refused_as_stale_first(
    place: Place, hand: str, before: Any
) -> None:
    """Whatever became of the call: a stale driver is owed no other answer."""
    request = place.request(hand, command="echo ran >> log")
    await before(place, request)
    if before is not _released:
        await place.service.claim(pb.ClaimRequest(driver=place.driver(epoch=2), hand_id=hand))
    else:
        place.journal.raise_epoch("s", 2)
    sequence = place.journal.sequence
    for _ in range(2):
        assert (await refused(place.execute(request))).reason is Reason.STALE_EPOCH
    assert place.journal.sequence == sequence, "nothing was written for it"
    log = place.inventory.folder_of(hand) / "workspace/log"
    assert not log.exists() or log.read_text() == "ran\n"


async def test_a_stale_execute_of_a_hand_that_never_was_is_refused_as_stale(place: Place) -> None:
    place.journal.raise_epoch("s", 2)
    error = await refused(place.execute(place.request("h-none", command="true")))
    assert error.reason is Reason.STALE_EPOCH


async def test_a_tombstone_outlives_a_restart_an_acknowledgement_and_a_new_driver(
    place: Place, hand: str
) -> None:
    request = place.request(hand, command="touch ran")
    await _cancelled(place, request)
    await _acknowledge(place, request, 2)
    request.driver.epoch = 3
    assert (await refused(place.execute(request))).reason is Reason.CALL_CANCELLED
    row = place.journal.call(hand, request.call_id)
    assert row is not None
    assert row.state == "tombstone"


async def test_l11_work_cancelled_between_offer_and_accept_leaves_the_hand_idle_and_no_ghost(
    place: Place, hand: str
) -> None:
    """L11: the cancel overtakes the call; the hand is idle, says so, and takes the next."""
    request = place.request(hand, command="touch ran; sleep 60")
    await _cancelled(place, request)
    assert (await refused(place.execute(request))).reason is Reason.CALL_CANCELLED
    (info,) = (await place.service.list_hands(pb.ListHandsRequest())).hands
    assert not info.open_call_ids
    assert not place.journal.open_calls(hand)
    assert (await place.sh(hand, "ls; echo on")).content == "on\n"
    await nothing_orphaned(place.inventory.folder_of(hand).parents[1])


async def test_id_digest_and_outcome_of_an_acknowledged_call_stay_until_its_hand_is_released(
    place: Place, hand: str
) -> None:
    request = place.request(hand, command="echo " + "x" * 50_000)
    await place.steps(request)
    await _acknowledge(place, request, 1)
    row = place.journal.call(hand, request.call_id)
    assert row is not None
    assert (row.state, row.outcome, row.result) == ("acknowledged", "ok", None)
    assert len(row.digest) == 32
    other = place.request(hand, call_id=request.call_id, command="another")
    assert (await refused(place.execute(other))).reason is Reason.ID_REUSED
    await place.release(hand)
    assert place.journal.call(hand, request.call_id) is None
    again = place.journal.hand(hand)
    assert again is not None
    assert again.state == "released", "its id is never used again"


async def test_a_watcher_whose_hand_is_released_learns_the_calls_end(
    place: Place, hand: str
) -> None:
    call = place.begin(place.request(hand, command="echo up; sleep 60"))
    await call.output()
    await place.release(hand)
    result = await call.result()
    assert result.content == "[cancelled as its hand was released]"
    await until(lambda: place.inventory.count == 0, "it is still there")
