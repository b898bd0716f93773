"""`carpal hand`: enrol this machine, run its daemon."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import TextIO

import click

from carpal import config, logs, process
from carpal.errors import CarpalError, Denied, Unreachable, refuse
from carpal.proof import TOKEN_MAX, Token, parse_token
from carpal.proxy import Way
from carpal.status import Reason
from carpal.tls import IdentityFiles
from hands.commands.check import check
from hands.commands.doctor import diag, doctor
from hands.commands.drain import drain
from hands.commands.install import install, uninstall
from hands.commands.options import CONFIG, STATE, asking, folder_of, settings_of
from hands.commands.owner import audit, stop
from hands.commands.types import call, new
from hands.commands.units import units
from hands.systemd.noted import meant

log = logging.getLogger(__name__)


class _Hand(click.Group):
    """What only an operator's commands need is loaded with them: a daemon's start without."""

    _visits = ("cp", "forward", "shell", "view")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self._visits])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._visits:
            return super().get_command(ctx, cmd_name)
        from hands.commands import visit

        found: click.Command = getattr(visit, cmd_name)
        return found


@click.group(cls=_Hand)
def hand() -> None:
    """The hand daemon on this machine."""


_COMMANDS = (
    check,
    doctor,
    diag,
    call,
    new,
    stop,
    audit,
    drain,
    units,
    install,
    uninstall,
)
for command in _COMMANDS:
    hand.add_command(command)


@hand.command("enroll")
@STATE
@CONFIG
@click.option(
    "--token-file",
    required=True,
    type=click.File(),
    help="File that holds the token of `carpal fleet token`; '-' for stdin.",
)
def enroll_command(state_dir: Path | None, config_file: Path | None, token_file: TextIO) -> None:
    """Turn a one-use token into this machine's identity."""
    from hands.enroll import enroll
    from hands.files import HandFiles

    logs.setup()
    settings = settings_of(state_dir, config_file)
    files = HandFiles(settings.state_dir)
    token = _read_token(token_file)
    with files.only_process():
        try:
            enrolled = asyncio.run(enroll(token, files.identity_dir, Way(settings.proxy)))
        except CarpalError as error:
            raise _already(files.identity, settings.state_dir, error) from None
    click.echo(f"enrolled as {enrolled.identity.uri}")
    click.echo(f"valid until {enrolled.identity.not_after:%F %T} UTC; it renews itself")
    where = f"--state-dir {settings.state_dir}"
    click.echo(f"next: carpal hand doctor {where}")
    click.echo(f"then: carpal hand install {where}; or, without systemd, carpal hand run {where}")


@hand.command()
@STATE
@click.option(
    "--token-file",
    type=click.File(),
    help="Enrol with this token first, if there is no valid identity; '-' for stdin.",
)
@click.option("--hands-max", type=click.IntRange(0, 10_000), help="Hands at once.  [64]")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A placement hint.")
@CONFIG
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
@click.option("--ready-fd", type=int, hidden=True)
def run(  # noqa: PLR0917 - click passes by name
    state_dir: Path | None,
    token_file: TextIO | None,
    hands_max: int | None,
    labels: tuple[str, ...],
    config_file: Path | None,
    log_json: bool,
    ready_fd: int | None,
) -> None:
    """Run the daemon: dial a brain and serve hands until told to stop.

    SIGTERM: no new hands; calls that run may end within `stop_wait`, then the
    link ends in good order. Hands and calls that are left go on, and are taken
    up again at the next start. A second one ends the wait. SIGHUP reads log
    levels, certificates and the owner's policy anew.
    """
    from hands import app

    logs.setup(json=log_json)  # what the settings say of it comes with them
    state_dir, config_file = meant(state_dir, config_file)
    flags = {
        "state_dir": state_dir,
        "hands_max": hands_max,
        "labels": dict(_label(one) for one in labels) or None,
    }

    def read() -> app.HandConfig:
        return config.load(app.HandConfig, "hand", flags, config_file)

    settings = read()
    logs.levels(settings.log_level, settings.log_levels)
    token = _token(token_file, settings.state_dir)
    file = (config_file or config.SYSTEM_DIR / "hand.toml").absolute()
    process.run(
        lambda stop: app.run(
            settings,
            stop,
            token=token,
            ready_fd=ready_fd,
            reread=read,
            settings=file if file.exists() else None,
        )
    )


@hand.command()
@STATE
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="One object.")
def status(state_dir: Path | None, config_file: Path | None, *, as_json: bool) -> int:
    """Say whether the daemon here is linked, to which brain and since when, and why if not.

    And which hands it has: each with its type, its sessions and what it is at. Asks the daemon
    itself, over its local socket. Exit code 0 when it is linked, else 3.
    """
    from hands.local import asking
    from hands.local import status as shown
    from hands.local.waiting import hands_of, named

    folder = folder_of(state_dir, config_file)
    row = asking.ask(folder)
    there = hands_of(asking.ask(folder, "/hands"))
    if as_json:
        click.echo(json.dumps({**row, "hands_there": there}))
    else:
        click.echo("\n".join([shown.text(row), *(f"  {named(each)}" for each in there)]))
    return 0 if shown.is_linked(row) else Unreachable.exit_code


@hand.command()
@STATE
@CONFIG
def diagnose(state_dir: Path | None, config_file: Path | None) -> int:
    """Ask a brain whether this machine's certificate is good; and if not, why.

    A connection that is refused does not say. Needs no daemon that runs.
    """
    from hands.leaving import diagnose

    found = asyncio.run(diagnose(*asking(settings_of(state_dir, config_file))))
    click.echo(f"{found.verdict}: {found.detail}" + (f": {found.action}" if found.action else ""))
    return 0 if found.verdict == "ok" else Denied.exit_code


@hand.command()
@STATE
@CONFIG
@click.option("--yes", is_flag=True, help="Do it: there is no way back but a new token.")
def retire(state_dir: Path | None, config_file: Path | None, yes: bool) -> None:
    """Have this machine's identity revoked: its daemon is cut off and ends."""
    from hands.leaving import retire

    folder, address, way = asking(settings_of(state_dir, config_file))
    who = IdentityFiles(folder).load().identity.uri
    if not yes:
        raise refuse(Reason.INVALID_FIELD, f"{who} would be revoked", action="give --yes")
    asyncio.run(retire(folder, address, way))
    click.echo(f"revoked {who}; what is in {folder} is of no more use")


@hand.command(hidden=True)
def sandbox() -> int:
    """Say whether hands get a sandbox on this machine, by making one; and if not, why.

    `yes`, `none: WHY`, or `unknown: WHY` when it could not be found out now.
    """
    from carpal.dev_sandbox import NONE
    from hands.isolation import probe

    try:
        why = probe.problem()
    except probe.NotKnown as error:
        click.echo(f"unknown: {error}")
        return Unreachable.exit_code
    click.echo(f"{NONE}{why}" if why else "yes")
    return 1 if why else 0


@hand.command(hidden=True)
@click.option("--state-dir", type=click.Path(path_type=Path), required=True)
@click.option("--socket", type=click.Path(path_type=Path), required=True)
@click.option("--type", "type_name", required=True)
@click.option("--workspace", required=True)
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "off", "required"]),
    envvar="CARPAL_SANDBOX",
    default="auto",
)
@click.option("--ready-fd", type=int)
def serve(  # noqa: PLR0917 - click passes by name
    state_dir: Path,
    socket: Path,
    type_name: str,
    workspace: str,
    sandbox: str,
    ready_fd: int | None,
) -> None:
    """Serve one hand type's hands on a unix socket, for whoever may open it: for `check`."""
    from hands import serving, types

    logs.setup()
    found = types.installed(sandbox)
    if type_name not in found:
        there = ", ".join(sorted(found)) or "none"
        raise refuse(
            Reason.HAND_TYPE_NOT_FOUND,
            f"no hand type {type_name!r} is installed here; there is {there}",
            action="install what brings it",
        )
    chosen = {type_name: found[type_name]}
    process.run(
        lambda stop: serving.run(
            chosen,
            stop,
            state=state_dir,
            socket=socket,
            workspace=workspace,
            daemon=settings_of(None, None).state_dir,
            ready_fd=ready_fd,
        )
    )


def _already(there: IdentityFiles, state: Path, error: CarpalError) -> CarpalError:
    """What is to be said when a token was refused where somebody enrolled before."""
    if error.reason is not Reason.TOKEN_REFUSED or not there.exists():
        return error
    return refuse(
        error.reason,
        f"{error.message}; but {there.directory} is enrolled already, as {there.identity().name}",
        action=f"just run `carpal hand run --state-dir {state}`, or make a new token to enrol anew",
    )


def _token(file: TextIO | None, state: Path) -> Token | None:
    """The one that is given. A machine that is enrolled needs none, so a bad one stops it not."""
    from hands.files import HandFiles

    try:
        return _given_token() if file is None else _read_token(file)
    except CarpalError as error:
        if error.reason is not Reason.TOKEN_MALFORMED or not HandFiles(state).identity.exists():
            raise
        log.warning("token not used; this machine is enrolled", extra={"why": str(error)})
        return None


def _given_token() -> Token | None:
    """The one that a service manager hands over, as the unit of `carpal hand install` has it do."""
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY") or "/nonexistent", "token")
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(TOKEN_MAX)
    except OSError:
        return None
    except UnicodeDecodeError:
        raise refuse(Reason.TOKEN_MALFORMED, "the token is not text") from None
    return None if text.strip() in ("", "none") else parse_token(text.strip())


def _read_token(file: TextIO) -> Token:
    if file.isatty():
        click.echo("paste the token, and Enter:", err=True)
    # One line: whoever pipes it in may keep the pipe open.
    try:
        return parse_token(file.readline(TOKEN_MAX).strip())
    except UnicodeDecodeError:
        raise refuse(Reason.TOKEN_MALFORMED, "the token is not text") from None


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise refuse(
            Reason.CONFIG_INVALID, f"--label {text!r} is not KEY=VALUE", action="correct it"
        )
    return key, value
