"""Each error and failed result that a drive appends says which layer failed; a row a layer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from brain import harness
from brain.daemons.fleet import ORPHAN_MARGIN
from brain.effects import Emit, Failed, Finish, Harness, HarnessType
from brain.runner import Runner
from brain.scheduler import failed_by
from brain.session.transcript import Transcript
from carpal.errors import refuse
from carpal.layers import CAUSES, Layer
from carpal.status import Reason
from carpal.v1 import hand_pb2
from tests.brain.said import Said, uses
from tests.brain.stage import WAIT, Stage

Happens = Callable[[Stage], Awaitable[None]]


async def drive(driven: Stage, *replies: Any) -> None:
    """One drive."""
    model = Said()
    model.replies = list(replies)
    async with asyncio.timeout(WAIT):
        await Runner(driven.driver, driven.fleet, driven.hub, model).run()


async def model_fails(driven: Stage) -> None:
    await drive(driven, Failed("authentication_error", "no key", retryable=False))


async def no_such_tool(driven: Stage) -> None:
    await drive(driven, uses("x", tool="fly"))


async def link_silent(driven: Stage) -> None:
    await driven.hand(deadline=0.1 - ORPHAN_MARGIN)
    call_id = await driven.call(earlier=True)
    driven.hands.linked = False
    await driven.settle(call_id)


async def machine_restarted(driven: Stage) -> None:
    await driven.hand()
    driven.hands.boot_id = "another"
    await driven.settle(await driven.call(earlier=True))


async def against_the_contract(driven: Stage) -> None:
    await driven.hand()
    wrong = refuse(Reason.LINK_VIOLATION, "nonsense")
    driven.hands.script["execute"] = [wrong, wrong, wrong]
    await driven.settle(await driven.call())


async def policy_forbids(driven: Stage) -> None:
    driven.hands.script["provision"] = [refuse(Reason.POLICY_FORBIDS, "no")]
    await driven.settle(await driven.call())


async def out_of_memory(driven: Stage) -> None:
    await driven.hand()
    died = hand_pb2.Result(outcome=hand_pb2.OUTCOME_LOST, content="x", out_of_memory=True)
    driven.hands.script["execute"] = [[hand_pb2.ExecuteResponse(result=died)]]
    await driven.settle(await driven.call())


async def hand_gone(driven: Stage) -> None:
    await driven.hand()
    driven.hands.script["execute"] = [refuse(Reason.HAND_GONE, "it died")]
    await driven.settle(await driven.call())


async def vault_away(driven: Stage) -> None:
    await driven.hand()
    driven.hands.script["execute"] = [refuse(Reason.CREDENTIAL_NOT_FOUND, "no such one")]
    await driven.settle(await driven.call())


@pytest.mark.parametrize(
    ("happens", "layer", "cause"),
    [
        (model_fails, Layer.MODEL, None),
        (no_such_tool, Layer.MODEL, "TOOL_NOT_FOUND"),
        (link_silent, Layer.LINK, "out_of_reach"),
        (machine_restarted, Layer.DAEMON, "machine_changed"),
        (against_the_contract, Layer.DAEMON, "LINK_VIOLATION"),
        (policy_forbids, Layer.DAEMON, "POLICY_FORBIDS"),
        (out_of_memory, Layer.HAND, "out_of_memory"),
        (hand_gone, Layer.HAND, "HAND_GONE"),
        (vault_away, Layer.VAULT, "CREDENTIAL_NOT_FOUND"),
    ],
)
async def test_what_a_drive_says_failed_has_its_layer_and_cause_on_every_event(
    driven: Stage, happens: Happens, layer: Layer, cause: str | None
) -> None:
    await happens(driven)
    told = []
    for event in await driven.events():
        data = json.loads(event.data)
        failed = data.get("error") if event.type in _ERRORS else data
        if failed and (event.type in _ERRORS or event.type in _FAILED or data.get("is_error")):
            told.append((event.type, failed))
    assert told
    for kind, failed in told:
        assert failed["layer"] == layer, kind
        if cause is not None and "reason" not in failed:
            assert failed["cause"] == cause, kind
            assert cause in CAUSES or cause in Reason.__members__


_ERRORS = ("session.error", "span.model_request_end")
_FAILED = ("hand.lost", "hand.provision_failed", "hand.save_failed")


async def test_an_error_of_a_harness_that_names_no_layer_is_the_harnesss_own(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(transcript: Transcript) -> Harness:
        yield Emit("session.error", {"error": {"type": "mine", "message": "no"}})
        yield Emit("session.error", {"error": {"type": "its", "message": "no", "layer": "vault"}})
        yield Finish("end_turn")

    monkeypatch.setattr(harness, "load", lambda name: HarnessType("1", start))
    await drive(driven)
    told = [json.loads(e.data) for e in await driven.events() if e.type == "session.error"]
    layers = [(each["error"]["type"], each["error"]["layer"]) for each in told]
    assert layers == [("mine", Layer.HARNESS), ("its", Layer.VAULT)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (refuse(Reason.HARNESS_FAILED, "no"), ("harness", "HARNESS_FAILED")),
        (refuse(Reason.VAULT_UNAVAILABLE, "no"), ("vault", "VAULT_UNAVAILABLE")),
        (refuse(Reason.NOT_BUILT, "no"), ("harness", "NOT_BUILT")),
        (KeyError("what was said"), ("harness", "KeyError")),
        (type("Odd name\n" + "x" * 99, (Exception,), {})(), ("harness", "Odd_name_" + "x" * 55)),
    ],
)
def test_a_drive_that_fails_says_which_layer_did_to_whoever_parks_it(
    error: BaseException, told: tuple[str, str]
) -> None:
    assert failed_by(error) == told
