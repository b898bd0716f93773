"""`carpal session redact`: one event's data is erased, and what was made of it.

The title goes first: once the data is erased nobody can tell what was in it.
Then the event, then the cuts of the window that stand for it, and the answers
they are of. Whoever is cut off does it again: what is left is found again.
"""

import json
from typing import Any

import click

from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.event_lines import dumps, event_object
from carpal.ids import new_id
from carpal.operator import picture_links
from carpal.operator.asking import POSITION_MAX, get_session, run
from carpal.operator.attachment_rows import attached
from carpal.operator.changing import change
from carpal.operator.connection import ANSWER_SECONDS, Found, Operator, operator_options
from carpal.operator.derived import derived
from carpal.operator.outcome import DONE
from carpal.operator.overview import is_live
from carpal.operator.screen import notice
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2

_BLOBS_SHOWN = 100
"""Requests that are named, the earliest; of more it is said how many."""


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("position", type=click.IntRange(1, POSITION_MAX))
@click.option("--reason", required=True, help="Stays in the log, with your name and the time.")
@click.option("--yes", is_flag=True, help="Yes, also an event that names the agent.")
@click.option("--json", "as_json", is_flag=True, help="The event, as one object.")
@operator_options
def redact(
    *, found: Found, session_id: str, position: int, reason: str, yes: bool, as_json: bool
) -> int:
    """Erase the data of one event for good, in every fork that shares it.

    Later cuts of the context window that stand for it are erased too, and a title that is in the
    event's text; metadata and labels are not.
    """

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        before = await _event_at(operator, session_id, position)
        if before is not None and before.HasField("redaction"):
            _say_redacted_before(before.redaction)
            event = before
            await _redact_derived(operator, session_id, before, reason)
        else:
            if before is not None:
                _check_agent_may_go(before, yes=yes)
                await _clear_title(operator, info, before)
            event = await _redact(operator, session_id, position, reason)
            for each in attached([before] if before is not None else []):
                notice(f"what it attached stays in the store, to who knows its digest: {each.blob}")
            await _redact_derived(operator, session_id, before or event, reason)
        picture_links.forget(session_id)
        if is_live(info.lease):
            notice("a brain drives the session now, and may still hold it: do it again once idle")
        if as_json:
            click.echo(dumps(event_object(event)))
        else:
            click.echo(f"{event.type} at position {event.position} is redacted")
        return DONE

    return run(found, main)


async def _event_at(operator: Operator, session_id: str, position: int) -> types_pb2.Event | None:
    """The event, unless the log is shorter."""
    request = session_pb2.GetEventsRequest(session_id=session_id, after=position - 1, limit=1)
    with rpc_errors(operator.sessiond):
        answer = await operator.sessions.GetEvents(request, timeout=ANSWER_SECONDS)
    return next((event for event in answer.events if event.position == position), None)


async def _redact_derived(
    operator: Operator, session_id: str, event: types_pb2.Event, reason: str
) -> None:
    """Redact what was made of an event, and say what and how much; of what stays, where it is."""
    made = await derived(operator, session_id, event)
    for position in [*made.cuts, *made.answers]:
        await _redact(operator, session_id, position, reason)
    if made.cuts or made.answers:
        count, where = len(made.cuts), ", ".join(map(str, sorted(made.cuts + made.answers)))
        notice(
            f"{count} later cut{'s' * (count != 1)} of the window stood for it, with "
            f"{len(made.answers)} of the model's answers: redacted too, at {where}"
        )
    for blob, position in list(made.blobs.items())[:_BLOBS_SHOWN]:
        notice(f"a request that is kept whole may hold it, and stays: {blob}, at {position}")
    if (more := len(made.blobs) - _BLOBS_SHOWN) > 0:
        notice(f"and {more} more such requests stay")


def _say_redacted_before(redaction: types_pb2.Redaction) -> None:
    when = redaction.time.ToJsonString()
    notice(f"it was redacted before, at {when} by {redaction.by}: {redaction.reason}")


def _check_agent_may_go(event: types_pb2.Event, *, yes: bool) -> None:
    if event.type == "session.updated" and not yes:
        raise refuse(
            Reason.INVALID_FIELD,
            f"position {event.position} is a session.updated: without its agent and hands "
            "a session does not go on, unless a later one names them",
            action="say so with --yes",
            field="--yes",
        )


async def _clear_title(
    operator: Operator, info: types_pb2.SessionInfo, event: types_pb2.Event
) -> None:
    """Clear the session's title when it is in what will be erased."""
    if not info.title or not says(event.data, info.title):
        return
    request = session_pb2.UpdateSessionRequest(
        session_id=info.session_id, event_id=new_id("sevt"), title="", data=b'{"title": ""}'
    )
    try:
        await change(
            operator,
            lambda timeout: operator.sessions.UpdateSession(request, timeout=timeout),
            look="the title may be cleared, nothing is redacted yet: do it again",
        )
    except CarpalError as error:
        if error.reason is not Reason.SESSION_ARCHIVED:
            raise
        notice("the title has text of it and stays: an archived session keeps its title")
    else:
        notice("the title had text of it, and is cleared")


def says(data: bytes, title: str) -> bool:
    """Whether a title is in any text of an event's data, however spaces and lines are there."""
    wanted = " ".join(title.split())
    try:
        texts = _texts(json.loads(data))
    except (ValueError, RecursionError):
        texts = [data.decode(errors="replace")]
    return any(wanted in " ".join(text.split()) for text in texts)


def _texts(value: Any) -> list[str]:
    """All texts in a value of JSON."""
    found, left = [], [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            left += [*part, *part.values()]
    return found


async def _redact(
    operator: Operator, session_id: str, position: int, reason: str
) -> types_pb2.Event:
    request = session_pb2.RedactEventRequest(
        session_id=session_id, position=position, reason=reason
    )
    answer = await change(
        operator,
        lambda timeout: operator.sessions.RedactEvent(request, timeout=timeout),
        look="it may be redacted: do it again, or look with "
        f"`carpal session tail {session_id} --after {position - 1}`",
    )
    return answer.event
