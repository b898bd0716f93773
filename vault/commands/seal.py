"""`carpal vault` for the seal: its state, opening it, other keys, backups."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carpal.cli import extra
from carpal.operator.connection import (
    ANSWER_SECONDS,
    Found,
    connect_vault,
    operator_options,
    vault_option,
)
from vault.commands.options import opens_seal, passphrase_option, vault_files

if TYPE_CHECKING:
    from carpal.v1 import vault_pb2

_UNSEAL_SECONDS = 60.0
"""A passphrase costs half a second of work, a key service what it takes."""


def chooses_seal(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a command that makes a seal."""
    for option in (
        click.option(
            "--seal-settings",
            metavar="JSON",
            help="Of --seal kms: its plug-in, and settings.",
        ),
        click.option(
            "--seal-key",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Of --seal file: made if it is not there.  [seal/vault.key in the state folder]",
        ),
        click.option(
            "--seal",
            type=click.Choice(["file", "descriptor", "passphrase", "kms"]),
            default="file",
            show_default=True,
            help="Where the key comes from that opens the vault.",
        ),
    ):
        command = option(command)
    return command


def add_seal_commands(group: click.Group) -> None:
    """Make them commands of `carpal vault`."""
    for command in (status, unseal, migrate, rotate_keys, reseal, backup, restore):
        group.add_command(command)


@click.command()
@operator_options
@vault_option
@click.option("--json", "as_json", is_flag=True, help="One object.")
def status(found: Found, *, as_json: bool) -> None:
    """Say whether the vault is sealed and why, and where its audit is."""
    import asyncio

    told = asyncio.run(_status(found))
    facts = {
        "sealed": told.sealed,
        "because": told.sealed_because,
        "seal": told.seal,
        "version": told.version,
        "trust_domain": told.trust_domain,
        "term": told.term,
        "audit_head": f"{told.audit_head.position}:{told.audit_head.hash.hex()}",
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"sealed: {told.sealed_because}" if told.sealed else "open")
    click.echo(f"  seal          {told.seal}")
    click.echo(f"  trust domain  {told.trust_domain}")
    if not told.sealed:
        click.echo(f"  keys' term    {told.term}")
        click.echo(f"  audit head    {facts['audit_head']}")


@click.command()
@operator_options
@vault_option
@passphrase_option
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The key, of a vault whose key is handed in; - is standard input.",
)
def unseal(found: Found, *, passphrase_file: Path | None, key_file: Path | None) -> None:
    """Open a vault that runs sealed. Without a key it is asked to try again by itself."""
    import asyncio

    from carpal.errors import invalid
    from vault.handed_in import read_key, read_secret
    from vault.hardening import no_core

    no_core()
    if passphrase_file is not None and key_file is not None:
        raise invalid("--key-file", "goes without --passphrase-file")
    key = b"" if passphrase_file is None else read_secret(passphrase_file)
    key = key if key_file is None else read_key(key_file)
    asyncio.run(_unseal(found, key))
    click.echo("open")


@click.command()
@opens_seal
@chooses_seal
def migrate(
    *,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    seal: str,
    seal_key: Path | None,
    seal_settings: str | None,
) -> None:
    """Seal a vault from before there was a seal. Stop it first; run again after a crash."""
    with extra("vault"):
        from vault.commands.seal_choice import chosen
        from vault.migrate import migrate as run

    files = vault_files(state_dir, passphrase_file, seal_fd)
    kind, settings = chosen(files, seal, seal_key, seal_settings)
    if not run(files, kind, settings):
        click.echo("it is sealed already; nothing changed")
        return
    click.echo("sealed: the CA's keys and the tokens' secrets are in the open no more")
    if kind == "file":
        click.echo(f"the seal's key: {settings['path']}. Without it nothing opens the vault again:")
        click.echo("  keep a copy where backups of the vault do not go.")
    click.echo("backups from before hold keys in the open: destroy them.")


@click.command("rotate-keys")
@opens_seal
def rotate_keys(state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None) -> None:
    """Wrap the keys of all that is sealed by a new key, and destroy the one before.

    Also while the vault runs. It does so by itself, every 90 days.
    """
    with extra("vault"):
        from vault.commands.resealing import rotate

    term, left = rotate(vault_files(state_dir, passphrase_file, seal_fd))
    click.echo(f"rotated: term {term} wraps now")
    if left:
        click.echo(f"{left} values are damaged, and stay as they are", err=True)


@click.command()
@opens_seal
@chooses_seal
@click.option(
    "--new-passphrase-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of --seal passphrase: the new one; - is standard input.",
)
def reseal(
    *,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    seal: str,
    seal_key: Path | None,
    seal_settings: str | None,
    new_passphrase_file: Path | None,
) -> None:
    """Give the vault another seal, or another key of the same kind. Stop it first."""
    with extra("vault"):
        from vault.commands.resealing import reseal as run
        from vault.commands.seal_choice import chosen
        from vault.handed_in import handed_in

    files = vault_files(state_dir, passphrase_file, seal_fd)
    kind, settings = chosen(files, seal, seal_key, seal_settings)
    before, now = run(files, kind, settings, handed_in(new_passphrase_file, None))
    click.echo(f"sealed by {now}; {before} opens it no more, but backups from before")


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@opens_seal
def backup(
    *, out: Path, state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None
) -> None:
    """Write a backup to OUT, also while the vault runs. The seal's key is not in it."""
    with extra("vault"):
        from vault.backup import backup as run

    run(vault_files(state_dir, passphrase_file, seal_fd), out)
    click.echo(f"wrote {out}. It opens by the seal's key alone: keep that elsewhere.")


@click.command()
@click.argument("source", required=False, type=click.Path(path_type=Path, dir_okay=False))
@opens_seal
@click.option(
    "--accept-restore", "accept", is_flag=True, help="Also when it is older than the vault was."
)
def restore(
    *,
    source: Path | None,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    accept: bool,
) -> None:
    """Put the backup SOURCE in the place of what is there. Stop the vault first.

    One that is older than the vault was is refused, unless you say that you mean it: what was
    revoked since is then not. Without SOURCE the database that is there already is accepted.
    """
    with extra("vault"):
        from carpal.errors import invalid
        from vault.backup import restore as run

    if source is None and not accept:
        raise invalid("SOURCE", "is missing; without it give --accept-restore")
    files = vault_files(state_dir, passphrase_file, seal_fd)
    for line in run(files, source, accept=accept):
        click.echo(line)
    click.echo("restored. next: carpal vault run")


async def _status(found: Found) -> "vault_pb2.GetStatusResponse":
    from carpal.client import rpc_errors
    from carpal.v1 import vault_pb2

    async with connect_vault(found) as stub:
        with rpc_errors(f"vault at {found.vault}"):
            return await stub.GetStatus(vault_pb2.GetStatusRequest(), timeout=ANSWER_SECONDS)


async def _unseal(found: Found, key: bytes) -> None:
    from carpal.client import rpc_errors
    from carpal.v1 import vault_pb2

    async with connect_vault(found) as stub:
        with rpc_errors(f"vault at {found.vault}"):
            await stub.Unseal(vault_pb2.UnsealRequest(key=key), timeout=_UNSEAL_SECONDS)
