"""A class with a screen, whatever it does with it: its calls go on, and the person is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands import controls
from hands.contract import Bytes, Entrance, Inside, Left
from hands.inside import person_view
from hands.inside import view_frames as frames
from hands.plugins import asked, screen_server
from tests.hands.place import PATIENCE, Place
from tests.hands.plugins.written import Plugins

SHOWN = '''
    class It(HandType):
        """A lamp."""

        pictures, does = [b"one"], []

        def view(self):
            return self.pictures[-1], "image/png"

        def control(self, event):
            self.does.append(f"{event.key} {event.down}")
            self.pictures.append(b"after " + event.key.encode())

        @tool()
        def done(self) -> str:
            """What a person did."""
            return ", ".join(self.does)

        @tool()
        async def wait(self) -> str:
            """Until something is done beside it, or a while."""
            print("begun", end="", flush=True)
            await asyncio.sleep(0.7)
            return ", ".join(self.does) or "nothing"
'''


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """A folder of them."""
    return Plugins(tmp_path / "plugins", monkeypatch)


@asynccontextmanager
async def person(place: Place, hand: str, kind: str = "view") -> AsyncIterator["Person"]:
    """A person in the hand."""
    entrance = Entrance(place.new_id("t"), kind, {})  # type: ignore[arg-type]
    async with place.inventory.keepers[hand].enter(entrance) as inside:
        yield Person(inside)


class Person:
    """Who watches, or does."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self._parser = frames.Parser(frames.PICTURES)
        self._pictures: list[tuple[bytes, bytes]] = []

    async def _take(self) -> Bytes | Left:
        async with asyncio.timeout(PATIENCE):
            return await self.inside.take(200_000)

    async def sees(self) -> bytes:
        """The next picture."""
        while not self._pictures:
            came = await self._take()
            assert isinstance(came, Bytes), came
            assert not came.error, came
            self._pictures += self._parser.feed(came.data)
        await self.inside.give(frames.framed(frames.SEEN))
        return self._pictures.pop(0)[1]

    async def hears(self) -> str:
        """The next words, of one line or more the first."""
        came = await self._take()
        assert isinstance(came, Bytes), came
        assert came.error
        return came.data.decode().partition("\n")[0]

    async def leaves(self) -> Left:
        """How it ended, after whatever else comes."""
        while isinstance(came := await self._take(), Bytes):
            pass
        return came

    async def does(self, *events: controls.Event) -> None:
        """Do something."""
        for event in events:
            await self.inside.give(frames.framed(frames.EVENT, controls.encoded(event)))


async def test_a_class_says_by_its_methods_that_it_has_a_screen(plugins: Plugins) -> None:
    plugins.write("lamp", SHOWN)
    told = await asked.ask("lamp", "lamp:It")
    assert {"view", "control"} <= set(told.description.capabilities)
    plugins.write("seen", SHOWN.replace("def control", "def _control"))
    told = await asked.ask("seen", "seen:It")
    assert {"view", "control"} & set(told.description.capabilities) == {"view"}
    plugins.write("blind", SHOWN.replace("def view", "def _view"))
    assert "write `view` too" in (await asked.ask("blind", "blind:It")).unready


async def test_the_next_picture_comes_once_the_last_was_seen_and_is_the_newest(
    plugins: Plugins,
) -> None:
    async with plugins.place(plugins.write("lamp", SHOWN)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand) as watches:
            assert await watches.sees() == b"one"
            async with person(place, hand, "control") as controlling:
                await controlling.does(*(controls.Key(each, down=True) for each in "abcdef"))
                seen = await watches.sees()
                while seen != b"after f":  # it was drawn while these were done
                    seen = await watches.sees()
            assert (await watches.sees()).startswith(b"after "), "let go of"
        result = await place.run(hand, "done")
    downs = [f"{each} True" for each in "abcdef"]
    assert result.content == ", ".join([*downs, *(f"{each} False" for each in "fedcba")])


async def test_what_is_done_waits_for_the_call_that_runs_and_is_dropped_by_who_leaves(
    plugins: Plugins,
) -> None:
    async with plugins.place(plugins.write("lamp", SHOWN)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand) as watches:
            assert await watches.sees() == b"one"
            call = place.begin(place.request(hand, "wait"))
            assert await call.output() == b"begun"
            async with person(place, hand, "control") as controlling:
                await controlling.does(controls.Key("a", down=True))
                result = await call.result()
                assert result.content == "nothing"
                assert await watches.sees() == b"after a"
            call = place.begin(place.request(hand, "wait"))
            assert await call.output() == b"begun"
            async with person(place, hand, "control") as controlling:
                await controlling.does(controls.Key("b", down=True))
            await call.result()
        assert (await place.run(hand, "done")).content == "a True, a False"


HOSTILE = {
    "raises": ("raise ToolError('the lamp is out')", "the lamp is out"),
    "fails": ("return 1 / 0", "ZeroDivisionError: division by zero"),
    "kind": ("return b'x', 'image/svg+xml'", "its `view` gave no pair of bytes"),
    "nothing": ("return None", "its `view` gave no pair of bytes"),
    "large": ("return bytes(3_000_000), 'image/png'", "3000000 bytes, and at most"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_view_that_fails_says_why_once_and_the_hand_goes_on(
    plugins: Plugins, name: str
) -> None:
    code, words = HOSTILE[name]
    source = SHOWN.replace('return self.pictures[-1], "image/png"', code)
    async with plugins.place(plugins.write("lamp", source)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand) as watches:
            assert words in await watches.hears()
            assert (await place.run(hand, "done")).outcome == pb.OUTCOME_OK
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await watches.inside.take(1000)


async def test_what_is_no_event_is_said_and_what_is_no_frame_ends_it(plugins: Plugins) -> None:
    async with plugins.place(plugins.write("lamp", SHOWN)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand, "control") as controlling:
            await controlling.inside.give(frames.framed(frames.EVENT, b"[]"))
            assert "it is no event" in await controlling.hears()
            await controlling.does(controls.Wheel(1, 1, 0, 5))
            assert "AttributeError" in await controlling.hears()
            await controlling.inside.give(b"\xff" * 100)
            assert "there no more" in (await controlling.leaves()).problem
        async with person(place, hand) as watches:
            await watches.inside.give(frames.framed(frames.EVENT, b"{}"))
            assert "there no more" in (await watches.leaves()).problem
        assert (await place.run(hand, "done")).outcome == pb.OUTCOME_OK


async def test_a_person_who_floods_while_a_call_runs_is_out_and_the_call_goes_on(
    plugins: Plugins,
) -> None:
    async with plugins.place(plugins.write("lamp", SHOWN)) as place:
        hand = await place.hand(type="lamp")
        call = place.begin(place.request(hand, "wait"))
        assert await call.output() == b"begun"
        async with person(place, hand, "control") as controlling:
            await controlling.does(*[controls.Key("a", down=True)] * 2000)
            assert (await controlling.leaves()).problem
        assert (await call.result()).content == "nothing"


async def test_a_view_that_never_ends_is_given_up_and_no_call_waits_for_it(
    plugins: Plugins,
) -> None:
    source = SHOWN.replace(
        "def view(self):", "async def view(self):\n            await asyncio.sleep(1000)"
    )
    async with plugins.place(plugins.write("lamp", source)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand) as watches:
            assert (await place.run(hand, "done")).outcome == pb.OUTCOME_OK
            assert "more than 5 s" in await watches.hears()


async def test_a_hand_that_is_killed_ends_who_watches_it(plugins: Plugins) -> None:
    async with plugins.place(plugins.write("lamp", SHOWN)) as place:
        hand = await place.hand(type="lamp")
        async with person(place, hand) as watches:
            assert await watches.sees() == b"one"
            await place.release(hand)
            assert (await watches.leaves()).problem


async def at_the_screen(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As any process of the hand may connect to it."""
    return await asyncio.open_unix_connection(folder / person_view.SOCKET)


class Lamp:
    """A screen in this process."""

    def __init__(self) -> None:
        self.does: list[controls.Event] = []
        self.waits = False
        self.did = asyncio.Event()

    def view(self) -> tuple[bytes, str]:
        return b"one", "image/png"

    async def control(self, event: controls.Event) -> None:
        self.does.append(event)
        self.did.set()
        if self.waits:
            await asyncio.Event().wait()


@asynccontextmanager
async def showing(lamp: Lamp, folder: Path) -> AsyncIterator[screen_server.ScreenServer]:
    """Its screen, in this folder."""
    them = screen_server.ScreenServer(lamp, asyncio.Lock())
    await them.open(folder)
    try:
        yield them
    finally:
        await them.close()


async def test_who_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_server, "_FIRST", 0.2)
    async with showing(Lamp(), tmp_path):
        reader, writer = await at_the_screen(tmp_path)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()


async def test_who_opens_ever_more_connections_is_let_into_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_server, "_PEOPLE_MAX", 3)
    async with showing(Lamp(), tmp_path):
        there = [await at_the_screen(tmp_path) for _ in range(3)]
        reader, writer = await at_the_screen(tmp_path)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        for _, each in [*there, (reader, writer)]:
            each.close()


async def pressing(folder: Path, *names: str) -> asyncio.StreamWriter:
    """Control, in which these keys go down."""
    _, writer = await at_the_screen(folder)
    events = [controls.encoded(controls.Key(each, down=True)) for each in names]
    framed = b"".join(frames.framed(frames.EVENT, each) for each in events)
    writer.write(person_view.CONTROLS + framed)
    return writer


async def test_a_screen_that_does_not_let_go_holds_up_the_next_call_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_server, "LETTING_GO", 0.3)
    lamp = Lamp()
    async with showing(lamp, tmp_path) as them, asyncio.timeout(PATIENCE):
        writer = await pressing(tmp_path, *"abcdef")
        while len(lamp.does) < 6:
            await lamp.did.wait()
            lamp.did.clear()
        lamp.waits = True
        async with asyncio.timeout(2):
            await them.end_control()
        writer.close()
    assert len(lamp.does) == 7, "the first was asked for, and took all of the time"


async def test_a_call_that_begins_while_they_leave_cuts_no_letting_go_short(
    tmp_path: Path,
) -> None:
    lamp = Lamp()
    async with showing(lamp, tmp_path) as them, asyncio.timeout(PATIENCE):
        writer = await pressing(tmp_path, "a", "b", "c")
        while len(lamp.does) < 3:
            await lamp.did.wait()
            lamp.did.clear()
        writer.close()
        await lamp.did.wait()  # they left, and it lets go of the first
        await them.end_control()
    ups = [each for each in lamp.does if isinstance(each, controls.Key) and not each.down]
    assert [each.key for each in ups] == ["c", "b", "a"]


def test_more_keys_than_anybody_has_fingers_are_not_down_at_once() -> None:
    downs = controls.Downs()
    for number in range(controls.DOWN_MAX):
        downs.note(controls.Key(f"F{number}", down=True))
    downs.note(controls.Key("F1", down=True, repeat=True))
    with pytest.raises(ValueError, match="32 keys and buttons are down already: let go of one"):
        downs.note(controls.Key("a", down=True))
    downs.note(controls.Key("F1", down=False))
    downs.note(controls.Key("a", down=True))
    assert len(list(downs.ups())) == controls.DOWN_MAX
