"""`carpal session limits`: what a session may spend on the model, what it has, and more of it."""

import json
from typing import Any

import click

from carpal.agent import Limits
from carpal.errors import invalid
from carpal.ids import new_id
from carpal.operator.asking import events_of, get_session, run
from carpal.operator.changing import change
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.events import data_of, object_in
from carpal.operator.outcome import DONE
from carpal.v1 import session_pb2, types_pb2

NAMES = Limits.__struct_fields__


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--model-requests", metavar="N|none", help="How many requests of the model.")
@click.option("--input-tokens", metavar="N|none", help="Tokens it reads, cached ones too.")
@click.option("--output-tokens", metavar="N|none", help="Tokens it writes.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def limits(*, found: Found, session_id: str, as_json: bool, **said: str | None) -> int:
    """Show what a session may spend on the model, or change it; `none` takes a limit away.

    One whose limit was reached goes on where it was.
    """
    wanted = {name: _amount(name, text) for name, text in said.items() if text is not None}

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        if wanted:
            await _change(operator, session_id, wanted)
        shown = limits_of(await _events(operator, info))
        click.echo(json.dumps(shown) if as_json else _text(shown))
        return DONE

    return run(found, main)


def limits_of(events: list[types_pb2.Event]) -> dict[str, Any]:
    """`limits` and `spent`, by the log; `spent` as of when the session was idle last."""
    now: dict[str, Any] = {}
    spent: dict[str, Any] = {}
    for event in events:
        data = data_of(event)
        if event.type == "session.status_idle":
            spent = object_in(data, "spent") or spent
            continue
        if "agent" in data:
            now = object_in(object_in(data, "agent"), "limits")
        now = {**now, **object_in(data, "limits")}
    return {
        "limits": {name: now[name] for name in NAMES if now.get(name) is not None},
        "spent": {name: spent.get(name, 0) for name in NAMES},
    }


async def _change(operator: Operator, session_id: str, wanted: dict[str, int | None]) -> None:
    data = json.dumps({"limits": wanted}).encode()
    request = session_pb2.UpdateSessionRequest(
        session_id=session_id, event_id=new_id("sevt"), data=data, wake=True
    )
    await change(
        operator,
        lambda timeout: operator.sessions.UpdateSession(request, timeout=timeout),
        look=f"it may have been accepted: look with `carpal session limits {session_id}`",
    )


async def _events(operator: Operator, info: types_pb2.SessionInfo) -> list[types_pb2.Event]:
    """The events that say so, oldest first: all of the agent's, and its own newest idle."""
    session_id, own = info.session_id, max(info.forked_at, info.imported_to)
    updates = [event async for event in events_of(operator, session_id, "session.updated")]
    idles = events_of(operator, session_id, "session.status_idle", after=own, newest_first=True)
    async for idle in idles:
        return [*updates, idle]
    return updates


def _amount(name: str, text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) > 0):
        flag = f"--{name.replace('_', '-')}"
        raise invalid(flag, f"{text!r} is neither a whole number above 0 nor none")
    return int(text)


def _text(shown: dict[str, Any]) -> str:
    lines = []
    for name in NAMES:
        limit = shown["limits"].get(name)
        of = f"of {limit}" if limit is not None else "no limit"
        lines.append(f"{name.replace('_', ' '):<14}  {shown['spent'][name]:>12}  {of}")
    return "\n".join(lines)
