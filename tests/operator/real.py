"""A real sessiond for the commands: its store, its server, its signatures."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carpal.identity import Role
from carpal.v1 import session_pb2, types_pb2
from tests.operator.log import text
from tests.pki import Pki
from tests.sessiond.clocks import FakeClock
from tests.sessiond.serving import Serving, serving

SESSION = "sesn_1"


@asynccontextmanager
async def real_sessiond(tmp_path: Path) -> AsyncIterator[Serving]:
    """Serve it, and leave its address where an operator's commands find it."""
    folder, operator = tmp_path / "sessiond", tmp_path / "state" / "operator"
    folder.mkdir()
    pki = Pki(tmp_path / "pki")
    pki.issue(Role.OPERATOR, "ann", directory=operator / "identity")
    async with serving(folder, pki, FakeClock(wall=time.time_ns())) as server:
        (operator / "operator.toml").write_text(f'sessiond = "{server.address}"\n')
        yield server


async def create(server: Serving, *datas: bytes, session_id: str = SESSION) -> None:
    """A session with an event for each data; three messages by default."""
    ann = await server.operator("ann")
    said = datas or tuple(json.dumps(text(f"message {n}")).encode() for n in (1, 2, 3))
    events = [
        types_pb2.NewEvent(id=f"e{n}", type="user.message", data=data)
        for n, data in enumerate(said, start=1)
    ]
    request = session_pb2.CreateSessionRequest(
        session_id=session_id, title="to keep", labels={"team": "a"}, events=events
    )
    await ann.CreateSession(request)


async def events_of(server: Serving, session_id: str = SESSION) -> list[types_pb2.Event]:
    """The whole log, as sessiond has it."""
    ann = await server.operator("ann")
    answer = await ann.GetEvents(session_pb2.GetEventsRequest(session_id=session_id, limit=1000))
    return list(answer.events)


def lines(text: str) -> list[dict[str, Any]]:
    """What a command or a file has, line by line."""
    return [json.loads(line) for line in text.splitlines()]
