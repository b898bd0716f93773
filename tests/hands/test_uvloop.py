"""The same under uvloop, which the daemon runs on where it is installed."""

import pytest

from carpal.v1 import hand_pb2 as pb
from tests.hands.place import Place


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """uvloop spawns and pipes in its own ways."""
    return "asyncio", {"use_uvloop": True}


async def test_a_hand_is_made_used_and_released(place: Place) -> None:
    hand = await place.hand()
    result = await place.sh(hand, "ls -l /proc/self/fd | wc -l; echo on")
    # Its three, the listing's own, and the total: nothing of the daemon's comes through.
    assert result.content == "5\non\n"
    assert result.outcome == pb.OUTCOME_OK
    assert await place.release(hand)
