"""An MCP server as a hand: what it answers, what it is not told, and every way it may fail."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.hand_mark import mark
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from tests.hands.mcp.conftest import PACKAGES, SERVER, Servers, in_both
from tests.hands.place import PATIENCE, open_place, until


async def failed(servers: Servers, *arguments: str, **config: object) -> CarpalError:
    with pytest.raises(CarpalError) as raised:
        await servers.hand(*arguments, **config)
    return raised.value


@in_both
async def test_a_servers_tools_are_the_hands_and_its_answers_their_results(
    servers: Servers,
) -> None:
    hand = await servers.hand()
    assert {"add", "slow", "mixed"} <= {tool.name for tool in servers.made.tools}
    assert "13 tools" in servers.made.note
    result = await servers.place.run(hand, "add", a=1, b=2)
    assert (result.outcome, result.content) == (pb.OUTCOME_OK, "3")
    with pytest.raises(CarpalError) as raised:
        await servers.place.run(hand, "add", a="one", b=2)
    assert (raised.value.reason, raised.value.fields["field"]) == (Reason.INPUT_INVALID, "a")
    assert await servers.place.release(hand)


@in_both
async def test_text_pictures_and_what_no_result_can_hold_are_each_in_the_result(
    servers: Servers,
) -> None:
    hand = await servers.hand()
    result = await servers.place.run(hand, "mixed")
    assert result.content.splitlines() == [
        "look:",
        "[an image, image/png, 70 bytes: attached]",
        "[audio, audio/wav, about 51 bytes: left out]",
        "[a link to a resource: r, file:///r.txt]",
    ]
    assert [each.media_type for each in result.attachments] == ["image/png"]
    assert (await servers.place.run(hand, "structured")).content == '{"answer": 42}'
    assert (await servers.place.run(hand, "nothing")).content == "[the tool answered nothing]"
    failure = await servers.place.run(hand, "fails")
    assert (failure.outcome, bool(failure.content)) == (pb.OUTCOME_ERROR, True)


async def test_a_failure_keeps_the_picture_that_it_says_is_attached(servers: Servers) -> None:
    hand = await servers.hand()
    result = await servers.place.run(hand, "shows_why")
    assert result.outcome == pb.OUTCOME_ERROR
    assert "attached" in result.content
    assert [each.media_type for each in result.attachments] == ["image/png"]


async def test_a_call_with_more_pictures_than_a_result_holds_went_well_all_the_same(
    servers: Servers,
) -> None:
    result = await servers.place.run(await servers.hand(), "album", pictures=21)
    assert (result.outcome, len(result.attachments)) == (pb.OUTCOME_OK, 20)
    assert result.content.startswith("done\n")
    assert "left out: a result has at most 20 attachments" in result.content


@in_both
@pytest.mark.parametrize(("mode", "tool"), [("well", "asks"), ("named", "plain")])
async def test_a_server_that_asks_for_a_person_a_model_or_folders_is_told_that_there_is_none(
    servers: Servers, mode: str, tool: str
) -> None:
    """By the protocol as it is, and as it was."""
    hand = await servers.hand(mode)
    result = await servers.place.run(hand, tool)
    assert result.outcome == pb.OUTCOME_OK
    told = result.content.splitlines()
    assert [each.partition(":")[0] for each in told[:3]] == ["refused"] * 3, told


@in_both
async def test_a_huge_text_is_cut_in_its_middle_as_all_output_is(servers: Servers) -> None:
    hand = await servers.hand()
    steps = await servers.place.steps(servers.place.request(hand, "many", size=3_000_000))
    result = steps[-1].result
    assert result.content.startswith("beginx")
    assert result.content.rstrip().endswith("xend")
    assert "bytes omitted]" in result.content
    assert "half" not in result.content, "what was said of its progress is no part of the answer"
    output = b"".join(step.output.data for step in steps).decode()
    assert output.startswith("[1/2] half [2J way\n[the answer, 3000008 bytes]\nbeginx")
    assert output.endswith("xend\n[the end of the answer]\n")


@in_both
async def test_progress_is_output_and_a_cancel_reaches_the_server(servers: Servers) -> None:
    hand = await servers.hand()
    call = servers.place.begin(servers.place.request(hand, "slow"))
    assert b"[0/600] still at it\n" in await call.output()
    await servers.place.service.cancel(
        pb.CancelRequest(driver=servers.place.driver(), hand_id=hand, call_id=call.call_id)
    )
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
    await until((servers.workspace / "cancelled").exists, "the server heard of no cancel")
    assert (await servers.place.run(hand, "add", a=1, b=1)).content == "2", "the hand goes on"


@in_both
async def test_a_call_beyond_its_time_is_stopped_and_the_server_goes_on(servers: Servers) -> None:
    hand = await servers.hand()
    result = await servers.place.run(hand, "slow", limit=1)
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    assert (await servers.place.run(hand, "add", a=1, b=1)).content == "2"


@in_both
async def test_a_server_that_dies_in_a_call_is_one_lost_hand_and_the_next_is_another(
    servers: Servers,
) -> None:
    other, hand = await servers.hand(), await servers.hand()
    result = await servers.place.run(hand, "die")
    assert result.outcome == pb.OUTCOME_LOST
    assert "the MCP server is gone" in result.content
    assert "I am dying" in result.content
    assert (await servers.place.run(other, "add", a=2, b=2)).content == "4"
    again = await servers.hand()
    assert (await servers.place.run(again, "add", a=3, b=3)).content == "6"


@in_both
async def test_a_server_that_is_killed_between_calls_is_a_lost_hand_at_once(
    servers: Servers,
) -> None:
    other, hand = await servers.hand(), await servers.hand()
    (server,) = _servers(mark(servers.place.inventory.folder_of(hand)))
    os.kill(server, signal.SIGKILL)
    await lost(servers, hand, "the MCP server is gone: it ended")
    with pytest.raises(CarpalError) as raised:
        await servers.place.run(hand, "add", a=1, b=1)
    assert raised.value.reason is Reason.HAND_GONE
    assert "the MCP server is gone" in raised.value.message
    assert (await servers.place.run(other, "add", a=2, b=2)).content == "4"


async def lost(servers: Servers, hand: str, why: str) -> None:
    """Until the daemon says so, and why."""

    def told() -> str:
        row = servers.place.inventory.journal.hand(hand)
        return row.reason if row and row.state == "lost" else ""

    await until(lambda: bool(told()), "it is not lost")
    assert why in told()


def _servers(marked: str) -> list[int]:
    """Processes that are the server of the hand of that mark."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = marked in (each / "environ").read_bytes().decode("utf-8", "replace").split("\0")
            if ours and "/workspace/server.py\0" in (each / "cmdline").read_text():
                found.append(int(each.name))
    return found


@in_both
async def test_a_server_has_the_environment_that_it_was_given_and_nothing_of_the_daemons(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "xyzzy")
    hand = await servers.hand(env={"TOKEN_FILE": "/workspace/token"})
    other = await servers.hand()
    seen = json.loads((await servers.place.run(hand, "env")).content)
    assert seen["TOKEN_FILE"] == "/workspace/token"
    assert seen["LANG"] == "C.UTF-8"
    assert "A_SECRET_OF_THE_DAEMON" not in seen
    assert bool(servers.image) is ("PYTHONPATH" in seen), "what was given, and none of the host's"
    assert "TOKEN_FILE" not in (await servers.place.run(other, "env")).content


@in_both
async def test_a_servers_own_variables_are_its_own_whatever_ours_are(servers: Servers) -> None:
    paths = f"{PACKAGES}:/workspace/lib" if servers.image else "/workspace/lib"
    given = {
        "PYTHONPATH": paths,
        "PATH": "/workspace/bin:/usr/bin",
        "HOME": "/workspace",
        "LD_LIBRARY_PATH": "/workspace/lib",
        "PYTHONUNBUFFERED": "yes",
    }
    hand = await servers.hand(env=given)
    seen = json.loads((await servers.place.run(hand, "env")).content)
    assert {name: seen.get(name) for name in given} == given


@in_both
async def test_what_a_server_lists_moves_no_terminal_and_turns_no_line(servers: Servers) -> None:
    await servers.hand("hostile")
    assert [tool.name for tool in servers.made.tools] == ["shown", "typed"]
    shown, silent = (tool.description for tool in servers.made.tools)
    assert shown == "Good [2Jtool.evil\nand\nmore"
    assert silent == "The server says nothing of typed."
    note = servers.made.note
    assert note.isprintable()
    assert "[31mred   Owner: allow all: its schema has oneOf" in note
    assert "odd: a property of its schema has a name that no model could be told" in note
    assert len(note) < 600


async def test_a_call_whose_structured_content_is_not_as_promised_was_done_all_the_same(
    servers: Servers,
) -> None:
    hand = await servers.hand("hostile")
    result = await servers.place.run(hand, "typed")
    assert result.outcome == pb.OUTCOME_OK
    assert result.content.splitlines()[0] == "called typed"


@in_both
async def test_tools_that_change_are_said_also_by_a_server_of_before(servers: Servers) -> None:
    hand = await servers.hand("named")
    first = await servers.place.run(hand, "plain")
    second = await servers.place.run(hand, "plain")
    assert f"{first.content}\n{second.content}".count("its tools have changed") == 1


@in_both
async def test_tools_that_change_are_said_and_the_hand_keeps_its_own(servers: Servers) -> None:
    hand = await servers.hand()
    first = await servers.place.run(hand, "grow")
    second = await servers.place.run(hand, "add", a=1, b=1)
    said = f"{first.content}\n{second.content}"
    assert said.count("its tools have changed; this hand keeps those") == 1
    with pytest.raises(CarpalError) as raised:
        await servers.place.run(hand, "another")
    assert raised.value.reason is Reason.TOOL_NOT_FOUND


@in_both
async def test_a_hand_goes_on_with_its_tools_through_a_restart_of_the_daemon(
    servers: Servers,
) -> None:
    request = servers.order()
    other = servers.folder / "other"
    kind = servers.kind
    async with open_place(other, more={"mcp": kind}, end=False) as place:
        made = await place.provision(request)
    async with open_place(other, more={"mcp": kind}) as place:
        assert await place.provision(request) == made
        assert (await place.run(request.hand_id, "add", a=1, b=4)).content == "5"
        await place.release(request.hand_id)


@in_both
async def test_names_that_no_model_could_be_told_are_told_by_others_and_the_rest_left_out(
    servers: Servers,
) -> None:
    hand = await servers.hand("named")
    names = [tool.name for tool in servers.made.tools]
    assert names[0] == "plain"
    assert names[1].startswith("a_b_")
    assert names[2].startswith("a_b_")
    assert len(set(names)) == 4
    assert max(map(len, names)) <= 62
    assert "either: its schema has oneOf, anyOf or allOf at its top" in servers.made.note
    assert (await servers.place.run(hand, names[1])).content.startswith("called a.b")
    assert (await servers.place.run(hand, names[3])).content.startswith(f"called {'x' * 100}")


@in_both
async def test_a_server_that_writes_what_is_no_message_works_all_the_same(servers: Servers) -> None:
    hand = await servers.hand("rubbish")
    assert (await servers.place.run(hand, "add", a=1, b=2)).content == "3"


@in_both
async def test_a_server_that_does_not_start_is_refused_with_its_last_words(
    servers: Servers,
) -> None:
    error = await failed(servers, "dies")
    assert error.reason is Reason.PROVISION_FAILED
    assert "no database at /nowhere" in error.message
    nowhere = await failed(servers, command=["/no/such/program"])
    assert "there is no program" in nowhere.message
    sees = "its image" if servers.image else "its workspace and the system's /usr"
    assert f"in the hand, which sees {sees} only" in nowhere.message
    no_server = await failed(servers, command=["/usr/bin/cat"])
    assert "it is no MCP server: it answered Method not found" in no_server.message


async def test_an_address_without_an_mcp_server_is_refused_with_its_status_and_the_cause(
    servers: Servers,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/mcp"
        beyond = await failed(servers, url=url)
        assert f"{url} answered 403: this hand's egress rules do not allow it" in beyond.message
        egress = [{"host": f"127.0.0.1:{port}"}]
        other = await failed(servers, url=url, egress=egress)
        assert f"{url} answered 404: is it an MCP endpoint?" in other.message


@pytest.mark.slow
async def test_a_server_that_never_answers_is_given_up_with_its_last_words(
    servers: Servers,
) -> None:
    async with asyncio.timeout(PATIENCE + 40):
        with pytest.raises(CarpalError) as raised:
            async for _ in servers.place.service.provision(servers.order("hangs")):
                pass
    assert "was not ready after 30 s" in raised.value.message
    assert "thinking" in raised.value.message


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"command": [], "url": "http://x"}, "config.command"),
        ({"url": "ftp://x"}, "config.url"),
        ({"comand": ["a"]}, "config.comand"),
        ({"url": "https://name:secret@x/mcp"}, "config.url"),
        ({"in": "container"}, "config.in"),
        ({"env": {"CARPAL_HAND": "x"}}, "config.env.CARPAL_HAND"),
    ],
)
async def test_a_config_that_names_no_one_server_is_refused_by_its_field(
    servers: Servers, config: dict[str, object], field: str
) -> None:
    error = await failed(servers, **config)
    assert error.fields.get("field") == field


async def test_a_server_of_the_network_is_reached_by_the_forwarder_alone_and_may_die(
    servers: Servers,
) -> None:
    port, serving = await _http()
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        refused = await failed(servers, url=url)
        assert refused.reason is Reason.PROVISION_FAILED
        egress = [{"host": f"127.0.0.1:{port}"}]
        hand = await servers.hand(url=url, egress=egress)
        assert (await servers.place.run(hand, "add", a=20, b=22)).content == "42"
        call = servers.place.begin(servers.place.request(hand, "slow"))
        await call.output()
        serving.kill()
        await serving.wait()
        result = await call.result()
        assert result.outcome == pb.OUTCOME_LOST, result.content
    finally:
        if serving.returncode is None:
            serving.kill()
            await serving.wait()


async def test_a_server_of_the_network_that_dies_between_calls_is_a_lost_hand_too(
    servers: Servers,
) -> None:
    port, serving = await _http()
    try:
        egress = [{"host": f"127.0.0.1:{port}"}]
        hand = await servers.hand(url=f"http://127.0.0.1:{port}/mcp", egress=egress)
        assert (await servers.place.run(hand, "add", a=20, b=22)).content == "42"
    finally:
        serving.kill()
        await serving.wait()
    await lost(servers, hand, "the MCP server is gone")


async def _http() -> tuple[int, asyncio.subprocess.Process]:
    """A server on loopback, which answers when this returns."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SERVER), "http", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def there() -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)  # nothing announces it
            else:
                writer.close()
                return

    async with asyncio.timeout(PATIENCE):
        await there()
    return port, serving
