"""`carpal hand new` and `call`: for whoever writes a hand type."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carpal import logs
from carpal.errors import refuse
from carpal.status import Reason
from hands.commands.options import CONFIG, settings_of

if TYPE_CHECKING:
    from hands.contract import HandType


@click.command()
@click.argument("name")
@click.option(
    "--in",
    "parent",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="The folder to make it in.  [this one]",
)
def new(name: str, parent: Path) -> None:
    """Write a hand type in Python, with its test and what installs it, into a folder NAME."""
    from hands import template

    folder = template.write(name, parent)
    click.echo(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    click.echo(
        f"next: pip install -e {folder} pytest    # once; a daemon has it from its next start"
    )
    click.echo(f"      python -m pytest {folder}")
    click.echo(f'      carpal hand call {name} greet \'{{"whom": "Ada"}}\'')
    click.echo(f'      carpal hand check --type {name} --call greet \'{{"whom": "Ada"}}\'')


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("tool")
@click.argument("given", metavar="JSON", default="{}")
@click.option(
    "--endpoint", metavar="unix:///PATH", help="A hand server's socket, that serves the type."
)
@click.option("--hand-config", metavar="JSON", default="{}", help="The hand's config.")
@click.option("--time-limit", type=click.FloatRange(0.001), help="Seconds.  [the tool's own]")
@click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for what is attached to the result; nothing that is there is written over.",
)
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "off", "required"]),
    envvar="CARPAL_SANDBOX",
    default="auto",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="The result as one object.")
@CONFIG
def call(  # noqa: PLR0917 - click passes by name
    type_name: str,
    tool: str,
    given: str,
    endpoint: str | None,
    hand_config: str,
    time_limit: float | None,
    save: Path | None,
    sandbox: str,
    as_json: bool,
    config_file: Path | None,
) -> int:
    """Run one call of TOOL on a hand of TYPE that is made for it; needs no brain and no daemon.

    The result goes to standard output. What the call gives as it comes, and what the hand says
    when it is made, go to standard error. TYPE is installed here, or named under [sockets] in
    hand.toml, or served at --endpoint. Exit code 0 when the outcome is ok, 1 when it is another
    or the hand did not end, 2 for an input or a config that does not fit, 3 when no hand can be
    made here now, 5 when there is no such type or tool.
    """
    from hands import calling, types
    from hands.conformance.subject import socket_of

    logs.setup(level="warning")  # how the hand is made and ended is not asked
    settings = settings_of(None, config_file)
    if endpoint is not None:
        found: Mapping[str, HandType] = {
            type_name: types.served(type_name, socket_of(endpoint), daemon=False, exactly=True)
        }
    else:
        found = types.installed(sandbox, settings.sockets, daemon=False)
    if type_name not in found:
        there = ", ".join(sorted(found)) or "none"
        raise refuse(
            Reason.HAND_TYPE_NOT_FOUND,
            f"no hand type {type_name!r} is installed here; there is {there}",
            action="install what brings it, give its server's --endpoint, or name that under "
            "[sockets] in hand.toml",
        )
    asked = calling.Asked(
        type=type_name,
        tool=tool,
        given=calling.checked_object("JSON", given),
        config=calling.checked_object("--hand-config", hand_config),
        time_limit=time_limit or 0.0,
        save=save,
        daemon=settings.state_dir,
    )

    def output(data: bytes) -> None:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()

    result, left, saved = asyncio.run(
        calling.call(
            {type_name: found[type_name]},
            asked,
            note=lambda text: click.echo(text, err=True),
            output=output,
        )
    )
    shown = calling.as_json(result, saved)
    click.echo(json.dumps(shown) if as_json else result.content)
    if shown["outcome"] != "ok" and not as_json:
        click.echo(f"outcome: {shown['outcome']}", err=True)
    for each in saved:
        size = f"{each.attachment.media_type or 'of no kind'}, {each.attachment.size} bytes"
        click.echo(f"saved {each.file} ({size})" if each.file else f"carpal: {each.why}", err=True)
    if left:
        click.echo(f"carpal: {left}", err=True)
    whole = not left and all(each.file for each in saved)
    return 0 if shown["outcome"] == "ok" and whole else 1
