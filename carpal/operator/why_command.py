"""`carpal session why`: reads a session's log and the fleet, and answers in sentences."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from carpal.errors import CarpalError
from carpal.operator import story
from carpal.operator import why as reasons
from carpal.operator.asking import events_of, get_session, run
from carpal.operator.connection import ANSWER_SECONDS, Found, Operator, operator_options
from carpal.operator.events import data_of
from carpal.operator.outcome import DONE
from carpal.v1 import orchestrator_pb2, types_pb2

if TYPE_CHECKING:
    from carpal.v1.orchestrator_pb2_grpc import OrchestratorAsyncStub

_EVENTS_MAX = 2_000
"""The newest events that are read, of those it is told by: a turn, and most often many."""


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def why(*, found: Found, session_id: str, as_json: bool) -> int:
    """Say why a session stands as it stands, and what to do.

    Reads its log and asks the fleet. Shows ids, names and times, and nothing that was said in it.
    """

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        events = await _newest(operator, info)
        brains = len(await operator.brains())
        fleet = await _fleet(operator)
        findings = reasons.why(info, events, fleet, brains, datetime.now(UTC))
        report = json.dumps(reasons.report(info, findings))
        click.echo(report if as_json else reasons.text(findings))
        return DONE

    return run(found, main)


async def _newest(operator: Operator, info: types_pb2.SessionInfo) -> list[types_pb2.Event]:
    """The newest events that it is told by, in order; none of another session's hands."""
    own = max(info.forked_at, info.imported_to)
    newest: list[types_pb2.Event] = []
    async for event in events_of(
        operator, info.session_id, *story.TYPES, after=own, newest_first=True
    ):
        newest.append(event)
        if len(newest) == _EVENTS_MAX:
            break
    return await _plans(operator, info, newest) + newest[::-1]


async def _plans(
    operator: Operator, info: types_pb2.SessionInfo, newest: list[types_pb2.Event]
) -> list[types_pb2.Event]:
    """The event that says which hands there are, where it is older than all that was read."""
    kind = "session.updated"
    if any(event.type == kind and "hands" in data_of(event) for event in newest):
        return []
    async for event in events_of(operator, info.session_id, kind, newest_first=True):
        if "hands" in data_of(event):
            return [event]
    return []


async def _fleet(operator: Operator) -> list[orchestrator_pb2.DaemonInfo] | None:
    """The workspace's daemons; None when no brain tells."""

    async def ask(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.ListDaemonsResponse:
        request = orchestrator_pb2.ListDaemonsRequest()
        return await brain.ListDaemons(request, timeout=ANSWER_SECONDS)

    try:
        answer = await operator.ask_a_brain(ask, no_brain="")
    except CarpalError:
        return None  # that is said among the findings
    return list(answer.daemons)
