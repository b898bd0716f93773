"""MCP servers that break the protocol: each has a result that says so, and the daemon goes on."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.api import HandLost
from hands.mcp.said import MOST
from hands.mcp.server import Server
from hands.plugins.hosted import NotBegun
from tests.hands.mcp.conftest import RAW, Servers, in_both
from tests.hands.place import PATIENCE, until
from tests.pace import SCALE

MENDED = "a � b �"


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Ours, on loopback: its address."""
    served = await asyncio.create_subprocess_exec(
        *(sys.executable, str(RAW), "http"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert served.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            port = int(await served.stdout.readline())
        yield f"127.0.0.1:{port}", served
    finally:
        if served.returncode is None:
            served.kill()
        await served.wait()


@pytest.fixture(params=["pipe", "json", "events"])
async def raw(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[str]:
    """A hand whose server it is, by each transport."""
    if request.param == "pipe":
        yield await servers.hand("raw")
        return
    async with serving() as (host, _):
        path = "events" if request.param == "events" else "json"
        yield await servers.hand(url=f"http://{host}/{path}", egress=[{"host": host}])


async def fine(servers: Servers, hand: str) -> None:
    """The hand goes on."""
    assert (await servers.place.run(hand, "plain")).content == "fine"


async def gone(servers: Servers, hand: str) -> None:
    """It is lost, its next call did not run, and another hand can be made."""
    inventory = servers.place.inventory

    def lost() -> bool:
        row = inventory.journal.hand(hand)
        return row is not None and row.state == "lost"

    await until(lost, "it is not lost")
    with pytest.raises(CarpalError) as raised:
        await servers.place.run(hand, "plain")
    assert raised.value.reason is Reason.HAND_GONE


async def test_a_server_that_refuses_by_the_code_of_a_closed_connection_is_no_lost_hand(
    servers: Servers, raw: str
) -> None:
    result = await servers.place.run(raw, "busy")
    assert (result.outcome, result.content) == (
        pb.OUTCOME_ERROR,
        "the MCP server refused: the database is busy",
    )
    await fine(servers, raw)


async def test_what_is_no_text_in_a_result_is_replaced_wherever_it_is(
    servers: Servers, raw: str
) -> None:
    result = await servers.place.run(raw, "half")
    assert result.outcome == pb.OUTCOME_OK
    assert result.content.splitlines() == [
        MENDED,
        "[resource file:///a]",
        MENDED,
        "[an image, image/png: it is no base64, and left out]",
    ]
    result = await servers.place.run(raw, "half_structured")
    assert (result.outcome, result.content) == (pb.OUTCOME_OK, f'{{"k": "{MENDED}"}}')
    result = await servers.place.run(raw, "half_refused")
    assert (result.outcome, result.content) == (
        pb.OUTCOME_ERROR,
        f"the MCP server refused: {MENDED}",
    )
    await fine(servers, raw)


@in_both
async def test_progress_that_is_no_text_is_said_without_it(servers: Servers) -> None:
    hand = await servers.hand("raw")
    steps = await servers.place.steps(servers.place.request(hand, "half_progress"))
    assert b"".join(step.output.data for step in steps) == b"[1] a   b\n"
    assert steps[-1].result.content == "fine"


async def test_tools_that_are_no_text_are_left_out_and_said_and_the_others_are_there(
    servers: Servers, raw: str
) -> None:
    names = {tool.name for tool in servers.made.tools}
    assert "plain" in names
    assert not names & {"described", "shaped"}
    assert not any("a_" in name for name in names)
    why = "its name, its description or its schema holds what is no text"
    for name in ("a   b  ", "described", "shaped"):
        assert f"{name}: {why}" in servers.made.note
    await fine(servers, raw)


async def test_bytes_that_are_no_utf8_are_replaced(servers: Servers, raw: str) -> None:
    assert (await servers.place.run(raw, "latin")).content == "caf�"
    await fine(servers, raw)


async def test_a_result_that_is_none_is_an_error_that_says_so(servers: Servers, raw: str) -> None:
    result = await servers.place.run(raw, "wrong")
    assert result.outcome == pb.OUTCOME_ERROR
    assert "its answer is not as the protocol has it" in result.content
    await fine(servers, raw)


@pytest.mark.parametrize("tool", ["listed", "empty"])
async def test_an_answer_whose_result_is_no_object_is_an_error_at_once(
    servers: Servers, raw: str, tool: str
) -> None:
    result = await servers.place.run(raw, tool)
    assert result.outcome == pb.OUTCOME_ERROR
    assert "its answer has no result that is an object" in result.content
    await fine(servers, raw)


async def test_much_that_is_structured_is_cut_as_text_is(servers: Servers, raw: str) -> None:
    result = await servers.place.run(raw, "structured")
    assert result.outcome == pb.OUTCOME_OK
    assert "bytes omitted]" in result.content
    await fine(servers, raw)


async def test_a_long_line_within_bounds_is_an_answer(servers: Servers, raw: str) -> None:
    result = await servers.place.run(raw, "large")
    assert result.outcome == pb.OUTCOME_OK
    await fine(servers, raw)


@pytest.mark.parametrize("raw", ["pipe"], indirect=True)
async def test_a_second_answer_and_one_to_no_question_are_passed_over(
    servers: Servers, raw: str
) -> None:
    assert (await servers.place.run(raw, "twice")).content == "first"
    await fine(servers, raw)


@pytest.mark.parametrize("raw", ["pipe", "events"], indirect=True)
@pytest.mark.parametrize(("tool", "said"), [("asks", "asked"), ("notes", "noted")])
async def test_a_flood_of_what_needs_no_answer_holds_up_no_result(
    servers: Servers, raw: str, tool: str, said: str
) -> None:
    result = await servers.place.run(raw, tool, limit=100)
    assert (result.outcome, result.content) == (pb.OUTCOME_OK, said)
    await fine(servers, raw)


@pytest.mark.parametrize("raw", ["pipe", "events"], indirect=True)
async def test_tools_that_change_in_a_call_are_said_by_each_transport(
    servers: Servers, raw: str
) -> None:
    first = (await servers.place.run(raw, "grows")).content
    second = (await servers.place.run(raw, "plain")).content
    assert f"{first}\n{second}".count("its tools have changed") == 1


@pytest.mark.parametrize("raw", ["pipe", "events"], indirect=True)
async def test_a_flood_of_progress_is_output_to_its_last_step(servers: Servers, raw: str) -> None:
    steps = await servers.place.steps(servers.place.request(raw, "progress"))
    assert steps[-1].result.content == "done"
    assert b"".join(each.output.data for each in steps).endswith(b"[4999] on it\n")
    await fine(servers, raw)


@pytest.mark.parametrize("raw", ["pipe", "events"], indirect=True)
async def test_a_cancel_that_a_server_ignores_ends_the_call_and_what_comes_late_is_no_answer(
    servers: Servers, raw: str
) -> None:
    call = servers.place.begin(servers.place.request(raw, "deaf"))
    await call.output()
    await servers.place.service.cancel(
        pb.CancelRequest(driver=servers.place.driver(), hand_id=raw, call_id=call.call_id)
    )
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
    await fine(servers, raw)


async def test_an_input_that_is_no_text_is_not_sent_to_the_server(
    servers: Servers, raw: str
) -> None:
    result = await servers.place.run(raw, "plain", note="\ud83d")
    assert result.outcome == pb.OUTCOME_ERROR
    assert "not run: the input holds half of a character" in result.content
    await fine(servers, raw)


@in_both
async def test_a_line_that_never_ends_loses_the_hand_quickly_and_within_its_memory(
    servers: Servers,
) -> None:
    request = servers.order("raw")
    request.limits.memory_bytes = 192 * 1024**2
    await servers.place.provision(request)
    clock = asyncio.get_running_loop().time
    begun = clock()
    result = await servers.place.run(request.hand_id, "endless")
    assert result.outcome == pb.OUTCOME_LOST
    assert f"it wrote a line of more than {MOST} bytes" in result.content
    assert clock() - begun < 5 * SCALE
    await gone(servers, request.hand_id)


@pytest.mark.parametrize("raw", ["json", "events"], indirect=True)
async def test_an_answer_of_the_network_that_never_ends_is_an_error_of_its_call(
    servers: Servers, raw: str
) -> None:
    result = await servers.place.run(raw, "endless")
    assert result.outcome == pb.OUTCOME_ERROR
    assert str(MOST) in result.content
    await fine(servers, raw)


@pytest.mark.parametrize("raw", ["json"], indirect=True)
async def test_an_answer_that_is_packed_is_refused_for_nobody_knows_its_size(
    servers: Servers, raw: str
) -> None:
    result = await servers.place.run(raw, "packed")
    assert result.outcome == pb.OUTCOME_ERROR
    assert "gzip" in result.content
    await fine(servers, raw)


@pytest.mark.parametrize("raw", ["json", "events"], indirect=True)
async def test_a_server_of_the_network_that_forgot_its_client_is_a_lost_hand(
    servers: Servers, raw: str
) -> None:
    await fine(servers, raw)
    result = await servers.place.run(raw, "forgets")
    assert result.outcome == pb.OUTCOME_LOST
    assert "Session terminated" in result.content
    await gone(servers, raw)


async def test_a_server_that_dies_in_a_call_is_a_lost_hand_by_each_transport(
    servers: Servers, raw: str
) -> None:
    result = await servers.place.run(raw, "die")
    assert result.outcome == pb.OUTCOME_LOST, result.content
    assert "may have partly happened" in result.content
    await gone(servers, raw)


@in_both
@pytest.mark.parametrize(
    ("tool", "why"),
    [("closes", "it closed its standard output"), ("forks", "it ended")],
)
async def test_a_server_that_can_say_no_more_is_a_lost_hand_whoever_holds_its_pipes(
    servers: Servers, tool: str, why: str
) -> None:
    hand = await servers.hand("raw")
    result = await servers.place.run(hand, tool)
    assert result.outcome == pb.OUTCOME_LOST
    assert f"the MCP server is gone: {why}" in result.content
    await gone(servers, hand)


async def test_a_server_that_reads_no_more_is_a_lost_hand_at_its_next_call(
    servers: Servers,
) -> None:
    hand = await servers.hand("raw")
    assert (await servers.place.run(hand, "stops_reading")).content == "deaf from now on"
    result = await servers.place.run(hand, "plain")
    assert result.outcome == pb.OUTCOME_LOST
    assert "it closed its standard input" in result.content
    await gone(servers, hand)


async def test_a_call_of_a_server_that_was_gone_before_it_has_not_begun() -> None:
    server = Server({"command": [sys.executable, str(RAW)]})
    await server.connect()
    with pytest.raises(HandLost) as raised:
        await server.call("die", {}, lambda *_: None)
    assert not isinstance(raised.value, NotBegun)
    with pytest.raises(NotBegun, match="the MCP server is gone: it ended"):
        await server.call("plain", {}, lambda *_: None)
    await server.close()
