"""What hands say unasked: once, bounded, and kept until a log has it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands import unasked as them
from hands.blobs import Blobs
from hands.builtin.socket import SocketType
from hands.contract import Event
from hands.journal import Journal
from hands.owner.outward import Outward
from hands.owner.policy import Policy
from hands.owner.redact import Redactor
from hands.owner.redact_pattern import parse
from hands.unasked import Row, Unasked
from tests.hands.hand_server import Replaying, serving
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.plugins.written import Plugins

SPEAKER = """
class It(HandType):
    'Speaks.'

    def provision(self, context: Context) -> str:
        context.event('made', {'by': 'provision'})
        return 'ready'

    @tool()
    def watch(self, context: Context) -> str:
        'Says more later, when no call runs.'
        go = context.folder.parent.parent.parent / 'go'
        def later() -> None:
            while not go.exists():
                time.sleep(0.01)
            context.event('battery', {'left': 3, 'token': 'hunter2'}, 'e1')
            context.event('battery', {'left': 3, 'token': 'hunter2'}, 'e1')
        threading.Thread(target=later).start()
        return 'watching'

    @tool()
    def flood(self, context: Context, n: int) -> str:
        'Says much.'
        for each in range(n):
            context.event('flood', {'n': each})
        return 'said'

    @tool()
    def dies(self, context: Context) -> str:
        'Says a last thing.'
        context.event('last', {})
        os.kill(os.getpid(), 9)
"""


class Clock:
    """Seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "journal.db")) as journal:
        yield journal


def said(rows: list[Row]) -> list[str]:
    return [row.event_id for row in rows]


def event(event_id: str, kind: str = "k", **data: object) -> Event:
    return Event(event_id, kind, data)


def test_the_same_id_again_is_the_same_event_also_after_a_log_has_it(journal: Journal) -> None:
    unasked = Unasked(journal)
    for _ in range(2):
        unasked.take("h", event("e"))
    unasked.take("other", event("e"))
    assert [row[:2] for row in unasked.waiting()] == [("h", "e"), ("other", "e")]
    unasked.settle([("h", "e"), ("h", "no-such")])
    unasked.take("h", event("e"))
    assert [row.hand_id for row in unasked.waiting()] == ["other"]


def test_a_restart_keeps_what_no_log_has(journal: Journal, tmp_path: Path) -> None:
    Unasked(journal).take("h", event("e", left=3))
    journal.close()
    with closing(Journal(tmp_path / "journal.db")) as again:
        (row,) = Unasked(again).waiting()
    assert (row.hand_id, row.event_id, row.kind, row.data) == ("h", "e", "k", b'{"left": 3}')


def test_what_is_over_the_rate_is_counted_and_said_in_one_event(journal: Journal) -> None:
    clock = Clock()
    unasked = Unasked(journal, clock)
    for number in range(them.BURST + 7):
        unasked.take("h", event(f"e{number}"))
    unasked.take("other", event("e"))  # has its own
    assert len(unasked.waiting()) == them.BURST + 1
    clock.now = 1.0
    (told,) = (row for row in unasked.waiting() if row.kind == them.DROPPED)
    assert told.data == b'{"too_many": 7}'
    unasked.settle((row.hand_id, row.event_id) for row in unasked.waiting())
    unasked.take("h", event("later"))
    assert said(unasked.waiting()) == ["later"]


def test_a_daemon_that_is_killed_still_tells_that_something_was_dropped(journal: Journal) -> None:
    unasked = Unasked(journal, Clock())
    for number in range(them.BURST + 2):
        unasked.take("h", event(f"e{number}"))
    *_, told = Unasked(journal, Clock()).waiting()
    assert (told.kind, told.data) == (them.DROPPED, b'{"too_many": 1}')


async def test_nothing_is_told_or_kept_of_a_hand_that_is_released_while_others_are_told(
    tmp_path: Path,
) -> None:
    async with open_place(tmp_path / "s") as place:
        released, other = await place.hand(), await place.hand()
        unasked = place.inventory.unasked
        unasked.take(other, event("e0"))
        unasked.take(released, event("e1"))
        redactor = Redactor([parse("hunter[0-9]")])
        place.service.gate.outward = Outward(lambda: Policy(redactor=redactor))
        unasked.take(released, event("hunter2"))
        telling = place.service.events(pb.EventsRequest())
        assert (await anext(telling)).event_id == "e0"
        await place.release(released)
        assert [each.event_id async for each in telling] == []
        assert said(unasked.waiting([released])) == []
        count = "SELECT count(*) FROM unasked WHERE hand_id = ?"
        assert place.journal.ask(count, released) == [(0,)]


async def test_that_something_left_is_forgotten_with_its_hand(tmp_path: Path) -> None:
    async with open_place(tmp_path / "s") as place:
        hand_id = await place.hand()
        unasked = place.inventory.unasked
        unasked.take(hand_id, event("e1"))
        (row,) = unasked.waiting()
        assert (unasked.leaves(row), unasked.leaves(row)) == (True, False)
        await place.release(hand_id)
        assert unasked.leaves(row), "it is known no more"


def test_what_no_log_takes_is_bounded(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(them, "WAITING_MAX", 3)
    unasked = Unasked(journal)
    for number in range(5):
        unasked.take("h", event(f"e{number}"))
    assert said(unasked.waiting())[:3] == ["e0", "e1", "e2"]
    assert unasked.waiting()[3].data == b'{"too_many": 2}'


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (event("e", x="y" * them.DATA_MAX), "too_large"),
        (event("e", x=object()), "malformed"),
        (event("e", x=float("nan")), "malformed"),
        (event("e", "Bad kind"), "malformed"),
        (event("e", "returned"), "malformed"),
        (event("e", "events_dropped"), "malformed"),
        (event("../e"), "malformed"),
        (event("e", x="\ud800"), "malformed"),
    ],
)
def test_what_is_no_event_is_counted(journal: Journal, wrong: Event, why: str) -> None:
    unasked = Unasked(journal)
    unasked.take("h", wrong)
    (told,) = unasked.waiting()
    assert (told.kind, told.data) == (them.DROPPED, f'{{"{why}": 1}}'.encode())


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    return Plugins(tmp_path / "plugins", monkeypatch)


async def heard(place: Place, *acknowledged: pb.EventsResponse) -> list[pb.EventsResponse]:
    """The next that hands say."""
    keys = [pb.EventKey(hand_id=each.hand_id, event_id=each.event_id) for each in acknowledged]
    async with asyncio.timeout(PATIENCE):
        asking = place.service.events(pb.EventsRequest(acknowledged=keys))
        return [each async for each in asking]


async def test_a_hand_says_things_while_no_call_runs_and_they_are_kept_until_acknowledged(
    plugins: Plugins, tmp_path: Path
) -> None:
    kind = plugins.write("speaker", SPEAKER)
    await kind.prepare()
    assert "events" in kind.describe().capabilities
    async with plugins.place(kind) as place:
        hand = await place.hand(type="speaker")
        (made,) = await heard(place)
        assert (made.hand_id, made.kind, made.data) == (hand, "made", b'{"by": "provision"}')
        assert list(made.session_ids) == ["s"]
        assert await heard(place) == [made]
        await place.run(hand, "watch")
        waiting = asyncio.create_task(heard(place, made))
        (tmp_path / "state" / "go").touch()
        (battery,) = await waiting
        assert (battery.event_id, battery.kind) == ("e1", "battery")
        files = place.inventory.folder_of(hand) / "said"
        await until(lambda: not list(files.iterdir()), "what is journaled is still in its folder")
        await place.release(hand)
        assert not place.inventory.unasked.waiting()
        with pytest.raises(CarpalError) as caught:
            async for _ in place.service.events(pb.EventsRequest(hand_ids=[hand])):
                pass
        assert caught.value.reason is Reason.HAND_NOT_FOUND


async def test_a_flood_is_bounded_and_counted_and_the_last_words_of_a_dead_hand_are_heard(
    plugins: Plugins,
) -> None:
    kind = plugins.write("speaker", SPEAKER)
    await kind.prepare()
    async with plugins.place(kind) as place:
        hand = await place.hand(type="speaker")
        await place.run(hand, "flood", n=100)
        events: list[pb.EventsResponse] = []
        new: list[pb.EventsResponse] = []
        while not any(each.kind == them.DROPPED for each in events):
            new = await heard(place, *new)
            events += new
        floods = [each for each in events if each.kind == "flood"]
        assert them.BURST - 2 <= len(floods) < 60
        await asyncio.sleep(2 / them.RATE)  # the bucket has room again
        lost = await place.run(hand, "dies")
        assert lost.outcome == pb.OUTCOME_LOST
        while "last" not in {each.kind for each in events}:
            new = await heard(place, *new)
            events += new


class Speaking(Replaying):
    """A server that says the same until it hears that it is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("events")
        self.kept: set[str] = set()

    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        self.kept |= {key.event_id for key in request.acknowledged}
        for each, data in (("e1", b'{"n": 1}'), ("e2", b"[1]")):
            if each not in self.kept:
                yield pb.EventsResponse(event_id=each, kind="k", data=data)


async def test_a_server_on_a_socket_says_things(tmp_path: Path) -> None:
    server, path = Speaking(), tmp_path / "hand.sock"
    async with serving(path, server):
        kind = SocketType("echo", path)
        await kind.prepare()
        async with open_place(tmp_path / "state", more={"echo": kind}, blobs=Blobs(0.0)) as place:
            hand = await place.hand(type="echo")
            waiting = place.inventory.unasked.waiting
            await until(lambda: len(waiting()) == 2, "not both were heard")
            events = await heard(place)
            assert [(each.hand_id, each.kind, each.data) for each in events] == [
                (hand, "k", b'{"n": 1}'),
                (hand, them.DROPPED, b'{"malformed": 1}'),
            ]
            await until(lambda: server.kept == {"e1", "e2"}, "it was not told what is kept")
        await kind.close()


class Talking(Speaking):
    """A server whose answer has no end."""

    async def Events(
        self, request: pb.EventsRequest, context: object
    ) -> AsyncIterator[pb.EventsResponse]:
        self.kept |= {key.event_id for key in request.acknowledged}
        for number in range(100):
            if f"e{number}" not in self.kept:
                yield pb.EventsResponse(event_id=f"e{number}", kind="k", data=b"{}")
        await asyncio.Event().wait()


async def test_a_server_whose_answer_never_ends_is_told_what_is_kept_all_the_same(
    tmp_path: Path,
) -> None:
    server, path = Talking(), tmp_path / "hand.sock"
    async with serving(path, server):
        kind = SocketType("echo", path)
        await kind.prepare()
        async with open_place(tmp_path / "state", more={"echo": kind}, blobs=Blobs(0.0)) as place:
            await place.hand(type="echo")
            await until(lambda: len(server.kept) >= 64, "it was not told what is kept")
        await kind.close()


async def test_what_the_owner_strikes_out_is_struck_out_of_what_a_hand_says(
    journal: Journal,
) -> None:
    unasked = Unasked(journal)
    unasked.take("h", event("e", a=[{"token": "hunter2"}], n=3))
    (row,) = await unasked.more([], 0.0)
    message = row.message(["s"], lambda text: text.replace("hunter2", "***"))
    assert message.data == b'{"a": [{"token": "***"}], "n": 3}'


async def test_a_number_is_struck_out_of_what_a_hand_says_as_its_digits_are(
    journal: Journal,
) -> None:
    unasked = Unasked(journal)
    unasked.take("h", event("e", card=4111111111111111, n=3, yes=True, none=None))
    (row,) = await unasked.more([], 0.0)
    message = row.message(["s"], Redactor([parse(r"\d{12,16}")]).text)
    assert message.data == b'{"card": "[redacted]", "n": 3, "yes": true, "none": null}'


async def test_of_a_server_whose_ids_are_huge_none_is_kept_and_the_next_event_is_heard(
    tmp_path: Path,
) -> None:
    class Huge(Speaking):
        async def Events(
            self, request: pb.EventsRequest, context: object
        ) -> AsyncIterator[pb.EventsResponse]:
            assert request.ByteSize() < 64 * 1024
            if request.acknowledged:
                self.kept.update(each.event_id for each in request.acknowledged)
                return
            for _ in range(3):
                yield pb.EventsResponse(event_id="i" * 2_000_000, kind="k", data=b"{}")
            yield pb.EventsResponse(event_id="e1", kind="k", data=b"{}")

    server, path = Huge(), tmp_path / "hand.sock"
    async with serving(path, server):
        kind = SocketType("echo", path)
        await kind.prepare()
        async with open_place(tmp_path / "state", more={"echo": kind}, blobs=Blobs(0.0)) as place:
            await place.hand(type="echo")
            await until(lambda: server.kept == {"e1"}, "it was not told what is kept")
        await kind.close()
