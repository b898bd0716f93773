"""Group commit: durable before it is acknowledged, shared by all who wait, harmed by nobody."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from sessiond.rows import Changes, Group, Needs, NewEvent
from sessiond.rules.append import Appended, append
from sessiond.sqlite.store import SqliteStore
from sessiond.store import Store, StoreBroken, StoreRejects, StoreUnavailable, Transaction
from sessiond.writer import Writer
from tests.pace import SCALE
from tests.sessiond.desk import ADA, Desk, message, refused, reply

WAIT = 10.0 * SCALE


class Gate:
    """A store whose commits wait to be let through, and can be made to fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.commits: list[int] = []
        self.failure: Exception | None = None

    def commit(self) -> Changes:
        self.reached.set()
        assert self.open.wait(WAIT)
        if self.failure is not None:
            raise self.failure
        changes = self._store.commit()
        self.commits.append(sum(row.head for row in changes.sessions))
        return changes

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.fixture
def gate(store: Store) -> Gate:
    return Gate(store)


@pytest.fixture
async def writer(gate: Gate, desk: Desk) -> AsyncIterator[Writer]:
    desk.create()
    writer = Writer(gate, in_flight=100_000)  # type: ignore[arg-type]
    writer.start()
    yield writer
    gate.open.set()
    await writer.close()


def says(id: str, data: bytes = b"{}") -> Callable[[Transaction], Appended]:
    return lambda tx: append(tx, ADA, Group("sesn_1", (message(id, data),)))


async def test_what_waits_is_committed_together_in_order(
    writer: Writer, gate: Gate, desk: Desk
) -> None:
    gate.open.clear()
    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(writer.run(says(str(number))))
            await asyncio.sleep(0)
        gate.open.set()
    assert [e.id for e in desk.log()] == [str(number) for number in range(50)]
    assert len(gate.commits) <= 3


async def test_an_answer_comes_only_after_the_commit(writer: Writer, gate: Gate) -> None:
    gate.open.clear()
    seen: list[Changes] = []
    writer.listen(seen.append)
    waiting = asyncio.create_task(writer.run(says("a")))
    assert await asyncio.to_thread(gate.reached.wait, WAIT)
    assert not waiting.done()
    assert not seen
    gate.open.set()
    async with asyncio.timeout(WAIT):
        assert (await waiting).first.position == 1
    assert [row.head for changes in seen for row in changes.sessions] == [1]


async def test_a_refused_job_harms_no_other_in_its_batch(
    writer: Writer, gate: Gate, desk: Desk
) -> None:
    gate.open.clear()
    first = asyncio.create_task(writer.run(says("first")))
    await asyncio.sleep(0)
    jobs: list[asyncio.Task[Appended]] = [
        asyncio.create_task(writer.run(says("a"))),
        asyncio.create_task(
            writer.run(lambda tx: append(tx, ADA, Group("sesn_1", (reply("no"),))))
        ),
        asyncio.create_task(writer.run(says("a", b"other"))),
        asyncio.create_task(writer.run(says("b"))),
    ]
    await asyncio.sleep(0)
    gate.open.set()
    async with asyncio.timeout(WAIT):
        await first
        results = await asyncio.gather(*jobs, return_exceptions=True)
    reasons = [result.reason for result in results if isinstance(result, CarpalError)]
    assert reasons == [Reason.EPOCH_REQUIRED, Reason.ID_REUSED]
    assert [e.id for e in desk.log()] == ["first", "a", "b"]


async def test_a_job_that_fails_after_it_wrote_is_undone_and_the_rest_of_its_batch_is_not(
    writer: Writer, gate: Gate, desk: Desk
) -> None:
    def spoil(tx: Transaction) -> None:
        says("half")(tx)
        raise ZeroDivisionError

    undone: list[str] = []
    answers: list[object] = []
    gate.open.clear()
    first = asyncio.create_task(writer.run(says("first")))
    await asyncio.sleep(0)
    before = asyncio.create_task(writer.run(says("before")))
    await asyncio.sleep(0)
    await writer.submit(spoil, answers.append, 0, undone=lambda: undone.append("spoil"))
    after = asyncio.create_task(writer.run(says("after")))
    await asyncio.sleep(0)
    gate.open.set()
    async with asyncio.timeout(WAIT):
        await asyncio.gather(first, before, after)
    assert [type(answer) for answer in answers] == [ZeroDivisionError]
    assert [e.id for e in desk.log()] == ["first", "before", "after"]
    assert [e.position for e in desk.log()] == [1, 2, 3]
    assert undone


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)  # a disk that is easily filled
async def test_a_full_disk_refuses_what_does_not_fit_and_takes_the_rest(
    writer: Writer, store: SqliteStore, desk: Desk
) -> None:
    raw = store._connection.raw
    raw.pragma("max_page_count", raw.pragma("page_count") + 3)
    async with asyncio.timeout(WAIT):
        small, big = await asyncio.gather(
            writer.run(says("small")),
            writer.run(says("big", bytes(500_000))),
            return_exceptions=True,
        )
    assert isinstance(small, Appended)
    assert isinstance(big, CarpalError)
    assert big.reason is Reason.STORE_FULL
    assert [e.id for e in desk.log()] == ["small"]
    raw.pragma("max_page_count", 2**30)
    async with asyncio.timeout(WAIT):
        await writer.run(says("big", bytes(500_000)))


async def test_a_broken_store_answers_nothing_more_and_says_so(writer: Writer, gate: Gate) -> None:
    gate.failure = StoreBroken("the disk is gone")
    async with asyncio.timeout(WAIT):
        with refused(Reason.UNAVAILABLE):
            await writer.run(says("a"))
        with pytest.raises(StoreBroken, match="the disk is gone"):
            await writer.until_broken()
        gate.failure = None  # even if the next commit would succeed
        with refused(Reason.UNAVAILABLE):
            await writer.run(says("b"))
    assert gate.commits == []


async def test_a_store_that_is_away_is_not_waited_for_by_each_job_of_a_batch_in_turn(
    writer: Writer, gate: Gate, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    def begin(needs: Sequence[Needs]) -> Transaction:
        batches.append(len(needs))
        raise StoreRejects if len(needs) > 1 else StoreUnavailable

    gate.open.clear()
    first = asyncio.create_task(writer.run(says("first")))
    assert await asyncio.to_thread(gate.reached.wait, WAIT)
    monkeypatch.setattr(store, "begin", begin)
    jobs = [asyncio.create_task(writer.run(says(str(number)))) for number in range(5)]
    await asyncio.sleep(0)
    gate.open.set()
    async with asyncio.timeout(WAIT):
        await first
        for job in jobs:
            with refused(Reason.UNAVAILABLE):
                await job
    assert batches == [5, 1]


async def test_a_bug_in_the_store_stops_the_writer_and_leaves_nobody_waiting(
    writer: Writer, gate: Gate
) -> None:
    gate.failure = OverflowError("int too big")
    async with asyncio.timeout(WAIT):
        with refused(Reason.UNAVAILABLE):
            await writer.run(says("a"))
        with pytest.raises(StoreBroken, match="int too big"):
            await writer.until_broken()


async def test_a_watcher_that_fails_leaves_no_caller_waiting(writer: Writer) -> None:
    def fails(changes: Changes) -> None:
        raise ZeroDivisionError

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, it: reported.append(it))
    writer.listen(fails)
    async with asyncio.timeout(WAIT):
        assert (await writer.run(says("a"))).first.position == 1
    assert len(reported) == 1


async def test_an_answer_that_fails_leaves_no_other_caller_waiting_and_keeps_no_room(
    writer: Writer, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(outcome: object) -> None:
        raise ZeroDivisionError

    gate.open.clear()
    async with asyncio.timeout(WAIT):
        first = asyncio.create_task(writer.run(says("a"), 90_000))
        await asyncio.to_thread(gate.reached.wait, WAIT)
        gate.open.set()
        await first
        gate.open.clear()
        await writer.submit(says("b"), fails, 90_000)
        third = asyncio.create_task(writer.run(says("c")))
        await asyncio.sleep(0)
        gate.open.set()
        assert (await third).first.position == 3
        assert (await writer.run(says("d"), 90_000)).first.position == 4, "there is room"
    assert "a caller was not answered" in caplog.text


async def test_bytes_in_flight_are_bounded_and_taken_in_order(
    writer: Writer, gate: Gate, desk: Desk
) -> None:
    gate.open.clear()
    submitted: list[str] = []

    async def send(id: str, size: int) -> None:
        answered = asyncio.Event()
        await writer.submit(says(id), lambda _: answered.set(), size)
        submitted.append(id)
        await answered.wait()

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        for id, size in [("a", 60_000), ("b", 60_000), ("c", 1), ("d", 500_000)]:
            group.create_task(send(id, size))
            await asyncio.sleep(0)
        assert submitted == ["a"]  # c would fit, but would then overtake b
        gate.open.set()
    assert submitted == ["a", "b", "c", "d"]
    assert [e.id for e in desk.log()] == ["a", "b", "c", "d"]


async def test_a_caller_that_leaves_while_it_waits_for_room_takes_none(
    writer: Writer, gate: Gate
) -> None:
    gate.open.clear()
    first = asyncio.create_task(writer.run(says("a"), 100_000))
    await asyncio.sleep(0)
    leaver = asyncio.create_task(writer.run(says("b"), 100_000))
    await asyncio.sleep(0)
    leaver.cancel()
    third = asyncio.create_task(writer.run(says("c"), 100_000))
    gate.open.set()
    async with asyncio.timeout(WAIT):
        await asyncio.gather(first, third)
    assert leaver.cancelled()


async def test_closing_finishes_what_is_queued_and_refuses_the_rest(
    writer: Writer, gate: Gate, desk: Desk
) -> None:
    gate.open.clear()
    queued = asyncio.create_task(writer.run(says("queued"), 100_000))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(writer.run(says("waiting for room"), 100_000))
    await asyncio.sleep(0)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    gate.open.set()
    async with asyncio.timeout(WAIT):
        await closing
        await queued
        for late in (waiting, writer.run(says("late"))):
            with refused(Reason.UNAVAILABLE):
                await late
    assert [e.id for e in desk.log()] == ["queued"]


async def test_a_new_type_in_an_undone_batch_is_not_remembered(
    writer: Writer, gate: Gate, desk: Desk
) -> None:
    def spoil(tx: Transaction) -> None:
        append(tx, ADA, Group("sesn_1", (NewEvent("x", "user.brand_new", b""),)))
        raise ZeroDivisionError

    async with asyncio.timeout(WAIT):
        with pytest.raises(ZeroDivisionError):
            await writer.run(spoil)
        await writer.run(
            lambda tx: append(tx, ADA, Group("sesn_1", (NewEvent("y", "user.brand_new", b""),)))
        )
    assert [(e.id, e.type) for e in desk.log()] == [("y", "user.brand_new")]
