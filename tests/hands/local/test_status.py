"""`carpal hand status`: the daemon itself says how it stands, with a link and without."""

import asyncio
import contextlib
import json
import signal
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import Unreachable
from carpal.identity import Role
from hands.local import asking
from tests.hands.fake_brain import FakeBrain, brain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.hands.test_cli import carpal
from tests.pki import Pki


async def ask(machine: Machine) -> dict[str, Any]:
    """How the daemon of a machine stands."""
    return await asyncio.to_thread(asking.ask, machine.files.folder)


async def until(machine: Machine, **facts: object) -> dict[str, Any]:
    """Until it says so; it may be starting."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(Unreachable):
                row = await ask(machine)
                if facts.items() <= row.items():
                    return row
            await asyncio.sleep(0.01)


async def test_a_linked_daemon_says_to_which_brain_and_since_when_and_the_command_succeeds(
    machine: Machine, one: FakeBrain
) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    async with machine.daemon():
        await (await one.link()).provision("h")
        row = await until(machine, state="linked", hands=1)
        assert before <= datetime.fromisoformat(row["since"]) <= datetime.now(UTC)
        assert (row["daemon_id"], row["brain"], row["address"]) == ("d", "brain-1", one.address)
        assert (row["types"], row["hands_max"], row["draining"]) == (["process"], 4, False)
        assert (row["reason"], row["why"], row["action"]) == (None, None, None)
        assert datetime.fromisoformat(row["certificate_expires"]) > datetime.now(UTC)
        ran = await asyncio.to_thread(carpal, "status", "--json", "--state-dir", str(machine.state))
        said = json.loads(ran.stdout)
        (there,) = said.pop("hands_there")
        assert (there["hand_id"], there["type"], there["calls"]) == ("h", "process", [])
        assert (said, ran.returncode) == (row, 0)
        ran = await asyncio.to_thread(carpal, "status", "--state-dir", str(machine.state))
        assert f"linked to brain-1 at {one.address} since {row['since']}" in ran.stdout
        assert ran.stdout.splitlines()[1:] == ["  h (process of s, idle)"]


async def test_a_daemon_without_a_link_says_since_when_and_why_and_the_command_does_not_succeed(
    machine: Machine, pki: Pki
) -> None:
    async with brain(pki, "brain-2") as other:
        machine.dials(other.address)
        running = machine.daemon()
        await running.__aenter__()
        await other.link()
        linked = await until(machine, state="linked")
    try:
        row = await until(machine, state="not linked", reason="UNREACHABLE")
        assert other.address in row["why"]
        assert row["brain"] is row["address"] is None
        assert row["since"] >= linked["since"]
        ran = await asyncio.to_thread(carpal, "status", "--state-dir", str(machine.state))
        assert ran.returncode == Unreachable.exit_code
        assert f"not linked since {row['since']}: the brain at {other.address}" in ran.stdout
    finally:
        await running.__aexit__(None, None, None)


async def test_a_daemon_whose_certificate_is_over_is_not_ready_and_says_so_l26(
    machine: Machine, pki: Pki
) -> None:
    now = datetime.now(UTC)
    pki.issue(
        Role.DAEMON,
        "d",
        directory=machine.files.identity_dir,
        not_before=now - timedelta(days=2),
        not_after=now - timedelta(days=1),
    )
    async with machine.daemon():
        row = await until(machine, reason="CERTIFICATE_EXPIRED")
    assert row["state"] == "not linked"
    assert datetime.fromisoformat(row["certificate_expires"]) < now


@pytest.mark.parametrize("how", ["never started", "ended", "killed"])
async def test_where_no_daemon_runs_the_command_says_so(
    machine: Machine, one: FakeBrain, how: str
) -> None:
    if how == "ended":
        async with machine.daemon():
            await one.link()
    elif how == "killed":
        async with machine.process():
            await one.link()
        assert (machine.files.folder / "socket").exists()
    with pytest.raises(Unreachable, match="no daemon runs"):
        await ask(machine)
    ran = await asyncio.to_thread(carpal, "status", "--json", "--state-dir", str(machine.state))
    assert (ran.returncode, "start it with `carpal hand run`" in ran.stderr) == (3, True)
    if how == "killed":
        async with machine.daemon():
            await until(machine, state="linked")


async def test_where_no_machine_is_enrolled_the_command_says_how_that_is_done(
    tmp_path: Path,
) -> None:
    with pytest.raises(Unreachable) as raised:
        await asyncio.to_thread(asking.ask, tmp_path / "hand", "/status")
    assert "carpal hand enroll" in raised.value.action


async def test_a_daemon_that_stands_still_is_not_waited_for(
    machine: Machine, one: FakeBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_LIMIT", 0.2)
    async with machine.process() as child:
        await one.link()
        child.process.send_signal(signal.SIGSTOP)
        with pytest.raises(Unreachable, match="does not answer within") as raised:
            await ask(machine)
        assert raised.value.exit_code == 3


async def test_it_answers_below_a_folder_of_any_length_and_to_its_user_alone(
    pki: Pki, tmp_path: Path, one: FakeBrain
) -> None:
    machine = Machine(pki, tmp_path / ("x" * 150))
    machine.dials(one.address)
    async with machine.daemon():
        row = await until(machine, state="linked")
        assert row["brain"] == "brain-1"
        assert (machine.files.folder / "socket").stat().st_mode & 0o077 == 0


async def test_a_disk_that_holds_no_sockets_costs_a_daemon_its_status_and_nothing_else(
    machine: Machine, one: FakeBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(socket.socket, "bind", refuses)
    async with machine.daemon():
        await one.link()
