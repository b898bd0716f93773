"""A brain goes on with the fold it has of a log, and only where the log is still what it folded."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brain import harness
from brain.effects import HarnessType
from brain.harnesses.tool_loop import tool_loop
from brain.session.checkpoint import _Encoder
from brain.session.folds import Fold, Folds, goes_on
from brain.session.leases import Lease, LeaseKeeper, Log
from brain.session.log import entry_of, told
from brain.session.transcript import Transcript
from carpal.chain import data_digest, event_hash, genesis
from carpal.v1 import session_pb2, types_pb2
from tests.brain.stage import create, emit, scripted
from tests.brain.test_scheduler import Brain, idle, running
from tests.sessiond.serving import Serving


@pytest.fixture
async def brain(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain that takes sessions, not running yet."""
    async with scripted(sessions) as fleet:
        yield Brain(sessions, await sessions.brain(), fleet)


@pytest.fixture
def came(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    """What each lease that `brain` takes comes with."""
    return noted(brain.keeper, monkeypatch)


def noted(keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    """What each lease that it takes comes with."""
    logs: list[Log] = []
    acquire = keeper.acquire_session

    async def acquired(session_id: str, after: int) -> tuple[Lease, types_pb2.SessionInfo, Log]:
        answer = await acquire(session_id, after)
        logs.append(answer[2])
        return answer

    monkeypatch.setattr(keeper, "acquire_session", acquired)
    return logs


async def turn(brain: Brain, *, epoch: int) -> None:
    """One turn, whose lease has at least this epoch."""
    if epoch > 1:
        said = {"content": [{"type": "text", "text": f"message {epoch}"}]}
        await emit(brain.sessions, "sesn_1", "user.message", said)
    brain.scheduler._stopping = False
    async with running(brain):
        await brain.until(lambda info: idle(info) and info.lease.epoch >= epoch)
        await brain.idles()


async def everything(sessions: Serving) -> list[types_pb2.Event]:
    request = session_pb2.GetEventsRequest(session_id="sesn_1", limit=1000)
    return list((await (await sessions.operator()).GetEvents(request)).events)


def said_of(transcript: Transcript) -> Any:
    """All that a transcript holds."""
    return _Encoder().encode(vars(transcript))


async def is_of_the_log(fold: Fold | None, sessions: Serving) -> bool:
    """Whether a fold is what one from the start is."""
    assert fold is not None
    anew = Transcript()
    for event in await everything(sessions):
        anew.apply(entry_of(event))
    return bool(said_of(fold.transcript) == said_of(anew))


async def test_a_session_that_is_driven_again_is_read_from_where_it_stood(
    brain: Brain, came: list[Log]
) -> None:
    await create(brain.sessions, wake=True)
    for epoch in (1, 2, 3):
        before = len(await everything(brain.sessions))
        await turn(brain, epoch=epoch)
        log = came[-1]
        assert log.events is not None
        assert log.after == (before if epoch > 1 else 0)
        assert len(log.events) == (1 if epoch > 1 else before)
    assert brain.model.asked == 3
    assert len(brain.model.requests[-1]["messages"]) == 5, "three questions, two answers"
    assert await is_of_the_log(brain.scheduler._folds.take("sesn_1"), brain.sessions)


async def test_what_another_brain_appended_meanwhile_is_in_the_fold_that_is_gone_on_with(
    brain: Brain, came: list[Log]
) -> None:
    await create(brain.sessions, wake=True)
    await turn(brain, epoch=1)
    stood = len(await everything(brain.sessions))
    async with scripted(brain.sessions) as fleet:
        other = Brain(brain.sessions, await brain.sessions.brain("brain-2"), fleet)
        await turn(other, epoch=2)
    await turn(brain, epoch=3)
    assert came[-1].after == stood
    kinds = [event.type for event in came[-1].events or ()]
    assert kinds.count("agent.message") == 1, "the other's reply"
    texts = [turn["content"][0]["text"] for turn in brain.model.requests[-1]["messages"]]
    assert texts == ["hi", "reply 1", "message 2", "reply 1", "message 3"]
    assert await is_of_the_log(brain.scheduler._folds.take("sesn_1"), brain.sessions)


async def test_what_was_redacted_between_two_turns_is_not_told_to_the_model(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    await turn(brain, epoch=1)
    redact = session_pb2.RedactEventRequest(session_id="sesn_1", position=2, reason="a secret")
    ada = await brain.sessions.operator()
    await ada.RedactEvent(redact)
    for epoch in (2, 3):
        await turn(brain, epoch=epoch)
        assert brain.model.requests[-1]["messages"][0]["content"][0]["text"] == "[redacted]"
        fold = brain.scheduler._folds.take("sesn_1")
        assert await is_of_the_log(fold, brain.sessions)
        assert fold is not None
        assert fold.redacted == 1
        brain.scheduler._folds.keep("sesn_1", fold)


async def test_what_was_redacted_while_it_was_driven_is_folded_anew_the_next_time(
    brain: Brain,
) -> None:
    await create(brain.sessions, wake=True)
    brain.model.gate.clear()
    ada = await brain.sessions.operator()
    async with running(brain):
        await brain.model.asking.wait()
        redact = session_pb2.RedactEventRequest(session_id="sesn_1", position=2, reason="a secret")
        await ada.RedactEvent(redact)
        brain.model.gate.set()
        await brain.until(idle)
        await brain.idles()
    await turn(brain, epoch=2)
    assert brain.model.requests[-1]["messages"][0]["content"][0]["text"] == "[redacted]"
    assert await is_of_the_log(brain.scheduler._folds.take("sesn_1"), brain.sessions)


async def test_a_session_whose_restored_log_is_shorter_than_what_was_folded_is_driven_by_its_log(
    brain: Brain,
) -> None:
    await create(brain.sessions, wake=True)
    await turn(brain, epoch=1)
    fold = brain.scheduler._folds.take("sesn_1")
    assert fold is not None
    undone = events("x", "y", "z", before=fold.hash, position=fold.transcript.head + 1)
    fold.take(map(told, undone))
    brain.scheduler._folds.keep("sesn_1", fold)
    await turn(brain, epoch=2)
    texts = [turn["content"][0]["text"] for turn in brain.model.requests[-1]["messages"]]
    assert texts == ["hi", "reply 1", "message 2"]
    assert await is_of_the_log(brain.scheduler._folds.take("sesn_1"), brain.sessions)


async def test_no_fold_is_kept_of_a_session_that_another_brain_has(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    await turn(brain, epoch=1)
    said = {"content": [{"type": "text", "text": "more"}]}
    await emit(brain.sessions, "sesn_1", "user.message", said)
    await brain.sessions.lease("sesn_1", "brain-2")
    brain.scheduler._stopping = False
    async with running(brain):
        brain.scheduler._consider(types_pb2.RunnableSession(session_id="sesn_1"))
        await brain.idles()
    assert brain.scheduler._folds.take("sesn_1") is None


async def test_no_fold_is_kept_of_a_drive_that_failed(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    await turn(brain, epoch=1)
    brain.model.fails = RuntimeError("a bug")
    await turn(brain, epoch=2)
    assert brain.scheduler._folds.take("sesn_1") is None


async def test_what_a_harness_of_somebody_else_had_in_hand_is_folded_anew(
    brain: Brain, came: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(transcript: Transcript) -> Any:
        yield from tool_loop(transcript)
        transcript.inputs.clear()

    monkeypatch.setattr(harness, "load", lambda _: HarnessType("2", forgets))
    await create(brain.sessions, wake=True)
    for epoch in (1, 2):
        await turn(brain, epoch=epoch)
        assert brain.scheduler._folds.take("sesn_1") is None
        assert came[-1].after == 0


def events(*texts: str, before: bytes = b"", position: int = 1) -> list[types_pb2.Event]:
    """Messages, chained."""
    before = before or genesis("sesn_1")
    made = []
    for number, text in enumerate(texts, position):
        event = types_pb2.Event(
            id=f"e{number}",
            position=number,
            type="user.message",
            source="spiffe://carpal.internal/operator/ada",
            data=b'{"content": [{"type": "text", "text": "%s"}]}' % text.encode(),
        )
        event.time.FromNanoseconds(1_700_000_000_123_456_789 + number)
        event.data_digest = data_digest(event.data)
        event.hash = before = event_hash(
            before,
            id=event.id,
            position=number,
            time_ns=event.time.ToNanoseconds(),
            type=event.type,
            source=event.source,
            must_understand=False,
            digest=event.data_digest,
        )
        made.append(event)
    return made


def log_of(log: list[types_pb2.Event], after: int, redacted: int = 0) -> Log:
    """What a lease comes with."""
    head = types_pb2.ChainHead(position=len(log), hash=log[-1].hash)
    return Log(after, log[after:], head, redacted)


def folded(log: list[types_pb2.Event]) -> Fold:
    fold = Fold()
    fold.take(map(told, log))
    return fold


def test_a_fold_goes_on_where_the_log_chains_over_its_end() -> None:
    log = events("a", "b", "c")
    for upto in (1, 2, 3):
        assert goes_on(folded(log[:upto]), log_of(log, upto))
    assert goes_on(Fold(), log_of(log, 0))


def test_a_fold_does_not_go_on_with_another_log_of_the_same_length() -> None:
    """A backup was restored, and others came in the place of what was folded."""
    was, now = events("a", "b", "c"), events("a", "x", "c")
    assert not goes_on(folded(was[:2]), log_of(now, 2))
    assert not goes_on(folded(was), log_of(now, 3))
    assert not goes_on(folded(was), log_of(now[:2], 2))
    forged = types_pb2.Event()
    forged.CopyFrom(was[2])
    forged.data_digest = data_digest(b"{}")
    assert not goes_on(folded(was[:2]), log_of([*was[:2], forged], 2))


def test_a_fold_does_not_go_on_when_its_log_did_not_come_or_comes_from_elsewhere() -> None:
    log = events("a", "b", "c")
    assert not goes_on(folded(log[:2]), Log(2, None, log_of(log, 2).head, 0))
    assert not goes_on(folded(log[:2]), log_of(log, 1))
    assert not goes_on(Fold(), log_of(log, 2))


def test_a_fold_does_not_go_on_when_it_ends_with_a_checkpoint() -> None:
    log = events("a", "b", "c")
    assert not goes_on(Fold.woken(folded(log[:2]).transcript), log_of(log, 2))


def redacted(event: types_pb2.Event) -> types_pb2.Event:
    gone = types_pb2.Event()
    gone.CopyFrom(event)
    gone.data = b""
    gone.redaction.reason = "a secret"
    return gone


def test_a_fold_does_not_go_on_once_anything_under_it_was_redacted() -> None:
    log = events("a", "b", "c", "d")
    for gone in itertools.product((False, True), repeat=4):
        now = [redacted(e) if is_gone else e for e, is_gone in zip(log, gone, strict=True)]
        for was in itertools.product((False, True), repeat=2):
            if any(before and not after for before, after in zip(was, gone[:2], strict=True)):
                continue  # what is redacted stays so
            first = [redacted(e) if is_gone else e for e, is_gone in zip(log, was, strict=False)]
            fold = folded(first[:2])
            assert goes_on(fold, log_of(now, 2, sum(gone))) == (was == gone[:2])


def test_folds_are_kept_up_to_a_weight_the_newest_and_each_is_taken_once() -> None:
    log = events("a", "b")
    folds = Folds(weight_max=6 * folded(log).weight)
    kept = [folded(log) for _ in range(8)]
    for number, fold in enumerate(kept):
        folds.keep(f"sesn_{number}", fold)
    assert [folds.take(f"sesn_{number}") for number in range(8)] == [None, None, *kept[2:]]
    assert folds.take("sesn_7") is None
    assert folds._weight == 0
    folds.keep("sesn_1", folded(events(*"abcd")))
    assert folds.take("sesn_1") is None, "one that is too large for all the others"
