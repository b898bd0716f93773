"""A person watches a browser hand, takes control of it, signs in, and gives it back."""

from pathlib import Path

from hands import controls
from hands.inside import view_frames
from hands.visit import view_state as screen
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import browsing
from tests.hands.plugins.test_screen_server import person

pytestmark = needs_browser


def pressed(*names: str) -> list[controls.Event]:
    """Keys that go down and up."""
    return [controls.Key(name, down=down) for name in names for down in (True, False)]


async def test_a_person_sees_the_active_page_and_what_they_type_is_in_it(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it, person(it.place, it.hand) as watches:
        await it.go("/keys")
        shown = screen.picture(view_frames.JPEG, await watches.sees())
        assert shown.media_type == "image/jpeg"
        async with person(it.place, it.hand, "control") as controlling:
            await controlling.does(
                controls.Pointer(30, 20, "down"),
                controls.Pointer(30, 20, "up"),
                controls.Wheel(30, 20, 0, 40),
                controls.Key("Shift", down=True),
                *pressed("A"),
                controls.Key("Shift", down=False),
                *pressed("b", "é", "Nonsense"),
                controls.Key("Control", down=True),
            )
            assert await controlling.hears() == "the page did not take it"
            while screen.picture(view_frames.JPEG, await watches.sees()) == shown:
                pass  # one was on its way
        text = await it.do("get_page_text")
        assert "down0 up0 wheel1 S-Shift S-A b C-Control" in text
        await it.do("type", text="c")
        assert (await it.do("get_page_text")).endswith(" c"), "what was down is up"


async def test_who_watches_sees_where_the_agent_goes_meanwhile(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it, person(it.place, it.hand) as watches:
        await it.go("/")
        before = await watches.sees()
        await it.go("/form")
        while await watches.sees() == before:
            pass  # one was on its way
