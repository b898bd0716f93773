"""The local socket speaks HTTP to `curl --unix-socket`, for root and its user, and is held up by
nobody."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.audit_files import AuditFiles
from carpal.errors import BadInput, CarpalError, Unreachable, refuse
from carpal.status import Reason
from hands.local import asking, server
from hands.local.http import BODY_MAX, HEAD_MAX, Answer, Handler, Request
from tests.hands.fake_brain import FakeBrain
from tests.hands.local.test_status import until
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.pace import AT_ONCE

PAGE = Path(__file__).parents[3] / "docs/reference/daemon.md"


async def _drops(request: Request) -> Answer:
    return Answer.json(request.fields(reason=str, lift=bool))


def _raises(_: Request) -> Answer:
    raise refuse(Reason.UNAVAILABLE, "the daemon starts", action="ask soon")


def _breaks(_: Request) -> Answer:
    raise ZeroDivisionError


async def _hangs(_: Request) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


ROUTES: dict[str, Handler] = {
    "GET /livez": lambda _: Answer.text("ok"),
    "GET /large": lambda _: Answer.text("x" * 8_000_000),
    "POST /drain": _drops,
    "GET /early": _raises,
    "GET /bug": _breaks,
    "GET /hang": _hangs,
}


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """Where the socket is."""
    async with server.answering(tmp_path, ROUTES):
        yield tmp_path


async def curl(folder: Path, *arguments: str) -> str:
    """What a person gets, with the status on the last line."""
    process = await asyncio.create_subprocess_exec(
        "curl", "-sS", "-w", "\n%{http_code}", "--unix-socket", str(folder / "socket"), *arguments,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    return said.decode()


async def sent(folder: Path, data: bytes, name: str = "socket") -> bytes:
    """All that is answered to bytes that are sent."""
    reader, writer = await asyncio.open_unix_connection(str(folder / name))
    try:
        writer.write(data)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


@pytest.fixture
def _curl() -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")


@pytest.mark.usefixtures("_curl")
async def test_curl_asks_a_daemon_that_is_linked(machine: Machine, one: FakeBrain) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        async for _ in asked.execute("h", "c", "echo hello"):
            pass
        await until(machine, state="linked", hands=1)
        folder = machine.files.folder
        assert await curl(folder, "http://localhost/livez") == "ok\n\n200"
        assert await curl(folder, "http://localhost/readyz") == "ok\n\n200"
        said = (await curl(folder, "http://localhost/status")).split("\n")
        assert (json.loads(said[0])["brain"], said[2]) == ("brain-1", "200")
        said = (await curl(folder, "http://localhost/hands")).split("\n")
        assert json.loads(said[0])["hands"] == [
            {"hand_id": "h", "type": "process", "state": "live", "sessions": ["s"], "calls": []}
        ]
        metrics = values(await curl(folder, "http://localhost/metrics"))
        assert metrics['carpal_hand_calls_total{outcome="ok"}'] == 1
        assert metrics["carpal_hand_linked"] == metrics["carpal_hand_links_total"] == 1
        assert metrics['carpal_hand_hands{state="live"}'] == 1
        assert metrics["carpal_hand_call_output_bytes_total"] == len("hello\n")
        assert metrics["carpal_hand_call_input_bytes_total"] > 0
        assert metrics["carpal_hand_journal_bytes"] > 0
        assert metrics["carpal_hand_certificate_expiry_seconds"] > 0
        assert metrics["carpal_hand_reconnects_total"] == 0
        drained = await curl(folder, "-X", "POST", "http://localhost/drain")
        assert json.loads(drained.split("\n")[0]) == {"draining": True, "hands": 1}
        ready = await curl(folder, "http://localhost/readyz")
        assert ready == "draining: it takes no new hands\n\n503"
        body = ("-d", '{"lift": true}', "http://localhost/drain")
        assert json.loads((await curl(folder, *body)).split("\n")[0])["draining"] is False


async def test_a_daemon_without_a_link_lives_and_is_not_ready(machine: Machine) -> None:
    machine.dials("127.0.0.1:1")
    async with machine.daemon():
        folder = machine.files.folder
        async with asyncio.timeout(PATIENCE):
            while "127.0.0.1:1" not in (await until(machine))["why"]:  # noqa: ASYNC110 - its word
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(asking.exchange, folder, "/livez") == (200, b"ok\n")
        status, why = await asyncio.to_thread(asking.exchange, folder, "/readyz")
        assert (status, why.startswith(b"not linked: ")) == (503, True)
        assert b"127.0.0.1:1" in why


async def test_a_daemon_whose_audit_cannot_be_written_is_not_ready_and_says_so(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await until(machine, state="linked")
        log = AuditFiles(machine.files.folder).log
        log.unlink()
        log.mkdir()
        with pytest.raises(CarpalError, match="audit"):
            await asked.provision("h")
        folder = machine.files.folder
        status, why = await asyncio.to_thread(asking.exchange, folder, "/readyz")
        assert (status, why.startswith(b"the audit cannot be written: ")) == (503, True)
        assert await asyncio.to_thread(asking.exchange, folder, "/livez") == (200, b"ok\n")
        log.rmdir()


async def test_a_link_that_is_lost_and_made_again_is_counted_as_one_reconnect(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        (await one.link()).link.end(refuse(Reason.UNAVAILABLE, "it stops"))
        await one.link()
        async with asyncio.timeout(PATIENCE):
            while True:
                _, body = await asyncio.to_thread(asking.exchange, machine.files.folder, "/metrics")
                metrics = values(body.decode())
                if metrics["carpal_hand_reconnects_total"] == 1:
                    break
        assert metrics["carpal_hand_links_total"] == 2


async def test_every_metric_is_on_the_page_and_every_one_on_the_page_is_there(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        await one.link()
        await until(machine, state="linked")
        _, body = await asyncio.to_thread(asking.exchange, machine.files.folder, "/metrics")
    said = set(re.findall(r"^# TYPE (\S+) (\S+)$", body.decode(), re.MULTILINE))
    row = re.compile(r"^\| `(carpal_hand_\w+)(?:\{[a-z,]+\})?` \| (\w+) \|", re.MULTILINE)
    rows = row.findall(PAGE.read_text())
    assert said == set(rows)
    for name, kind in said:
        assert (kind == "counter") == name.endswith("_total")


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"hello\r\n\r\n", 400, "the first line"),
        (b"GET livez HTTP/1.1\r\n\r\n", 400, "the first line"),
        (b"GET /livez HTTP/1.1\r\nno colon\r\n\r\n", 400, "NAME: VALUE"),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404, "GET /livez"),
        (b"GET /drain HTTP/1.1\r\n\r\n", 405, "use POST"),
        (b"GET /early HTTP/1.1\r\n\r\n", 503, "the daemon starts"),
        (b"GET /bug HTTP/1.1\r\n\r\n", 500, "log"),
        (b"POST /drain HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "Content-Length"),
        (b"POST /drain HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "Content-Length"),
        (b"POST /drain HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 4\r\n\r\n", 400, "one"),
        (b"POST /drain HTTP/1.1\r\nContent-Length: 999999\r\n\r\n", 413, str(BODY_MAX)),
        (b"POST /drain HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]", 400, "not a JSON object"),
        (b"POST /drain HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\"why\":1}", 400, "'why'"),
        (b"POST /drain HTTP/1.1\r\nContent-Length: 10\r\n\r\n{\"lift\":1}", 400, "'lift'"),
        (b"GET /livez HTTP/1.1\r\nX: " + b"y" * HEAD_MAX * 3, 431, str(HEAD_MAX)),
    ],
)  # fmt: skip
async def test_what_is_no_request_of_ours_is_told_why(
    folder: Path, data: bytes, status: int, words: str
) -> None:
    said = await sent(folder, data)
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert set(json.loads(body)) == {"reason", "error", "action"}
    assert words in " ".join(json.loads(body).values())


async def test_a_head_is_answered_without_its_body(folder: Path) -> None:
    said = await sent(folder, b"HEAD /livez HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert said.endswith(b"\r\n\r\n")
    assert b"Content-Length: 3\r\n" in said


async def test_a_second_request_on_a_connection_is_not_answered(folder: Path) -> None:
    said = await sent(folder, b"GET /livez HTTP/1.1\r\n\r\n" * 2)
    assert said.count(b"HTTP/1.1 ") == 1


async def test_what_a_route_refuses_reaches_who_asks_as_it_was_said(folder: Path) -> None:
    with pytest.raises(Unreachable, match="the daemon starts: ask soon"):
        await asyncio.to_thread(asking.ask, folder, "/early")
    with pytest.raises(BadInput, match="'why': it is unknown here; there is reason, lift"):
        await asyncio.to_thread(asking.ask, folder, "/drain", {"why": "x"})


async def test_a_slow_head_and_a_route_that_hangs_are_ended_in_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LIMIT", 0.2)
    assert (await sent(folder, b"GET /livez HT")).startswith(b"HTTP/1.1 408 ")
    assert (await sent(folder, b"GET /hang HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")


async def test_many_connections_are_closed_beyond_a_few_and_the_next_one_is_served(
    folder: Path,
) -> None:
    at_once = 200
    held = [await asyncio.open_unix_connection(str(folder / "socket")) for _ in range(at_once)]
    reads = [asyncio.ensure_future(_ended(reader)) for reader, _ in held]
    async with asyncio.timeout(AT_ONCE):
        while sum(read.done() for read in reads) < at_once - server._AT_ONCE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert sum(read.done() for read in reads) == at_once - server._AT_ONCE
    for _, writer in held:
        writer.close()
    await asyncio.gather(*reads)
    async with asyncio.timeout(AT_ONCE):
        while not await lives(folder):  # noqa: ASYNC110 - it has seen that they left
            await asyncio.sleep(0.01)


async def lives(folder: Path) -> bool:
    try:
        said = await sent(folder, b"GET /livez HTTP/1.1\r\n\r\n")
    except ConnectionError:
        return False
    return said.startswith(b"HTTP/1.1 200 ")


async def _ended(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionError:
        return


async def test_another_user_is_refused_even_where_the_socket_lets_it_in() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        r"s.sendall(b'GET /livez HTTP/1.1\r\n\r\n'); print(s.recv(999).decode())"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with server.answering(folder, ROUTES):
            (folder / "socket").chmod(0o666)
            process = await asyncio.create_subprocess_exec(
                "python3", "-c", script, str(folder / "socket"),
                stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[],
            )  # fmt: skip
            said, _ = await process.communicate()
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"only the daemon's own user and root" in said


async def test_where_systemd_runs_it_a_short_path_leads_to_the_socket_and_goes_with_the_daemon(
    folder: Path, tmp_path: Path
) -> None:
    way = tmp_path / "hand.sock"
    with server.reachable_at(way, folder):
        reader, writer = await asyncio.open_unix_connection(str(way))
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).endswith(b"ok\n")
        writer.close()
    assert not way.is_symlink()


async def test_a_daemon_that_systemd_gives_a_runtime_folder_answers_there_too(
    machine: Machine, one: FakeBrain, tmp_path: Path
) -> None:
    way = tmp_path / "hand.sock"
    async with machine.process(RUNTIME_DIRECTORY=str(tmp_path)):
        await one.link()
        await until(machine, state="linked")
        assert way.readlink() == machine.files.folder / server.NAME
        said = await sent(way.parent, b"GET /livez HTTP/1.1\r\n\r\n", way.name)
    assert said.endswith(b"ok\n")


async def test_who_was_asking_as_a_daemon_ended_is_let_go(tmp_path: Path) -> None:
    """One that does not read is waited for no longer than the daemon."""
    async with asyncio.timeout(PATIENCE):
        async with server.answering(tmp_path, ROUTES):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
            writer.write(b"GET /large HTTP/1.1\r\n\r\n")
            await reader.readexactly(1)
            begun = len(asyncio.all_tasks())
        assert len(asyncio.all_tasks()) == begun - 1
    writer.close()


def values(text: str) -> dict[str, float]:
    """Samples by name and labels, of the Prometheus text format."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"(carpal_\w+(?:\{[^}]*\})?) (\S+)", line):
            found[match[1]] = float(match[2])
    return found
