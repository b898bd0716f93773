"""A person's word on calls that wait: by command, and at the terminal of a run."""

import asyncio
import json
import os
import pty
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.process import interpreter
from carpal.v1 import session_pb2, types_pb2
from tests.command import ROOT, Command
from tests.operator.fakes import SECONDS, House
from tests.operator.log import text
from tests.operator.real import SESSION, create, events_of, lines, real_sessiond
from tests.sessiond.serving import Serving

ASK = {"name": "bash", "hand": "shell", "evaluated_permission": "ask"}


def turn(*calls: str) -> list[tuple[str, str, dict[str, Any]]]:
    """A turn whose calls wait: id, type and data of its events."""
    return [
        ("ask", "span.model_request_start", {"through": 2}),
        *((call, "agent.tool_use", {**ASK, "input": {"command": call}}) for call in calls),
        (
            "idle",
            "session.status_idle",
            {
                "stop_reason": {"type": "requires_action", "event_ids": list(calls)},
                "seen": 2,
                "spent": {"model_requests": 7, "output_tokens": 20},
            },
        ),
    ]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A session of which two calls wait."""
    async with real_sessiond(tmp_path) as served:
        await create(served)
        brain = await served.brain()
        lease = await served.lease(SESSION)
        for id, kind, data in turn("one", "two"):
            event = types_pb2.NewEvent(id=id, type=kind, data=json.dumps(data).encode())
            request = session_pb2.EmitEventRequest(
                session_id=SESSION, event=event, epoch=lease.lease.epoch
            )
            await brain.EmitEvent(request)
        yield served


async def words(server: Serving) -> list[tuple[str, str, str | None]]:
    events = [e for e in await events_of(server) if e.type == "user.tool_confirmation"]
    said = [json.loads(event.data) for event in events]
    return [(each["tool_use_id"], each["result"], each.get("deny_message")) for each in said]


async def test_show_says_what_waits_with_its_whole_input(server: Serving, carpal: Command) -> None:
    (shown,) = lines((await carpal("session", "show", SESSION, "--json")).stdout)
    assert [each["call"] for each in shown["waiting"]] == ["one", "two"]
    assert shown["waiting"][0]["input"] == {"command": "one"}
    told = await carpal("session", "show", SESSION)
    assert 'waits    one  shell: bash {"command": "one"}' in told.stdout


async def test_what_is_named_is_decided_and_the_rest_waits_on(
    server: Serving, carpal: Command
) -> None:
    allowed = await carpal("session", "approve", SESSION, "two")
    assert (allowed.code, allowed.stdout) == (0, 'allowed two  shell: bash {"command": "two"}\n')
    denied = await carpal("session", "deny", SESSION, "--message", "use staging", "--json")
    (event,) = lines(denied.stdout)
    assert event["data"] == {"tool_use_id": "one", "result": "deny", "deny_message": "use staging"}
    assert await words(server) == [("two", "allow", None), ("one", "deny", "use staging")]
    nothing = await carpal("session", "approve", SESSION)
    assert nothing.code == 5
    assert f"no call waits for a person in {SESSION}" in nothing.stderr


async def test_a_word_too_late_is_refused_and_nothing_is_sent(
    server: Serving, carpal: Command
) -> None:
    await carpal("session", "deny", SESSION, "one")
    again = await carpal("session", "approve", SESSION, "one")
    assert again.code == 1
    assert "the call 'one' was denied at position" in again.stderr
    unknown = await carpal("session", "approve", SESSION, "two", "three")
    assert unknown.code == 5
    await carpal("session", "interrupt", SESSION)
    late = await carpal("session", "approve", SESSION, "two")
    assert (late.code, "was interrupted at position" in late.stderr) == (1, True)
    assert len(await words(server)) == 1


async def test_limits_are_shown_changed_and_taken_away(server: Serving, carpal: Command) -> None:
    changed = await carpal("session", "limits", SESSION, "--output-tokens", "500", "--json")
    assert lines(changed.stdout) == [
        {
            "limits": {"output_tokens": 500},
            "spent": {"model_requests": 7, "input_tokens": 0, "output_tokens": 20},
        }
    ]
    ann = await server.operator("ann")
    session = (await ann.GetSession(session_pb2.GetSessionRequest(session_id=SESSION))).session
    assert session.wake == session.head.position, "it is looked at again"
    more = await carpal(
        "session", "limits", SESSION, "--output-tokens", "none", "--model-requests", "3"
    )
    assert [line.split() for line in more.stdout.splitlines()] == [
        ["model", "requests", "7", "of", "3"],
        ["input", "tokens", "0", "no", "limit"],
        ["output", "tokens", "20", "no", "limit"],
    ]
    for wrong in ("0", "-1", "many", "1.5"):
        refused = await carpal("session", "limits", SESSION, f"--model-requests={wrong}")
        assert (refused.code, "--model-requests" in refused.stderr) == (2, True)


async def test_of_a_fork_nothing_waits_and_nothing_is_spent(
    server: Serving, carpal: Command
) -> None:
    forked = (await carpal("session", "fork", SESSION)).stdout.strip()
    (shown,) = lines((await carpal("session", "show", forked, "--json")).stdout)
    assert shown["waiting"] == []
    assert (await carpal("session", "approve", forked)).code == 5
    (limits,) = lines((await carpal("session", "limits", forked, "--json")).stdout)
    assert set(limits["spent"].values()) == {0}


async def waits(house: House, *calls: str) -> str:
    """Play the brain as far as calls that wait; the session's id."""
    session_id, _ = await house.sessiond.appended("user.message")
    await house.sessiond.append(session_id, "session.status_running")
    for id, kind, data in turn(*calls):
        await house.sessiond.append(session_id, kind, data, event_id=id)
    return session_id


async def test_a_run_without_a_terminal_ends_with_10_and_says_how_to_go_on(
    house: House, carpal: Command
) -> None:
    async with asyncio.TaskGroup() as group:
        playing = group.create_task(waits(house, "one"))
        ended = await carpal("run", "x")
    assert ended.code == 10
    assert 'waits for a person: one  shell: bash {"command": "one"}' in ended.stderr
    assert f"carpal session approve {playing.result()}" in ended.stderr


class Terminal:
    """A `carpal run` at a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.shown = ""
        self._master = master

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, said: str, times: int = 1) -> None:
        """Wait until it shows something, so often."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            while self.shown.count(said) < times:
                ready = asyncio.Event()
                loop.add_reader(self._master, ready.set)
                try:
                    await ready.wait()
                    self.shown += os.read(self._master, 65536).decode()
                except OSError:  # its other end is closed
                    break
                finally:
                    loop.remove_reader(self._master)
        assert said in self.shown, self.shown

    async def code(self) -> int:
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def terminal(carpal: Command, *arguments: str) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *interpreter(),
        *arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=carpal.environ,
        cwd=ROOT,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(master)


async def go_on(house: House, session_id: str) -> None:
    """Play the brain to the end of the turn."""
    await house.sessiond.append(session_id, "session.status_running")
    await house.sessiond.append(session_id, "agent.message", text("All done."))
    await house.sessiond.append(
        session_id, "session.status_idle", {"stop_reason": {"type": "end_turn"}}
    )


async def test_at_a_terminal_a_person_is_asked_about_each_call_and_the_run_goes_on(
    house: House, carpal: Command
) -> None:
    async with terminal(carpal, "run", "x") as shown:
        session_id = await waits(house, "one", "two")
        await shown.until('may this run?  shell: bash {"command": "one"}')
        shown.type("perhaps\n")
        await shown.until("for no: ", times=2)
        shown.type("y\n")
        await shown.until('may this run?  shell: bash {"command": "two"}')
        shown.type("n use staging\n")
        log = house.sessiond.logs[session_id]
        async with asyncio.timeout(SECONDS):
            while sum(event.type == "user.tool_confirmation" for event in log.events) < 2:
                await house.sessiond.changed()
        await go_on(house, session_id)
        await shown.until("end_turn:")
        assert await shown.code() == 0
    said = [json.loads(e.data) for e in log.events if e.type == "user.tool_confirmation"]
    assert said == [
        {"tool_use_id": "one", "result": "allow"},
        {"tool_use_id": "two", "result": "deny", "deny_message": "use staging"},
    ]


async def test_who_leaves_the_question_open_leaves_the_session_waiting(
    house: House, carpal: Command
) -> None:
    async with terminal(carpal, "run", "x") as shown:
        await waits(house, "one")
        await shown.until("for no: ")
        shown.type("\x04")
        await shown.until("carpal session approve")
        assert await shown.code() == 10


async def test_ctrl_c_at_the_question_interrupts_the_session(house: House, carpal: Command) -> None:
    async with terminal(carpal, "run", "x") as shown:
        session_id = await waits(house, "one")
        await shown.until("for no: ")
        shown.process.send_signal(signal.SIGINT)
        await house.sessiond.appended("user.interrupt")
        await go_on(house, session_id)
        house.sessiond.release(session_id)
        await shown.until("(interrupted)")
        assert await shown.code() == 130
