"""`carpal vault ca`: replace the certificate authority, step by step, while everything runs."""

import json
from pathlib import Path

import click

from carpal import config
from carpal.cli import extra

_STATE = click.option(
    "--state-dir",
    envvar="CARPAL_STATE",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Where state lives.  [{config.STATE_DEFAULT}]",
)


@click.group("ca")
def ca_command() -> None:
    """Replace the certificate authority: prepare, switch, retire."""


@ca_command.command()
@_STATE
@click.option("--json", "as_json", is_flag=True, help="One object.")
def status(state_dir: Path | None, as_json: bool) -> None:
    """Say which authority signs, which are trusted, and who has yet to renew."""
    with extra("vault"):
        from carpal.proof import ca_pin
        from vault import ca, rollover
        from vault.app import now
        from vault.files import VaultFiles

    files = VaultFiles(config.state_dir(state_dir))
    authorities = files.load_authorities()
    left = rollover.holders(files, authorities, now())
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


@ca_command.command()
@_STATE
def prepare(state_dir: Path | None) -> None:
    """Make the next authority, and have it trusted beside the one that signs."""
    with extra("vault"):
        from vault import rollover
        from vault.app import now
        from vault.files import VaultFiles

    files = VaultFiles(config.state_dir(state_dir))
    rollover.prepare(files, now)
    click.echo(f"prepared: the next authority is {files.next_ca}. Back up {files.folder}.")
    click.echo("new tokens are good through the change. next: carpal vault ca switch")


@ca_command.command()
@_STATE
def switch(state_dir: Path | None) -> None:
    """Have the next authority sign; what the one before signed is still good."""
    with extra("vault"):
        from vault import rollover
        from vault.files import VaultFiles

    rollover.switch(VaultFiles(config.state_dir(state_dir)))
    click.echo("switched: everyone gets a certificate of it at the next renewal, within a day")
    click.echo("next, when `carpal vault ca status` names nobody: carpal vault ca retire")


@ca_command.command()
@_STATE
@click.option("--yes", "anyway", is_flag=True, help="Also cut off those that did not renew.")
def retire(state_dir: Path | None, anyway: bool) -> None:
    """Trust the authority before no more, and destroy its key."""
    with extra("vault"):
        from vault import rollover
        from vault.app import now
        from vault.files import VaultFiles

    files = VaultFiles(config.state_dir(state_dir))
    away = rollover.holders(files, files.load_authorities(), now()).away
    rollover.retire(files, now, anyway=anyway)
    click.echo("retired: the authority before is not trusted any more, and its key is gone")
    for uri in away:
        click.echo(f"  {uri} was away: it needs a new token")
