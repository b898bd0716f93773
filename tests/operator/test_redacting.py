"""`carpal session redact`: what is erased beside the data, and what is asked before."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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
