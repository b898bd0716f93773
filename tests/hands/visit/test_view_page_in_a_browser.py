"""The page as a browser runs it: what the hand shows is on it, what is done there comes here."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from playwright.async_api import Browser, Page, async_playwright

from hands import controls
from hands.builtin.browser import PROGRAM
from hands.inside import view_frames
from hands.visit.view_page import serving
from hands.visit.view_state import picture
from tests.hands.visit.test_view_page import Watched
from tests.pace import SCALE
from tests.png import png

SECONDS = 30.0 * SCALE


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The person's own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(PROGRAM), args=["--no-sandbox"]
        )
        yield browser
        await browser.close()


async def until(there: Callable[[], bool]) -> None:
    """Until what the page does has come."""
    async with asyncio.timeout(SECONDS):
        while not there():  # noqa: ASYNC110 - the page is another program
            await asyncio.sleep(0.01)


async def pictured(page: Page, width: int) -> None:
    """Until the picture is so wide. What the page allows to run leaves no other way to ask."""
    async with asyncio.timeout(SECONDS):
        # As above: the page is another program.
        while await page.evaluate("document.getElementById('screen').naturalWidth") != width:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def shows(page: Page, text: str) -> None:
    """Until it is on the page."""
    await page.get_by_text(text).wait_for(timeout=SECONDS * 1000)


@pytest.mark.timeout(120)
async def test_a_person_sees_takes_control_types_points_and_gives_it_back(browser: Browser) -> None:
    watched = Watched()
    watched.screen.show(picture(view_frames.PNG, png(40, 30)))
    async with serving(watched) as served:
        page = await browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        await page.goto(served.address)
        await shows(page, "you watch")
        await pictured(page, 40)
        assert "#" not in page.url
        await page.keyboard.press("a")
        assert watched.asked == ["seen"], "without control nothing is sent"
        await page.get_by_role("button", name="Take control").click()
        await until(lambda: "take" in watched.asked)
        watched.screen.set(control=True)
        await shows(page, "you have control")
        del watched.asked[:]
        await page.keyboard.press("ArrowRight")
        await until(lambda: len(watched.asked) == 2)
        assert watched.asked == [
            controls.Key("ArrowRight", down=True),
            controls.Key("ArrowRight", down=False),
        ]
        del watched.asked[:]
        box = await page.locator("#screen").bounding_box()
        assert box is not None
        await page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
        await until(lambda: controls.Pointer(20, 15, "up", "left") in watched.asked)
        assert controls.Pointer(20, 15, "down", "left") in watched.asked
        await page.mouse.wheel(0, 50)
        await until(lambda: controls.Wheel(20, 15, 0, 50) in watched.asked)
        watched.screen.show(picture(view_frames.PNG, png(44, 30)))
        await pictured(page, 44)
        await page.reload()
        await shows(page, "you have control")
        await page.get_by_role("button", name="Give back").click()
        await until(lambda: "give back" in watched.asked)
        other = await browser.new_page()
        await other.goto(served.address)
        await shows(other, "the address opens one page, once")
        watched.screen.end("the hand was released")
        await shows(page, "the hand was released")
        assert wrong == []
