"""`carpal vault`: make the certificate authority, issue identities, run the service."""

from pathlib import Path

import click

from carpal import config, logs, process
from carpal.cli import extra
from carpal.identity import DEFAULT_TRUST_DOMAIN, Role

_STATE = click.option(
    "--state-dir",
    envvar="CARPAL_STATE",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where state lives (CARPAL_STATE).",
)


@click.group()
def vault() -> None:
    """The vault: the certificate authority of a trust domain."""


@vault.command()
@_STATE
@click.option("--trust-domain", default=DEFAULT_TRUST_DOMAIN, show_default=True)
@click.option("--workspace", default="default", show_default=True, help="The operator's workspace.")
@click.option("--brain", "brains", multiple=True, help="A brain's name; repeatable.  [brain-1]")
@click.option("--operator", default="operator", show_default=True, help="The operator's name.")
def init(
    state_dir: Path | None,
    trust_domain: str,
    workspace: str,
    brains: tuple[str, ...],
    operator: str,
) -> None:
    """Make the CA and the identities of the processes. Never makes a CA twice."""
    with extra("vault"):
        from vault import setup
        from vault.app import NAME, now
        from vault.ca import LEAF_LIFETIME, Claims
        from vault.files import VaultFiles

    files = VaultFiles(config.state_dir(state_dir))
    holders = [
        Claims(Role.VAULT, NAME),
        Claims(Role.SESSIOND, "sessiond"),
        *(Claims(Role.BRAIN, name) for name in dict.fromkeys(brains or ("brain-1",))),
        Claims(Role.OPERATOR, operator, workspace),
    ]
    made = setup.init(files, trust_domain, holders, now)
    click.echo(f"made the CA of {trust_domain}: {files.ca} (its key: {files.ca_key})")
    for one in made:
        click.echo(f"issued {one.identity.uri}: {one.directory}")
    hours = int(LEAF_LIFETIME.total_seconds() // 3600)
    click.echo(f"back up {files.folder}; identities last {hours} hours.")
    click.echo("next: carpal vault run --state-dir " + str(files.state))


@vault.command()
@click.argument("role", type=click.Choice([role.value for role in Role]))
@click.argument("name")
@_STATE
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write into.  [where the process of this state folder looks]",
)
@click.option("--workspace", help="For a daemon or an operator.  [as before, or default]")
@click.option("--pool", help="For a daemon.  [as before, or none]")
def issue(  # noqa: PLR0917 - click passes by name
    role: str,
    name: str,
    state_dir: Path | None,
    out: Path | None,
    workspace: str | None,
    pool: str | None,
) -> None:
    """Issue an identity, or renew one of this machine: a new key and certificate."""
    with extra("vault"):
        from carpal.tls import IdentityFiles
        from vault import setup
        from vault.app import now
        from vault.ca import Claims
        from vault.files import VaultFiles

    files = VaultFiles(config.state_dir(state_dir))
    kind = Role(role)
    target = IdentityFiles(out) if out else files.identity(kind, name)
    before = target.identity() if target.certificate.exists() else None
    if workspace is None:
        workspace = before.workspace if before else "default" if kind.has_workspace else ""
    if pool is None:
        pool = before.pool if before else ""
    made = setup.issue(files, Claims(kind, name, workspace, pool), target, now)
    click.echo(f"issued {made.identity.uri}: {made.directory}")
    click.echo(f"valid until {made.identity.not_after:%F %T} UTC")


@vault.command()
@_STATE
@click.option("--listen", help="host:port to serve on.")
@click.option("--config", "config_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
@click.option("--ready-fd", type=int, hidden=True)
def run(
    state_dir: Path | None,
    listen: str | None,
    config_file: Path | None,
    log_json: bool,
    ready_fd: int | None,
) -> None:
    """Serve the vault until a signal."""
    with extra("vault"):
        from vault import app

    logs.setup(json=log_json)
    settings = config.load(
        app.VaultConfig,
        "vault",
        {"state_dir": state_dir, "listen": listen},
        config_file,
    )
    process.run(lambda stop: app.run(settings, stop, ready_fd), server=True)
