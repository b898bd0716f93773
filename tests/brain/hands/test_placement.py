"""A hand goes to a daemon that fits; waiting ends when it cannot help."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from brain.hands.placement import RETURN_LIMIT, Placement
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2
from tests.brain.stage import UNLINKED, WAIT, ScriptedFleet, daemon_row, scripted
from tests.sessiond.serving import Serving


@pytest.fixture
async def fleet(sessions: Serving) -> AsyncIterator[ScriptedFleet]:
    """A fleet that knows one daemon, `d1`, which offers process hands."""
    async with scripted(sessions) as made:
        yield made


def place(fleet: ScriptedFleet, workspace: str = "default", **placement: Any) -> Placement:
    """Of a process hand."""
    return Placement(fleet, workspace, {"type": "process", "placement": placement})


async def refused(asked: Any) -> CarpalError:
    """Why."""
    with pytest.raises(CarpalError) as caught:
        async with asyncio.timeout(WAIT):
            await asked
    return caught.value


@pytest.mark.parametrize(
    "placement",
    [{}, {"daemon": "d1"}, {"pool": "gpu"}, {"labels": {"rack": "7"}}, {"labels": None}],
)
async def test_a_daemon_that_fits_is_chosen(
    fleet: ScriptedFleet, placement: dict[str, Any]
) -> None:
    fleet.directory.daemons["d1"] = daemon_row(pool="gpu", labels='{"rack": "7"}')
    assert await place(fleet, **placement).daemon(0.0) == "d1"


@pytest.mark.parametrize(
    "placement", [{"daemon": "d2"}, {"pool": "gpu"}, {"labels": {"rack": "8"}}]
)
async def test_a_daemon_that_does_not_fit_is_never_chosen(
    fleet: ScriptedFleet, placement: dict[str, Any]
) -> None:
    assert (await refused(place(fleet, **placement).daemon(60.0))).reason is Reason.DAEMON_NOT_FOUND


async def test_another_workspaces_daemon_is_never_chosen(fleet: ScriptedFleet) -> None:
    error = await refused(place(fleet, "elsewhere").daemon(60.0))
    assert error.reason is Reason.DAEMON_NOT_FOUND


async def test_a_daemon_that_just_went_is_waited_for_and_found_when_it_is_back(
    fleet: ScriptedFleet,
) -> None:
    fleet.directory.daemons["d1"] = daemon_row(live=False)
    told: asyncio.Queue[str] = asyncio.Queue()
    waiting = Placement(fleet, "default", {"type": "process"}, told.put_nowait)
    finding = asyncio.create_task(waiting.daemon(60.0))
    async with asyncio.timeout(WAIT):
        assert "no connected daemon" in await told.get()
        fleet.directory.daemons["d1"] = daemon_row()
        await fleet.directory.notify()
        assert await finding == "d1"
    assert told.empty(), "once, however often it looked"


async def test_a_daemon_that_went_long_ago_is_not_waited_for(fleet: ScriptedFleet) -> None:
    gone = daemon_row(live=False)
    fleet.directory.daemons["d1"] = replace(gone, learned=time.monotonic() - RETURN_LIMIT - 1)
    assert (await refused(place(fleet).daemon(60.0))).reason is Reason.DAEMON_NOT_FOUND


async def test_patience_ends(fleet: ScriptedFleet) -> None:
    fleet.directory.daemons["d1"] = daemon_row(live=False)
    assert (await refused(place(fleet).daemon(0.1))).reason is Reason.DAEMON_NOT_FOUND


async def test_what_a_type_offers_is_asked_once_an_epoch(fleet: ScriptedFleet) -> None:
    for _ in range(2):
        told: hand_pb2.HandTypeInfo = await place(fleet).offer(0.0)
        assert [tool.name for tool in told.tools] == ["bash"]
    assert fleet.hands.arms() == ["describe"]
    row = fleet.directory.daemons["d1"]
    row.lease.epoch += 1
    await place(fleet).offer(0.0)
    assert fleet.hands.arms() == ["describe"] * 2


async def test_an_offer_is_asked_for_again_when_the_link_was_cut(fleet: ScriptedFleet) -> None:
    fleet.hands.script["describe"] = [UNLINKED]
    async with asyncio.timeout(WAIT):
        assert (await place(fleet).offer(60.0)).type == "process"


async def test_when_every_daemon_that_fits_is_drained_that_is_said(
    fleet: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = orchestrator_pb2.DaemonInfo(daemon_id="d1", state="draining", types=["process"])
    monkeypatch.setattr(fleet, "daemons", lambda _workspace: [drained])
    error = await refused(place(fleet).daemon(0.0))
    assert error.reason is Reason.DAEMON_NOT_FOUND
    assert "is drained: d1" in str(error)
    assert "--lift" in str(error)


async def test_who_finds_no_daemon_is_told_which_there_are_and_what_was_asked_for(
    fleet: ScriptedFleet,
) -> None:
    error = await refused(place(fleet, daemon="zz").daemon(0.0))
    assert "its placement (daemon zz); connected are d1 with process" in str(error)
