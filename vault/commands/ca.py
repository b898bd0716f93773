"""`carpal vault ca`: replace the certificate authority, step by step, while everything runs."""

import json
from pathlib import Path

import click

from carpal.cli import extra
from vault.commands.options import opens_seal, vault_files

_TURN = 10.0
"""Seconds to wait for a process that writes its identity."""


@click.group("ca")
def ca_command() -> None:
    """Replace the certificate authority: prepare, switch, retire."""


@ca_command.command()
@opens_seal
@click.option("--json", "as_json", is_flag=True, help="One object.")
def status(
    state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None, as_json: bool
) -> None:
    """Say which authority signs, which are trusted, and who has yet to renew."""
    with extra("vault"):
        from carpal.proof import ca_pin
        from vault.app import now
        from vault.authority import ca
        from vault.authority.authorities import Phase
        from vault.commands import rollover
        from vault.opened import opened

    files = vault_files(state_dir, passphrase_file, seal_fd)
    with opened(files) as it:
        authorities = it.authorities()
        left = rollover.holders(it.store, authorities, now())
    # Once there is one authority, what another signed is good for nothing, and renews no more.
    cut_off = left.all if authorities.phase is Phase.SETTLED else []
    if cut_off:
        left = rollover.Holders([], [])
    roots = [
        {
            "key_id": ca.key_id(root),
            "signs": root == authorities.signing.certificate,
            "expires": f"{root.not_valid_after_utc:%F}",
            "pin": ca_pin(ca.der(root)).hex(),
        }
        for root in authorities.roots
    ]
    told = {
        "phase": str(authorities.phase),
        "authorities": roots,
        "still_to_renew": left.good,
        "away": left.away,
        "cut_off": cut_off,
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(authorities.phase)
    for root in roots:
        signs = "signs" if root["signs"] else "trusted"
        click.echo(f"  {root['key_id'][:8]}  {signs:<8} until {root['expires']}")  # type: ignore[index]
    for who, what in ((left.good, "has yet to renew"), (left.away, "is away; expired")):
        for uri in who:
            click.echo(f"  {uri} {what}")
    _say_cut_off(cut_off)


@ca_command.command()
@opens_seal
def prepare(state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None) -> None:
    """Make the next authority, and have it trusted beside the one that signs."""
    with extra("vault"):
        from vault.app import now
        from vault.commands import rollover

    files = vault_files(state_dir, passphrase_file, seal_fd)
    rollover.prepare(files, now)
    click.echo(
        f"prepared: the next authority is {files.next_ca}. Back up: carpal vault backup FILE"
    )
    click.echo("new tokens are good through the change. next: carpal vault ca switch")


@ca_command.command()
@opens_seal
def switch(state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None) -> None:
    """Have the next authority sign; what the one before signed is still good."""
    with extra("vault"):
        from vault.commands import rollover

    rollover.switch(vault_files(state_dir, passphrase_file, seal_fd))
    click.echo("switched: everyone gets a certificate of it at the next renewal, within a day")
    click.echo("next, when `carpal vault ca status` names nobody: carpal vault ca retire")


@ca_command.command()
@opens_seal
@click.option("--yes", "anyway", is_flag=True, help="Also cut off those that did not renew.")
@click.option(
    "--servers-too", is_flag=True, help="With --yes, also brains, sessiond and the vault."
)
def retire(
    state_dir: Path | None,
    passphrase_file: Path | None,
    seal_fd: int | None,
    anyway: bool,
    servers_too: bool,
) -> None:
    """Trust the authority before no more, and destroy its key.

    Servers and operators whose identities are in this state folder get new ones first.
    """
    with extra("vault"):
        from carpal.tls import write_file
        from vault import setup
        from vault.app import now
        from vault.authority.authorities import Phase
        from vault.commands import rollover
        from vault.opened import opened

    files = vault_files(state_dir, passphrase_file, seal_fd)
    with opened(files) as it:
        before = it.authorities()
        left = rollover.holders(it.store, before, now())
    renewed = setup.renew_here(files, left.good, now) if before.phase is Phase.SWITCHED else []
    for one in renewed:
        click.echo(f"issued {one.identity().uri} anew: {one.directory}")
    with opened(files) as it:
        left = rollover.holders(it.store, before, now())
    after = rollover.retire(files, now, anyway=anyway, servers_too=servers_too)
    for one in renewed:
        with one.writing(_TURN):
            write_file(one.ca, after.bundle)  # they trust it no more from now on, either
    click.echo("retired: the authority before is not trusted any more, and its key is gone")
    _say_cut_off(left.all)


def _say_cut_off(uris: list[str]) -> None:
    from vault.commands.rollover import way_back

    for uri in uris:
        click.echo(f"  {uri} is cut off, and renews no more. to let it in: {way_back(uri)}")
