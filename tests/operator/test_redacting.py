"""`carpal session redact`: what is erased beside the data, and what is asked before."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.operator.derived import CUT
from carpal.operator.redacting import says
from carpal.v1 import session_pb2, types_pb2
from tests.command import Command
from tests.operator.log import text
from tests.operator.real import SESSION, create, events_of, real_sessiond
from tests.sessiond.serving import Serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond whose session is titled `to keep`."""
    async with real_sessiond(tmp_path) as server:
        yield server


def redact(*more: str) -> tuple[str, ...]:
    return ("session", "redact", SESSION, *more, "--reason", "a secret")


async def title(carpal: Command) -> str:
    shown: dict[str, str] = json.loads((await carpal("session", "show", SESSION, "--json")).stdout)
    return shown["title"]


async def test_a_title_taken_from_the_text_goes_with_it(server: Serving, carpal: Command) -> None:
    said = json.dumps(text("this is\nto  keep, or not")).encode()
    await create(server, json.dumps(text("another")).encode(), said)
    other = await carpal(*redact("1"))
    assert (other.code, other.stderr, await title(carpal)) == (0, "", "to keep")
    ended = await carpal(*redact("2"))
    assert (ended.code, ended.stdout) == (0, "user.message at position 2 is redacted\n")
    assert ended.stderr == "carpal: the title had text of it, and is cleared\n"
    assert await title(carpal) == ""
    assert b"keep" not in b"".join(event.data for event in await events_of(server))


async def test_of_an_archived_session_the_data_goes_and_the_title_is_said_to_stay(
    server: Serving, carpal: Command
) -> None:
    await create(server, json.dumps(text("to keep")).encode())
    await carpal("session", "archive", SESSION)
    ended = await carpal(*redact("1"))
    assert (ended.code, ended.stdout) == (0, "user.message at position 1 is redacted\n")
    assert "stays: an archived session keeps its title" in ended.stderr


async def test_to_redact_again_says_when_and_why_it_was_redacted(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    await carpal(*redact("2"))
    again = await carpal("session", "redact", SESSION, "2", "--reason", "another")
    assert (again.code, again.stdout) == (0, "user.message at position 2 is redacted\n")
    assert again.stderr.startswith("carpal: it was redacted before, at 20")
    assert again.stderr.endswith(" by spiffe://carpal.internal/operator/ann: a secret\n")


async def test_the_event_that_names_the_agent_is_asked_about(
    server: Serving, carpal: Command
) -> None:
    ann = await server.operator("ann")
    agent = types_pb2.NewEvent(id="e1", type="session.updated", data=b'{"agent": {}}')
    request = session_pb2.CreateSessionRequest(session_id=SESSION, events=[agent])
    await ann.CreateSession(request)
    asked = await carpal(*redact("1"))
    assert (asked.code, asked.stdout, asked.stderr.count("\n")) == (2, "", 1)
    assert asked.stderr.endswith(": say so with --yes\n")
    assert not (await events_of(server))[0].HasField("redaction")
    assert (await carpal(*redact("1"), "--yes")).code == 0
    assert (await events_of(server))[0].HasField("redaction")


async def test_a_position_that_is_not_there_is_not_found(server: Serving, carpal: Command) -> None:
    await create(server)
    ended = await carpal(*redact("9"))
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (5, "", 1)


@pytest.mark.parametrize(
    ("data", "has"),
    [
        (b'{"content": [{"type": "text", "text": "fix\\n the  test now"}]}', True),
        (b'{"a": {"fix the test": [1, null]}}', True),
        (b'{"content": "fix the"}', False),
        (b"no JSON: fix the test", True),
        (b"", False),
    ],
)
def test_a_title_is_found_wherever_the_text_is(data: bytes, *, has: bool) -> None:
    assert says(data, "fix the test") is has


async def driven(server: Serving, *events: tuple[str, dict[str, object]]) -> None:
    """Events of a driver."""
    brain = await server.brain()
    epoch = (await server.lease(SESSION)).lease.epoch
    for kind, data in events:
        head = len(await events_of(server))
        event = types_pb2.NewEvent(id=f"e{head + 1}", type=kind, data=json.dumps(data).encode())
        request = session_pb2.EmitEventRequest(session_id=SESSION, event=event, epoch=epoch)
        await brain.EmitEvent(request)
    resource = f"session/{SESSION}"
    await brain.ReleaseLease(session_pb2.ReleaseLeaseRequest(resource=resource, epoch=epoch))


def asked(covers: int) -> tuple[str, dict[str, object]]:
    return "span.model_request_start", {
        "purpose": "compaction",
        "covers": covers,
        "through": covers,
    }


def answered(event_id: str) -> tuple[str, dict[str, object]]:
    said: dict[str, object] = {"reply": {"content": [{"type": "text", "text": "the password"}]}}
    return "span.model_request_end", said | {"model_request_start_id": event_id}


def cut(through: int, event_id: str) -> tuple[str, dict[str, object]]:
    made: dict[str, object] = {"through": through, "model_request_start_id": event_id}
    return CUT, made | {"text": "the password", "state": {"fold": "the password"}}


async def redacted(server: Serving) -> list[int]:
    return [e.position for e in await events_of(server) if e.HasField("redaction")]


async def test_what_stands_for_an_event_is_redacted_with_it_and_it_is_said_how_much(
    server: Serving, carpal: Command
) -> None:
    await create(server)  # positions 1 to 3
    first = (asked(1), answered("e4"), cut(1, "e4"))  # 4 to 6
    second = (asked(3), answered("e7"), cut(3, "e7"))  # 7 to 9
    await driven(server, *first, *second)
    ended = await carpal(*redact("2"))
    assert ended.code == 0, ended.stderr
    assert await redacted(server) == [2, 8, 9], "the cut through 1 stands for nothing of it"
    assert "1 later cut of the window stood for it, with 1 of the model's answers" in ended.stderr
    assert "redacted too, at 8, 9" in ended.stderr
    await driven(server, asked(3), answered("e10"), cut(3, "e10"))
    again = await carpal(*redact("2"))
    assert await redacted(server) == [2, 8, 9, 11, 12], "what a brain still held, and wrote since"
    assert again.code == 0
    ended = await carpal(*redact("1"))
    assert await redacted(server) == [1, 2, 5, 6, 8, 9, 11, 12]


async def test_a_redacted_cut_takes_those_that_were_made_from_it_and_its_answer(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    await driven(server, asked(1), answered("e4"), cut(1, "e4"), asked(2), answered("e7"))
    await driven(server, cut(2, "e7"))
    await carpal(*redact("6"))
    assert await redacted(server) == [5, 6, 8, 9]


async def test_a_request_that_is_kept_whole_is_named_when_what_it_may_hold_is_redacted(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    await driven(server, ("span.model_request_start", {"through": 3, "request_blob": "sha256:ab"}))
    ended = await carpal(*redact("2"))
    assert "kept whole may hold it, and stays: sha256:ab, at 4" in ended.stderr
    assert await redacted(server) == [2]


async def test_that_a_brain_which_drives_may_still_hold_it_is_said(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    await server.lease(SESSION)
    assert "do it again once idle" in (await carpal(*redact("2"))).stderr
