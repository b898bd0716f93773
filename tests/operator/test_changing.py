"""A change that is not answered is sent again under its id, and never said to be lost."""

from typing import Any

import pytest

from carpal.errors import Unreachable, refuse
from carpal.operator import changing
from carpal.operator.connection import connect
from carpal.operator.inbox import send_message
from carpal.status import Reason
from carpal.v1 import session_pb2
from tests.operator.fakes import FakeSessiond, House

SESSION = "sesn_1"


class Deaf(FakeSessiond):
    """Takes every event once, and does not answer the first times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.ids: list[str] = []
        self._answers: dict[str, Any] = {}

    async def EmitEvent(self, request: Any, context: Any) -> Any:
        if request.event.id not in self._answers:
            self._answers[request.event.id] = await super().EmitEvent(request, context)
        self.ids.append(request.event.id)
        if len(self.ids) <= self.times:
            raise refuse(Reason.UNAVAILABLE, "the connection broke")
        return self._answers[request.event.id]


def deaf(house: House, times: int) -> Deaf:
    """Let the house's sessiond be one."""
    sessiond = Deaf(times)  # type: ignore[abstract]
    sessiond.logs[SESSION].add("session.status_idle")
    house.sessiond = sessiond
    return sessiond


async def test_a_message_without_an_answer_is_sent_again_and_is_there_once(
    tmp_path: Any,
) -> None:
    house = House(tmp_path)
    sessiond = deaf(house, times=4)
    async with house.serve_sessiond(), connect(house.found) as operator:
        event = await send_message(operator, SESSION, "go on")
    assert (event.position, event.id) == (2, sessiond.ids[0])
    assert (len(sessiond.ids), set(sessiond.ids)) == (5, {event.id})
    assert len(sessiond.logs[SESSION].events) == 2


async def test_one_that_is_never_answered_is_said_to_be_there_perhaps(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "ANSWER_SECONDS", 0.5)
    house = House(tmp_path)
    sessiond = deaf(house, times=1000)
    async with house.serve_sessiond(), connect(house.found) as operator:
        with pytest.raises(Unreachable) as refused:
            await send_message(operator, SESSION, "go on")
    assert str(refused.value).endswith(
        ": it may have been accepted: look with `carpal session tail sesn_1` "
        "before you send it again"
    )
    assert len(sessiond.logs[SESSION].events) == 2


async def test_of_a_sessiond_that_never_answers_nothing_is_said_to_be_there(
    tmp_path: Any,
) -> None:
    house = House(tmp_path)
    async with house.serve_sessiond():
        pass
    async with connect(house.found) as operator:
        with pytest.raises(Unreachable) as refused:
            await send_message(operator, SESSION, "go on")
    assert str(refused.value).endswith("check that it runs and the address is right")


async def test_what_is_refused_is_not_sent_again(house: House) -> None:
    async with connect(house.found) as operator:
        asked: list[float] = []

        def ask(timeout: float) -> Any:
            asked.append(timeout)
            request = session_pb2.GetSessionRequest(session_id="sesn_x")
            return operator.sessions.GetSession(request, timeout=timeout)

        with pytest.raises(Exception, match="no session 'sesn_x'"):
            await changing.change(operator, ask, look="look")
    assert len(asked) == 1
