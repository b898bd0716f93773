"""What the commands of `carpal hand` have in common: their state folder and settings."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpal import config
from carpal.errors import CarpalError
from carpal.proxy import Way
from carpal.status import Reason
from hands.systemd.noted import meant

if TYPE_CHECKING:
    from hands.app import HandConfig

STATE = click.option(
    "--state-dir",
    envvar="CARPAL_STATE",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where state lives (CARPAL_STATE).",
)
CONFIG = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A TOML file.  [the installed service's, else /etc/carpal/hand.toml]",
)


def settings_of(
    state_dir: Path | None, config_file: Path | None, unit: Path | None = None
) -> "HandConfig":
    """What the service here goes by, or `carpal hand run` would: see `hands.systemd.noted`."""
    from hands.app import HandConfig

    state_dir, config_file = meant(state_dir, config_file, unit)
    return config.load(HandConfig, "hand", {"state_dir": state_dir}, config_file)


def settings_even_so(
    state_dir: Path | None, config_file: Path | None, unit: Path | None = None
) -> "HandConfig":
    """As `settings_of`, for what an owner must be able to do whatever their settings file says.

    What is wrong with it is said, and the others' defaults count, on the service's state folder.
    """
    from hands.app import HandConfig

    try:
        return settings_of(state_dir, config_file, unit)
    except CarpalError as error:
        if error.reason is not Reason.CONFIG_INVALID:
            raise
        folder = meant(state_dir, config_file, unit)[0] or config.state_dir()
        click.echo(f"carpal: {error}; without it, on {folder}:", err=True)
        return config.load(HandConfig, "hand", {"state_dir": folder}, Path(os.devnull))


def folder_of(state_dir: Path | None, config_file: Path | None) -> Path:
    """The folder of the daemon here: where it answers, and keeps its audit."""
    from hands.files import HandFiles

    return HandFiles(settings_even_so(state_dir, config_file).state_dir).folder


def asking(settings: "HandConfig") -> tuple[Path, str, Way]:
    """This machine's identity, where to ask about it (`host:port`), and the way there."""
    from hands.enroll import Links, links_path
    from hands.files import HandFiles

    files = HandFiles(settings.state_dir)
    files.check_enrolled()
    folder = files.identity_dir
    return folder, Links.load(links_path(folder)).enrollment, Way(settings.proxy)
