"""`carpal vault issuer`: the vault signs tokens that say which agent asks; others verify them."""

from pathlib import Path

import click

from carpal.cli import extra
from vault.commands.options import opens_seal, vault_files


@click.group("issuer")
def issuer_command() -> None:
    """Tokens that tell a server which agent asks: make the issuer, publish and rotate its keys."""


@issuer_command.command()
@click.argument("url", metavar="URL")
@opens_seal
def init(
    *, url: str, state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None
) -> None:
    """Make the issuer, once. URL is where its documents will be: https, and never another."""
    with extra("vault"):
        from vault.commands import issuing

    keys = issuing.make(vault_files(state_dir, passphrase_file, seal_fd), url)
    click.echo(f"the issuer is {keys.url}; {keys.signing.id} signs, {keys.next.id} is next")
    click.echo("next: carpal vault issuer export DIR")


@issuer_command.command()
@click.argument("out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@opens_seal
def export(
    *, out: Path, state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None
) -> None:
    """Write the public keys and the discovery document, to be hosted at the issuer's URL."""
    with extra("vault"):
        from vault.commands import issuing

    for path in issuing.export(vault_files(state_dir, passphrase_file, seal_fd), out):
        click.echo(f"wrote {path}")


@issuer_command.command()
@opens_seal
@click.option(
    "--at-once", is_flag=True,
    help="For a key that somebody else has: servers refuse all tokens until you export and host.",
)  # fmt: skip
def rotate(
    *, at_once: bool, state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None
) -> None:
    """Have the next key sign, also while the vault runs, and make another next one.

    Refused until 24 hours after the next key was first exported: servers keep documents.
    """
    with extra("vault"):
        from vault.commands import issuing

    files = vault_files(state_dir, passphrase_file, seal_fd)
    keys = issuing.rotate(files, at_once=at_once)
    click.echo(f"{keys.signing.id} signs; {keys.next.id} is next")
    click.echo("next: carpal vault issuer export DIR, and host what it wrote")
