"""Hands are made at their first use, by intent in the log, and one at a time for a name."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from brain.session.entries import New
from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2
from tests.brain.stage import WAIT, Stage, daemon_row


async def test_the_wish_is_in_the_log_before_the_hand_and_the_hand_before_the_call(
    driven: Stage,
) -> None:
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"
    kinds = await driven.kinds()
    assert kinds[-3:] == ["hand.provision_requested", "hand.provisioned", "agent.tool_result"]
    assert driven.hands.arms() == ["provision", "claim", "execute", "acknowledge"]
    (hand,) = driven.driver.transcript.live_hands()
    assert (hand.daemon, hand.journal_id, hand.boot_id, hand.sequence) == ("d1", "j", "b", 2)


async def test_a_wish_of_an_earlier_driver_is_asked_for_by_its_id(driven: Stage) -> None:
    wish = {
        "hand_id": "hand_9",
        "name": "shell",
        "type": "process",
        "daemon": "d1",
        "orphan_deadline": 60.0,
    }
    await driven.driver.append(New("hand.provision_requested", wish))
    await driven.settle(await driven.call())
    (request,) = driven.hands.asked_for("provision")
    assert (request.hand_id, request.orphan_deadline.seconds) == ("hand_9", 60)
    assert "hand.provision_requested" not in (await driven.kinds())[-3:]


async def test_calls_that_wait_for_the_same_hand_share_it(driven: Stage) -> None:
    calls = [await driven.call(), await driven.call()]
    told = await driven.settle(*calls)
    assert [each["outcome"] for each in told] == ["ok", "ok"]
    assert len(driven.hands.asked_for("provision")) == 1


async def test_a_hand_that_cannot_be_made_is_said_in_the_log_and_to_the_model(
    driven: Stage,
) -> None:
    driven.hands.script["provision"] = [refuse(Reason.PROVISION_FAILED, "no bash")]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "error"
    assert "no bash" in told["content"][0]["text"]
    assert (await driven.kinds())[-2:] == ["hand.provision_failed", "agent.tool_result"]
    (again,) = await driven.settle(await driven.call())
    assert again["outcome"] == "ok", "another hand is made for the next call"
    first, second = driven.hands.asked_for("provision")
    assert first.hand_id != second.hand_id


async def test_a_daemon_out_of_reach_is_asked_again_for_the_same_hand(driven: Stage) -> None:
    driven.hands.script["provision"] = [refuse(Reason.DAEMON_NOT_LINKED, "cut")]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"
    first, second = driven.hands.asked_for("provision")
    assert first.hand_id == second.hand_id


async def test_patience_with_a_daemon_counts_from_the_first_failure_however_late_that_shows(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L04: a path that swallows all lets a request wait for longer than all patience."""
    monkeypatch.setattr("brain.hands.provision.PATIENCE", 1e-3)
    driven.hands.script["provision"] = [refuse(Reason.UNREACHABLE, "noticed at last")]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"
    assert len(driven.hands.asked_for("provision")) == 2


async def test_a_hand_nobody_named_is_no_hand(driven: Stage) -> None:
    await driven.driver.append(New("session.updated", {"hands": {}}))
    (told,) = await driven.settle(await driven.call())
    assert (told["outcome"], driven.hands.asked) == ("error", [])
    assert "there is no hand 'shell'" in told["content"][0]["text"]


async def test_an_interrupt_ends_the_wait_for_a_hand(driven: Stage) -> None:
    asked = asyncio.Event()

    async def never(_: Any) -> AsyncGenerator[Any, None]:
        asked.set()
        await asyncio.Event().wait()
        yield hand_pb2.ProvisionResponse()

    driven.hands.script["provision"] = [never]
    settling = asyncio.create_task(driven.settle(await driven.call()))
    async with asyncio.timeout(WAIT):
        await asked.wait()
        await driven.interrupt()
        (told,) = await settling
    assert told["outcome"] == "cancelled"


async def test_progress_and_waiting_are_told_to_watchers(driven: Stage) -> None:
    directory = driven.fleet.directory
    directory.daemons["d1"] = daemon_row(live=False)
    progress = hand_pb2.ProvisionResponse(progress=hand_pb2.ProvisionProgress(message="pulling"))
    (made,) = driven.hands._provision(hand_pb2.ProvisionRequest())
    driven.hands.script["provision"] = [[progress, made]]
    with driven.hub.watching("sesn_1") as watched:
        moments = watched.each()
        settling = asyncio.create_task(driven.settle(await driven.call()))
        async with asyncio.timeout(WAIT):
            waiting = await anext(moments)
            directory.daemons["d1"] = daemon_row()
            await directory.notify()
            pulling = await anext(moments)
            await settling
    assert "waiting: no connected daemon" in waiting.phase.detail
    assert pulling.phase.detail == "shell: pulling"


async def test_why_a_full_daemon_is_waited_for_is_told_to_watchers_once(driven: Stage) -> None:
    full = refuse(Reason.AT_CAPACITY, "no unit of 'phone' is free", action="see who holds each")
    driven.hands.script["provision"] = [full, full]
    with driven.hub.watching("sesn_1") as watched:
        (told,) = await driven.settle(await driven.call())
        watched.end()
        said = [each.phase.detail async for each in watched.each()]
    assert told["outcome"] == "ok"
    waits = [each for each in said if "waiting" in each]
    assert waits == ["shell: waiting: no unit of 'phone' is free: see who holds each"]


async def test_a_daemon_that_stays_full_is_an_error_to_the_call_and_the_next_one_tries_again(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.hands.provision.PATIENCE", 0.2)
    driven.hands.script["provision"] = [refuse(Reason.AT_CAPACITY, "no unit is free")] * 100
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "error"
    assert "no unit is free" in str(told)
    driven.hands.script["provision"] = []
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"


async def test_what_a_session_mounts_is_in_the_log_with_the_wish_and_asked_for_as_it_stands_there(
    driven: Stage,
) -> None:
    mounted = [["text:hi", "a"], ["git:https://example.com/r.git#main", "r"]]
    spec = {"type": "process", "resources": mounted}
    await driven.driver.append(New("session.updated", {"hands": {"shell": spec}}))
    await driven.settle(await driven.call())
    (hand,) = driven.driver.transcript.live_hands()
    assert hand.resources == [tuple(each) for each in mounted]
    (request,) = driven.hands.asked_for("provision")
    assert [[each.source_ref, each.mount_path] for each in request.mounts] == mounted


async def test_the_limits_a_session_asks_for_are_in_the_log_and_asked_of_the_daemon(
    driven: Stage,
) -> None:
    limits = {"memory_bytes": 2**31, "cpus": 1.5}
    hands = {"shell": {"type": "process", "limits": limits}}
    await driven.driver.append(New("session.updated", {"hands": hands}))
    await driven.settle(await driven.call())
    (request,) = driven.hands.asked_for("provision")
    assert request.limits == hand_pb2.Limits(memory_bytes=2**31, cpus=1.5)
    (hand,) = driven.driver.transcript.live_hands()
    assert hand.limits == limits


async def test_a_mount_that_cannot_be_is_said_to_the_model_by_its_field_and_nothing_is_asked_for(
    driven: Stage,
) -> None:
    for resources, field in (
        ([["text:hi", "../a"]], "hands.shell.resources[0].mount_path"),
        (["text:hi"], "hands.shell.resources"),
        ([["x", 1]], "hands.shell.resources"),
    ):
        spec = {"type": "process", "resources": resources}
        await driven.driver.append(New("session.updated", {"hands": {"shell": spec}}))
        (told,) = await driven.settle(await driven.call())
        assert told["outcome"] == "error"
        assert field in told["content"][0]["text"]
    assert driven.hands.asked_for("provision") == []


async def test_what_a_hand_says_of_itself_fits_in_the_log(driven: Stage) -> None:
    result = hand_pb2.ProvisionResult(journal_id="j", boot_id="b", sequence=1, note="n" * 1_900_000)
    driven.hands.script["provision"] = [[hand_pb2.ProvisionResponse(result=result)]]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"


@pytest.mark.parametrize("answer", [[], [hand_pb2.ProvisionResponse()], ["ids"]])
async def test_a_daemon_that_says_nothing_of_use_makes_no_hand_and_parks_nobody(
    driven: Stage, answer: list[Any]
) -> None:
    if answer == ["ids"]:
        result = hand_pb2.ProvisionResult(journal_id="j" * 1_500_000)
        answer = [hand_pb2.ProvisionResponse(result=result)]
    driven.hands.script["provision"] = [answer]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "error"
    assert (await driven.kinds())[-2:] == ["hand.provision_failed", "agent.tool_result"]
