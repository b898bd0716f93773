"""`carpal hand install` and `uninstall`: the daemon as a service of its machine, and off it."""

import os
from pathlib import Path

import click

from carpal import logs
from carpal.durations import duration
from carpal.errors import refuse
from carpal.status import Reason
from hands.commands.options import CONFIG, STATE, settings_even_so, settings_of
from hands.systemd.noted import meant

_UNITS = click.option(
    "--unit-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default="/etc/systemd/system",
    show_default=True,
    help="Where units are; another one is for making an image.",
)


@click.command()
@STATE
@CONFIG
@click.option("--user", default="", help="Run it as this user.  [root]")
@click.option("--strict", is_flag=True, help="Add a drop-in that takes rights from all hands too.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, and do nothing.")
@_UNITS
def install(  # noqa: PLR0917 - click passes by name
    state_dir: Path | None,
    config_file: Path | None,
    user: str,
    strict: bool,
    dry_run: bool,
    unit_dir: Path,
) -> None:
    """Make the daemon a service: a systemd unit, enabled and started where systemd runs.

    Again is no error: what is as it should be stays.
    """
    from hands.systemd import install as work
    from hands.systemd import unit
    from hands.systemd.systemctl import Systemd

    if state_dir is None and user and os.geteuid() != 0:
        state_dir = unit.STATE
    file = unit_dir / unit.NAME
    state_dir, config_file = meant(state_dir, config_file, file)
    settings = settings_of(state_dir, config_file, file)
    state = settings.state_dir.absolute()
    if user:
        work.check_user(user, state)
    systemd = Systemd()
    made = unit.Unit(
        command=work.command(),
        state=state,
        config=config_file.absolute() if config_file else None,
        user=user,
        stop_wait=settings.stop_wait,
        systemd=systemd.version(unit.SUBGROUPS),
    )
    if dry_run:
        click.echo(f"# {unit_dir / unit.NAME}\n{unit.text(made)}", nl=False)
        if strict:
            click.echo(f"\n# {unit_dir / unit.NAME}.d/strict.conf\n{unit.strict(made)}", nl=False)
        return
    work.install(made, units=unit_dir, strict=strict, systemd=systemd, say=click.echo)


@click.command()
@STATE
@CONFIG
@click.option("--yes", is_flag=True, help="Do it: the identity, journal and hands are gone then.")
@click.option("--timeout", default="30m", show_default=True, help="For hands to end: 90s, 30m.")
@click.option("--now", is_flag=True, help="End the hands that are there, with what runs in them.")
@_UNITS
def uninstall(  # noqa: PLR0917 - click passes by name
    state_dir: Path | None,
    config_file: Path | None,
    yes: bool,
    timeout: str,
    now: bool,
    unit_dir: Path,
) -> None:
    """Take the daemon off this machine: drain, stop, revoke its identity, remove what it kept.

    It may be repeated where it was cut short. Without a brain it goes on and
    says that the identity was not revoked.
    """
    from hands.systemd.systemctl import Systemd
    from hands.systemd.uninstall import Uninstall
    from hands.systemd.unit import NAME

    logs.setup(level="error")  # what it does is said; which types were left out is not asked
    limit = duration(timeout, "--timeout").total_seconds()
    settings = settings_even_so(state_dir, config_file, unit_dir / NAME)
    if not yes:
        raise refuse(
            Reason.INVALID_FIELD,
            f"the daemon of {settings.state_dir} would be drained, revoked and removed",
            action="give --yes",
        )
    Uninstall(settings, unit_dir, Systemd(), click.echo).run(limit, now=now)
