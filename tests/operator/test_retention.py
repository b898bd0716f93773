"""`carpal session retention`: a workspace's rules are shown, written and kept to."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import session_pb2
from tests.command import Command
from tests.operator.real import SESSION, create, real_sessiond
from tests.sessiond.serving import Serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond whose workspace has no rules."""
    async with real_sessiond(tmp_path) as server:
        yield server


async def rules(carpal: Command, *flags: str) -> dict[str, object]:
    ended = await carpal("session", "retention", *flags, "--json")
    assert ended.code == 0, ended.stderr
    shown: dict[str, object] = json.loads(ended.stdout)
    return shown


async def test_rules_are_shown_and_each_is_changed_alone(server: Serving, carpal: Command) -> None:
    assert await rules(carpal) == {"maximum_age_days": None, "hold": False}
    first = await carpal("session", "retention", "--max-age-days", "30")
    assert first.stdout == "sessions are deleted 30 days after their log last grew\n"
    assert first.stderr == "carpal: those that are older go now, for good\n"
    assert await rules(carpal, "--hold") == {"maximum_age_days": 30, "hold": True}
    never = await rules(carpal, "--max-age-days", "none")
    assert never == {"maximum_age_days": None, "hold": True}
    assert await rules(carpal) == never


async def test_the_refusal_to_delete_under_a_hold_names_what_lifts_it(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    await carpal("session", "retention", "--hold")
    refused = await carpal("session", "delete", SESSION, "--yes")
    assert refused.code == 1
    assert refused.stderr == (
        "carpal: workspace 'default' holds its sessions: "
        "lift the hold with `carpal session retention --no-hold`\n"
    )
    await carpal("session", "retention", "--no-hold")
    assert (await carpal("session", "delete", SESSION, "--yes")).code == 0


async def test_two_who_change_different_rules_at_once_both_have_their_way(
    server: Serving, carpal: Command
) -> None:
    async with asyncio.TaskGroup() as group:
        for flags in (("--hold",), ("--max-age-days", "7")):
            group.create_task(rules(carpal, *flags))
    assert await rules(carpal) == {"maximum_age_days": 7, "hold": True}


async def test_what_is_so_already_is_not_written_again(server: Serving, carpal: Command) -> None:
    for _ in range(2):
        await rules(carpal, "--hold")
    ann = await server.operator("ann")
    request = session_pb2.GetDocumentRequest(kind="retention", name="default")
    assert (await ann.GetDocument(request)).document.version == 1


@pytest.mark.parametrize("age", ["0", "-1", "x", "36501", "99999999999999999999"])
async def test_an_age_that_cannot_be_is_bad_input(
    server: Serving, carpal: Command, age: str
) -> None:
    ended = await carpal("session", "retention", "--max-age-days", age)
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "--max-age-days" in ended.stderr
