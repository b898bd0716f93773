"""`carpal sessiond run`."""

from importlib import import_module
from pathlib import Path

import click

from carpal import logs
from carpal.cli import extra
from carpal.config import STATE_DEFAULT, load
from carpal.config import state_dir as find_state
from carpal.process import run as run_process
from sessiond.cli_backup import backup, restore
from sessiond.conformance.cli import check
from sessiond.store_url import check as check_url


@click.group()
def sessiond() -> None:
    """Run the session service."""


for command in (check, backup, restore):
    sessiond.add_command(command)


@sessiond.command()
@click.option(
    "--state-dir", type=click.Path(path_type=Path), help=f"Where state lives.  [{STATE_DEFAULT}]"
)
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file of these settings.")
@click.option("--listen", metavar="H:P", help="Where brains and operators dial.  [127.0.0.1:7440]")
@click.option("--vault", metavar="H:P", help="Where the vault listens.  [127.0.0.1:7443]")
@click.option(
    "--blob-cap", type=int, metavar="BYTES", help="What a workspace's blobs may have.  [50 GiB]"
)
@click.option(
    "--store",
    metavar="URL",
    help="postgresql://USER@HOST/DATABASE, which several sessionds may share; no password "
    "here, but in ~/.pgpass, PGPASSFILE or PGPASSWORD.  [an SQLite file in the state folder]",
)
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
@click.option("--ready-fd", type=int, hidden=True)
def run(
    *,
    state_dir: Path | None,
    config: Path | None,
    listen: str | None,
    vault: str | None,
    blob_cap: int | None,
    store: str | None,
    log_json: bool,
    ready_fd: int | None,
) -> None:
    """Serve sessions until a signal; nothing acknowledged is lost, whatever ends it."""
    logs.setup(json=log_json)
    with extra("sessiond"):
        from sessiond import app
    if store:
        check_url(store, from_argv=True)
    flags = {"listen": listen, "vault": vault, "blob_cap": blob_cap, "store": store}
    settings = load(app.SessiondConfig, "sessiond", flags, config)
    if not settings.store:
        with extra("sessiond"):
            import_module("sessiond.sqlite.store")  # said before anything else that is missing
    state = find_state(state_dir)
    run_process(lambda stop: app.run(settings, state, stop, ready_fd), server=True)
