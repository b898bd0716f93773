"""What the owner gives: a policy file at the daemon's start, and the commands of the audit."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from hands.files import HandFiles
from hands.owner.audit import Audit
from tests.hands.fake_brain import FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.hands.test_cli import carpal
from tests.hands.test_service import refused


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with an audit of three lines."""
    folder = HandFiles(tmp_path).folder
    folder.mkdir(parents=True)
    audit = Audit(folder)
    for number in range(3):
        audit.write("call", call=f"c{number}", tool="bash", sha256="0" * 64)
    audit.close()
    return tmp_path


def audit(state: Path, *what: str) -> tuple[int, list[str]]:
    ran = carpal("audit", *what, "--state-dir", str(state))
    return ran.returncode, (ran.stdout + ran.stderr).splitlines()


def test_audit_verify_says_that_all_holds_and_the_head_to_note(state: Path) -> None:
    code, (line,) = audit(state, "verify")
    assert code == 0
    words, _, head = line.partition("; head ")
    assert words == "3 lines, all holds"
    assert audit(state, "verify", "--head", head)[0] == 0
    code, lines = audit(state, "verify", "--head", f"2:{'0' * 64}")
    assert (code, lines[0]) == (1, "the head that was given: has another hash for line 2")
    assert audit(state, "verify", "--head", "x")[0] == 2


def test_audit_verify_names_the_file_and_the_line_that_is_wrong(state: Path) -> None:
    log = HandFiles(state).folder / "audit.log"
    log.write_text(log.read_text().replace('"c1"', '"c9"'))
    code, lines = audit(state, "verify")
    assert code == 1
    assert lines[0] == "audit.log, line 2: was changed, or the one before it was"


def test_audit_tail_shows_the_last_lines(state: Path) -> None:
    code, lines = audit(state, "tail", "-n", "2")
    assert code == 0
    assert [line.split(maxsplit=2)[0] for line in lines] == ["2", "3"]
    assert lines[1].endswith('call call="c2" tool="bash"')
    assert json.loads(audit(state, "tail", "-n", "1", "--json")[1][0])["call"] == "c2"


async def test_a_wrong_policy_file_at_the_start_ends_the_daemon_with_2_and_the_reason(
    machine: Machine, tmp_path: Path
) -> None:
    file, config = tmp_path / "policy.toml", tmp_path / "hand.toml"
    config.write_text(f'policy = "{file}"\n')
    for text, says in (("\ntypo = 1\n", f"{file}, line 2: typo: no such key"), (None, "no such")):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        given = ("run", "--state-dir", str(machine.state), "--config", str(config))
        ran = await asyncio.to_thread(carpal, *given)
        assert ran.returncode == 2
        assert says in ran.stderr


async def test_on_sighup_the_policy_is_read_again_and_a_wrong_one_changes_nothing(
    machine: Machine, one: FakeBrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    monkeypatch.setenv("CARPAL_POLICY", str(file))
    async with machine.process() as child:
        await (await one.link()).provision("h1")
        file.write_text("types = []")
        child.process.send_signal(signal.SIGHUP)
        asked = await one.link()  # it says in its hello what it offers
        for number, text in enumerate(("types = []", "types = 3")):
            file.write_text(text)
            child.process.send_signal(signal.SIGHUP)
            await _logged(machine, "reloaded", number + 1)
            error = await refused(asked.provision(f"h2-{number}"))
            assert (error.reason, error.fields["rule"]) == ("POLICY_FORBIDS", "types")
            error = await refused(asked.ask(execute=asked.call("h1", f"c{number}", "true")))
            assert (error.reason, error.fields["file"]) == ("POLICY_FORBIDS", str(file))
    assert one.links.empty(), "nothing that a hello says has changed"
    assert f"{file}, line 1: types" in (machine.state / "daemon.log").read_text()


@pytest.mark.parametrize("wrong", ["settings", "policy"])
async def test_on_sighup_a_wrong_file_keeps_no_other_from_being_read_and_is_said(
    machine: Machine, one: FakeBrain, tmp_path: Path, wrong: str
) -> None:
    policy, config = tmp_path / "policy.toml", tmp_path / "hand.toml"
    policy.write_text("")
    config.write_text(f'policy = "{policy}"\n')
    async with machine.process("--config", str(config)) as child:
        asked = await one.link()
        await asked.provision("before")  # it knows that it is linked
        if wrong == "settings":
            config.write_text("typo = 1\n")
            policy.write_text('workspaces = ["another"]\n')
        else:
            config.write_text(f'policy = "{policy}"\nlog_level = "warning"\n')
            policy.write_text("typo = 1\n")
        child.process.send_signal(signal.SIGHUP)
        await _logged(machine, "reloaded but for what is said above")
        log = (machine.state / "daemon.log").read_text()
        assert ("settings not reloaded" in log) == (wrong == "settings")
        if wrong == "settings":
            assert (await refused(asked.provision("h"))).fields["rule"] == "workspaces"
        else:
            assert f"{policy}, line 1: typo" in log
            await asked.provision("h")
        assert one.links.empty(), "neither the identity nor what is offered has changed"


async def test_names_that_no_type_here_has_are_said_when_a_policy_comes_into_force(
    machine: Machine, one: FakeBrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('tools = ["process/bash", "process/bsh"]\n')
    monkeypatch.setenv("CARPAL_POLICY", str(file))
    said = "names what no hand type here has"
    async with machine.process() as child:
        await one.link()
        (line,) = await _logged(machine, said)
        assert "tools: process/bsh" in line
        assert "tools: process/bash" not in line
        file.write_text('types = ["process", "fone"]\n')
        child.process.send_signal(signal.SIGHUP)
        assert "types: fone" in (await _logged(machine, said, 2))[1]


async def _logged(machine: Machine, words: str, times: int = 1) -> list[str]:
    """The lines of the daemon's log with these words, once there are as many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            log = (machine.state / "daemon.log").read_text().splitlines()
            if len(found := [line for line in log if words in line]) >= times:
                return found
            await asyncio.sleep(0.02)


async def test_a_daemon_writes_its_start_and_every_call_to_its_audit(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        async for _ in asked.execute("h", "c", "true"):
            pass
        code, lines = await asyncio.to_thread(audit, machine.state, "tail")
        assert code == 0
    whats = [line.split()[2] for line in lines]
    assert whats == ["started", "provision", "provisioned", "call", "ended"]
    assert (await asyncio.to_thread(audit, machine.state, "verify"))[0] == 0
