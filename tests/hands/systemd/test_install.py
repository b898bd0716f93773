"""`carpal hand install` makes the daemon a service: a unit that systemd takes, started where it
runs."""

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.errors import BadInput, CarpalError
from carpal.identity import Role
from carpal.process import interpreter
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.commands.options import settings_of
from hands.doctor import settings as doctor_settings
from hands.files import HandFiles
from hands.local import server
from hands.local.http import Answer
from hands.systemd import install as work
from hands.systemd import noted, unit
from hands.systemd.systemctl import Systemd
from hands.systemd.unit import Unit
from tests.hands.fake_brain import FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, Place
from tests.hands.test_cli import carpal
from tests.hands.test_service import provision, refused
from tests.pki import Pki


def settings(text: str) -> dict[str, str]:
    """The keys of a unit's file."""
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def verify(folder: Path) -> str:
    """What `systemd-analyze verify` has against the unit there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, of Debian's systemd")
    ran = subprocess.run(
        ["systemd-analyze", "verify", str(folder / unit.NAME)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    # One of a newer systemd than may be here: an older one gets a unit without it.
    lines = [line for line in ran.stderr.splitlines() if "DelegateSubgroup" not in line]
    return "\n".join([*lines, *([f"exit code {ran.returncode}"] if ran.returncode else [])])


@pytest.mark.parametrize("systemd", [252, 257])
@pytest.mark.parametrize("user", ["", "daemon"])
def test_systemd_has_nothing_against_the_unit_and_its_strict_drop_in(
    tmp_path: Path, user: str, systemd: int
) -> None:
    made = Unit((sys.executable, "-m", "carpal"), Path("/srv/my state"), user=user, systemd=systemd)
    (tmp_path / unit.NAME).write_text(unit.text(made))
    more = tmp_path / f"{unit.NAME}.d"
    more.mkdir()
    (more / "strict.conf").write_text(unit.strict(made))
    assert verify(tmp_path) == ""
    (more / "other.conf").write_text("[Service]\nProtectSytem=strict\n")
    assert "Unknown key 'ProtectSytem'" in verify(tmp_path), "it does look at drop-ins"


def test_the_unit_says_what_the_daemon_needs_of_it() -> None:
    said = settings(unit.text(Unit(("/opt/carpal/bin/carpal",), user="carpal", stop_wait=20.5)))
    assert said["Type"] == "notify"
    assert said["ExecStart"] == "/opt/carpal/bin/carpal hand run --state-dir /var/lib/carpal"
    assert said["RestartPreventExitStatus"] == "2 4 78"
    assert said["KillMode"] == "process"
    assert said["WatchdogSec"] == "30"
    assert said["TimeoutStopSec"] == "51"
    assert (said["StateDirectory"], said["RuntimeDirectory"]) == ("carpal", "carpal")
    assert said["LoadCredential"] == "token:/etc/carpal/token"
    assert said["Environment"] == "GRPC_ENABLE_FORK_SUPPORT=0"
    assert said["User"] == "carpal"
    assert (said["Restart"], said["RestartSec"]) == ("always", "5")
    assert said["StartLimitIntervalSec"] == "0", "for ever"
    assert said["StateDirectoryMode"] == said["RuntimeDirectoryMode"] == "0700"
    assert said["DelegateSubgroup"] == "carpald"


def test_words_that_systemd_would_read_otherwise_reach_the_daemon_as_they_are() -> None:
    odd = Unit(("/bin/carpal",), Path('/srv/50% "$HOME" x'), config=Path("/etc/a;b.toml"))
    start = settings(unit.text(odd))["ExecStart"]
    assert r'"/srv/50%% \"$$HOME\" x"' in start
    assert '"/etc/a;b.toml"' in start
    assert "StateDirectory" not in settings(unit.text(odd))


def test_the_strict_drop_in_leaves_the_sandbox_what_it_needs() -> None:
    """With RestrictSUIDSGID there is no openat2(), without which that of Debian 13 makes none."""
    said = settings(unit.strict(Unit(("/bin/carpal",))))
    assert said["NoNewPrivileges"] == "yes"
    assert not {"RestrictSUIDSGID", "RestrictNamespaces", "ProtectProc"} & said.keys()


@pytest.mark.parametrize("config", [None, Path('/etc/my "own".toml')])
def test_every_command_goes_by_what_the_installed_service_goes_by(
    tmp_path: Path, config: Path | None
) -> None:
    state, other = Path("/srv/50% x"), Path("/srv/other")
    file = tmp_path / unit.NAME
    assert noted.meant(None, None, file) == (None, None), "no service"
    file.write_text(unit.text(Unit(("/bin/carpal",), state, config=config)))
    assert noted.meant(None, None, file) == (state, config)
    assert noted.meant(state, None, file) == (state, config)
    assert noted.meant(other, None, file) == (other, None), "another daemon's"
    assert noted.meant(None, other, file) == (None, other)
    file.write_text("[Service]\nExecStart=/bin/true\n[X-Carpal]\nState=no word\n")
    assert noted.meant(None, None, file) == (None, None)


def test_doctor_status_and_the_daemon_itself_find_the_services_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "own.toml"
    config.write_text("hands_max = 7\n")
    file = tmp_path / unit.NAME
    file.write_text(unit.text(Unit(("/bin/carpal",), tmp_path / "state", config=config)))
    monkeypatch.setattr(noted, "FILE", file)
    found, row = doctor_settings.read(None, None)
    assert (found.hands_max, found.state_dir) == (7, tmp_path / "state")
    assert row.detail == f"read from {config}"
    assert settings_of(None, None) == found


def test_an_older_systemd_gets_a_unit_whose_daemon_makes_no_control_groups() -> None:
    """It would put a restarted daemon where the kernel lets none in beside hands with limits."""
    text = unit.text(Unit(("/bin/carpal",), systemd=252))
    assert "Environment=CARPAL_CGROUPS=off" in text
    assert "Delegate" not in settings(text)


def test_install_says_that_an_older_systemd_gives_hands_no_limits(tmp_path: Path) -> None:
    said = list[str]()
    made = Unit(("/bin/carpal",), tmp_path / "state", systemd=252)
    nobody = Systemd(booted=tmp_path / "none")
    work.install(made, units=tmp_path / "units", strict=False, systemd=nobody, say=said.append)
    assert "systemd 252 is before 254: hands get no limits of memory, processes, cpus" in said


@pytest.mark.parametrize(
    "limits", [pb.Limits(memory_bytes=1 << 26), pb.Limits(processes=16), pb.Limits(cpus=0.5)]
)
async def test_a_daemon_that_makes_no_control_groups_refuses_a_hand_with_their_limits(
    place: Place, monkeypatch: pytest.MonkeyPatch, limits: pb.Limits
) -> None:
    monkeypatch.setenv("CARPAL_CGROUPS", "off")
    error = await refused(place.service.provision(provision(place, "h", limits=limits)))
    assert error.reason is Reason.LIMIT_NOT_ENFORCEABLE


@pytest.mark.parametrize(
    ("command", "home"), [("/usr/bin/carpal", "yes"), ("/home/me/venv/bin/carpal", "read-only")]
)
def test_the_strict_drop_in_says_what_each_line_takes_and_hides_not_what_it_starts(
    command: str, home: str
) -> None:
    text = unit.strict(Unit((command,)))
    assert settings(text)["ProtectHome"] == home
    lines = text.splitlines()
    for before, line in itertools.pairwise(lines):
        if "=" in line and not line.startswith("#"):
            assert before.startswith("#") or "=" in before, f"{line} is not explained"


def told(tmp_path: Path) -> list[str]:
    """What systemd was told, but not asked."""
    lines = (tmp_path / "told").read_text().splitlines()
    return [line for line in lines if not line.startswith("is-active")]


def test_where_systemd_runs_an_enrolled_machine_has_its_daemon_started_and_again_is_no_error(
    tmp_path: Path, systemd: Systemd
) -> None:
    state, units, said = tmp_path / "state", tmp_path / "units", list[str]()
    Pki(tmp_path / "pki").issue(Role.DAEMON, "d", directory=HandFiles(state).identity_dir)
    made = Unit(("/bin/carpal",), state)
    work.install(made, units=units, strict=True, systemd=systemd, say=said.append)
    assert said[:2] == [
        f"wrote {units / unit.NAME}",
        f"wrote {units / unit.NAME}.d/strict.conf",
    ]
    assert "started carpal-hand.service: active" in said
    assert said[-1].startswith(f"next: carpal hand status --state-dir {state}")
    again = ["daemon-reload", "enable carpal-hand.service", "start carpal-hand.service"]
    assert told(tmp_path) == again
    said.clear()
    work.install(made, units=units, strict=False, systemd=systemd, say=said.append)
    assert said[0] == f"{units / unit.NAME} is as it should be"
    assert said[1] == f"removed {units / unit.NAME}.d/strict.conf: --strict was not given"
    assert told(tmp_path)[-1] == "restart carpal-hand.service"


def test_a_machine_that_is_not_enrolled_is_told_how_and_nothing_is_started(
    tmp_path: Path, systemd: Systemd
) -> None:
    said = list[str]()
    made = Unit(("/bin/carpal",), tmp_path / "state")
    work.install(made, units=tmp_path / "units", strict=False, systemd=systemd, say=said.append)
    assert told(tmp_path) == ["daemon-reload", "enable carpal-hand.service"]
    assert f"next: carpal hand enroll --token-file FILE --state-dir {made.state}" in said[-2]
    assert said[-1] == "then: systemctl start carpal-hand.service"


async def test_a_daemon_that_runs_there_already_is_named_and_nothing_is_written(
    tmp_path: Path, systemd: Systemd
) -> None:
    folder = HandFiles(tmp_path / "state").folder
    folder.mkdir(parents=True)
    made = Unit(("/bin/carpal",), tmp_path / "state")
    routes = {"GET /status": lambda _: Answer.json({"pid": 7})}
    async with server.answering(folder, routes):
        with pytest.raises(CarpalError, match=r"already, as process 7.*kill 7"):
            await asyncio.to_thread(
                work.install, made,
                units=tmp_path / "units", strict=False, systemd=systemd, say=lambda _: None,
            )  # fmt: skip
    assert not (tmp_path / "units").exists()


def test_a_user_that_is_not_there_or_does_not_own_the_state_folder_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadInput, match=r"no user 'nosuch'.*useradd --system"):
        work.check_user("nosuch", tmp_path)
    work.check_user("daemon", unit.STATE)
    if os.geteuid() == 0:
        with pytest.raises(BadInput, match=r"is not daemon's.*chown -R daemon:"):
            work.check_user("daemon", tmp_path)


def test_a_dry_run_prints_the_unit_and_writes_nothing(tmp_path: Path) -> None:
    ran = carpal(
        "install", "--dry-run", "--strict", "--unit-dir", str(tmp_path / "units"),
        "--state-dir", str(tmp_path / "state"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "KillMode=process" in ran.stdout
    assert "NoNewPrivileges=yes" in ran.stdout
    assert not (tmp_path / "units").exists()


def test_the_unit_gives_a_daemon_as_long_to_end_as_its_settings_do_when_it_is_installed(
    tmp_path: Path,
) -> None:
    config = tmp_path / "hand.toml"
    for wait, limit in ((50, 80), (7, 37)):
        config.write_text(f"stop_wait = {wait}\n")
        given = ("--dry-run", "--config", str(config), "--state-dir", str(tmp_path / "state"))
        ran = carpal("install", "--unit-dir", str(tmp_path / "units"), *given)
        assert settings(ran.stdout)["TimeoutStopSec"] == str(limit), ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a program that others run as root")
@pytest.mark.parametrize(("given", "user"), [([], "0"), (["--no-new-privs"], "65534")])
def test_without_new_privileges_no_program_runs_as_root_for_another_user_as_sudo_and_su_must(
    given: list[str], user: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="carpal-setuid-") as name:
        program = Path(name, "id")
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        Path(name).chmod(0o755)
        another = ["setpriv", *given, "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        ran = subprocess.run(
            [*another, str(program), "-u"], capture_output=True, text=True, check=True, timeout=20
        )
    assert ran.stdout.strip() == user


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a view of mounts of its own")
async def test_where_each_start_has_its_own_mounts_a_hand_with_a_disk_does_not_outlive_its_daemon(
    machine: Machine, one: FakeBrain
) -> None:
    @asynccontextmanager
    async def strict() -> AsyncIterator[None]:
        """The daemon, with a view of mounts as `ProtectSystem` makes one at each start."""
        run = (*interpreter(), "hand", "run", "--state-dir", str(machine.state))
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--propagation", "slave"),
            *run,
            env={**os.environ, "CARPAL_SANDBOX": "required"},
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()

    async with strict():
        asked = await one.link()
        wanted = pb.ProvisionRequest(driver=asked.driver, hand_id="h", type="process")
        wanted.limits.disk_bytes = 8 << 20
        await asked.ask(provision=wanted)
        call = aiter(asked.execute("h", "c", "echo begun; sleep 600"))
        assert (await anext(call)).execute.output.data == b"begun\n"
    async with strict():
        asked = await one.link()
        again = [each async for each in asked.execute("h", "c", "echo begun; sleep 600")]
        assert again[-1].execute.result.outcome == pb.OUTCOME_INTERRUPTED
        await asked.ask(release=pb.ReleaseRequest(driver=asked.driver, hand_id="h"))


def test_where_systemd_does_not_run_the_unit_is_written_and_what_is_next_is_said(
    tmp_path: Path,
) -> None:
    if Systemd().runs:
        pytest.skip("systemd runs this machine")
    units, state = tmp_path / "units", tmp_path / "state"
    ran = carpal("install", "--unit-dir", str(units), "--state-dir", str(state))
    assert ran.returncode == 0, ran.stderr
    assert "systemd does not run here, so nothing was started" in ran.stdout
    assert "next: carpal hand enroll" in ran.stdout
    assert verify(units) == ""

    again = carpal("install", "--dry-run", "--unit-dir", str(units))
    assert f'State="{state}"' in again.stdout, "the note of that unit counts, and no other's"
