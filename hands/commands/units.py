"""`carpal hand units`: the phones and benches of this machine, who holds them, and how they are."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from carpal.errors import refuse
from carpal.status import Reason
from hands.commands.options import CONFIG, STATE, folder_of

_LOOK = 0.5
"""Seconds between looks at a reset."""
_LONGEST = 75.0
"""Seconds to wait for a reset; the daemon gives it a minute."""


@click.command("units")
@STATE
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--clear", metavar="UNIT", default="", help="Reset it, and out of quarantine.")
@click.option("--type", "type_name", default="", help="Of --clear, where two types have one UNIT.")
def units(
    state_dir: Path | None, config_file: Path | None, as_json: bool, clear: str, type_name: str
) -> int:
    """Show the units of hand types that have some: labels, holder, health.

    One that could not be reset is in quarantine, and given to no hand, until --clear: that resets
    it once more, and takes it out if that works. Exit code 1 when it does not.
    """
    from hands.local.asking import ask

    folder = folder_of(state_dir, config_file)
    if clear:
        asked = {"unit_id": clear} | ({"type": type_name} if type_name else {})
        ask(folder, "/units/clear", asked)
        row = _cleared(folder, clear, type_name)
        click.echo(json.dumps(row) if as_json else text(row))
        return 0 if row["healthy"] and not row["resetting"] else 1
    told = ask(folder, "/units")
    rows: Sequence[Mapping[str, Any]] = told["units"]
    unknown: Sequence[Mapping[str, Any]] = told.get("unknown", ())
    if as_json:
        click.echo(json.dumps({"units": rows, "unknown": unknown}))
        return 0
    for row in rows:
        click.echo(text(row))
    for each in unknown:
        click.echo(f"{each['type']}  which units it has is not known: {each['reason']}")
    if not rows and not unknown:
        click.echo("no hand type here has units now")
    return 0


def text(row: Mapping[str, Any]) -> str:
    """A unit for people, in one line."""
    labels = " ".join(f"{key}={value}" for key, value in sorted(row["labels"].items()))
    state = "free"
    if row["resetting"]:
        state = f"being reset after {row['holder']}" if row["holder"] else "being reset"
    elif row["holder"]:
        state = f"held by {row['holder']}"
    if not row["healthy"]:
        state = f"QUARANTINE: {row['reason']}" if not row["holder"] else f"{state}; {row['reason']}"
    return "  ".join(each for each in (row["type"], row["unit_id"], labels, state) if each)


def _cleared(folder: Path, unit_id: str, type_name: str) -> Mapping[str, Any]:
    """A unit once its reset is over."""
    from hands.local.asking import ask

    ends = time.monotonic() + _LONGEST
    while True:
        rows = ask(folder, "/units")["units"]
        found = [
            row for row in rows if row["unit_id"] == unit_id and type_name in ("", row["type"])
        ]
        if not found:
            raise refuse(Reason.UNAVAILABLE, f"unit {unit_id!r} is gone", action="see what is left")
        row: Mapping[str, Any] = found[0]
        if not row["resetting"] or time.monotonic() >= ends:
            return row
        time.sleep(_LOOK)
