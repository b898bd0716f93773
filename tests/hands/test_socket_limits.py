"""Time at a server of somebody's own: each tool's limit, who keeps it, and one started anew."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin import socket_said
from hands.builtin.socket import SocketType
from tests.hands.hand_server import SCHEMA, Context, Least, output, result, serving
from tests.hands.place import PATIENCE, open_place
from tests.hands.test_socket import A_MOMENT, place


async def test_a_tool_has_the_time_that_its_server_says_and_another_two_minutes(
    tmp_path: Path,
) -> None:
    server = Least()
    server.info.tools.append(pb.ToolInfo(name="dig", description="Digs.", input_schema=SCHEMA))
    server.info.tools[1].time_limit.FromSeconds(3600)
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        await here.run(hand_id, "say", text="hello")
        await here.run(hand_id, "dig", text="deep")
        await here.steps(here.request(hand_id, "dig", text="deep", limit=7))
    assert [each.time_limit.seconds for each in server.asked] == [120, 3600, 7]


@pytest.mark.parametrize("seconds", [-1, 25 * 3600])
def test_a_time_that_no_tool_can_have_is_named(seconds: int) -> None:
    info = Least().info
    info.tools[0].time_limit.FromSeconds(seconds)
    with pytest.raises(ValueError, match="tool say: its time limit"):
        socket_said.described("echo", [info])


class Obeying(Least):
    """It ends a call when it is told to, and looks at no time itself."""

    def __init__(self) -> None:
        super().__init__(self.waits)
        self.told: dict[str, asyncio.Event] = {}
        self.going = asyncio.Event()

    async def waits(
        self, request: pb.ExecuteRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteResponse]:
        told = self.told[request.call_id] = asyncio.Event()
        yield output(0, b"digging\n")
        self.going.set()
        await told.wait()
        yield result("digging\nthe shovel is put away", pb.OUTCOME_CANCELLED)

    async def Cancel(self, request: pb.CancelRequest, context: object) -> pb.CancelResponse:
        self.told[request.call_id].set()
        return await super().Cancel(request, context)


async def test_a_call_that_the_daemon_had_to_end_for_its_time_is_timed_out_and_not_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hands.builtin.socket_hand._MARGIN", A_MOMENT)
    async with place(tmp_path, Obeying()) as here:
        hand_id = await here.hand(type="echo")
        said = (await here.steps(here.request(hand_id, "say", text="a", limit=A_MOMENT)))[-1].result
        assert said.outcome == pb.OUTCOME_TIMED_OUT
        assert said.content == (
            "digging\nthe shovel is put away\n[timed out after 0.05 s; its server was told to end]"
        )


async def test_a_call_that_a_person_cancelled_is_cancelled_however_near_its_time_is(
    tmp_path: Path,
) -> None:
    server = Obeying()
    async with place(tmp_path, server) as here:
        hand_id = await here.hand(type="echo")
        call = here.begin(here.request(hand_id, "say", text="a", limit=5))
        await server.going.wait()
        asked = pb.CancelRequest(driver=here.driver(), hand_id=hand_id, call_id=call.call_id)
        await here.service.cancel(asked)
        assert (await call.result()).outcome == pb.OUTCOME_CANCELLED


async def test_a_hand_is_made_as_soon_as_a_server_that_was_restarted_listens(
    tmp_path: Path,
) -> None:
    at = tmp_path / "hand.sock"
    kind = SocketType("echo", at)
    async with asyncio.timeout(PATIENCE * 2):
        first = serving(at, Least())
        await first.__aenter__()
        async with open_place(tmp_path / "state", more={"echo": kind}) as here:
            await here.hand(type="echo")
            await first.__aexit__(None, None, None)
            about = pb.ProbeRequest(type="echo")
            for _ in range(4):  # so that the next time to dial is some way off
                assert (await here.service.probe(about)).state == pb.PROBE_STATE_BROKEN
                await asyncio.sleep(0.3)  # what gRPC waits for has no event here
            async with serving(at, Least()):
                hand_id = await here.hand(type="echo")
                said = await here.run(hand_id, "say", text="new")
                assert said.content == "new"
