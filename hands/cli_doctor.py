"""`carpal hand doctor` and `carpal hand diag`: what is wrong here, and a file to show to others."""

import asyncio
import json
import re
from pathlib import Path
from typing import TextIO

import click

from carpal import logs
from carpal.errors import invalid
from carpal.proof import TOKEN_MAX, parse_token
from hands.cli_options import CONFIG, STATE

_UNITS = {"s": 1.0, "m": 60.0}
_HOLD_MAX = 3600.0


@click.command()
@STATE
@CONFIG
@click.option("--hold", default="0s", metavar="TIME", help="Hold a stream so long, such as 75s.")
@click.option(
    "--token-file",
    type=click.File(),
    help="Before enrolling: look at the way to the brain this token names; '-' for stdin.",
)
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
def doctor(
    state_dir: Path | None,
    config_file: Path | None,
    hold: str,
    token_file: TextIO | None,
    as_json: bool,
) -> int:
    """Look at all a daemon needs here, and say of what is wrong what to do about it.

    Changes nothing, uses no token up, and may be run beside a daemon or without one, before this
    machine is enrolled or after. Exit code 0 when nothing failed, else 1.
    """
    from hands.doctor import rows, settings
    from hands.doctor.examination import examine
    from hands.doctor.subject import Subject

    logs.setup(level="critical")
    seconds = parse_hold(hold)
    token = None if token_file is None else parse_token(token_file.readline(TOKEN_MAX).strip())
    found, first = settings.read(state_dir, config_file)
    seen = [first]

    def say(row: rows.Row) -> None:
        click.echo(json.dumps(row.json()) if as_json else row.text())

    async def look() -> None:
        async for row in examine(Subject(found, token=token, hold=seconds), before=seen):
            say(row)
            seen.append(row)

    say(first)
    asyncio.run(look())
    return 1 if rows.failed(seen) else 0


def parse_hold(text: str) -> float:
    """Seconds of `75s` or `5m`; INVALID_FIELD for anything else, or beyond an hour."""
    match = re.fullmatch(r"(\d{1,6})([sm])", text)
    if match is None:
        raise invalid("--hold", f"{text!r} is not a number and s or m, such as 75s")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > _HOLD_MAX:
        raise invalid("--hold", f"{text} is more than 60m")
    return seconds
