"""One call on one hand: what is appended is true, whatever the hand says or does not say."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from brain.daemons.fleet import ORPHAN_MARGIN
from brain.session.entries import New
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2
from tests.brain.stage import UNLINKED, WAIT, Stage, result
from tests.pace import SCALE


def info(call_id: str, state: hand_pb2.CallState.ValueType) -> hand_pb2.CallInfo:
    """How a call stands at its hand."""
    return hand_pb2.CallInfo(call_id=call_id, state=state, outcome=hand_pb2.OUTCOME_ERROR)


async def test_a_call_is_claimed_executed_logged_and_only_then_acknowledged(driven: Stage) -> None:
    await driven.hand()
    call_id = await driven.call()
    (told,) = await driven.settle(call_id)
    assert (told["outcome"], told["content"][0]["text"]) == ("ok", "done")
    assert (told["hand_id"], told["sequence"]) == ("hand_1", 2)
    assert driven.hands.arms() == ["claim", "execute", "acknowledge"]
    (execute,) = driven.hands.asked_for("execute")
    assert (execute.call_id, execute.driver.epoch) == (call_id, driven.driver.lease.epoch)


async def test_a_call_no_hand_accepted_runs_now(driven: Stage) -> None:
    await driven.hand()
    call_id = await driven.call(earlier=True)
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "ok"
    assert list(driven.hands.asked_for("claim")[0].call_ids) == [call_id]


@pytest.mark.parametrize(
    ("journal_id", "boot_id", "sequence"), [("other", "b", 1), ("j", "other", 1), ("j", "b", 0)]
)
async def test_never_accepted_is_not_believed_of_another_journal_boot_or_one_gone_back(
    driven: Stage, journal_id: str, boot_id: str, sequence: int
) -> None:
    hands = driven.hands
    hands.journal_id, hands.boot_id, hands.sequence = journal_id, boot_id, sequence
    await driven.hand()
    (told,) = await driven.settle(await driven.call(earlier=True))
    assert told["outcome"] == "interrupted"
    assert "may have partly happened" in told["content"][0]["text"]
    assert "execute" not in hands.arms()


async def test_a_call_whose_output_was_freed_is_told_as_it_ended(driven: Stage) -> None:
    await driven.hand()
    call_id = await driven.call(earlier=True)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_ACKNOWLEDGED)
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "error"
    assert "already freed" in told["content"][0]["text"]
    assert "execute" not in driven.hands.arms()


@pytest.mark.parametrize("number", [0, 99])
async def test_numbers_of_a_hand_that_are_not_known_here_settle_the_call_as_interrupted(
    driven: Stage, number: int
) -> None:
    """A state that says nothing is believed as little as "not in the journal"."""
    await driven.hand()
    freed, unsaid = await driven.call(), await driven.call(earlier=True)
    odd = hand_pb2.CallInfo.FromString(bytes([0x10, 4, 0x18, number]))
    odd.call_id = freed
    driven.hands.states[freed] = odd
    unknown = hand_pb2.CallInfo.FromString(bytes([0x10, number]))
    unknown.call_id = unsaid
    driven.hands.states[unsaid] = unknown
    (told,) = await driven.settle(freed)
    assert told["outcome"] == "interrupted"
    assert "may have partly happened" in told["content"][0]["text"]
    (told,) = await driven.settle(unsaid)
    assert told["outcome"] == "ok", "the hand tells by the id that it never ran"
    driven.hands.journal_id = "other"
    another = await driven.call(earlier=True)
    unknown.call_id = another
    driven.hands.states[another] = unknown
    (told,) = await driven.settle(another)
    assert told["outcome"] == "interrupted"


async def test_a_call_that_runs_or_ended_is_asked_for_by_its_id(driven: Stage) -> None:
    driven.hands.journal_id = "other"  # what it holds needs no belief
    await driven.hand()
    call_id = await driven.call(earlier=True)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_RUNNING)
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "ok"


async def test_a_hand_that_dies_in_the_call_is_lost_in_the_log_too(driven: Stage) -> None:
    await driven.hand()
    driven.hands.script["execute"] = [[result("[lost]", hand_pb2.OUTCOME_LOST)]]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "lost"
    assert (await driven.kinds())[-1] == "hand.lost"
    (later,) = await driven.settle(await driven.call())
    assert later["outcome"] == "ok", "on a new hand"
    assert len(driven.hands.asked_for("provision")) == 1


@pytest.mark.parametrize(
    ("reason", "outcome", "words"),
    [
        (Reason.HAND_GONE, "lost", "did not run"),
        (Reason.HAND_NOT_FOUND, "lost", "did not run"),
        (Reason.CALL_CANCELLED, "cancelled", "before it ran"),
        (Reason.INTERNAL, "interrupted", "may have partly happened"),
        (Reason.ID_REUSED, "interrupted", "may have partly happened"),
        (Reason.INVALID_FIELD, "error", "not run"),
    ],
)
async def test_a_refusal_settles_the_call_as_what_it_means(
    driven: Stage, reason: Reason, outcome: str, words: str
) -> None:
    await driven.hand()
    driven.hands.script["execute"] = [refuse(reason, "because")]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == outcome
    assert "because" in told["content"][0]["text"] or outcome == "cancelled"
    assert words in told["content"][0]["text"]


@pytest.mark.parametrize(
    "reason",
    [
        Reason.CERTIFICATE_EXPIRED,
        Reason.IDENTITY_INVALID,
        Reason.IDENTITY_REVOKED,
        Reason.ROLE_NOT_ALLOWED,
    ],
)
async def test_what_another_brain_says_of_this_one_settles_no_call(
    driven: Stage, reason: Reason
) -> None:
    """The call runs meanwhile: "not run" would be untrue."""
    await driven.hand()
    driven.hands.script["execute"] = [refuse(reason, "who are you"), [result("done")]]
    (told,) = await driven.settle(await driven.call())
    assert (told["outcome"], told["content"][0]["text"]) == ("ok", "done")
    assert driven.hands.arms().count("execute") == 2


async def test_a_call_that_was_never_sent_to_a_hand_that_is_gone_did_not_run(
    driven: Stage,
) -> None:
    await driven.hand()
    driven.hands.script["claim"] = [refuse(Reason.HAND_NOT_FOUND, "no hand")]
    (told,) = await driven.settle(await driven.call())
    assert "did not run" in told["content"][0]["text"]
    assert (await driven.kinds())[-1] == "hand.lost"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (hand_pb2.CALL_STATE_UNKNOWN, "did not run"),
        (hand_pb2.CALL_STATE_RUNNING, "may have partly happened"),
    ],
)
async def test_of_a_call_that_may_have_been_sent_before_its_hand_knows_whether_it_was(
    driven: Stage, state: hand_pb2.CallState.ValueType, words: str
) -> None:
    await driven.hand()
    call_id = await driven.call(earlier=True)
    driven.hands.states[call_id] = info(call_id, state)
    driven.hands.script["execute"] = [refuse(Reason.HAND_NOT_FOUND, "released meanwhile")]
    (told,) = await driven.settle(call_id)
    assert words in told["content"][0]["text"]


async def test_a_call_whose_link_was_cut_may_have_run_on_a_hand_that_is_gone_since(
    driven: Stage,
) -> None:
    await driven.hand()
    call_id = await driven.call()
    gone = refuse(Reason.HAND_NOT_FOUND, "no hand")
    driven.hands.script["execute"] = [refuse(Reason.DAEMON_NOT_LINKED, "cut")]
    claims = driven.hands.script.setdefault("claim", [])

    async def claimed(asked: Any) -> AsyncGenerator[Any, None]:
        claims.append(gone)
        calls = [hand_pb2.CallInfo(call_id=each) for each in asked.call_ids]
        yield hand_pb2.ClaimResponse(calls=calls, journal_id="j", boot_id="b", sequence=1)

    claims.append(claimed)
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "lost"
    assert "may have partly happened" in told["content"][0]["text"]


async def test_a_call_that_runs_may_have_happened_when_its_hand_is_gone_for_its_cancel(
    driven: Stage,
) -> None:
    await driven.hand()
    call_id = await driven.call()
    running = asyncio.Event()

    async def run(_: Any) -> AsyncGenerator[Any, None]:
        running.set()
        await asyncio.Event().wait()
        yield result("never")

    gone = refuse(Reason.HAND_NOT_FOUND, "no hand")
    driven.hands.script |= {"execute": [run], "cancel": [gone]}
    settling = asyncio.create_task(driven.settle(call_id))
    async with asyncio.timeout(WAIT):
        await running.wait()
        await driven.interrupt()
        (told,) = await settling
    assert told["outcome"] == "lost"
    assert "may have partly happened" in told["content"][0]["text"]


async def test_a_link_that_is_cut_in_the_call_is_waited_for_and_the_hand_is_claimed_again(
    driven: Stage,
) -> None:
    await driven.hand()
    call_id = await driven.call()
    driven.hands.script["execute"] = [refuse(Reason.DAEMON_NOT_LINKED, "cut")]
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "ok"
    assert driven.hands.arms() == ["claim", "execute", "claim", "execute", "acknowledge"]
    assert list(driven.hands.asked_for("claim")[1].call_ids) == [call_id], "it may have been sent"


async def test_after_a_cut_a_journal_that_is_another_now_settles_the_call(driven: Stage) -> None:
    await driven.hand()

    async def cut(_: Any) -> AsyncGenerator[Any, None]:
        yield hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"up"))
        driven.hands.journal_id = "other"
        raise refuse(Reason.DAEMON_NOT_LINKED, "cut")

    driven.hands.script["execute"] = [cut]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "interrupted"


async def test_a_hand_silent_past_its_orphan_deadline_is_given_up_and_the_session_goes_on(
    driven: Stage,
) -> None:
    """Design §5: the daemon, for ever."""
    await driven.hand(deadline=0.1 - ORPHAN_MARGIN)
    call_id = await driven.call(earlier=True)
    driven.hands.linked = False
    (told,) = await driven.settle(call_id)
    assert (told["outcome"], told["given_up"]) == ("interrupted", True)
    assert "may have partly happened" in told["content"][0]["text"]
    assert (await driven.kinds())[-1] == "hand.lost"
    driven.hands.linked = True
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"
    assert driven.hands.asked_for("provision"), "on a new hand"
    assert driven.hands.asked_for("execute")[0].hand_id != "hand_1"


async def test_a_call_never_sent_to_a_hand_that_is_given_up_did_not_run(driven: Stage) -> None:
    await driven.hand(deadline=0.1 - ORPHAN_MARGIN)
    call_id = await driven.call()
    driven.hands.linked = False
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "lost"
    assert "did not run" in told["content"][0]["text"]
    assert "given_up" not in told


async def test_a_call_that_was_silent_for_long_is_not_given_up_when_its_link_is_cut(
    driven: Stage,
) -> None:
    """The hand had contact as long as the link was there, whatever the call had to say."""
    deadline = 0.3 * SCALE
    await driven.hand(deadline=deadline - ORPHAN_MARGIN)

    async def quiet(_: Any) -> AsyncGenerator[Any, None]:
        yield hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"up"))
        await asyncio.sleep(2 * deadline)  # a call that says nothing for longer than that
        raise refuse(Reason.DAEMON_NOT_LINKED, "cut")

    driven.hands.script["execute"] = [quiet]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"


async def test_an_interrupt_before_a_call_was_sent_cancels_it_without_its_hand(
    driven: Stage,
) -> None:
    await driven.hand()
    call_id = await driven.call()
    driven.hands.linked = False
    await driven.interrupt()
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "cancelled"
    assert not driven.hands.asked


async def test_an_interrupt_while_a_call_runs_cancels_it_at_its_hand_and_tells_its_true_end(
    driven: Stage,
) -> None:
    await driven.hand()
    call_id = await driven.call()
    running = asyncio.Event()
    cancelled = asyncio.Event()

    async def run(_: Any) -> AsyncGenerator[Any, None]:
        running.set()
        await cancelled.wait()
        yield result("up\n[cancelled]", hand_pb2.OUTCOME_CANCELLED)

    async def cancel(_: Any) -> AsyncGenerator[Any, None]:
        cancelled.set()
        yield hand_pb2.CancelResponse()

    driven.hands.script |= {"execute": [run], "cancel": [cancel]}
    settling = asyncio.create_task(driven.settle(call_id))
    async with asyncio.timeout(WAIT):
        await running.wait()
        await driven.interrupt()
        (told,) = await settling
    assert (told["outcome"], told["content"][0]["text"]) == ("cancelled", "up\n[cancelled]")


async def test_nothing_is_sent_once_the_lease_is_lost(driven: Stage) -> None:
    await driven.hand()
    call_id = await driven.call()

    async def slow(asked: Any) -> AsyncGenerator[Any, None]:
        driven.driver.lease.lost.set()
        calls = [hand_pb2.CallInfo(call_id=each) for each in asked.call_ids]
        yield hand_pb2.ClaimResponse(calls=calls)

    driven.hands.script["claim"] = [slow]
    with pytest.RaisesGroup(
        pytest.RaisesExc(CarpalError, check=lambda e: e.reason is Reason.STALE_EPOCH)
    ):
        await driven.settle(call_id)
    assert driven.hands.arms() == ["claim"]
    assert driven.driver.transcript.calls[call_id].result is None


async def test_a_newer_driver_elsewhere_ends_this_drive_and_settles_nothing(driven: Stage) -> None:
    await driven.hand()
    call_id = await driven.call()

    await driven.end_lease()
    driven.hands.script["execute"] = [refuse(Reason.STALE_EPOCH, "a newer driver came")]
    with pytest.RaisesGroup(
        pytest.RaisesExc(CarpalError, check=lambda e: e.reason is Reason.STALE_EPOCH)
    ):
        await driven.settle(call_id)
    assert driven.driver.transcript.calls[call_id].result is None


@pytest.mark.parametrize(
    ("arm", "outcome", "words"),
    [("execute", "interrupted", "may have partly happened"), ("claim", "lost", "did not run")],
)
async def test_a_hand_that_says_of_its_driver_that_it_was_replaced_is_not_believed(
    driven: Stage, arm: str, outcome: str, words: str
) -> None:
    """Sessiond says who drives; the session goes on with another hand, and is not parked."""
    await driven.hand()
    driven.hands.script[arm] = [refuse(Reason.STALE_EPOCH, "a lie")]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == outcome
    assert words in told["content"][0]["text"]
    assert "the session store says it is not" in told["content"][0]["text"]
    assert driven.driver.lease.left() > 0
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok"
    assert len(driven.hands.asked_for("provision")) == 1


async def test_a_daemon_that_refuses_a_hand_for_a_stale_epoch_ends_no_drive(driven: Stage) -> None:
    driven.hands.script["provision"] = [refuse(Reason.STALE_EPOCH, "a lie")]
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "error"
    assert "not run" in told["content"][0]["text"]


async def test_a_call_that_is_answered_against_the_contract_is_asked_for_a_few_times(
    driven: Stage,
) -> None:
    """Each time ends a link, and with it the answers of all its other calls."""
    await driven.hand()
    call_id = await driven.call()
    wrong = refuse(Reason.LINK_VIOLATION, "an answer ended without a result")
    driven.hands.script["execute"] = [wrong, UNLINKED, wrong, [], [result("another")]]
    (told,) = await driven.settle(call_id)
    assert (told["outcome"], told["given_up"]) == ("interrupted", True)
    assert "may have partly happened" in told["content"][0]["text"]
    assert driven.hands.arms().count("execute") == 4
    (told,) = await driven.settle(await driven.call())
    assert told["outcome"] == "ok", "its hand is there for others"
    assert driven.hands.asked_for("cancel")[0].call_id == call_id


async def test_what_a_hand_cannot_tell_late_is_not_asked_for_again(driven: Stage) -> None:
    await driven.hand()
    wrong = refuse(Reason.LINK_VIOLATION, "an answer ended without a result")
    call_id = await driven.call()
    driven.hands.script["execute"] = [wrong] * 5
    await driven.settle(call_id)
    driven.hands.states[call_id] = info(call_id, hand_pb2.CALL_STATE_TERMINAL)
    for _ in range(3):
        await driven.calls.hear_all()
    assert driven.hands.arms().count("execute") == 4


async def test_a_claim_that_tells_of_other_calls_is_no_answer(driven: Stage) -> None:
    await driven.hand()
    other = hand_pb2.ClaimResponse(calls=[hand_pb2.CallInfo(call_id="another")])
    driven.hands.script["claim"] = [[hand_pb2.ClaimResponse()], [other]]
    (told,) = await driven.settle(await driven.call(earlier=True))
    assert told["outcome"] == "ok"
    assert driven.hands.arms().count("claim") == 3


async def test_output_goes_to_watchers_and_not_into_the_log(driven: Stage) -> None:
    await driven.hand()
    chunk = hand_pb2.ExecuteResponse(output=hand_pb2.OutputChunk(data=b"up"))
    driven.hands.script["execute"] = [[chunk, result("up")]]
    with driven.hub.watching("sesn_1") as moments:
        await driven.settle(await driven.call())
    moment = moments.get_nowait()
    assert moment is not None
    assert moment.output.chunk.data == b"up"
    assert moments.empty()


async def test_a_hand_the_log_lost_is_not_asked(driven: Stage) -> None:
    await driven.hand()
    call_id = await driven.call()
    await driven.driver.append(New("hand.lost", {"hand_id": "hand_1", "reason": "x"}))
    (told,) = await driven.settle(call_id)
    assert told["outcome"] == "lost"
    assert not driven.hands.asked
