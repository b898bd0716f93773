"""`carpal hand doctor` as people and scripts run it: before enrolling, as root and as anyone."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hands.commands.doctor import parse_hold
from hands.journal import Journal
from tests.command import Command
from tests.hands.doctor.conftest import Lone, Patient
from tests.hands.hand_server import Least, serving
from tests.hands.local.test_status import until as linked
from tests.pace import SCALE

_ROOT = Path(__file__).resolve().parents[3]
PAGE = _ROOT / "docs/reference/daemon.md"
_USER = 720_000 + os.getpid() % 10_000
"""One that no machine has."""
_NO_USERNS = (
    "echo 0 >/proc/sys/user/max_user_namespaces && "
    "setpriv --ambient-caps=-all --inh-caps=-all {look} >{out}/before; "
    "{cure} && setpriv --ambient-caps=-all --inh-caps=-all {look} >{out}/after; true"
)


def rows_of(text: str) -> dict[str, dict[str, Any]]:
    """What `--json` said, by target."""
    rows = [json.loads(line) for line in text.splitlines()]
    assert all(list(row) == ["target", "verdict", "detail", "action"] for row in rows)
    assert {row["verdict"] for row in rows} <= {"ok", "warn", "fail", "skip"}
    return {row["target"]: row for row in rows}


async def test_before_enrolling_it_says_what_is_next_and_succeeds(tmp_path: Path) -> None:
    command, state = Command(tmp_path, {"CARPAL_SANDBOX": "off"}), tmp_path / "state"
    ran = await command("hand", "doctor", "--json", "--state-dir", str(state))
    rows = rows_of(ran.stdout)
    assert (ran.code, ran.stderr) == (0, ""), ran.stdout
    assert rows["enrolment"]["verdict"] == "warn"
    assert rows["next"]["action"].startswith("carpal hand enroll --token-file")
    assert not state.exists()


async def test_what_failed_makes_the_exit_code_and_is_said_with_what_to_do(
    tmp_path: Path, lone: Lone
) -> None:
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    lone.has_identity_of(timedelta(days=40))
    ran = await command("hand", "doctor", "--state-dir", str(lone.state))
    assert ran.code == 1
    assert "fail  certificate: valid from" in ran.stdout
    assert "→ enrol anew" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    given = tmp_path / "hand.toml"
    given.write_text("hand_max = 3")
    ran = await command("hand", "doctor", "--json", "--config", str(given))
    assert (ran.code, rows_of(ran.stdout)["settings"]["verdict"]) == (1, "fail")


async def test_a_machine_that_is_linked_makes_it_succeed(tmp_path: Path, patient: Patient) -> None:
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    async with patient.daemon():
        await patient.brain.link()
        await linked(patient, state="linked")
        ran = await command(
            *("hand", "doctor", "--json", "--hold", "1s", "--state-dir", str(patient.state))
        )
    assert ran.code == 0, ran.stdout
    rows = rows_of(ran.stdout)
    assert rows["daemon"]["verdict"] == "ok"
    assert rows[f"stream {patient.brain.address}"]["verdict"] == "ok"
    assert list(rows)[-1] == "next"
    said = {re.sub(r" [\d.]+$", " HOST", re.sub(r" [\d.]+:\d+$", " H:P", each)) for each in rows}
    said = {"type NAME" if each.startswith("type ") else each for each in said}
    table = PAGE.read_text().partition("| target | what is looked at |")[2].partition("\n\n")[0]
    listed = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    assert said - {"next"} == set(listed) - {"policy names"}, "and on the page"


async def test_settings_are_those_that_the_daemon_which_runs_goes_by_and_their_sockets_have_rows(
    tmp_path: Path, patient: Patient
) -> None:
    at, given = tmp_path / "echo.sock", tmp_path / "hand.toml"
    given.write_text(f'[sockets]\necho = "{at}"\n')
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    look = ("hand", "doctor", "--json", "--state-dir", str(patient.state))
    async with serving(at, Least()), patient.process("--config", str(given)):
        await patient.brain.link()
        await linked(patient, state="linked")
        rows = rows_of((await command(*look)).stdout)
        assert rows["settings"]["detail"].startswith(f"read from {given}, by which the daemon goes")
        assert rows["type echo"]["verdict"] == "ok"
        other = tmp_path / "other.toml"
        other.write_text("")
        rows = rows_of((await command(*look, "--config", str(other))).stdout)
        assert rows["settings"]["detail"] == f"read from {other}"
    rows = rows_of((await command(*look)).stdout)
    assert "type echo" not in rows
    assert "for a daemon of another file give --config" in rows["settings"]["detail"]


@pytest.mark.parametrize("text", ["75", "s", "-1s", "1h", "61m", "7.5s"])
async def test_a_time_to_hold_that_is_none_is_refused(text: str) -> None:
    from carpal.errors import BadInput

    with pytest.raises(BadInput, match="--hold"):
        parse_hold(text)
    assert [parse_hold(each) for each in ("75s", "5m", "60m")] == [75.0, 300.0, 3600.0]


@pytest.fixture
def theirs(lone: Lone) -> Iterator[Path]:
    """The state folder of an ordinary user's daemon."""
    with tempfile.TemporaryDirectory(prefix="carpal-user-", dir="/tmp") as name:
        state = Path(name) / "state"
        with closing(Journal(lone.files.journal, "d")):  # as a daemon has it that runs
            shutil.copytree(lone.state, state)
        (state / "hand" / "journal.db-shm").unlink()
        if os.geteuid() == 0:
            for path in (Path(name), state, *state.rglob("*")):
                os.chown(path, _USER, _USER)
        yield state


def test_an_ordinary_user_is_told_of_its_own_daemon_and_of_no_other(
    theirs: Path, lone: Lone
) -> None:
    rows = _as_anyone(theirs)
    assert rows["user"]["verdict"] == rows["files"]["verdict"] == "ok", rows
    assert rows["identity"]["verdict"] == rows["journal"]["verdict"] == "ok"
    if os.geteuid() == 0:
        rows = _as_anyone(lone.state)
        assert rows["user"]["verdict"] == "fail"
        assert "root" in rows["user"]["action"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user's daemon to look at")
async def test_root_is_told_whose_daemon_it_looks_at_and_leaves_nothing_of_its_own(
    theirs: Path, tmp_path: Path
) -> None:
    command = Command(tmp_path, {"CARPAL_SANDBOX": "off"})
    ran = await command("hand", "doctor", "--json", "--state-dir", str(theirs))
    rows = rows_of(ran.stdout)
    assert (rows["user"]["verdict"], rows["files"]["verdict"]) == ("warn", "ok")
    assert rows["journal"]["verdict"] == "ok"
    assert f"sudo -u {_USER}" in rows["user"]["action"]
    assert {path.stat().st_uid for path in theirs.rglob("*")} == {_USER}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a user's namespaces away")
@pytest.mark.slow
def test_where_there_are_no_user_namespaces_it_says_the_command_and_that_cures_it(
    theirs: Path,
) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    out = theirs.parent
    look = " ".join(_doctor(theirs))
    cure = "sysctl -qw user.max_user_namespaces=10000"
    script = _NO_USERNS.format(look=look, out=out, cure=cure)
    line = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", script]
    _run(line, {**_environ(theirs), "CARPAL_SANDBOX": "required"})
    before = rows_of((out / "before").read_text())["sandbox"]
    assert before["verdict"] == "fail", before
    assert "sysctl -w user.max_user_namespaces=10000" in before["action"]
    after = rows_of((out / "after").read_text())["sandbox"]
    assert after["verdict"] == "ok", after


def _as_anyone(state: Path) -> dict[str, dict[str, Any]]:
    return rows_of(_run(_doctor(state), _environ(state)))


def _doctor(state: Path) -> list[str]:
    return [_python(), "-m", "carpal", "hand", "doctor", "--json", "--state-dir", str(state)]


def _environ(state: Path) -> dict[str, str]:
    metadata = Command(state.parent).environ["PYTHONPATH"].split(os.pathsep)
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CARPAL_SANDBOX": "off",
        "PYTHONPATH": os.pathsep.join([*metadata, sysconfig.get_path("purelib")]),
    }


def _run(line: Sequence[str], environ: dict[str, str]) -> str:
    user = ["setpriv", "--reuid", str(_USER), "--regid", str(_USER), "--clear-groups", "env"]
    ran = subprocess.run(
        [*(user if os.geteuid() == 0 else []), *line],
        cwd=_ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=50 * SCALE,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout


def _python() -> str:
    """One that another user can start: ours may be in a folder of root's."""
    if os.geteuid() != 0:
        return sys.executable
    plain = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for each in (sys.executable, shutil.which(plain, path="/usr/local/bin:/usr/bin")):
        if each:
            line = ["setpriv", "--reuid", str(_USER), "--clear-groups", "env", each, "-c", ""]
            if not subprocess.run(line, capture_output=True, check=False).returncode:
                return each
    pytest.skip(f"no {plain} here that another user may start")
