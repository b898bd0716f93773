"""`carpal sessiond backup` and `carpal sessiond restore`."""

from pathlib import Path

import click

from carpal.cli import extra
from carpal.config import STATE_DEFAULT
from carpal.config import state_dir as find_state

_STATE = click.option(
    "--state-dir", type=click.Path(path_type=Path), help=f"Where state lives.  [{STATE_DEFAULT}]"
)


@click.command()
@_STATE
@click.option("--to", required=True, type=click.Path(path_type=Path), help="A new file.")
def backup(state_dir: Path | None, to: Path) -> None:
    """Copy the sessions to a file, checked and synced, while sessiond serves or not."""
    with extra("sessiond"):
        from sessiond import sqlite_backup
    copied = sqlite_backup.backup(_store(state_dir), to)
    click.echo(f"{to}: {copied.bytes} bytes in {copied.seconds:.1f} s, checked")


@click.command()
@_STATE
@click.option("--from", "source", required=True, type=click.Path(path_type=Path), help="A backup.")
@click.option("--replace", is_flag=True, help="Move the store that is there aside.")
def restore(state_dir: Path | None, source: Path, *, replace: bool) -> None:
    """Put a backup in the store's place, and fence everyone who drove before.

    sessiond must not run. What happened after the backup is not in the restored logs.
    """
    with extra("sessiond"):
        from sessiond import sqlite_backup
        from sessiond.clock import SystemClock
    store = _store(state_dir)
    done = sqlite_backup.restore(store, source, SystemClock().wall(), replace=replace)
    if done.aside is not None:
        click.echo(f"the store that was there is now {done.aside}")
    click.echo(
        f"{store}: {done.fenced.sessions} sessions from {source}; generation "
        f"{done.fenced.generation}, {done.fenced.leases} live leases ended"
    )


def _store(state_dir: Path | None) -> Path:
    return find_state(state_dir) / "sessiond" / "sessions.db"
