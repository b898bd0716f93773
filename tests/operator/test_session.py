"""`carpal session` reads, follows and steers sessions, in words and in JSON."""

import asyncio
import json

import pytest

from carpal.identity import Role
from tests.command import Command
from tests.operator.fakes import House
from tests.operator.log import OPERATOR, finished_turn, text

SESSION = "sesn_1"


@pytest.fixture
def finished(house: House) -> House:
    """A house with one finished session."""
    house.sessiond.logs[SESSION] = finished_turn()
    return house


async def test_ls_shows_every_session_page_by_page(finished: House, carpal: Command) -> None:
    finished.sessiond.logs["sesn_2"] = finished_turn()
    ended = await carpal("session", "ls", "--json")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["session_id"] for row in rows] == ["sesn_1", "sesn_2"]
    assert rows[0]["status"] == "idle"
    assert rows[0]["head"] == 11


async def test_ls_for_people_is_a_line_a_session(finished: House, carpal: Command) -> None:
    ended = await carpal("session", "ls", "--limit", "1")
    assert ended.code == 0
    assert ended.stdout.startswith("sesn_1  idle")
    assert ended.stdout.count("\n") == 1


async def test_show_has_status_head_lease_and_hands(finished: House, carpal: Command) -> None:
    finished.sessiond.lease(f"session/{SESSION}", "127.0.0.1:9", epoch=3)
    shown = json.loads((await carpal("session", "show", SESSION, "--json")).stdout)
    assert shown["session_id"] == SESSION
    assert (shown["status"], shown["head"], shown["processed"]) == ("running", 11, 0)
    assert shown["lease"]["epoch"] == 3
    assert shown["lease"]["address"] == "127.0.0.1:9"
    assert shown["hands"] == [
        {
            "name": "shell",
            "type": "process",
            "state": "provisioned",
            "hand_id": "hand_1",
            "daemon": "box",
            "why": None,
        }
    ]


async def test_show_says_why_a_hand_failed(finished: House, carpal: Command) -> None:
    why = "the MCP server did not start: it is no MCP server"
    failed = {"hand_id": "hand_1", "name": "shell", "reason": "PROVISION_FAILED", "message": why}
    finished.sessiond.logs[SESSION].add("hand.provision_failed", failed)
    ended = await carpal("session", "show", SESSION)
    assert f"hand     shell (process) failed hand_1 on box: {why}\n" in ended.stdout
    shown = json.loads((await carpal("session", "show", SESSION, "--json")).stdout)
    assert shown["hands"][0]["why"] == why


async def test_show_for_people_names_driver_and_hands(finished: House, carpal: Command) -> None:
    ended = await carpal("session", "show", SESSION)
    assert "driver   none\n" in ended.stdout
    assert "hand     shell (process) provisioned hand_1 on box" in ended.stdout


async def test_tail_prints_each_event_as_json(finished: House, carpal: Command) -> None:
    ended = await carpal("session", "tail", SESSION, "--after", "9", "--no-follow", "--json")
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [event["position"] for event in events] == [10, 11]
    assert events[1]["data"] == {"stop_reason": {"type": "end_turn"}}


async def test_tail_from_the_head_prints_nothing(finished: House, carpal: Command) -> None:
    ended = await carpal("session", "tail", SESSION, "--after", "11", "--no-follow")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("how", [(), ("--follow",), ("--no-follow",)])
async def test_tail_from_beyond_the_head_is_refused_however_it_ends(
    finished: House, carpal: Command, how: tuple[str, ...]
) -> None:
    beyond = await carpal("session", "tail", SESSION, "--after", "99", *how)
    assert (beyond.code, beyond.stdout) == (2, "")
    assert beyond.stderr == (
        "carpal: --after 99 is beyond the log of sesn_1: it ends at position 11\n"
    )


async def test_without_sessions_ls_says_how_to_start_one(house: House, carpal: Command) -> None:
    ended = await carpal("session", "ls")
    assert (ended.code, ended.stdout) == (0, "")
    assert "no sessions yet" in ended.stderr
    assert (await carpal("session", "ls", "--json")).stderr == ""


async def test_tail_of_an_idle_session_ends_at_its_head(finished: House, carpal: Command) -> None:
    ended = await carpal("session", "tail", SESSION)
    assert ended.code == 0
    assert ended.stdout.splitlines()[-1].endswith("idle            turn ended")


async def test_tail_of_a_running_session_goes_on_until_it_is_idle(
    finished: House, carpal: Command
) -> None:
    finished.sessiond.lease(f"session/{SESSION}", "127.0.0.1:1")
    finished.sessiond.wakes[SESSION] = 12

    async def finish() -> None:
        await finished.sessiond.append(SESSION, "user.message", text("more"), source=OPERATOR)
        await finished.sessiond.tailed.wait()
        await finished.sessiond.append(SESSION, "session.status_running")
        await finished.sessiond.append(SESSION, "session.status_idle", {"through": 12})

    async with asyncio.TaskGroup() as group:
        group.create_task(finish())
        ended = await carpal("session", "tail", SESSION, "--json")
    assert ended.code == 0
    assert [json.loads(line)["position"] for line in ended.stdout.splitlines()][-1] == 14


async def test_tail_can_follow_what_is_appended_later(finished: House, carpal: Command) -> None:
    async with carpal.start("session", "tail", SESSION, "--after", "11", "--follow") as process:
        assert process.stdout is not None
        async with asyncio.timeout(10):
            await finished.sessiond.tailed.wait()
            await finished.sessiond.append(SESSION, "user.message", text("more"), source=OPERATOR)
            assert b"message         more" in await process.stdout.readline()


async def test_send_appends_a_message_that_wakes_the_session(
    finished: House, carpal: Command
) -> None:
    ended = await carpal("session", "send", SESSION, "go on")
    assert ended.stdout == "user.message at position 12\n"
    event = finished.sessiond.logs[SESSION].events[-1]
    assert json.loads(event.data) == text("go on")


async def test_send_can_wait_for_the_turn_to_end(finished: House, carpal: Command) -> None:
    async def answer() -> None:
        await finished.sessiond.tailed.wait()
        await finished.sessiond.append(SESSION, "session.status_running")
        await finished.sessiond.append(SESSION, "agent.message", text("Sure."))
        await finished.sessiond.append(
            SESSION, "session.status_idle", {"stop_reason": {"type": "requires_action"}}
        )

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        ended = await carpal("session", "send", SESSION, "go on", "--wait")
    assert ended.code == 10
    assert ended.stdout == "Sure.\nrequires_action\n"


async def test_send_and_wait_as_json_is_how_the_turn_went(finished: House, carpal: Command) -> None:
    async def answer() -> None:
        await finished.sessiond.tailed.wait()
        await finished.sessiond.append(SESSION, "session.status_running")
        await finished.sessiond.append(SESSION, "agent.message", text("Sure."))
        await finished.sessiond.append(
            SESSION, "session.status_idle", {"stop_reason": {"type": "end_turn"}}
        )

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        ended = await carpal("session", "send", SESSION, "go on", "--wait", "--json")
    report = json.loads(ended.stdout)
    assert (report["stop_reason"], report["text"], report["events"]) == ("end_turn", "Sure.", 3)


async def test_interrupt_can_wait_until_it_is_processed(finished: House, carpal: Command) -> None:
    async def stop() -> None:
        await finished.sessiond.appended("user.interrupt")
        finished.sessiond.release(SESSION)

    async with asyncio.TaskGroup() as group:
        group.create_task(stop())
        ended = await carpal("session", "interrupt", SESSION, "--wait")
    assert (ended.code, ended.stdout) == (0, "user.interrupt at position 12\n")
    assert ended.stderr == f"carpal: nothing was running in {SESSION}\n"


@pytest.mark.parametrize(
    "arguments",
    [("show", "sesn_x"), ("tail", "sesn_x"), ("send", "sesn_x", "hi"), ("interrupt", "sesn_x")],
)
async def test_an_unknown_session_is_one_line_and_exit_code_5(
    house: House, carpal: Command, arguments: tuple[str, ...]
) -> None:
    ended = await carpal("session", *arguments)
    assert ended.code == 5
    assert ended.stderr == (
        "carpal: no session 'sesn_x': list the ids with `carpal session ls`\n"
    )  # fmt: skip


async def test_an_id_that_cannot_be_one_is_bad_input(house: House, carpal: Command) -> None:
    assert (await carpal("session", "show", "a/b")).code == 2


async def test_without_an_identity_one_line_says_what_to_do(house: House, carpal: Command) -> None:
    nowhere = house.state / "nowhere"
    ended = await carpal("session", "ls", "--identity", str(nowhere))
    assert ended.code == 2
    assert ended.stderr == (
        f"carpal: no operator identity in {nowhere}: start `carpal dev`, "
        "make your own with `carpal vault init`, or give --identity DIR\n"
    )


async def test_another_roles_identity_is_refused_before_it_is_used(
    house: House, carpal: Command
) -> None:
    brain = house.pki.issue(Role.BRAIN, "brain-1")
    ended = await carpal("session", "ls", "--identity", str(brain.directory))
    assert ended.code == 2
    assert "is a brain's, not an operator's" in ended.stderr


async def test_a_certificate_of_another_ca_is_one_line(
    house: House, carpal: Command, tmp_path: object
) -> None:
    stranger = House(house.state.parent / "stranger").operator
    ended = await carpal("session", "ls", "--identity", str(stranger.directory))
    assert ended.code == 3
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "a certificate that is not by the authority (ca.pem) of the identity" in ended.stderr
