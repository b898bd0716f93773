"""`carpal run` gives a task, shows the work as it happens, and exits as the turn ended."""

import asyncio
import json
import signal

import pytest

from tests.command import Command
from tests.operator.fakes import SECONDS, House
from tests.operator.log import text


async def work(house: House, stop_reason: str = "end_turn") -> str:
    """Play the brain for the session that comes, as far as its end; its id."""
    session_id, _ = await house.sessiond.appended("user.message")
    await house.sessiond.append(session_id, "session.status_running")
    await house.sessiond.append(
        session_id,
        "span.model_request_end",
        {"model_usage": {"input_tokens": 7, "output_tokens": 2}},
    )
    await house.sessiond.append(session_id, "agent.message", text("All done."))
    await house.sessiond.append(
        session_id, "session.status_idle", {"stop_reason": {"type": stop_reason}}
    )
    return session_id


async def test_a_run_creates_one_session_and_shows_its_story(house: House, carpal: Command) -> None:
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work(house))
        ended = await carpal("run", "fix the\ntest", "--hand", "box=process", "--model", "m")
    session_id = working.result()
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == f"session {session_id}"
    assert lines[1] == "All done."
    assert f"timeline of {session_id}" in lines
    assert lines[-1] == "end_turn: 6 events, 0.50 s, 7 tokens in, 2 out"
    request = house.sessiond.sessions[session_id]
    assert (request.wake, request.title) == (True, "fix the")
    created, message = (json.loads(event.data) for event in request.events)
    assert [event.type for event in request.events] == ["session.updated", "user.message"]
    assert created["agent"]["model"] == "m"
    assert created["hands"] == {"box": {"type": "process", "config": {}, "placement": {}}}
    assert message == text("fix the\ntest")


async def test_json_is_one_object_and_nothing_else(house: House, carpal: Command) -> None:
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work(house))
        ended = await carpal("run", "-", "--json", stdin="fix it")
    assert json.loads(ended.stdout) == {
        "session_id": working.result(),
        "stop_reason": "end_turn",
        "events": 6,
        "seconds": 0.5,
        "usage": {"input_tokens": 7, "output_tokens": 2},
        "interrupted": False,
        "text": "All done.",
        "tool_results": {},
    }


@pytest.mark.parametrize(
    ("stop_reason", "code"), [("requires_action", 10), ("budget_reached", 11), ("refusal", 1)]
)
async def test_the_exit_code_is_the_stop_reason(
    house: House, carpal: Command, stop_reason: str, code: int
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work(house, stop_reason))
        ended = await carpal("run", "x", "--json")
    assert ended.code == code


async def test_output_is_seen_while_the_tool_runs(house: House, carpal: Command) -> None:
    async with house.serve_brain() as brain, carpal.start("run", "x") as process:
        assert process.stdout is not None
        session_id, _ = await house.sessiond.appended("user.message")
        house.sessiond.lease(f"session/{session_id}", brain.address)
        await house.brain.watched()
        house.brain.output("c", 0, b"half-way\n")
        async with asyncio.timeout(SECONDS):
            assert await process.stdout.readline() == f"session {session_id}\n".encode()
            assert await process.stdout.readline() == b"half-way\n"


async def test_detached_the_session_is_left_to_its_work(house: House, carpal: Command) -> None:
    ended = await carpal("run", "x", "--detach")
    assert ended.code == 0
    assert ended.stdout.strip() in house.sessiond.sessions


async def test_detached_where_no_brain_lives_it_is_warned_of_on_stderr(
    house: House, carpal: Command
) -> None:
    alone = await carpal("run", "x", "--detach", "--json")
    assert alone.code == 0
    assert json.loads(alone.stdout)["session_id"] in house.sessiond.sessions
    assert "no brain is live" in alone.stderr
    assert "carpal brain run" in alone.stderr
    house.sessiond.lease("brain/brain-1", "127.0.0.1:1")
    driven = await carpal("run", "x", "--detach")
    assert (driven.code, driven.stderr) == (0, "")


async def test_ctrl_c_interrupts_the_session_and_shows_how_it_stopped(
    house: House, carpal: Command
) -> None:
    async with carpal.start("run", "x", "--json") as process, asyncio.timeout(SECONDS):
        session_id, _ = await house.sessiond.appended("user.message")
        house.sessiond.lease(f"session/{session_id}", "127.0.0.1:1")
        await tailed(house)
        process.send_signal(signal.SIGINT)
        await house.sessiond.appended("user.interrupt")
        await house.sessiond.append(session_id, "session.status_running")
        await house.sessiond.append(
            session_id, "session.status_idle", {"stop_reason": {"type": "end_turn"}}
        )
        house.sessiond.release(session_id)
        stdout, stderr = await process.communicate()
    assert process.returncode == 130
    report = json.loads(stdout)
    assert (report["stop_reason"], report["interrupted"]) == ("end_turn", True)
    assert b"Traceback" not in stderr


async def test_ctrl_c_before_a_brain_began_ends_when_the_interrupt_is_processed(
    house: House, carpal: Command
) -> None:
    async with carpal.start("run", "x", "--json") as process, asyncio.timeout(SECONDS):
        session_id, _ = await house.sessiond.appended("user.message")
        await tailed(house)
        process.send_signal(signal.SIGINT)
        await house.sessiond.appended("user.interrupt")
        house.sessiond.release(session_id)
        stdout, stderr = await process.communicate()
    assert process.returncode == 130
    report = json.loads(stdout)
    assert (report["stop_reason"], report["events"]) == (None, 3)
    assert b"did not stop" not in stderr


async def test_a_second_ctrl_c_leaves_and_says_how_to_look_at_the_session(
    house: House, carpal: Command
) -> None:
    async with carpal.start("run", "x") as process, asyncio.timeout(SECONDS):
        session_id, _ = await house.sessiond.appended("user.message")
        await tailed(house)
        process.send_signal(signal.SIGINT)
        await house.sessiond.appended("user.interrupt")
        process.send_signal(signal.SIGINT)
        _, stderr = await process.communicate()
    assert process.returncode == 130
    assert f"carpal session tail {session_id}".encode() in stderr
    assert b"Traceback" not in stderr


async def tailed(house: House) -> None:
    """Wait until the command reads the log: from then on it takes signals."""
    async with asyncio.timeout(SECONDS):
        await house.sessiond.tailed.wait()


async def test_a_mistake_in_the_agent_file_is_one_line(house: House, carpal: Command) -> None:
    agent = house.state / "agent.yaml"
    agent.write_text("colour: red\n")
    ended = await carpal("run", "x", "--agent", str(agent))
    assert ended.code == 2
    assert ended.stderr.startswith(f"carpal: {agent}: line 1: colour: is no key; there is name,")
    assert ended.stderr.count("\n") == 1
    assert not house.sessiond.sessions


async def test_a_hand_that_could_not_be_had_is_said_on_stderr_at_the_end(
    house: House, carpal: Command
) -> None:
    async def without_hand() -> None:
        session_id, _ = await house.sessiond.appended("user.message")
        error = {"type": "hand_unavailable_error", "message": "hand 'gpu': no daemon offers it"}
        await house.sessiond.append(session_id, "session.error", {"error": error})
        await work(house)

    async with asyncio.TaskGroup() as group:
        group.create_task(without_hand())
        ended = await carpal("run", "x", "--json")
    assert ended.code == 1
    assert ended.stderr == "carpal: hand 'gpu' could not be had: no daemon offers it\n"


async def test_an_unreachable_sessiond_is_one_line(house: House, carpal: Command) -> None:
    ended = await carpal("run", "x", "--sessiond", "127.0.0.1:1")
    assert ended.code == 3
    assert ended.stderr.startswith("carpal: sessiond at 127.0.0.1:1 does not answer")
    assert ended.stderr.count("\n") == 1
    assert not house.sessiond.sessions


@pytest.mark.parametrize("arguments", [["run", ""], ["run", "x", "--hand", "shell"]])
async def test_bad_arguments_are_one_line(
    house: House, carpal: Command, arguments: list[str]
) -> None:
    ended = await carpal(*arguments)
    assert ended.code == 2
    assert ended.stderr.count("\n") == 1
