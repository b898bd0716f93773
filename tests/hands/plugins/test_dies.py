"""A hand of a plugin, its host, its supervisor and its daemon, killed in the middle of a call."""

import os
import select
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.plugin import PluginType
from hands.inside import tree
from hands.journal import Journal
from tests.hands.place import PATIENCE, Place, open_place
from tests.hands.plugins.written import Plugins
from tests.hands.test_restart import DRIVER, Child, child
from tests.hands.test_service import refused

SOURCE = """
class It(HandType):
    'Works.'

    @tool()
    def work(self, context: Context) -> str:
        'Has a child that left its session, says so, waits to be let go, and leaves a trace.'
        away = subprocess.Popen(['sleep', '1000'], start_new_session=True)
        (context.folder / 'pid').write_text(str(os.getpid()))
        os.write(1, b'up\\n')  # in one piece
        while not (context.folder / 'go').exists():
            time.sleep(0.01)
        with (context.folder / 'log').open('a') as file:
            file.write('worked ')
        away.kill()
        away.wait()
        return (context.folder / 'log').read_text()
"""
CALL = pb.ExecuteRequest(driver=DRIVER, hand_id="h", call_id="c", name="work", input=b"{}")


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PluginType:
    return Plugins(tmp_path / "plugins", monkeypatch).write("it", SOURCE)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def folder(state: Path) -> Path:
    """The hand's, as its class sees it."""
    (found,) = (path.parent for path in (state / "hands" / "h").rglob("pid"))
    return found


class Victims:
    """Who may be killed: all but the daemon."""

    def __init__(self, state: Path) -> None:
        journal = Journal(state / "journal.db")
        row = journal.hand("h")
        journal.close()
        assert row is not None
        self.supervisor = int(row.facts["pid"])
        self.host = int((folder(state) / "pid").read_text())
        self.tree = tree.descendants(self.supervisor)


@contextmanager
def all_die(victims: Victims) -> Iterator[None]:
    """By the end of the block each process of the hand is dead."""
    pids = (victims.supervisor, *(each.pid for each in victims.tree))
    watched = [os.pidfd_open(pid) for pid in pids]
    assert len(watched) >= 3, "the supervisor, the host and its child"
    try:
        yield
        for each in watched:
            ended, _, _ = select.select([each], [], [], PATIENCE)
            assert ended, "a process of the hand lives on"
    finally:
        for each in watched:
            os.close(each)


@asynccontextmanager
async def in_a_call(state: Path) -> AsyncIterator[tuple[Child, Victims]]:
    """A daemon whose plugin is in the middle of a call."""
    async with child(state, {"CARPAL_TEST_PLUGIN": "it=it:It"}) as daemon:
        daemon.ask(provision=pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="it"))
        while not (await daemon.reply()).last:
            pass
        daemon.ask(execute=CALL)
        assert (await daemon.reply()).execute.output.data == b"up\n"
        yield daemon, Victims(state)


async def gone(place: Place, state: Path) -> None:
    """The hand is said to be, and its release leaves nothing."""
    error = await refused(place.execute(place.request("h", name="work")))
    assert error.reason is Reason.HAND_GONE
    assert await place.release("h")
    assert not (state / "hands" / "h").exists()


@pytest.mark.parametrize(
    "order", ["daemon host", "host daemon", "daemon host supervisor", "supervisor daemon"]
)
async def test_a_plugin_killed_with_its_daemon_in_a_call_is_dead_and_the_call_is_told_truly(
    kind: PluginType, state: Path, order: str
) -> None:
    async with in_a_call(state) as (daemon, victims):
        with all_die(victims):
            for whom in order.split():
                if whom == "daemon":
                    await daemon.kill()
                else:
                    os.kill(getattr(victims, whom), signal.SIGKILL)
            await kind.prepare()
            async with open_place(state, more={"it": kind}) as place:
                result = (await place.steps(CALL))[-1].result
                assert result.outcome in {pb.OUTCOME_INTERRUPTED, pb.OUTCOME_LOST}, result
                assert "may have partly happened" in result.content
                assert not (folder(state) / "log").exists()
                assert (await place.steps(CALL))[-1].result == result, "it was told otherwise"
                await gone(place, state)


async def test_a_plugins_host_that_is_killed_in_a_call_loses_its_hand_and_nothing_is_left(
    kind: PluginType, state: Path
) -> None:
    async with in_a_call(state) as (daemon, victims):
        with all_die(victims):
            os.kill(victims.host, signal.SIGKILL)
            while not (reply := await daemon.reply()).last:
                pass
            result = reply.execute.result
            assert result.outcome == pb.OUTCOME_LOST, result
            assert "may have partly happened" in result.content
        await daemon.kill()
    await kind.prepare()
    async with open_place(state, more={"it": kind}) as place:
        assert (await place.steps(CALL))[-1].result == result
        await gone(place, state)


async def test_a_plugins_call_goes_on_when_its_daemon_alone_is_killed_and_is_taken_up_again(
    kind: PluginType, state: Path
) -> None:
    async with in_a_call(state) as (daemon, victims):
        await daemon.kill()
        assert tree.find(victims.host) is not None
    await kind.prepare()
    async with open_place(state, more={"it": kind}) as place:
        call = place.begin(CALL)
        assert await call.output() == b"up\n"
        (folder(state) / "go").touch()
        result = await call.result()
        assert (result.outcome, result.content) == (pb.OUTCOME_OK, "worked ")
        assert await place.release("h")
        assert not (state / "hands" / "h").exists()
        assert tree.find(victims.host) is None
