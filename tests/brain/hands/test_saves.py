"""A workspace saved at a person's word: asked of the hand under the event's id, told in the log."""

import asyncio
from typing import Any

import pytest

from brain.hands import saves
from brain.runner import Runner
from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2
from tests.brain.logs import Log
from tests.brain.said import Said, uses
from tests.brain.stage import UNLINKED, WAIT, Stage, emit

DIGEST = bytes(range(32))


def saved(digest: bytes = DIGEST) -> hand_pb2.SaveResponse:
    made = hand_pb2.Attachment(digest=digest, size=7, name="x.tar (2 members)")
    return hand_pb2.SaveResponse(saved=made)


PROGRESS = hand_pb2.SaveResponse(progress=hand_pb2.ProvisionProgress(message="saving"))


async def idle(driven: Stage) -> None:
    """The session's turn is over, and it has a hand."""
    model = Said()
    model.replies = [uses("one")]
    await run(driven, model)


async def run(driven: Stage, model: Said | None = None) -> None:
    runner = Runner(driven.driver, driven.fleet, driven.hub, model or Said())
    async with asyncio.timeout(WAIT):
        await runner.run()


async def ask(driven: Stage, **data: Any) -> str:
    """A person asks; the event's id."""
    before = driven.driver.transcript.head
    await emit(driven.sessions, "sesn_1", "user.save", data)
    await driven.driver.until(lambda t: t.head > before)
    return next(reversed(driven.driver.transcript.saves), "")


async def told(driven: Stage) -> list[dict[str, Any]]:
    return [each for each in await driven.datas() if "save_id" in each]


async def test_an_idle_sessions_workspace_is_saved_and_nobody_asks_the_model(
    driven: Stage,
) -> None:
    await idle(driven)
    (hand,) = driven.driver.transcript.live_hands()
    driven.hands.script["save"] = [[PROGRESS, saved()]]
    save_id, model = await ask(driven), Said()
    await run(driven, model)
    (asked,) = driven.hands.asked_for("save")
    assert (asked.save_id, asked.hand_id) == (save_id, hand.hand_id)
    assert asked.driver.epoch == driven.driver.lease.epoch
    assert await told(driven) == [
        {
            "save_id": save_id,
            "hand_id": hand.hand_id,
            "name": "shell",
            "blob": f"sha256:{DIGEST.hex()}",
            "size": 7,
            "said": "x.tar (2 members)",
        }
    ]
    assert (await driven.kinds())[-1] == "hand.saved"
    assert not model.asked
    await run(driven)
    assert len(driven.hands.asked_for("save")) == 1, "it is saved once"


async def test_a_save_asked_for_in_a_turn_is_made_before_it_ends(driven: Stage) -> None:
    model = Said()
    model.replies = [uses("one")]
    model.gate.clear()
    running = asyncio.create_task(run(driven, model))
    async with asyncio.timeout(WAIT):
        await model.asking.wait()
    driven.hands.script["save"] = [[saved()]]
    await ask(driven, hand="shell")
    model.gate.set()
    await running
    kinds = await driven.kinds()
    # There was no hand yet when it was its turn: the answer says so, and nothing waits.
    assert kinds.index("hand.save_failed") < kinds.index("session.status_idle")


@pytest.mark.parametrize(
    ("data", "said"),
    [({"hand": "nope"}, "no live hand 'nope'"), ({"hand": "shell"}, "cannot be saved")],
)
async def test_what_cannot_be_saved_is_told_with_why(
    driven: Stage, data: dict[str, Any], said: str
) -> None:
    await idle(driven)
    driven.hands.script["save"] = [refuse(Reason.NOT_BUILT, "such a hand cannot be saved")]
    save_id = await ask(driven, **data)
    await run(driven)
    (failed,) = await told(driven)
    assert failed["save_id"] == save_id
    assert said in failed["message"]


async def test_a_hand_out_of_reach_is_waited_for_a_while(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await idle(driven)
    driven.hands.script["save"] = [UNLINKED, [saved()]]
    await ask(driven)
    await run(driven)
    assert (await told(driven))[0]["size"] == 7
    monkeypatch.setattr(saves, "PATIENCE", 0.0)
    driven.hands.script["save"] = [UNLINKED]
    await ask(driven)
    await run(driven)
    assert (await told(driven))[1]["reason"] == Reason.DAEMON_NOT_LINKED


@pytest.mark.parametrize("answer", [[], [PROGRESS], [saved(b"short")]])
async def test_an_answer_that_names_no_blob_is_no_save(
    driven: Stage, answer: list[hand_pb2.SaveResponse]
) -> None:
    await idle(driven)
    driven.hands.script["save"] = [list(answer)]
    await ask(driven)
    await run(driven)
    (failed,) = await told(driven)
    assert failed["reason"] == Reason.LINK_VIOLATION


async def test_an_interrupt_ends_a_save_that_takes_long(driven: Stage) -> None:
    await idle(driven)
    never = asyncio.Event()

    async def hangs(_: object) -> Any:
        never.set()
        await asyncio.Event().wait()
        yield saved()

    driven.hands.script["save"] = [hangs]
    await ask(driven)
    running = asyncio.create_task(run(driven))
    async with asyncio.timeout(WAIT):
        await never.wait()
        await driven.interrupt()
        await running
    assert "interrupted" in (await told(driven))[0]["message"]


async def test_a_save_a_driver_began_is_asked_for_again_under_the_same_id(driven: Stage) -> None:
    await idle(driven)
    save_id = await ask(driven)
    driven.driver.started_at = driven.driver.transcript.head
    driven.hands.script["save"] = [[saved()]]
    await run(driven)
    assert [each.save_id for each in driven.hands.asked_for("save")] == [save_id]


def test_a_save_that_was_asked_for_before_a_fork_is_the_other_sessions() -> None:
    log = Log(inherited=2)
    log.add("user.save", {})
    assert not log.transcript.saves
    log.add("user.save", {})
    assert len(log.transcript.saves) == 1


@pytest.mark.parametrize("data", [{"hand": 7}, {"hand": None}])
def test_a_save_of_no_name_is_passed_over(data: dict[str, Any]) -> None:
    log = Log()
    log.add("user.save", data)
    assert not log.transcript.saves
    assert len(log.transcript.malformed) == 1
