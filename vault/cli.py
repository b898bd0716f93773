"""`carpal vault`: make the certificate authority, issue identities, run the service."""

import shlex
from pathlib import Path

import click

from carpal import config, logs, process
from carpal.cli import extra
from carpal.errors import invalid
from carpal.identity import DEFAULT_TRUST_DOMAIN, Role, check_trust_domain
from carpal.ids import check_name
from vault.commands.audit import audit_command
from vault.commands.ca import ca_command
from vault.commands.credential import credential_command
from vault.commands.issuer import issuer_command
from vault.commands.model import model_command
from vault.commands.options import opens_seal, vault_files
from vault.commands.seal import add_seal_commands, chooses_seal


@click.group()
def vault() -> None:
    """The vault: credentials, the certificate authority of a trust domain, the audit."""


vault.add_command(ca_command)
vault.add_command(audit_command)
vault.add_command(credential_command)
vault.add_command(issuer_command)
vault.add_command(model_command)
add_seal_commands(vault)


@vault.command()
@opens_seal
@chooses_seal
@click.option(
    "--audit-key-out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the audit's first key there, to be kept elsewhere and given to `audit verify`.",
)
@click.option("--trust-domain", default=DEFAULT_TRUST_DOMAIN, show_default=True)
@click.option("--workspace", default="default", show_default=True, help="The operator's workspace.")
@click.option("--brain", "brains", multiple=True, help="A brain's name; repeatable.  [brain-1]")
@click.option("--operator", default="operator", show_default=True, help="The operator's name.")
def init(
    *,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    seal: str,
    seal_key: Path | None,
    seal_settings: str | None,
    audit_key_out: Path | None,
    trust_domain: str,
    workspace: str,
    brains: tuple[str, ...],
    operator: str,
) -> None:
    """Make the CA and the identities of the processes. Never makes a CA twice."""
    with extra("vault"):
        from vault import setup
        from vault.app import NAME, now
        from vault.authority.ca import LEAF_LIFETIME, Claims
        from vault.commands.seal_choice import chosen

    names = tuple(dict.fromkeys(brains)) or ("brain-1",)
    check_trust_domain(trust_domain, "--trust-domain")
    for name in names:
        check_name(name, "--brain")
    check_name(operator, "--operator")
    check_name(workspace, "--workspace")
    files = vault_files(state_dir, passphrase_file, seal_fd)
    holders = [
        Claims(Role.VAULT, NAME),
        Claims(Role.SESSIOND, "sessiond"),
        *(Claims(Role.BRAIN, name) for name in names),
        Claims(Role.OPERATOR, operator, workspace),
    ]
    kind, settings = chosen(files, seal, seal_key, seal_settings)
    made = setup.init(
        files, trust_domain, holders, now, seal=kind, settings=settings, audit_key=audit_key_out
    )
    setup.write_addresses(files)
    click.echo(f"made the CA of {trust_domain}: {files.ca}; its key is in {files.store}, sealed")
    if kind == "file":
        click.echo(f"the seal's key: {settings['path']}. Without it nothing opens the vault again:")
        click.echo("  keep a copy where backups of the vault do not go.")
    for one in made:
        click.echo(f"issued {one.identity.uri}: {one.directory}")
    hours = int(LEAF_LIFETIME.total_seconds() // 3600)
    click.echo("back up with `carpal vault backup FILE`.")
    click.echo(
        f"identities last {hours} hours and renew themselves while the vault runs; one that is "
        "over is issued again by `carpal vault issue ROLE NAME`."
    )
    where = "" if state_dir is None else f" --state-dir {shlex.quote(str(state_dir))}"
    everyone = " ".join(f"{one.role} {one.name}" for one in holders)
    click.echo("next:")
    for line in setup.next_commands(names):
        click.echo(f"  {line}{where}")
    click.echo(
        f"not now, but should all of it be off for more than {hours} hours, then before the vault "
        f"runs: carpal vault issue {everyone}{where}"
    )


@vault.command()
@click.argument("holders", nargs=-1, required=True, metavar="ROLE NAME [ROLE NAME]...")
@opens_seal
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write into.  [where the process of this state folder looks]",
)
@click.option("--workspace", help="For a daemon or an operator.  [as before, or default]")
@click.option("--pool", help="For a daemon.  [as before, or none]")
def issue(
    *,
    holders: tuple[str, ...],
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    out: Path | None,
    workspace: str | None,
    pool: str | None,
) -> None:
    """Issue identities, or renew those of this machine: a new key and certificate each.

    ROLE is vault, sessiond, brain, daemon or operator.
    """
    with extra("vault"):
        from carpal.tls import IdentityFiles
        from vault import setup
        from vault.app import now
        from vault.authority.ca import Claims

    files = vault_files(state_dir, passphrase_file, seal_fd)
    named = _holders(holders)
    if out and len(named) > 1:
        raise invalid("--out", "takes one identity")
    for role, name in named:
        target = IdentityFiles(out) if out else files.identity(role, name)
        before = target.identity() if target.certificate.exists() else None
        own_workspace, own_pool = workspace, pool
        if own_workspace is None:
            own_workspace = before.workspace if before else "default" if role.has_workspace else ""
        if own_pool is None:
            own_pool = before.pool if before else ""
        made = setup.issue(files, Claims(role, name, own_workspace, own_pool), target, now)
        click.echo(
            f"issued {made.identity.uri}: {made.directory}, "
            f"valid until {made.identity.not_after:%F %T} UTC"
        )


@vault.command()
@click.argument("role", type=click.Choice([str(role) for role in Role]))
@click.argument("name")
@click.option("--reason", default="", help="Why; whoever is refused is shown it.")
@opens_seal
def revoke(
    *,
    role: str,
    name: str,
    reason: str,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
) -> None:
    """Revoke what was issued to NAME so far, of any role and workspace; also while it serves.

    Operators revoke daemons of their workspace with `carpal fleet revoke`.
    """
    with extra("vault"):
        from vault import setup
        from vault.app import now

    files = vault_files(state_dir, passphrase_file, seal_fd)
    click.echo(f"revoked {setup.revoke(files, Role(role), name, reason, now)}")


def _holders(words: tuple[str, ...]) -> list[tuple[Role, str]]:
    """Roles and names in turn; INVALID_FIELD for anything else, before anything is issued."""
    if len(words) % 2:
        raise invalid("ROLE NAME", f"{words[-1]!r} is not followed by a name")
    pairs = list(zip(words[::2], words[1::2], strict=True))
    for role, name in pairs:
        if role not in set(Role):
            raise invalid("ROLE", f"{role!r} is none of {', '.join(Role)}")
        check_name(name, "NAME")
    return [(Role(role), name) for role, name in pairs]


@vault.command()
@opens_seal
@click.option("--listen", metavar="H:P", help="Where to serve.  [127.0.0.1:7443]")
@click.option(
    "--mcp-listen", metavar="H:P", help="Where brains reach MCP servers.  [127.0.0.1:7444]"
)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file.")
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
@click.option("--ready-fd", type=int, hidden=True)
def run(
    *,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    listen: str | None,
    mcp_listen: str | None,
    config_file: Path | None,
    log_json: bool,
    ready_fd: int | None,
) -> None:
    """Serve the vault until a signal."""
    with extra("vault"):
        from vault import app, quiet

    logs.setup(json=log_json)
    quiet.install()
    settings = config.load(
        app.VaultConfig,
        "vault",
        {
            "state_dir": state_dir,
            "listen": listen,
            "mcp_listen": mcp_listen,
            "passphrase_file": passphrase_file,
            "seal_fd": seal_fd,
        },
        config_file,
    )
    process.run(lambda stop: app.run(settings, stop, ready_fd), server=True)
