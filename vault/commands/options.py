"""Options that the vault's commands share: its state folder, and what opens its seal."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carpal import config

if TYPE_CHECKING:
    from vault.files import VaultFiles

Command = Callable[..., Any]
state_option = click.option(
    "--state-dir",
    envvar="CARPAL_STATE",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Where state lives.  [{config.STATE_DEFAULT}]",
)
passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The seal's passphrase; - is standard input.",
)
descriptor_option = click.option(
    "--seal-fd", type=int, metavar="N", help="Inherited descriptor that gives the seal's key."
)


def opens_seal(command: Command) -> Command:
    """For a command that opens the vault on its own machine; `vault_files` takes the three."""
    return state_option(passphrase_option(descriptor_option(command)))


def vault_files(
    state_dir: Path | None, passphrase_file: Path | None, seal_fd: int | None
) -> "VaultFiles":
    """The vault's files, and what opens them; this process keeps no core dump from here on."""
    from vault.files import VaultFiles
    from vault.handed_in import handed_in
    from vault.hardening import no_core

    no_core()
    return VaultFiles(config.state_dir(state_dir), handed_in(passphrase_file, seal_fd))
