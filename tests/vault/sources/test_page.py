"""What the page on secret managers shows is taken as it stands there."""

import re
import tomllib
from pathlib import Path

import click
from click.testing import CliRunner

from vault.commands.credential import add, rotate
from vault.sources.configured import configured

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-a-secret-manager.md"


def test_the_settings_of_the_page_are_settings() -> None:
    shown = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(shown) == 2
    for each in shown:
        configured(tomllib.loads(each)["sources"])


def test_the_options_of_the_page_are_options_of_the_command() -> None:
    shown = set(
        re.findall(
            r"(?<=\s)--[a-z-]+",
            "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)),
        )
    )
    known: set[str] = set()
    for command in (add, rotate):
        assert isinstance(command, click.Command)
        known |= {option for each in command.params for option in each.opts}
        assert CliRunner().invoke(command, ["--help"]).exit_code == 0
    assert shown
    assert shown <= known
