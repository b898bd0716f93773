"""SIGTERM drains a daemon, a second one cuts that short, SIGHUP reloads; heartbeats go on."""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.identity import Role
from hands.local import asking
from tests.hands.fake_brain import HEARTBEAT, Asked, FakeBrain, brain
from tests.hands.local.test_status import ask, until
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.hands.place import until as happens
from tests.hands.test_relink import SlowToWelcome
from tests.pki import Pki

LONG = "3600"


async def _waits(machine: Machine, one: FakeBrain) -> tuple[Asked, "asyncio.Task[str]"]:
    """A call that runs until it is let go, and its outcome."""
    asked = await one.link()
    await asked.provision("h")
    machine.fifo()

    async def outcome() -> str:
        async for reply in asked.execute("h", "c", "echo begun; read x <go; echo done"):
            last = reply
        return str(last.execute.result.outcome)

    running = asyncio.create_task(outcome())
    async with asyncio.timeout(PATIENCE):
        while not await _calls(machine):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    return asked, running


async def _calls(machine: Machine) -> list[str]:
    hands = await asyncio.to_thread(asking.ask, machine.files.folder, "/hands")
    return [call for hand in hands["hands"] for call in hand["calls"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_end_it_takes_no_new_hands_and_waits_for_the_call_that_runs_as_it_beats_on(
    machine: Machine, one: FakeBrain, number: signal.Signals
) -> None:
    async with machine.process(CARPAL_STOP_WAIT=LONG) as child:
        asked, running = await _waits(machine, one)
        child.process.send_signal(number)
        row = await until(machine, draining=True)
        with pytest.raises(CarpalError, match="draining"):
            await asked.provision("h2")
        assert row["state"] == "linked"
        begun = len(one.beats)
        async with asyncio.timeout(PATIENCE):
            while len(one.beats) < begun + 4:  # noqa: ASYNC110 - they come
                await asyncio.sleep(HEARTBEAT)
        assert child.is_alive()
        await machine.let_go()
        async with asyncio.timeout(PATIENCE):
            assert await running == "1", "the result came over the link that drains"
            assert await child.process.wait() == 0


async def test_a_second_sigterm_cuts_the_wait_short_and_the_call_goes_on(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.process(CARPAL_STOP_WAIT=LONG) as child:
        _, running = await _waits(machine, one)
        child.process.terminate()
        await until(machine, draining=True)
        child.process.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await child.process.wait() == 0
    assert "Traceback" not in (machine.state / "daemon.log").read_text()
    await asyncio.wait({running})
    assert running.exception() is not None
    async with machine.process() as child:
        asked = await one.link()
        row = await until(machine, state="linked", hands=1)
        assert row["draining"] is False
        await machine.let_go()
        replies = asked.execute("h", "c", "echo begun; read x <go; echo done")
        async with asyncio.timeout(PATIENCE):
            *_, last = [reply async for reply in replies]
        assert "done" in last.execute.result.content


async def test_a_call_that_takes_longer_than_the_wait_goes_on_without_the_daemon(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.process(CARPAL_STOP_WAIT="0.2") as child:
        _, running = await _waits(machine, one)
        child.process.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await child.process.wait() == 0
    assert "calls go on without the daemon" in (machine.state / "daemon.log").read_text()
    await asyncio.wait({running})
    assert running.exception() is not None
    await machine.let_go()


async def test_sighup_takes_up_log_levels_and_the_certificate_on_disk_and_says_what_it_does_not(
    machine: Machine, one: FakeBrain, pki: Pki, tmp_path: Path
) -> None:
    config = tmp_path / "hand.toml"
    config.write_text('log_level = "error"\n')
    log = machine.state / "daemon.log"
    async with machine.process("--config", str(config)) as child:
        first = await one.link()
        await until(machine, state="linked")
        assert "linked" not in log.read_text(), "an info line"
        later = datetime.now(UTC) + timedelta(hours=30)
        pki.issue(Role.DAEMON, "d", pool="p", directory=machine.files.identity_dir, not_after=later)
        config.write_text('log_level = "info"\nhands_max = 9\n[log_levels]\n"carpal" = "debug"\n')
        child.process.send_signal(signal.SIGHUP)
        second = await one.link()
        assert second.link.identity.not_after > first.link.identity.not_after
        async with asyncio.timeout(PATIENCE):
            while "reloaded" not in log.read_text():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        said = log.read_text()
        assert "taken up at the next start" in said
        assert "hands_max" in said
        assert (await ask(machine))["hands_max"] == 64


async def test_settings_that_are_wrong_on_sighup_change_nothing_and_the_daemon_goes_on(
    machine: Machine, one: FakeBrain, tmp_path: Path
) -> None:
    config = tmp_path / "hand.toml"
    config.write_text("")
    log = machine.state / "daemon.log"
    async with machine.process("--config", str(config)) as child:
        await one.link()
        config.write_text('log_level = "loud"\n')
        os.kill(child.pid, signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while "settings not reloaded" not in log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert "use one of: debug, info, warning, error" in log.read_text()
        assert (await until(machine, state="linked"))["brain"] == "brain-1"


async def test_sighup_takes_up_the_owners_policy_and_keeps_it_when_the_file_is_wrong(
    machine: Machine, one: FakeBrain, tmp_path: Path
) -> None:
    policy, config = tmp_path / "policy.toml", tmp_path / "hand.toml"
    policy.write_text("")
    policy.chmod(0o600)
    config.write_text(f'policy = "{policy}"\n')
    log = machine.state / "daemon.log"
    async with machine.process("--config", str(config)) as child:
        await one.link()
        await until(machine, state="linked")
        for body, word in (('types = ["container"]\n', "reloaded"), ("types = 7\n", "types")):
            told = log.read_text().count(word)
            policy.write_text(body)
            child.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(PATIENCE):
                while log.read_text().count(word) == told:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
            if word == "reloaded":
                asked = await one.link()  # its hello says what is offered now
        with pytest.raises(CarpalError, match="types"):
            await asked.provision("h")


async def test_a_sighup_between_a_hello_and_its_welcome_is_taken_up_by_a_hello_after_it(
    machine: Machine, pki: Pki, tmp_path: Path
) -> None:
    policy, config = tmp_path / "policy.toml", tmp_path / "hand.toml"
    policy.write_text("")
    policy.chmod(0o600)
    config.write_text(f'policy = "{policy}"\n')
    log = machine.state / "daemon.log"
    async with brain(pki, "brain-1", kind=SlowToWelcome) as slow:
        assert isinstance(slow, SlowToWelcome)
        machine.dials(slow.address)
        async with machine.process("--config", str(config)) as child:
            await happens(lambda: slow.hellos, "no hello came")
            policy.write_text('types = ["container"]\n')
            child.process.send_signal(signal.SIGHUP)
            await happens(lambda: "reloaded" in log.read_text(), "nothing was reloaded")
            slow.may.set()
            first, second = await slow.link(), await slow.link()
            assert "process" in [each.type for each in first.link.hello.types]
            assert [each.type for each in second.link.hello.types] == ["container"]
            with pytest.raises(CarpalError, match="types"):
                await second.provision("h")
            assert slow.links.empty(), "it dialled again and again"
