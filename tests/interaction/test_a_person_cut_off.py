"""What is killed gives control back, and the log says so: the command, the brain, the daemon."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.tls import IdentityFiles
from hands.inside import tree
from tests.command import Command
from tests.hands.place import until
from tests.interaction.play import Session, session
from tests.interaction.visiting import Typed, command, typed, welcoming
from tests.pace import SCALE
from tests.pki import Pki
from tests.world import World
from vault.files import VaultFiles
from vault.opened import authority_of

pytestmark = pytest.mark.slow

_DIGITS = str.maketrans("abcdef", "012345")


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world of two brains, on a machine whose owner lets people in."""
    async with welcoming(tmp_path_factory.mktemp("cut")) as running:
        yield running


@pytest.fixture
def carpal(whole: World, tmp_path: Path) -> Command:
    """The operator's command."""
    return command(whole, tmp_path)


@pytest.fixture
async def made(whole: World) -> AsyncIterator[Session]:
    """A session that is idle, with a hand."""
    async with session(whole, "$ echo kept > f") as made:
        await made.until_type("session.status_idle")
        yield made


async def _busy(person: Typed, made: Session) -> tuple[str, int]:
    """A person who runs something that would outlive them; a call waits. It, and the log's head."""
    await person.prompted()
    what = f"sleep 4242.{made.log[-1].hash.hex()[:6].translate(_DIGITS)}"
    person.type(f"setsid nohup {what} >/dev/null 2>&1 & echo beg''un\r".encode())
    await person.sees(b"begun\r\n")
    await until(lambda: _runs(what), "what the person started does not run")
    head = made.log[-1].position
    await made.say("$ echo went-on")
    await made.until_type("agent.tool_use", head)
    return what, head


def _runs(what: str) -> bool:
    """Whether a process of that command line lives anywhere on this machine."""
    wanted = what.replace(" ", "\0").encode() + b"\0"
    for pid in tree.everyone():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == wanted:
                return True
    return False


async def _is_over(made: Session, what: str, head: int, seconds: float) -> str:
    """The call went on, nothing of the person is left, and why the log says that they left."""
    left = await made.until_type("hand.left", head, seconds)
    await made.until_type("agent.tool_result", head, seconds)
    assert made.results()[-1] == "went-on\n"
    await until(lambda: not _runs(what), "what the person started still runs")
    return str(json.loads(left.data)["because"])


def renewed(whole: World) -> None:
    """Give the daemon another certificate of the same name."""
    folder = whole.state / "hand" / "identity"
    name = IdentityFiles(folder).load_valid().identity.name
    pki = Pki(whole.state)
    pki.authority = authority_of(VaultFiles(whole.state))
    pki.issue(Role.DAEMON, name, directory=folder)


async def test_a_killed_command_gives_control_back(made: Session, carpal: Command) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        what, head = await _busy(person, made)
        os.kill(person.process.pid, signal.SIGKILL)
        because = await _is_over(made, what, head, 15 * SCALE)
    assert because == "the person's command ended"


async def test_a_killed_daemon_gives_control_back(
    whole: World, made: Session, carpal: Command
) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        what, head = await _busy(person, made)
        await whole.running["daemon"].kill()
        assert await person.ends() == 3
        await whole.daemon()
        await _is_over(made, what, head, 30 * SCALE)
    assert len(made.data("hand.left")) == 1


async def test_a_killed_brain_gives_control_back_and_another_writes_it_down(
    whole: World, made: Session, carpal: Command
) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        what, head = await _busy(person, made)
        entered = next(e for e in reversed(made.log) if e.type == "hand.entered")
        name = entered.source.rpartition("/")[2]
        await whole.running[name].kill()
        assert await person.ends() == 3
        await _is_over(made, what, head, 40 * SCALE)
    left = next(e for e in reversed(made.log) if e.type == "hand.left")
    assert left.source.rpartition("/")[2] != name
    assert "at" in json.loads(left.data), "when it was, not when it was written"
    await whole.brain(name)


async def test_a_new_certificate_of_the_daemon_ends_the_tunnel_and_the_command_says_why(
    whole: World, made: Session, carpal: Command
) -> None:
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        await person.prompted()
        renewed(whole)
        whole.running["daemon"].process.send_signal(signal.SIGHUP)
        await person.sees(b"is not linked: wait for the daemon to connect")
        assert await person.ends() == 3
    again = await carpal("hand", "shell", made.session_id, "-c", "cat f")
    assert (again.code, again.stdout) == (0, "kept\n"), again.stderr


async def test_nothing_that_a_person_typed_or_saw_is_anywhere_in_logs_and_journals(
    whole: World, made: Session, carpal: Command
) -> None:
    canaries = [b"canaryone", b"canarytwo", b"canarythree"]
    ended = await carpal("hand", "shell", made.session_id, "-c", "echo canaryone | rev")
    assert ended.stdout == "enoyranac\n"
    async with typed(carpal, "hand", "shell", made.session_id) as person:
        await person.prompted()
        person.type(b"echo canarytwo | rev; echo ca''narythree\r")
        await person.sees(b"owtyranac\r\ncanarythree\r\n")
        person.type(b"exit\r")
        assert await person.ends() == 0
    await made.until(lambda e: e.type == "hand.left" and e.position > 18)
    found = [
        (str(path), canary)
        for path in whole.state.parent.rglob("*")
        if path.is_file()
        for canary in (*canaries, b"enoyranac", b"owtyranac")
        if canary in path.read_bytes()
    ]
    assert found == []
