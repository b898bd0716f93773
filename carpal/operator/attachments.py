"""`carpal session attachments`: the pictures and files that a session's results have attached."""

import hashlib
import json
from pathlib import Path

import click

from carpal.errors import CarpalError, invalid, refuse
from carpal.operator.asking import POSITION_MAX, events_of, get_session, run
from carpal.operator.attachment_rows import RESULTS, Attached, attached
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.files_out import content, new_folder
from carpal.operator.outcome import DONE
from carpal.operator.screen import notice
from carpal.status import Reason

_LOOKED_AT = 100
"""Newest results that `show` looks through."""
SHOWN_MAX = 20
"""Of those with attachments, the newest."""


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--at", type=click.IntRange(1, POSITION_MAX), help="Of the result at this position alone."
)
@click.option("--out", type=click.Path(path_type=Path), help="Save them to this new folder.")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@operator_options
def attachments(
    *, found: Found, session_id: str, at: int | None, out: Path | None, as_json: bool
) -> int:
    """List what a session's results have attached, pictures above all, and save it."""

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        if at is not None and at > info.head.position:
            raise refuse(
                Reason.POSITION_BEYOND_HEAD,
                f"--at {at} is beyond the log of {session_id}",
                action=f"it ends at position {info.head.position}",
            )
        listed = await _listed(operator, session_id, at)
        if out is not None:
            new_folder(out)
        missing = 0
        for each in listed:
            saved = await _save(operator, each, out) if out is not None else None
            missing += out is not None and saved is None
            row = {**each.row(), "file": str(saved) if saved else None}
            click.echo(json.dumps(row) if as_json else each.text())
        if not listed and not as_json:
            where = "" if at is None else f" at position {at}"
            notice(f"nothing is attached{where}")
        if out is not None:
            notice(f"{len(listed) - missing} files in {out}")
        if missing:
            notice(f"{missing} are in the store no more")
        return DONE

    return run(found, main)


async def newest(operator: Operator, session_id: str) -> list[Attached]:
    """The newest of a session's, of its newest results; oldest first."""
    events = []
    async for event in events_of(operator, session_id, *RESULTS, newest_first=True):
        events.append(event)
        if len(events) == _LOOKED_AT:
            break
    return list(attached(reversed(events)))[-SHOWN_MAX:]


async def _listed(operator: Operator, session_id: str, at: int | None) -> list[Attached]:
    after = 0 if at is None else at - 1
    found: list[Attached] = []
    async for event in events_of(operator, session_id, *RESULTS, after=after):
        if at is not None and event.position > at:
            break
        found += attached([event])
    return found


async def _save(operator: Operator, each: Attached, out: Path) -> Path | None:
    """Its file, which is new; None where its bytes are not there, or others."""
    to = out / each.file_name()
    hashed = hashlib.sha256()
    try:
        with to.open("xb") as file:
            async for data in content(operator, each.digest):
                hashed.update(data)
                file.write(data)
    except CarpalError as error:
        to.unlink(missing_ok=True)
        if error.reason is not Reason.BLOB_NOT_FOUND:
            raise
        return None
    except OSError as error:
        raise invalid("--out", f"{to} cannot be written: {error.strerror}") from None
    if hashed.hexdigest() != each.digest:
        to.unlink()
        return None
    return to
