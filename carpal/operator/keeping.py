"""`carpal session fork|archive|delete`: what becomes of a session and its log."""

import json

import click

from carpal.errors import refuse
from carpal.ids import new_id
from carpal.operator import picture_links
from carpal.operator.asking import POSITION_MAX, checked, get_session, run
from carpal.operator.changing import change
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.outcome import DONE
from carpal.operator.overview import row, row_text
from carpal.status import Reason
from carpal.v1 import session_pb2


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--at", type=click.IntRange(0, POSITION_MAX), help="The last position shared.  [the head]"
)
@click.option("--title", default="", help="Of the new session.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def fork(*, found: Found, session_id: str, at: int | None, title: str, as_json: bool) -> int:
    """Begin a new session that shares a log up to a position; print its id."""

    async def main(operator: Operator) -> int:
        position = at
        if position is None:
            position = (await get_session(operator, session_id)).head.position
        new = new_id("sesn")
        request = session_pb2.ForkSessionRequest(
            source_session_id=checked(session_id), position=position, session_id=new, title=title
        )
        await change(
            operator,
            lambda timeout: operator.sessions.ForkSession(request, timeout=timeout),
            look=f"the fork may be there: look with `carpal session show {new}` "
            "before you make another",
        )
        shown = {"session_id": new, "forked_from": session_id, "forked_at": position}
        click.echo(json.dumps(shown) if as_json else new)
        return DONE

    return run(found, main)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def archive(*, found: Found, session_id: str, as_json: bool) -> int:
    """Close a session to appends; its log stays readable."""

    async def main(operator: Operator) -> int:
        request = session_pb2.ArchiveSessionRequest(session_id=checked(session_id))
        answer = await change(
            operator,
            lambda timeout: operator.sessions.ArchiveSession(request, timeout=timeout),
            look=f"it may be archived: look with `carpal session show {session_id}`",
        )
        shown = row(answer.session)
        click.echo(json.dumps(shown) if as_json else row_text(shown))
        return DONE

    return run(found, main)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--yes", is_flag=True, help="Yes: it cannot be undone.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def delete(*, found: Found, session_id: str, yes: bool, as_json: bool) -> int:
    """Delete a session and its log for good; what its forks share stays with them."""
    if not yes:
        raise refuse(
            Reason.INVALID_FIELD,
            f"{checked(session_id)} would be deleted for good",
            action="say so with --yes; `carpal session export` keeps a copy",
            field="--yes",
        )

    async def main(operator: Operator) -> int:
        request = session_pb2.DeleteSessionRequest(session_id=checked(session_id))
        await change(
            operator,
            lambda timeout: operator.sessions.DeleteSession(request, timeout=timeout),
            look=f"it may be deleted: look with `carpal session show {session_id}`",
        )
        picture_links.forget(session_id)
        shown = {"session_id": session_id, "deleted": True}
        click.echo(json.dumps(shown) if as_json else f"{session_id} is deleted")
        return DONE

    return run(found, main)


COMMANDS = (fork, archive, delete)
