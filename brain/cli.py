"""`carpal brain run`."""

from pathlib import Path

import click

from carpal import logs
from carpal.cli import extra
from carpal.config import STATE_DEFAULT, load
from carpal.config import state_dir as find_state
from carpal.process import run as run_process


@click.group()
def brain() -> None:
    """Run a brain."""


@brain.command()
@click.option(
    "--state-dir", type=click.Path(path_type=Path), help=f"Where state lives.  [{STATE_DEFAULT}]"
)
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file of these settings.")
@click.option("--name", help="Name in this brain's certificate.  [brain-1]")
@click.option(
    "--listen", metavar="H:P", help="Where daemons and other brains dial.  [127.0.0.1:7441]"
)
@click.option("--enroll-listen", metavar="H:P", help="Where machines enrol.  [127.0.0.1:7442]")
@click.option("--advertise", metavar="H:P", help="Where to be dialled, if not --listen.")
@click.option("--advertise-enroll", metavar="H:P", help="The same for --enroll-listen.")
@click.option("--sessiond", metavar="H:P", help="The session service.  [127.0.0.1:7440]")
@click.option("--vault", metavar="H:P", help="The vault.  [127.0.0.1:7443]")
@click.option("--vault-mcp", metavar="H:P", help="Its listener for brains.  [127.0.0.1:7444]")
@click.option("--lease-term", type=float, metavar="SECONDS", help="Term of every lease.  [10]")
@click.option("--heartbeat", type=float, metavar="SECONDS", help="On links, both ways.  [5]")
@click.option("--link-age", type=float, metavar="SECONDS", help="How old links get.  [any age]")
@click.option(
    "--hand-idle", type=float, metavar="SECONDS", help="How long idle hands are kept.  [600]"
)
@click.option("--sessions-max", type=int, metavar="N", help="Sessions driven at once.  [2000]")
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
@click.option("--ready-fd", type=int, hidden=True)
def run(
    state_dir: Path | None,
    config: Path | None,
    log_json: bool,
    ready_fd: int | None,
    **settings: object,
) -> None:
    """Run a brain until it is stopped; its sessions are then handed over."""
    logs.setup(json=log_json)
    with extra("brain"):
        from brain import app
    loaded = load(app.BrainConfig, "brain", settings, config)
    state = find_state(state_dir)
    run_process(lambda stop: app.run(loaded, state, stop, ready_fd), server=True)
