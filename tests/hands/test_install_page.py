"""The page on installing a daemon is followed, command by command, from a token to its end."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from tests.command import ROOT, Command
from tests.pace import SCALE
from tests.world import world

PAGE = (ROOT / "docs/how-to/install-a-daemon.md").read_text()


def blocks(language: str) -> list[str]:
    """Those of one language, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [text for each, text in found if each == language]


def commands() -> list[list[str]]:
    """Every `carpal` command of the page that stands by itself, in order."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("carpal ")]


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    state, machine = tmp_path / "state", tmp_path / "machine"
    units = tmp_path / "units"
    async with world(state) as it:
        await it.running["daemon"].kill()
        operator = Command(
            tmp_path,
            {
                "CARPAL_STATE": str(state),
                "CARPAL_SESSIOND": it.running["sessiond"].facts["address"],
                "CARPAL_VAULT": it.running["vault"].facts["address"],
            },
        )
        there = Command(tmp_path, {"CARPAL_STATE": str(machine), "CARPAL_SANDBOX": "off"})
        token, enroll, doctor, install, status, run, install_as, uninstall = commands()

        made = await operator(*token)
        assert (made.code, made.stdout.count("\n")) == (0, 1), made.stderr
        assert made.stdout.startswith("carpal1.")
        assert "carpal hand enroll --token-file -" in made.stderr

        enrolled = await there(*enroll, stdin=made.stdout)
        assert enrolled.code == 0, enrolled.stderr
        assert "enrolled as spiffe://carpal.internal/daemon/build-1" in enrolled.stdout
        assert "next: carpal hand doctor" in enrolled.stdout

        looked = await there(*doctor)
        assert looked.code == 0, looked.stdout

        installed = await there(*install, "--unit-dir", str(units))
        assert installed.code == 0, installed.stderr
        assert "next: boot it with systemd, or run it here: carpal hand run" in installed.stdout

        async with there.start("hand", "run"), asyncio.timeout(60 * SCALE):
            while (told := await there(*status)).code:
                assert "Traceback" not in told.stderr
            assert "daemon build-1: linked to b1" in told.stdout
            listed = await operator("fleet", "ls")
            assert "build-1" in listed.stdout
            ran = await operator(*run)
            assert ran.code == 0, ran.stderr
            refused = await there(*install_as, "--dry-run")
            assert "no user 'carpal'" in refused.stderr
            again = await there(*uninstall, "--now", "--unit-dir", str(units))
        assert again.code == 0, again.stdout + again.stderr
        assert "drained" in again.stdout
        assert "revoked the identity of build-1" in again.stdout
        assert not machine.exists()
        assert not list(units.iterdir())


async def test_the_brain_that_others_reach_is_started_by_commands_that_are_there(
    tmp_path: Path,
) -> None:
    command = Command(tmp_path)
    (block,) = blocks("sh")
    for line in block.splitlines():
        _, *words = shlex.split(line)
        ended = await command(*words[:2], "--help")
        assert ended.code == 0, line
        assert all(each in ended.stdout for each in words if each.startswith("--")), line
