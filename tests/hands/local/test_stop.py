"""`carpal hand stop` ends hands and all they started: without a link, and without a daemon."""

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest

from carpal.audit_files import AuditFiles
from carpal.errors import Unreachable
from carpal.hand_mark import mark
from carpal.v1 import hand_pb2 as pb
from hands.inside import tree
from tests.hands.fake_brain import Asked, FakeBrain, brain
from tests.hands.hand_server import Replaying, serving
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.test_cli import carpal
from tests.hands.test_service import provision, refused
from tests.pki import Pki

BUSY = "(setsid sleep 1000 &) ; touch began; sleep 1000"


async def stop(machine: Machine, *what: str) -> tuple[int, str]:
    """The command, as a person gives it."""
    ran = await asyncio.to_thread(carpal, "stop", *what, "--state-dir", str(machine.state))
    return ran.returncode, ran.stdout + ran.stderr


async def busy(machine: Machine, asked: Asked, hand_id: str) -> "asyncio.Task[pb.Result]":
    """A hand with a call under way that started more than itself."""
    await asked.provision(hand_id)
    call = asyncio.create_task(result(asked, hand_id))
    began = machine.files.hands / hand_id / "workspace/began"
    await until(began.exists, "the call does not begin")
    return call


async def result(asked: Asked, hand_id: str) -> pb.Result:
    found = pb.Result()
    async for reply in asked.execute(hand_id, "c", BUSY):
        if reply.execute.HasField("result"):
            found = reply.execute.result
    return found


def left(machine: Machine) -> list[object]:
    """Processes of hands."""
    marks = [mark(folder).encode() for folder in machine.files.hands.iterdir()]
    return [each for one in marks for each in tree._marked(one)]


def interrupted(found: pb.Result) -> None:
    assert found.outcome == pb.OUTCOME_INTERRUPTED
    assert "the machine's owner stopped its hand" in found.content
    assert "may have partly happened" in found.content


async def test_stop_all_kills_every_hand_and_its_calls_trees_and_the_brain_hears_it(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        calls = [await busy(machine, asked, hand_id) for hand_id in ("h1", "h2")]
        code, said = await stop(machine, "--all")
        assert (code, said) == (0, "h1: stopped\nh2: stopped\n2 stopped\n")
        for call in calls:
            interrupted(await call)
        assert not left(machine)
        error = await refused(asked.ask(execute=asked.call("h1", "c2", "true")))
        assert error.reason == "HAND_GONE"
        assert "the machine's owner stopped it" in error.message
        assert (await asked.provision("h3")).boot_id


async def test_stop_of_one_hand_leaves_the_others(machine: Machine, one: FakeBrain) -> None:
    async with machine.daemon():
        asked = await one.link()
        for hand_id in ("h1", "h2"):
            await asked.provision(hand_id)
        assert (await stop(machine, "h1"))[0] == 0
        ran = [each async for each in asked.execute("h2", "c", "echo on")]
        assert ran[-1].execute.result.content == "on\n"
        code, said = await stop(machine, "h9")
        assert code == 5
        assert "no hand 'h9' runs here: see `carpal hand status`" in said


async def test_stop_all_works_without_the_link_and_the_brain_hears_it_when_linked(
    machine: Machine, pki: Pki, one: FakeBrain
) -> None:
    async with brain(pki, "brain-2") as other:
        machine.dials(other.address)
        running = machine.daemon()
        await running.__aenter__()
        call = await busy(machine, await other.link(), "h1")
        call.cancel()
    try:
        assert (await stop(machine, "--all"))[0] == 0
        assert not left(machine)
    finally:
        await running.__aexit__(None, None, None)
    machine.dials(one.address)
    one.epoch = 10  # above the other's
    async with machine.daemon():
        interrupted(await result(await one.link(), "h1"))


async def test_stop_all_works_without_a_daemon_on_the_hands_that_outlived_it(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.process():
        call = await busy(machine, await one.link(), "h1")
    call.cancel()
    assert left(machine)
    code, said = await stop(machine, "--all")
    assert code == 0
    assert "h1: stopped\n1 stopped; no daemon runs here: they had outlived it" in said
    assert not left(machine)
    async with machine.daemon():
        interrupted(await result(await one.link(), "h1"))
    assert AuditFiles(machine.files.folder).verify()[1] == []


@pytest.mark.slow
async def test_stop_all_works_around_a_daemon_that_hangs(machine: Machine, one: FakeBrain) -> None:
    async with machine.process() as child:
        asked = await one.link()
        call = await busy(machine, asked, "h1")
        child.process.send_signal(signal.SIGSTOP)
        code, said = await stop(machine, "--all")
        assert code == 0
        assert "the daemon does not answer" in said
        assert not left(machine)
        call.cancel()  # its link was silent for too long
        child.process.send_signal(signal.SIGCONT)
        again = await one.link()
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(Unreachable):  # it is just being ended
                    found = await result(again, "h1")
                    # Which, depends on whether it still reads what it was asked.
                    assert found.outcome in (pb.OUTCOME_LOST, pb.OUTCOME_INTERRUPTED)
                    return
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_hand_of_a_server_of_its_own_is_stopped_too_without_a_daemon_that_answers(
    machine: Machine, one: FakeBrain, tmp_path: Path, *, hangs: bool
) -> None:
    at, config = tmp_path / "hand.sock", tmp_path / "hand.toml"
    config.write_text(f'[sockets]\necho = "{at}"\n')
    server = Replaying()
    async with serving(at, server):
        async with machine.process("--config", str(config)) as child:
            asked = await one.link()
            order = pb.ProvisionRequest(driver=asked.driver, hand_id="h", type="echo")
            await asked.ask(provision=order)
            assert list(server.hands) == ["h"]
            child.process.send_signal(signal.SIGSTOP if hangs else signal.SIGKILL)
            if not hangs:
                await child.process.wait()
            code, said = await stop(machine, "--all", "--config", str(config))
        assert code == 0, said
        assert "h: stopped" in said.splitlines()
        assert not server.hands


async def test_where_nothing_ever_was_stop_says_so(tmp_path: Path) -> None:
    ran = await asyncio.to_thread(carpal, "stop", "--all", "--state-dir", str(tmp_path / "no"))
    assert ran.returncode == 3
    assert "there is no daemon in" in ran.stderr
    ran = await asyncio.to_thread(carpal, "stop", "--state-dir", str(tmp_path))
    assert ran.returncode == 2
    assert "give HAND_ID, or --all" in ran.stderr


async def test_a_call_in_line_at_a_stop_did_not_start_and_a_release_after_it_leaves_nothing(
    place: Place,
) -> None:
    hand_id = await place.hand()
    first = place.begin(place.request(hand_id, command="touch began; sleep 1000"))
    folder = place.inventory.folder_of(hand_id)
    await until((folder / "workspace/began").exists, "it does not begin")
    second = place.begin(place.request(hand_id, command="true"))
    await asyncio.sleep(0)
    assert await place.inventory.stop([hand_id]) == []
    interrupted(await first.result())
    assert (await second.result()).outcome == pb.OUTCOME_CANCELLED
    assert "before it started" in (await second.result()).content
    assert folder.exists(), "it is the session's"
    assert await place.release(hand_id)
    assert not folder.exists()


async def test_a_hand_that_is_being_made_at_a_stop_does_not_come_to_be(tmp_path: Path) -> None:
    async with open_place(tmp_path / "state") as place:
        making = asyncio.create_task(place.provision(provision(place, "h")))
        await until(lambda: "h" in place.inventory.making, "it is not being made")
        await place.inventory.stop(["h"])
        assert (await refused(making)).reason == "HAND_GONE"
        assert place.inventory.count == 0
        request = place.request("h", command="true")
        error = await refused(place.execute(request))
        assert error.reason == "HAND_GONE"


async def test_a_stop_and_a_release_at_once_end_it_once(place: Place) -> None:
    hand_id = await place.hand()
    await asyncio.gather(place.inventory.stop([hand_id]), place.release(hand_id))
    row = place.journal.hand(hand_id)
    assert row is not None
    assert row.state == "released"


async def test_an_owner_whose_settings_file_is_wrong_stops_hands_all_the_same(
    machine: Machine, one: FakeBrain, tmp_path: Path
) -> None:
    wrong = tmp_path / "hand.toml"
    wrong.write_text("policy = 3\n")
    async with machine.process():
        await (await one.link()).provision("h")
        code, said = await stop(machine, "--all", "--config", str(wrong))
    assert code == 0, said
    assert f"{wrong}: policy: expected `str`, got `int`" in said
    assert f"without it, on {machine.state}" in said
    assert "h: stopped" in said
