"""Making the daemon a service of this machine: a unit, written and started; again is no error."""

import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.process import interpreter
from carpal.status import Reason
from hands.files import HandFiles
from hands.local import asking
from hands.systemd import unit
from hands.systemd.systemctl import Systemd
from hands.systemd.unit import Unit

UNITS = Path("/etc/systemd/system")
Say = Callable[[str], None]


def command() -> tuple[str, ...]:
    """What runs `carpal` as it runs now: its script, where that is installed."""
    script = Path(sys.executable).with_name("carpal")
    return (str(script),) if script.is_file() else tuple(interpreter())


def check_user(name: str, state: Path) -> None:
    """INVALID_FIELD when there is no such user, or the state folder is another's for good."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise refuse(
            Reason.INVALID_FIELD,
            f"--user: there is no user {name!r}",
            action=f"make it: useradd --system --home-dir {state} {name}",
        ) from None
    if state == unit.STATE:
        return  # systemd gives it to the user, whoever had it
    try:
        owner = state.stat().st_uid
    except OSError:
        owner = -1
    if owner != entry.pw_uid:
        raise refuse(
            Reason.INVALID_FIELD,
            f"--user: {state} is not {name}'s",
            action=f"give it: mkdir -p {state} && chown -R {name}: {state}",
        )


def install(made: Unit, *, units: Path, strict: bool, systemd: Systemd, say: Say) -> None:
    """Write the unit, enable it and start the daemon where systemd runs, and say each thing done.

    Raises CONFIG_INVALID when another daemon serves the state folder: a service would not start.
    """
    if units == UNITS and os.geteuid() != 0:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"only root may write to {units}",
            action="run it as root, or see what it would write with --dry-run",
        )
    active = systemd.runs and systemd.state(unit.NAME) == "active"
    if not active:
        _check_alone(made.state)
    changed = _write(units / unit.NAME, unit.text(made), say)
    extra = units / f"{unit.NAME}.d" / "strict.conf"
    if strict:
        changed |= _write(extra, unit.strict(made), say)
    elif extra.exists():
        extra.unlink()
        say(f"removed {extra}: --strict was not given")
        changed = True
    if not unit.has_groups(made):
        say(f"systemd {made.systemd} is before 254: hands get no limits of memory, processes, cpus")
    enrolled = HandFiles(made.state).identity.exists() or unit.TOKEN.exists()
    if systemd.runs:
        _start(systemd, say, enrolled=enrolled, again=active and changed)
    else:
        say("systemd does not run here, so nothing was started")
    _say_next(made, say, enrolled=enrolled, runs=systemd.runs)


def _start(systemd: Systemd, say: Say, *, enrolled: bool, again: bool) -> None:
    systemd.call("daemon-reload")
    systemd.call("enable", unit.NAME)
    say(f"enabled {unit.NAME}: it starts with the machine")
    if not enrolled:
        return
    systemd.call("restart" if again else "start", unit.NAME)
    say(f"{'restarted' if again else 'started'} {unit.NAME}: {systemd.state(unit.NAME)}")


def _say_next(made: Unit, say: Say, *, enrolled: bool, runs: bool) -> None:
    at = "" if made.state == unit.STATE else f" --state-dir {made.state}"
    if not enrolled:
        say(f"this machine is not enrolled; next: carpal hand enroll --token-file FILE{at}")
        say(f"then: systemctl start {unit.NAME}" if runs else "then install again, or boot")
    elif runs:
        say(f"next: carpal hand status{at}; its log: journalctl -u carpal-hand")
    else:
        say(f"next: boot it with systemd, or run it here: carpal hand run{at}")


def _write(path: Path, text: str, say: Say) -> bool:
    """Write a file that is not so already; whether anything changed."""
    try:
        if path.read_text() == text:
            say(f"{path} is as it should be")
            return False
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(path)
    say(f"wrote {path}")
    return True


def _check_alone(state: Path) -> None:
    try:
        row = asking.ask(HandFiles(state).folder)
    except CarpalError:
        return
    raise refuse(
        Reason.CONFIG_INVALID,
        f"a daemon runs on {state} already, as process {row['pid']}",
        action="end it first (its hands go on and are taken up): "
        f"kill {row['pid']}, then install again",
    )
