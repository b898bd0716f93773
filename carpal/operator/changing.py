"""Changing something at sessiond: sent again under the same ids until it is answered.

Every change carries ids that its caller chose, so that sending it again is
safe. Whether one without an answer landed nobody knows: then that is said.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.errors import Unreachable, refuse
from carpal.operator.connection import ANSWER_SECONDS, Operator
from carpal.v1 import session_pb2

_Answer = TypeVar("_Answer")


async def change(
    operator: Operator, ask: Callable[[float], Awaitable[_Answer]], *, look: str
) -> _Answer:
    """The answer to the RPC that `ask` makes, given its seconds; made again if it is not answered.

    Raises UNREACHABLE when sessiond does not answer in time; then `look` is the
    advice: what may have happened, and how to see. When it does not answer at
    all nothing is sent, and the advice is the usual one.
    """
    await _reach(operator)
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_SECONDS
    backoff = Backoff(first=0.2, cap=2.0)
    while True:
        try:
            with rpc_errors(operator.sessiond):
                return await ask(until - loop.time())
        except Unreachable as error:
            wait = backoff.next()
            if loop.time() + wait >= until:
                raise refuse(error.reason, error.message, action=look) from None
        await asyncio.sleep(wait)


async def _reach(operator: Operator) -> None:
    """See that sessiond answers, by a read: of one that does not, we know that nothing landed."""
    with rpc_errors(operator.sessiond):
        request = session_pb2.ListSessionsRequest(limit=1)
        await operator.sessions.ListSessions(request, timeout=ANSWER_SECONDS)
