"""A class with a screen, whatever it does with it: its calls go on, and the person is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands import controls
from hands.contract import Bytes, Entrance, Inside, Left
from hands.inside import view_frames as frames
from hands.plugins import asked
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
