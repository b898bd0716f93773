"""`carpal hand uninstall` drains, revokes and removes; cut short it may be repeated."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.config import SYSTEM_DIR
from carpal.errors import CarpalError
from carpal.hand_mark import mark
from hands.app import HandConfig
from hands.enroll import Links, enroll, links_path
from hands.inside import tree
from hands.life import folders
from hands.systemd import unit
from hands.systemd.systemctl import Systemd
from hands.systemd.uninstall import Uninstall
from tests.hands.fake_brain import FakeBrain
from tests.hands.local.test_status import until
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.hands.systemd.test_install import told
from tests.hands.test_cli import carpal
from tests.trust import Trust, trust


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "trust") as served:
        yield served


async def uninstall(machine: Machine, *more: str) -> subprocess.CompletedProcess[str]:
    """The command, with its unit in a folder of the test's."""
    where = ("--unit-dir", str(machine.state.parent / "units"), "--state-dir", str(machine.state))
    return await asyncio.to_thread(carpal, "uninstall", *more, *where)


def _installed(machine: Machine) -> Path:
    units = machine.state.parent / "units"
    (units / f"{unit.NAME}.d").mkdir(parents=True)
    (units / unit.NAME).write_text("[Service]\n")
    (units / f"{unit.NAME}.d" / "strict.conf").write_text("[Service]\n")
    return units


@asynccontextmanager
async def _running(machine: Machine) -> AsyncIterator[None]:
    async with machine.process(CARPAL_STOP_WAIT="0", CARPAL_SANDBOX="off"):
        yield


async def test_without_yes_it_says_what_would_be_gone_and_does_nothing(machine: Machine) -> None:
    ran = await uninstall(machine)
    assert ran.returncode == 2
    assert "would be drained, revoked and removed: give --yes" in ran.stderr
    assert machine.files.identity.exists()


async def test_hands_that_are_left_keep_everything_and_with_now_they_are_ended_and_all_is_removed(
    machine: Machine, one: FakeBrain
) -> None:
    """Nobody serves its enrolment port: it says that the identity was not revoked."""
    units = _installed(machine)
    async with _running(machine):
        await (await one.link()).provision("h")
        ran = await uninstall(machine, "--yes", "--timeout", "1s")
        assert ran.returncode == 3, ran.stdout
        assert "1 left: h (process of s, idle)" in ran.stdout
        assert "hands are left, so nothing was removed" in ran.stderr
        assert machine.files.identity.exists()
        row = await until(machine, state="linked", draining=True)

        ran = await uninstall(machine, "--yes", "--now")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    steps = [
        "drained: no new hands are taken",
        f"stopped the daemon that ran as process {row['pid']}",
        "ended hand h",
        "identity NOT revoked: ",
        "its key is removed here; an operator must: carpal fleet revoke d",
        f"removed {machine.files.folder}",
        f"removed {units / unit.NAME}.d/strict.conf",
        f"removed {units / unit.NAME}",
    ]
    places = [ran.stdout.find(step) for step in steps]
    assert -1 not in places, ran.stdout
    assert places == sorted(places)
    assert [path.name for path in machine.state.iterdir()] == ["daemon.log"]
    assert not list(units.iterdir())
    assert tree.kill_marked(mark(machine.files.hands / "h")) == 0, "nothing of the hand runs"

    again = await uninstall(machine, "--yes")
    assert again.returncode == 0, again.stderr
    assert "not drained: no daemon runs" in again.stdout
    assert "removed" not in again.stdout
    assert again.stdout.endswith("done; what is left: Carpal itself\n") or SYSTEM_DIR.exists()

    (machine.state / "daemon.log").unlink()
    last = await uninstall(machine, "--yes")
    assert f"removed {machine.state}, which was empty" in last.stdout
    assert not machine.state.exists()


async def test_hands_left_by_a_daemon_that_ended_are_not_forgotten(
    machine: Machine, one: FakeBrain
) -> None:
    async with _running(machine):
        await (await one.link()).provision("h")
    ran = await uninstall(machine, "--yes")
    assert ran.returncode == 3, ran.stdout
    assert "1 hands are left without a daemon, so nothing was removed" in ran.stderr
    assert machine.files.identity.exists()


async def test_a_refusal_leaves_the_unit_enabled_and_the_end_stops_it_before_it_is_disabled(
    machine: Machine, one: FakeBrain, systemd: Systemd, tmp_path: Path
) -> None:
    units, said = _installed(machine), list[str]()
    async with _running(machine):
        await (await one.link()).provision("h")
    config = HandConfig(state_dir=machine.state, sandbox="off")
    work = Uninstall(config, units, systemd, said.append)
    with pytest.raises(CarpalError, match="1 hands are left without a daemon"):
        await asyncio.to_thread(work.run, 1.0, now=False)
    assert not (tmp_path / "told").exists(), "systemd was told something"
    assert (units / unit.NAME).exists()
    assert machine.files.identity.exists()

    await asyncio.to_thread(work.run, 1.0, now=True)
    assert told(tmp_path) == [f"stop {unit.NAME}", f"disable {unit.NAME}", "daemon-reload"]
    assert said.index(f"disabled {unit.NAME}") < said.index(f"removed {units / unit.NAME}")


async def test_cut_short_at_its_last_step_it_has_left_no_key_and_again_it_finds_its_state(
    machine: Machine, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state folder is not the usual one: only the unit tells where it is."""
    units, removed = _installed(machine), folders.remove
    config = HandConfig(state_dir=machine.state, sandbox="off")

    def cut(folder: Path) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(folders, "remove", cut)
    with pytest.raises(OSError, match="the disk is gone"):
        await asyncio.to_thread(Uninstall(config, units, systemd, print).run, 1.0, now=True)
    assert (units / unit.NAME).exists(), "it tells where the rest is"
    monkeypatch.setattr(folders, "remove", removed)
    await asyncio.to_thread(Uninstall(config, units, systemd, print).run, 1.0, now=True)
    assert not machine.files.identity.exists()
    assert not (units / unit.NAME).exists()


async def test_its_identity_is_revoked_at_the_vault_and_the_machine_is_known_no_more(
    domain: Trust, tmp_path: Path
) -> None:
    state = tmp_path / "machine"
    folder = state / "hand" / "identity"
    enrolled = await enroll(await domain.token("build-1"), folder)
    back = tmp_path / "back" / "hand" / "identity"
    shutil.copytree(folder, back)  # what a thief would have
    async with asyncio.timeout(PATIENCE):
        ran = await asyncio.to_thread(
            carpal, "uninstall", "--yes", "--unit-dir", str(tmp_path), "--state-dir", str(state)
        )
    assert ran.returncode == 0, ran.stderr
    assert "revoked the identity of build-1" in ran.stdout
    assert not state.exists()
    Links(enrolled.links.brains, enrolled.links.enrollment).save(links_path(back))
    said = await asyncio.to_thread(carpal, "diagnose", "--state-dir", str(tmp_path / "back"))
    assert "IDENTITY_REVOKED" in said.stdout
