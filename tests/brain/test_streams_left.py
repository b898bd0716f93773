"""Many writers of one link, and readers that leave without a word."""

import asyncio
import gc

from brain.daemons.hands_at import Relayed
from carpal.identity import Role
from carpal.v1 import hand_pb2, hand_pb2_grpc
from tests.brain.serving import brain, linked
from tests.brain.stage import WAIT
from tests.sessiond.serving import Serving


async def test_fifty_tasks_that_send_at_once_have_all_delivered_in_order_by_one_writer_l34(
    sessions: Serving,
) -> None:
    tasks, each = 50, 20
    async with brain(sessions) as one, linked(one) as daemon:
        link = one.fleet.links.get("d1")
        assert link is not None

        async def send(task: int) -> None:
            for number in range(each):
                link.tell_brains([f"{task}", f"{number}"])
                await asyncio.sleep(0)

        await asyncio.gather(*map(send, range(tasks)))
        async with asyncio.timeout(WAIT):
            said = [await daemon.brains.get() for _ in range(tasks * each)]
    for task in range(tasks):
        came = [int(number) for sender, number in said if int(sender) == task]
        assert came == list(range(each))


async def test_twenty_calls_abandoned_without_a_word_are_all_cancelled_l33(
    sessions: Serving,
) -> None:
    async with (
        brain(sessions) as one,
        linked(one) as daemon,
        one.asked_by(Role.BRAIN, "brain-2") as channel,
    ):
        relayed = Relayed(hand_pb2_grpc.HandStub(channel), "d1", "brain-1")
        for number in range(20):
            request = hand_pb2.ExecuteRequest(hand_id="h", call_id=f"c{number}")
            answer = relayed.call("execute", request)
            asking = asyncio.ensure_future(anext(answer))
            asked = await daemon.next()
            chunk = hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"x"))
            await daemon.reply(asked, last=False, execute=chunk)
            await asking
            del answer, asking
        gc.collect()
        async with asyncio.timeout(WAIT):
            left = {await daemon.abandoned.get() for _ in range(20)}
    assert len(left) == 20
