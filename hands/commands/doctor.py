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
from hands.commands.options import CONFIG, STATE

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


@click.command()
@STATE
@CONFIG
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file; it must not be there.  [carpal-hand-TIME.zip]",
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The daemon's log, if systemd does not keep it.",
)
@click.option("--json", "as_json", is_flag=True, help="One object.")
def diag(
    state_dir: Path | None,
    config_file: Path | None,
    output: Path | None,
    log: Path | None,
    as_json: bool,
) -> None:
    """Write one file about this machine's daemon, with no secret in it, to be shown to others.

    In it: what `doctor` says, the settings, the daemon's status and numbers, its recent log, the
    journal in numbers, versions, and what of the machine matters. Nothing of what calls were given.
    """
    from hands.diag import bundle
    from hands.doctor import settings
    from hands.doctor.subject import Subject, utc_now

    logs.setup(level="critical")
    path = output or Path(f"carpal-hand-{utc_now():%Y%m%dT%H%M%SZ}.zip")
    if path.exists():
        raise invalid("--output", f"{path} is there already; name another file")
    found, first = settings.read(state_dir, config_file)
    made, secrets = asyncio.run(bundle.members_of(Subject(found), [first], log))
    size = bundle.write(path, made, secrets)
    if as_json:
        rows = [{"name": each.name, "bytes": len(each.data), "holds": each.holds} for each in made]
        click.echo(json.dumps({"file": str(path), "bytes": size, "members": rows}))
        return
    click.echo(f"wrote {path}, {size} bytes:")
    for each in made:
        click.echo(f"  {each.name:14} {len(each.data):7}  {each.holds}")
    click.echo(f"secrets were taken out; look through it before you send it: unzip -p {path}")
