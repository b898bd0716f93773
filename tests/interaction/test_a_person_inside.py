"""A person inside a hand: the operator's command, a brain, a daemon and a hand, for real."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import orchestrator_pb2 as pb
from hands.visit.entering import Way
from tests.command import Command
from tests.interaction.play import Session, session
from tests.interaction.visiting import EVERYBODY, command, typed, welcoming
from tests.pace import SCALE
from tests.world import World


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world of two brains, on a machine whose owner lets people in."""
    async with welcoming(tmp_path_factory.mktemp("inside")) as running:
        yield running


@pytest.fixture
def carpal(whole: World, tmp_path: Path) -> Command:
    """The operator's command."""
    return command(whole, tmp_path)


@pytest.fixture
async def made(whole: World) -> AsyncIterator[Session]:
    """A session that is idle, with a hand that has a file."""
    async with session(whole, "$ echo kept > f") as made:
        await made.until_type("session.status_idle")
        yield made


async def test_a_shell_takes_its_commands_from_a_pipe_and_gives_output_errors_and_exit_code(
    made: Session, carpal: Command
) -> None:
    ended = await carpal(
        "hand", "shell", made.session_id, stdin="cat f; echo bad >&2; pwd; exit 7\n"
    )
    assert ended.code == 7, ended
    assert ended.stdout.startswith("kept\n/")
    assert ended.stderr == "bad\n"
    ended = await carpal("hand", "shell", f"{made.session_id}:shell", "-c", "kill -9 $$")
    assert ended.code == 137, ended


async def test_a_person_has_control_and_the_log_says_who_when_and_which_hand(
    made: Session, carpal: Command
) -> None:
    await carpal("hand", "shell", made.session_id, "-c", "true")
    await made.until_type("hand.left")
    [entered], [left] = made.data("hand.entered"), made.data("hand.left")
    [provisioned] = made.data("hand.provisioned")
    assert entered == {
        "tunnel_id": entered["tunnel_id"],
        "hand_id": provisioned["hand_id"],
        "name": "shell",
        "daemon": "daemon-1",
        "by": "spiffe://carpal.internal/operator/operator",
        "kind": "shell",
        "control": True,
    }
    assert left == {
        "tunnel_id": entered["tunnel_id"],
        "hand_id": provisioned["hand_id"],
        "name": "shell",
        "because": "they left",
    }


async def test_calls_wait_while_a_person_has_control_and_go_on_when_they_left(
    made: Session, carpal: Command
) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        await person.sees(b"you have control")
        await person.prompted()
        head = made.log[-1].position
        await made.say("$ cat g")
        await made.until_type("agent.tool_use", head)
        person.type(b"echo from-the-person > g; echo don''e\r")
        await person.sees(b"done\r\n")
        assert not [e for e in made.log if e.position > head and e.type == "agent.tool_result"]
        person.type(b"exit\r")
        assert await person.ends() == 0
    await made.until_type("agent.tool_result", head)
    assert made.results()[-1] == "from-the-person\n"
    result = made.data("agent.tool_result")[-1]
    assert "files" not in result, "what a person did is no call's doing"
    types = [e.type for e in made.log if e.position > head]
    assert types.index("hand.left") < types.index("agent.tool_result")


async def test_of_a_call_that_goes_on_beside_a_person_they_are_told_in_a_pipe_too(
    made: Session, carpal: Command
) -> None:
    await made.say("$ until [ -e over ]; do sleep 0.1; done")
    await made.until_type("agent.tool_use", made.log[-1].position)
    async with asyncio.timeout(60):
        while (
            "running beside you"
            not in (ended := await carpal("hand", "shell", made.session_id, "-c", "true")).stderr
        ):
            assert ended.code == 0, ended  # the call may not have begun yet
    ended = await carpal("hand", "shell", made.session_id, "-c", "touch over")
    assert ended.code == 0, ended
    assert ended.stderr.startswith("running beside you: ")


async def test_a_terminal_is_raw_has_its_size_and_comes_back_as_it_was(
    made: Session, carpal: Command
) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        before = person.attributes
        await person.prompted()
        assert person.attributes != before
        person.type(b"stty size; tty | cut -c1-8; echo $TERM\r")
        await person.sees(b"31 97\r\n/dev/pts\r\nxterm\r\n")
        person.resize(40, 120)
        person.type(b"stty size\r")
        await person.sees(b"40 120\r\n")
        person.type(b"echo beg''un; sleep 1000\r")
        await person.sees(b"begun\r\n")
        person.type(b"\x03")
        await person.sees(b"^C")
        person.type(b"echo $?\r")
        await person.sees(b"130\r\n")
        person.type(b"~.")
        assert await person.ends() == 130
        assert person.attributes == before
    left = await made.until_type("hand.left")
    assert json.loads(left.data)["because"] == "the person's command ended"


async def test_a_signal_that_ends_the_command_leaves_the_terminal_as_it_was(
    made: Session, carpal: Command
) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        before = person.attributes
        await person.prompted()
        assert person.attributes != before
        person.process.terminate()
        await person.ends()
        assert person.attributes == before


async def test_files_and_folders_go_to_a_hand_and_back_as_they_were(
    made: Session, carpal: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/x").write_bytes(bytes(range(256)) * 3000)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("deep/x")
    hand = f"{made.session_id}:shell"
    ended = await carpal("hand", "cp", str(folder), f"{hand}:sub/copy")
    assert ended.code == 0, ended
    ended = await carpal("hand", "cp", f"{hand}:sub/copy", str(tmp_path / "back"))
    assert ended.code == 0, ended
    back = tmp_path / "back"
    assert (back / "deep/x").read_bytes() == (folder / "deep/x").read_bytes()
    assert str((back / "link").readlink()) == "deep/x"
    assert (back / "run").stat().st_mode & 0o777 == 0o755
    assert (await carpal("hand", "cp", f"{made.session_id}::f", str(tmp_path))).code == 0
    assert (tmp_path / "f").read_text() == "kept\n"
    ended = await carpal("hand", "cp", str(tmp_path / "f"), f"{hand}:sub")
    assert ended.code == 0, ended
    ended = await carpal("hand", "shell", made.session_id, "-c", "cat sub/f; ls -A sub")
    assert ended.stdout == "kept\ncopy\nf\n", "nothing is left beside it"


async def test_a_copy_that_cannot_be_made_here_or_is_refused_there_ends_at_once(
    made: Session, carpal: Command, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    ended = await carpal("hand", "cp", str(tmp_path / "pipe"), f"{made.session_id}::x")
    assert (ended.code, "not copied: " in ended.stderr) == (2, True), ended
    large = tmp_path / "large"
    large.mkdir()
    with (large / "x").open("wb") as file:
        file.truncate(8 * 1024**3)
    ended = await carpal("hand", "cp", str(large), f"{made.session_id}::/etc/large")
    assert (ended.code, "not copied: " in ended.stderr) == (2, True), ended


async def test_a_copy_reaches_nothing_outside_of_the_workspace(
    made: Session, carpal: Command, tmp_path: Path
) -> None:
    ended = await carpal("hand", "shell", made.session_id, "-c", "ln -s /etc out")
    hand = f"{made.session_id}:shell"
    for path in ("out/hostname", "/etc/hostname", "../x"):
        ended = await carpal("hand", "cp", f"{hand}:{path}", str(tmp_path / "stolen"))
        assert ended.code == 2, ended
        assert not (tmp_path / "stolen").exists()
    (tmp_path / "mine").write_text("x")
    for path in ("out/mine", "/etc/mine"):
        ended = await carpal("hand", "cp", str(tmp_path / "mine"), f"{hand}:{path}")
        assert ended.code == 2, ended
    assert not Path("/etc/mine").exists()


async def test_a_port_of_the_hand_is_reached_by_many_connections_that_may_be_half_closed(
    made: Session, carpal: Command, tmp_path: Path
) -> None:
    head = made.log[-1].position
    server = (
        "import socketserver,threading\n"
        "class H(socketserver.StreamRequestHandler):\n"
        "    def handle(self):\n"
        "        data = self.rfile.read()\n"
        "        self.wfile.write(str(len(data)).encode() + b':' + data[::-1])\n"
        "class S(socketserver.ThreadingTCPServer):\n"
        "    daemon_threads = True\n"
        "    request_queue_size = 64\n"
        "s = S(('127.0.0.1', 0), H)\n"
        "open('port', 'w').write(str(s.server_address[1]))\n"
        "s.serve_forever()\n"
    )
    (tmp_path / "s.py").write_text(server)
    assert (await carpal("hand", "cp", str(tmp_path / "s.py"), f"{made.session_id}::.")).code == 0
    await made.say(
        "$ (python3 s.py >/dev/null 2>&1 &); while [ ! -s port ]; do sleep 0.05; done; cat port"
    )
    await made.until_type("session.status_idle", head)
    port = made.results()[-1].split()[0]
    async with carpal.start("hand", "forward", made.session_id, f"0:{port}") as process:
        assert process.stderr is not None
        async with asyncio.timeout(30):
            line = (await process.stderr.readline()).decode()
        local = int(line.split()[0].rpartition(":")[2])

        async def ask(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            sent = f"{number}-".encode() * 20_000
            writer.write(sent)
            writer.write_eof()
            answer = await reader.read()
            assert answer == str(len(sent)).encode() + b":" + sent[::-1]
            writer.close()

        async with asyncio.timeout(60):
            await asyncio.gather(*(ask(number) for number in range(12)))
    await made.until(lambda e: e.type == "hand.left" and "command" in str(e.data), head)
    entered = made.data("hand.entered")[1:]
    assert [(each["kind"], each["control"]) for each in entered] == [("forward", False)]


async def test_who_asks_for_what_is_not_there_is_told_which_there_is(
    made: Session, carpal: Command
) -> None:
    ended = await carpal("hand", "shell", f"{made.session_id}:phone", "-c", "true")
    assert (ended.code, "live: shell" in ended.stderr) == (5, True), ended
    ended = await carpal("hand", "shell", "sesn_none", "-c", "true")
    assert ended.code == 5, ended


async def test_any_brain_lets_a_person_in_whichever_has_the_daemons_link(
    whole: World, made: Session
) -> None:
    for name in ("b1", "b2"):
        async with whole.orchestrator(name) as brain:
            opening = pb.EnterOpen(
                session_id=made.session_id, kind="shell", options=b'{"command": "cat f"}'
            )
            async with Way(brain, name).enter(opening) as visit:
                data = b"".join([said.data async for said in visit.came()])
        assert data == b"kept\n"
    sources = {event.source for event in made.log if event.type == "hand.entered"}
    assert len(sources) == 1, "the brain that has the link writes it down"


async def test_where_the_owner_does_not_say_so_nobody_enters(
    whole: World, made: Session, carpal: Command
) -> None:
    policy = whole.state.parent / "policy.toml"
    policy.write_text('people = ["copy"]\n')
    whole.running["daemon"].process.send_signal(signal.SIGHUP)
    try:
        async with asyncio.timeout(30 * SCALE):
            while (ended := await carpal("hand", "shell", made.session_id, "-c", "true")).code == 0:
                pass  # the daemon reads it in a moment
    finally:
        policy.write_text(f"people = {EVERYBODY}\n")
        whole.running["daemon"].process.send_signal(signal.SIGHUP)
    assert ended.code == 4, ended
    assert str(policy) in ended.stderr


async def test_a_reload_that_changes_nothing_ends_no_shell_and_one_without_the_owners_word_does(
    whole: World, made: Session, carpal: Command
) -> None:
    policy, daemon = whole.state.parent / "policy.toml", whole.running["daemon"].process
    log = max(whole.state.glob("daemon-*.log"))
    try:
        async with typed(carpal, "hand", "shell", made.session_id) as person:
            await person.prompted()
            before = len(log.read_text())
            daemon.send_signal(signal.SIGHUP)
            async with asyncio.timeout(30 * SCALE):
                while "reloaded" not in log.read_text()[before:]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            person.type(b"echo still-he''re\r")
            await person.sees(b"still-here\r\n")
            policy.write_text('people = ["copy"]\n')
            daemon.send_signal(signal.SIGHUP)
            await person.sees(b"the machine's owner ended it: shell by a person is not allowed")
            assert await person.ends() == 1
    finally:
        policy.write_text(f"people = {EVERYBODY}\n")
        daemon.send_signal(signal.SIGHUP)
