"""`carpal vault model`: keys of model services, which brains use by an alias and never have."""

from pathlib import Path

import click

from carpal.cli import extra
from vault.commands.options import opens_seal, vault_files
from vault.commands.secrets import secret_in

ANTHROPIC = "https://api.anthropic.com"
_key_option = click.option(
    "--key", "key_file", type=click.Path(path_type=Path), metavar="FILE", default="-",
    show_default=True, help="The file that has the key; - is standard input.",
)  # fmt: skip


@click.group("model")
def model_command() -> None:
    """Models that brains ask through the vault, which alone has the keys."""


@model_command.command()
@click.argument("alias", metavar="ALIAS")
@opens_seal
@_key_option
@click.option("--url", default=ANTHROPIC, show_default=True, help="Where its Messages API is.")
@click.option(
    "--header", type=click.Choice(["x-api-key", "authorization"]), default="x-api-key",
    show_default=True, help="How it wants the key; authorization is as a bearer.",
)  # fmt: skip
@click.option(
    "--private-network", "networks", multiple=True, metavar="NETWORK",
    help="A network of your own that it may be in, such as 10.20.0.0/16; repeatable.",
)  # fmt: skip
def add(
    *,
    alias: str,
    key_file: Path,
    url: str,
    header: str,
    networks: tuple[str, ...],
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
) -> None:
    """Keep a model's key under an alias, also while the vault runs."""
    with extra("vault"):
        from vault.commands import model_keys

    files = vault_files(state_dir, passphrase_file, seal_fd)
    key = secret_in(key_file)
    made = model_keys.add(files, alias, key, url=url, header=header, networks=networks)
    click.echo(f'{made.name}: {made.url}; brains ask it by `vault = "{made.name}"`')


@model_command.command()
@click.argument("alias", metavar="ALIAS")
@opens_seal
@_key_option
def rotate(
    *,
    alias: str,
    key_file: Path,
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
) -> None:
    """Put another key in its place: it is shown from the next call on."""
    with extra("vault"):
        from vault.commands import model_keys

    files = vault_files(state_dir, passphrase_file, seal_fd)
    made = model_keys.rotate(files, alias, secret_in(key_file))
    click.echo(f"{made.name}: generation {made.generation}")


@model_command.command("list")
@opens_seal
def list_(*, state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None) -> None:
    """What there is, without keys."""
    with extra("vault"):
        from vault.commands import model_keys

    for each in model_keys.listed(vault_files(state_dir, passphrase_file, seal_fd)):
        click.echo(f"{each.name}: {each.url}, {each.header}, generation {each.generation}")


@model_command.command()
@click.argument("alias", metavar="ALIAS")
@opens_seal
def remove(
    *, alias: str, state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None
) -> None:
    """Destroy its key. Brains that ask by it are told that there is none."""
    with extra("vault"):
        from vault.commands import model_keys

    model_keys.remove(vault_files(state_dir, passphrase_file, seal_fd), alias)
    click.echo(f"{alias}: removed")
