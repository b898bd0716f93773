"""`carpal session`: read, follow and steer sessions; what keeps them is in modules beside."""

import asyncio
import json
from typing import ClassVar

import click

from carpal.cli_parts import PartsGroup
from carpal.client import rpc_errors
from carpal.errors import refuse
from carpal.operator import (
    attachments,
    blob_out,
    deciding,
    exporting,
    files,
    importing,
    keeping,
    limiting,
    overview,
    picture_links,
    redacting,
    retention,
    saving,
    verifying,
    why_command,
)
from carpal.operator.asking import checked, events_of, get_session, run
from carpal.operator.connection import ANSWER_SECONDS, Found, Operator, operator_options
from carpal.operator.follow import follow, until_processed
from carpal.operator.inbox import send_interrupt, send_message
from carpal.operator.outcome import DONE, EndOfTail, Turn
from carpal.operator.said import said
from carpal.operator.screen import LineScreen, LiveScreen, notice, notice_missing
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2

_PAGE = 1000
STOP_SECONDS = 60.0
"""How long an interrupted session may take to be idle: a tool has a grace to end in."""


class _Commands(PartsGroup):
    """What reads a log as the brain does is the brain's; what asks for consent, the vault's."""

    entry_group = "carpal.session_commands"
    summaries: ClassVar = {
        "consent": "Have the session's user consent to the MCP servers that wait for it.",
        "replay": "Run a harness over the log, and show where it would part from it.",
        "request": "Make the exact input of a model call again, and check its hash.",
    }


@click.group(cls=_Commands)
def session() -> None:
    """Read, follow, steer and keep sessions."""


for _command in (
    *verifying.COMMANDS,
    *deciding.COMMANDS,
    attachments.attachments,
    exporting.export,
    files.files,
    importing.import_,
    limiting.limits,
    *keeping.COMMANDS,
    redacting.redact,
    retention.retention,
    saving.save,
    blob_out.blob,
    why_command.why,
):
    session.add_command(_command)


@session.command("ls")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--archived", is_flag=True, help="Archived ones too.")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@operator_options
def ls(*, found: Found, limit: int, archived: bool, as_json: bool) -> int:
    """List the workspace's sessions, newest first."""

    async def main(operator: Operator) -> int:
        sessions: list[types_pb2.SessionInfo] = []
        token = ""
        while len(sessions) < limit:
            request = session_pb2.ListSessionsRequest(
                limit=min(limit - len(sessions), _PAGE),
                page_token=token,
                include_archived=archived,
            )
            with rpc_errors(operator.sessiond):
                page = await operator.sessions.ListSessions(request, timeout=ANSWER_SECONDS)
            sessions += page.sessions
            token = page.next_page_token
            if not token:
                break
        for info in sessions:
            row = overview.row(info)
            click.echo(json.dumps(row) if as_json else overview.row_text(row))
        if not sessions and not as_json:
            notice("no sessions yet: start one with `carpal run TASK`")
        return DONE

    return run(found, main)


@session.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def show(*, found: Found, session_id: str, as_json: bool) -> int:
    """Show where a session stands: its status, driver and hands, and what waits for a person."""

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        # What came with a fork or an import speaks of another session's hands.
        own = max(info.forked_at, info.imported_to)
        events = [e async for e in events_of(operator, session_id, *overview.TYPES, after=own)]
        calls = await deciding.newest_calls(operator, info)
        pictures = await attachments.newest(operator, session_id)
        shown = overview.details(info, events, calls.waiting, pictures)
        if as_json:
            click.echo(json.dumps(shown))
        else:
            links = await picture_links.links(operator, session_id, pictures)
            click.echo(overview.details_text(shown, links))
        return DONE

    return run(found, main)


@session.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Start above this position.")
@click.option(
    "--follow/--no-follow", "on", default=None,
    help="Go on until Ctrl-C; or end at the head.  [until the session is idle]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Each event as one object a line.")
@operator_options
def tail(*, found: Found, session_id: str, after: int, on: bool | None, as_json: bool) -> int:
    """Print a session's log, to its end if it is idle, else until it is."""

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        end = EndOfTail(info, on)
        if after > info.head.position:
            raise refuse(
                Reason.POSITION_BEYOND_HEAD,
                f"--after {after} is beyond the log of {session_id}",
                action=f"it ends at position {info.head.position}",
            )
        if not end.at(after):
            screen = LineScreen(as_json=as_json)
            await follow(operator, session_id, screen, until=end.take, after=after, live=False)
        return DONE

    return run(found, main)


@session.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("text")
@click.option("--wait", is_flag=True, help="Follow the session until it is idle again.")
@click.option(
    "--json", "as_json", is_flag=True,
    help="The event, as one object; with --wait how the turn went, as of `carpal run --json`.",
)  # fmt: skip
@operator_options
def send(*, found: Found, session_id: str, text: str, wait: bool, as_json: bool) -> int:
    """Send a session a message (`-` reads it from stdin) and wake it."""
    message = said(text, "TEXT")

    async def main(operator: Operator) -> int:
        event = await send_message(operator, checked(session_id), message)
        if not wait:
            _say_sent(event, as_json=as_json)
            return DONE
        turn, screen = Turn(event.position), LiveScreen(quiet=as_json, own=event.position)
        await follow(operator, session_id, screen, until=turn.take, after=event.position)
        click.echo(json.dumps(turn.report(session_id)) if as_json else turn.stop_reason)
        notice_missing(turn.missing_hands)
        return turn.exit_code

    return run(found, main)


@session.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--wait", is_flag=True, help="Wait until the session is idle.")
@click.option("--json", "as_json", is_flag=True, help="The event, as one object.")
@operator_options
def interrupt(*, found: Found, session_id: str, wait: bool, as_json: bool) -> int:
    """Stop what a session is doing; its log and hands stay."""

    async def main(operator: Operator) -> int:
        idle = overview.status_of(await get_session(operator, session_id)) not in (
            "running",
            "waiting",
        )
        event = await send_interrupt(operator, session_id)
        if idle:
            notice(f"nothing was running in {session_id}")
        _say_sent(event, as_json=as_json)
        if wait:
            await _until_stopped(operator, session_id, event.position)
        return DONE

    return run(found, main)


async def _until_stopped(operator: Operator, session_id: str, position: int) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await until_processed(operator, session_id, position)
    except TimeoutError:
        raise refuse(
            Reason.UNAVAILABLE,
            f"{session_id} did not stop within {STOP_SECONDS:.0f} s",
            action="look at it with `carpal session show`",
        ) from None


def _say_sent(event: types_pb2.Event, *, as_json: bool) -> None:
    if as_json:
        LineScreen(as_json=True).event(event)
    else:
        click.echo(f"{event.type} at position {event.position}")
