"""`carpal sessiond backup` and `carpal sessiond restore`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpal.cli import extra
from carpal.config import STATE_DEFAULT
from carpal.config import state_dir as find_state
from carpal.errors import refuse
from carpal.status import Reason
from sessiond.store_url import check as check_url
from sessiond.store_url import name as store_name

if TYPE_CHECKING:
    from sessiond.sql.fence import Fenced

_STATE = click.option(
    "--state-dir", type=click.Path(path_type=Path), help=f"Where state lives.  [{STATE_DEFAULT}]"
)
_STORE = click.option(
    "--store", metavar="URL", help="The sessions are in PostgreSQL.  [CARPAL_STORE]"
)


@click.command()
@_STATE
@_STORE
@click.option("--to", required=True, type=click.Path(path_type=Path), help="A new file.")
def backup(state_dir: Path | None, store: str | None, to: Path) -> None:
    """Copy the sessions to a file, checked and synced, while sessiond serves or not."""
    if _url(store):
        raise refuse(
            Reason.CONFIG_INVALID,
            "sessions in PostgreSQL are backed up by its own tools",
            action="use pg_basebackup or pg_dump, and `carpal sessiond restore --store URL` "
            "after a restore (docs/how-to/postgresql.md)",
        )
    with extra("sessiond"):
        from sessiond.sqlite import backup as sqlite_backup
    copied = sqlite_backup.backup(_file(state_dir), to)
    click.echo(f"{to}: {copied.bytes} bytes in {copied.seconds:.1f} s, checked")


@click.command()
@_STATE
@_STORE
@click.option("--from", "source", type=click.Path(path_type=Path), help="A backup.")
@click.option("--replace", is_flag=True, help="Move the store that is there aside.")
def restore(
    state_dir: Path | None, store: str | None, source: Path | None, *, replace: bool
) -> None:
    """Put a backup in the store's place, and fence everyone who drove before.

    sessiond must not run. What happened after the backup is not in the restored logs.
    With --store the database was restored by its own tools: this fences, and no more.
    """
    from sessiond.clock import SystemClock

    wall = SystemClock().wall()
    url = _url(store)
    if url and (source is not None or replace):
        raise refuse(
            Reason.CONFIG_INVALID,
            "--from and --replace are for sessions in SQLite",
            action="restore the database by its own tools, then give --store alone",
        )
    if url:
        with extra("postgres"):
            from sessiond.postgres.store import PostgresStore
        database = PostgresStore(url, listen=False)
        try:
            _say(database.fence(wall), store_name(url))
        finally:
            database.close()
        return
    if source is None:
        raise click.UsageError("Missing option '--from'.")
    with extra("sessiond"):
        from sessiond.sqlite import backup as sqlite_backup
    file = _file(state_dir)
    done = sqlite_backup.restore(file, source, wall, replace=replace)
    if done.aside is not None:
        click.echo(f"the store that was there is now {done.aside}")
    _say(done.fenced, str(file))


def _say(fenced: "Fenced", where: str) -> None:
    click.echo(
        f"{where}: {fenced.sessions} sessions, generation {fenced.generation}, "
        f"{fenced.leases} live leases ended; start sessiond now"
    )


def _url(store: str | None) -> str:
    """Where sessions are when not in SQLite, checked; else empty."""
    url = store or os.environ.get("CARPAL_STORE", "")
    return check_url(url, from_argv=bool(store)) if url else ""


def _file(state_dir: Path | None) -> Path:
    return find_state(state_dir) / "sessiond" / "sessions.db"
