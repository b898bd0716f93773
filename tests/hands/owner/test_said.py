"""What hands say unasked is output too: struck out, counted, and in the owner's audit."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.builtin.socket import SocketType
from tests.hands.hand_server import Replaying, serving
from tests.hands.owner.owner import KEY, Owner
from tests.hands.place import PATIENCE, until


class Talker(Replaying):
    """A server whose hands say things."""

    def __init__(self, *said: pb.EventsResponse) -> None:
        super().__init__()
        self.info.capabilities.append("events")
        self.says = said

    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        for each in self.says:
            if each.event_id not in {key.event_id for key in request.acknowledged}:
                yield each


async def test_what_a_hand_says_is_redacted_counted_and_once_in_the_audit_without_its_data(
    tmp_path: Path,
) -> None:
    owner = Owner(tmp_path)
    owner.says("redact = ['AKIA[A-Z0-9]{16}', 'sk-[a-z]{8}']")
    data = json.dumps({"key": KEY, KEY: ["of", f"x{KEY}x"]}).encode()
    secret = "sk-abcdefgh"
    server = Talker(
        pb.EventsResponse(event_id="e1", kind="k", data=data),
        pb.EventsResponse(event_id=secret, kind="k", data=b"{}"),
        pb.EventsResponse(event_id="e3", kind=f"of-{secret}", data=b"{}"),
    )
    async with serving(tmp_path / "hand.sock", server):
        kind = SocketType("echo", tmp_path / "hand.sock")
        await kind.prepare()
        async with owner.place(more={"echo": kind}, blobs=Blobs(0.0)) as place:
            hand = await place.hand(type="echo")
            await until(lambda: len(place.inventory.unasked.waiting()) == 3, "not all were heard")

            async def heard(*known: str) -> list[pb.EventsResponse]:
                keys = [pb.EventKey(hand_id=hand, event_id=each) for each in known]
                asking = place.service.events(pb.EventsRequest(acknowledged=keys))
                async with asyncio.timeout(PATIENCE):
                    return [each async for each in asking]

            (left,) = await heard()
            assert json.loads(left.data) == {
                "key": "[redacted]",
                "[redacted]": ["of", "x[redacted]x"],
            }
            again, dropped = await heard()
            assert again == left
            assert json.loads(dropped.data) == {"redacted": 2}
            assert secret not in str((again, dropped))
            counts = place.inventory.counts
            assert (counts.events, counts.events_dropped) == (3, 2)
        await kind.close()
    first, second = owner.told("said")
    assert (first["hand"], first["event"], first["kind"]) == (hand, "e1", "k")
    assert first["output_bytes"] == len(left.data)
    assert first["sha256"] == hashlib.sha256(left.data).hexdigest()
    assert second["kind"] == "events_dropped"
    text = "".join(json.dumps(each) for each in owner.told())
    assert KEY not in text
    assert secret not in text
