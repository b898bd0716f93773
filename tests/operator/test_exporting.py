"""`carpal session export`: the log as it is, in a file that is whole or not there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.export import End, read
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.command import Command
from tests.operator.real import SESSION, create, events_of, lines, real_sessiond
from tests.sessiond.serving import Serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond."""
    async with real_sessiond(tmp_path) as server:
        yield server


async def test_an_export_has_every_event_exactly_as_sessiond_has_it(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(server, b"{}", b'{ "odd":1e2 }', '{"text":"naïve"}'.encode())
    path = tmp_path / "export.jsonl"
    assert (await carpal("session", "export", SESSION, "--out", str(path))).code == 0
    with path.open("rb") as file:
        info, *events, end = read(file, "export")
    assert isinstance(info, types_pb2.SessionInfo)
    assert (info.title, dict(info.labels), info.head.position) == ("to keep", {"team": "a"}, 3)
    assert events == await events_of(server)
    assert isinstance(end, End)
    assert end.head == info.head
    assert path.stat().st_mode & 0o777 == 0o600


async def test_without_a_file_it_goes_to_stdout_and_has_the_lines_that_tail_prints(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    ended = await carpal("session", "export", SESSION)
    assert (ended.code, ended.stderr) == (0, "")
    tailed = await carpal("session", "tail", SESSION, "--no-follow", "--json")
    assert ended.stdout.splitlines()[1:-1] == tailed.stdout.splitlines()
    assert lines(ended.stdout)[-1]["events"] == 3


async def test_a_session_without_events_has_an_export_too(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    ann = await server.operator("ann")
    await ann.CreateSession(pb.CreateSessionRequest(session_id=SESSION))
    path = tmp_path / "export.jsonl"
    assert (await carpal("session", "export", SESSION, "--out", str(path))).code == 0
    assert (await carpal("session", "verify", "--file", str(path))).code == 0


async def test_a_log_of_many_slices_is_exported_whole(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(server, *(b'{"n":%d,"pad":"%s"}' % (n, b"x" * 6000) for n in range(600)))
    path = tmp_path / "export.jsonl"
    assert (await carpal("session", "export", SESSION, "--out", str(path))).code == 0
    ended = await carpal("session", "verify", "--file", str(path))
    assert ended.stdout.startswith("sesn_1 is whole: 600 events\n")


async def test_a_device_is_written_to_and_not_replaced(server: Serving, carpal: Command) -> None:
    await create(server)
    ended = await carpal("session", "export", SESSION, "--out", "/dev/stdout")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.startswith('{"carpal_export": 1')
    assert ended.stdout.endswith("3 events and 0 blobs in /dev/stdout\n")
    assert (await carpal("session", "head", SESSION, "--out", "/dev/null")).code == 2


async def test_what_cannot_be_written_is_one_line_and_leaves_nothing(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(server)
    absent = tmp_path / "absent" / "x.jsonl"
    ended = await carpal("session", "export", SESSION, "--out", str(absent))
    assert ended.code == 2
    assert ended.stderr == (
        f"carpal: --out: {absent} cannot be written (No such file or directory)\n"
    )
    before = set(tmp_path.iterdir())
    folder = await carpal("session", "export", SESSION, "--out", str(tmp_path / "state"))
    assert folder.code == 2
    assert set(tmp_path.iterdir()) == before


async def test_a_file_that_is_there_is_replaced_only_when_told_to(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(server)
    path = tmp_path / "export.jsonl"
    path.write_text("kept")
    command = ("session", "export", SESSION, "--out", str(path))
    ended = await carpal(*command)
    assert (ended.code, ended.stdout, path.read_text()) == (2, "", "kept")
    assert ended.stderr == (
        f"carpal: --out: {path} is there: give another name, or replace it with --force\n"
    )
    assert (await carpal(*command, "--force")).code == 0
    assert path.read_text() != "kept"
