"""What every `carpal session` command does: check the id, connect, ask, and say how it ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from carpal import process
from carpal.cli import INTERRUPTED
from carpal.client import rpc_errors
from carpal.ids import check_id
from carpal.operator.connection import ANSWER_SECONDS, Found, Operator, connect
from carpal.operator.screen import notice
from carpal.v1 import session_pb2, types_pb2

POSITION_MAX = 2**63 - 1
"""No log is as long: what is beyond is a slip, and not to be sent."""


_PAGE = 200


def checked(session_id: str) -> str:
    """`session_id`, or INVALID_FIELD when it cannot be one."""
    return check_id(session_id, "SESSION")


async def get_session(operator: Operator, session_id: str) -> types_pb2.SessionInfo:
    """Where a session stands."""
    request = session_pb2.GetSessionRequest(session_id=checked(session_id))
    with rpc_errors(operator.sessiond):
        answer = await operator.sessions.GetSession(request, timeout=ANSWER_SECONDS)
    return answer.session


async def get_signed(
    operator: Operator, session_id: str
) -> tuple[types_pb2.SessionInfo, types_pb2.SignedBytes]:
    """Where a session stands, and its head signed by sessiond at the same moment."""
    request = session_pb2.GetSessionRequest(session_id=checked(session_id), sign_head=True)
    with rpc_errors(operator.sessiond):
        answer = await operator.sessions.GetSession(request, timeout=ANSWER_SECONDS)
    return answer.session, answer.signed_head


async def events_of(
    operator: Operator,
    session_id: str,
    *types: str,
    after: int = 0,
    newest_first: bool = False,
) -> AsyncIterator[types_pb2.Event]:
    """A session's events of some types above a position, page by page as they are taken."""
    order = (
        types_pb2.EVENT_ORDER_NEWEST_FIRST if newest_first else types_pb2.EVENT_ORDER_UNSPECIFIED
    )
    request = session_pb2.GetEventsRequest(
        session_id=session_id, types=types, order=order, limit=_PAGE
    )
    if not newest_first:
        request.after = after
    while True:
        with rpc_errors(operator.sessiond):
            answer = await operator.sessions.GetEvents(request, timeout=ANSWER_SECONDS)
        for event in answer.events:
            if event.position <= after:  # newest first: those that follow are older still
                return
            yield event
        if not answer.more or not answer.events:
            return
        last = answer.events[-1].position
        if newest_first:
            request.before = last
        else:
            request.after = last


def run(found: Found, work: Callable[[Operator], Coroutine[Any, Any, int]]) -> int:
    """Run against sessiond until done, or until Ctrl-C; the exit code."""
    code = INTERRUPTED

    async def main(stop: asyncio.Event) -> None:
        nonlocal code
        async with connect(found) as operator, asyncio.TaskGroup() as group:
            task = group.create_task(work(operator))
            await process.until_stopped(stop, task)
            if task.done():
                code = task.result()
            else:
                task.cancel()

    if process.run(main):  # a second Ctrl-C
        notice("left")
    return code
