"""`carpal session approve` and `deny`: a person's word on calls that wait for it."""

import asyncio
import os
import sys

import click

from carpal.ids import check_id
from carpal.operator.asking import events_of, get_session, run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.events import data_of
from carpal.operator.inbox import send_confirmation, send_consent
from carpal.operator.outcome import DONE
from carpal.operator.said import said
from carpal.operator.screen import LineScreen, notice
from carpal.operator.waiting import TYPES, Asked, Calls
from carpal.v1 import types_pb2

_json = click.option("--json", "as_json", is_flag=True, help="Each event as one object a line.")


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("call_ids", metavar="[CALL]…", nargs=-1)
@_json
@operator_options
def approve(*, found: Found, session_id: str, call_ids: tuple[str, ...], as_json: bool) -> int:
    """Let calls run that wait for a person: those named, else all that wait.

    `carpal session show` says what waits. Of a user's consent that is waited for, it says that the
    vault has the credential by now: it is tried again.
    """
    return _decide(found, session_id, call_ids, allow=True, message="", as_json=as_json)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("call_ids", metavar="[CALL]…", nargs=-1)
@click.option("--message", help="Why, or what else to do; the model is told. `-` is stdin.")
@_json
@operator_options
def deny(
    *, found: Found, session_id: str, call_ids: tuple[str, ...], message: str | None, as_json: bool
) -> int:
    """Have calls that wait for a person never run: those named, else all that wait."""
    text = "" if message is None else said(message, "--message")
    return _decide(found, session_id, call_ids, allow=False, message=text, as_json=as_json)


COMMANDS = (approve, deny)


def _decide(
    found: Found,
    session_id: str,
    call_ids: tuple[str, ...],
    *,
    allow: bool,
    message: str,
    as_json: bool,
) -> int:
    for call_id in call_ids:
        check_id(call_id, "CALL")

    async def main(operator: Operator) -> int:
        calls = await newest_calls(operator, await get_session(operator, session_id))
        for asked in calls.named(call_ids, session_id):
            event = await _send(operator, session_id, asked, allow=allow, message=message)
            if as_json:
                LineScreen(as_json=True).event(event)
            else:
                click.echo(f"{'allowed' if allow else 'denied'} {asked.call_id}  {asked.text()}")
        return DONE

    return run(found, main)


async def _send(
    operator: Operator, session_id: str, asked: Asked, *, allow: bool, message: str
) -> types_pb2.Event:
    if asked.is_consent:
        return await send_consent(operator, session_id, asked.call_id, given=allow, message=message)
    return await send_confirmation(
        operator, session_id, asked.call_id, allow=allow, message=message
    )


async def newest_calls(operator: Operator, info: types_pb2.SessionInfo) -> Calls:
    """The calls of the model's newest reply, without those of another session's log."""
    own = max(info.forked_at, info.imported_to)
    events: list[types_pb2.Event] = []
    async for event in events_of(operator, info.session_id, *TYPES, newest_first=True):
        if _began_a_reply(event) or event.position <= own:
            break
        events.append(event)
    calls = Calls()
    for event in reversed(events):
        calls.take(event)
    return calls


def _began_a_reply(event: types_pb2.Event) -> bool:
    return event.type == "span.model_request_start" and not data_of(event).get("purpose")


def on_terminal() -> bool:
    """Whether a person can be asked here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def ask(asked: Asked) -> tuple[bool, str] | None:
    """A person's word, asked for on the terminal: whether it may run, and a message with a no.

    None when they leave it open (end of input).
    """
    click.echo(f"\nmay this run?  {asked.text()}")
    while True:
        click.echo("y for yes, n or `n REASON` for no: ", nl=False)
        line = await _line()
        if line is None:
            click.echo()
            return None
        word, _, reason = line.strip().partition(" ")
        if word.lower() in ("y", "yes") and not reason:
            return True, ""
        if word.lower() in ("n", "no"):
            return False, reason.strip()


def notice_waiting(session_id: str, waiting: list[Asked]) -> None:
    """A line for each call that a person must still decide, and one that says how."""
    for asked in waiting:
        notice(f"waits for a person: {asked.call_id}  {asked.text()}")
    if any(asked.is_consent for asked in waiting):
        notice(f"have it with `carpal session consent {session_id}`, or refuse it with `deny`")
    if not all(asked.is_consent for asked in waiting):
        notice(f"decide with `carpal session approve {session_id}`, or `deny`")


async def _line() -> str | None:
    """The next line of the terminal; None at its end. Nothing is lost if it is given up."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(0, ready.set)
    try:
        await ready.wait()
        data = os.read(0, 65536)
    finally:
        loop.remove_reader(0)
    return data.decode(errors="replace") if data else None
