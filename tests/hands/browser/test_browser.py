"""A browser hand as a model uses it: pages, forms, keys, pictures, tabs."""

import asyncio
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import browsing
from tests.hands.place import PATIENCE

pytestmark = needs_browser


async def test_a_page_is_gone_to_read_and_seen(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        assert await it.go("/") == f"Navigated to {it.site.url()} — Home (HTTP 200)"
        page = await it.do("read_page")
        assert 'heading "Hello"' in page
        assert 'link "The form" [ref=' in page
        assert await it.do("get_page_text") == "Hello\nThe form"
        result = await it.result("screenshot")
        (picture,) = result.attachments
        assert picture.media_type == "image/png"
        data = it.blobs.blobs[picture.digest]
        assert data[16:24] == (1280).to_bytes(4) + (800).to_bytes(4), "a picture of the viewport"
        assert result.content.startswith(f"[image/png, {len(data)} bytes, sha256 ")
        zoomed = await it.result("zoom", region=[0, 0, 320, 200])
        assert it.blobs.blobs[zoomed.attachments[0].digest][16:24] == data[16:24], "it is larger"
        assert "no part" in await it.fails("zoom", region=[0, 0, 3200, 200])
        await it.click("the form")
        assert (await it.state())["tabs"][0]["title"] == "A form"
        assert "Home" in await it.do("navigate", url="back")
        assert "A form" in await it.do("navigate", url="forward")
        assert "A form" in await it.do("navigate", url="reload")
        assert "Other" in await it.do("navigate", url=it.site.url("/to-other"))
        assert "HTTP 404" in await it.do("navigate", url=it.site.url("/missing"))


async def test_a_form_is_filled_in_and_sent(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/form")
        name = await it.ref("name field")
        await it.do("form_input", target=name, value=1234567.89)
        number = await it.do("read_page", ref=name["ref"])
        assert "1234567.89" in number
        assert await it.do("form_input", target=name, value="Ada") == (
            f"Set the value of {name['ref']}."
        )
        await it.do("form_input", target=await it.ref("colour"), value="Blue")
        await it.do("form_input", target=await it.ref("gift"), value=True)
        colour = await it.ref("colour")
        assert "'Red', 'Blue'" in await it.fails("form_input", target=colour, value="Green")
        assert await it.click("send button") == "Clicked."
        assert await it.do("get_page_text") == "?name=Ada&colour=b&gift=yes&file="


async def test_keys_and_the_mouse_reach_the_page_with_their_fixed_answers(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/keys")
        at = {"type": "coordinate", "x": 30, "y": 20}
        for name, given, answer in (
            ("left_click", {"target": at}, "Clicked."),
            ("right_click", {"target": at, "modifiers": "shift"}, "Right-clicked."),
            ("middle_click", {"target": at}, "Middle-clicked."),
            ("double_click", {"target": at}, "Double-clicked."),
            ("triple_click", {"target": at}, "Triple-clicked."),
            ("hover", {"target": at}, "Hovered."),
            ("mouse_move", {"target": at}, "Moved the mouse."),
            ("left_mouse_down", {"target": at}, "Mouse button pressed."),
            ("left_mouse_up", {"target": at}, "Mouse button released."),
            ("left_click_drag", {"from": at, "target": {**at, "x": 90}}, "Dragged."),
            ("scroll", {"target": at, "scroll_direction": "down"}, "Scrolled down."),
            ("left_click", {"target": at}, "Clicked."),
            ("type", {"text": "hé{text}"}, "Typed."),
            ("key", {"text": "ctrl+a"}, "Pressed ctrl+a."),
            ("key", {"text": "Return Tab", "repeat": 2}, "Pressed Return Tab."),
            ("hold_key", {"text": "shift+a", "duration": 0.2}, "Held shift+a for 0.2s."),
            ("wait", {"duration": 0.1}, "Waited 0.1s."),
        ):
            assert await it.do(name, **given) == answer
        said = await it.do("get_page_text")
        for each in ("down0 up0", "down2S up2", "down1", "double", "wheel1", "C-a", "Enter", "S-a"):
            assert each in said, (each, said)
        assert "is no key" in await it.fails("key", text="ctrl+nothing")
        assert "is no modifier" in await it.fails("left_click", target=at, modifiers="a")
        outside = {"type": "coordinate", "x": 5000, "y": 1}
        assert "1280x800" in await it.fails("left_click", target=outside)
        assert "target.x" in await it.fails("left_click", target={"type": "coordinate"})


async def test_a_ref_that_is_stale_hidden_or_far_is_told_and_the_hand_goes_on(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/form")
        link = await it.ref("elsewhere")
        assert "The very end" not in await it.do("read_page", filter="interactive")
        part = await it.do("read_page", ref=link["ref"])
        assert part.startswith('- link "Elsewhere"')
        await it.go("/other")
        assert "any more" in await it.fails("left_click", target=link)
        assert "any more" in await it.fails("read_page", ref=link["ref"])
        await it.go("/many")
        page = await it.do("read_page")
        assert 49_000 < len(page) <= 50_000
        assert "more lines are left out" in page
        assert await it.click("Link 4999") == "Clicked."
        assert (await it.state())["tabs"][0]["url"].endswith("/other?4999")
        assert "nothing on the page" in await it.do("find", query="unicorn")


async def test_tabs_open_switch_and_close_and_each_result_says_how_they_are(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        assert await it.state() == {
            "tabs": [{"tab_id": "t1", "title": "", "url": "", "active": True}]
        }
        await it.go("/form")
        await it.click("in a new tab")
        async with asyncio.timeout(PATIENCE):
            while len((told := await it.state())["tabs"]) < 2:
                pass  # what a click opens comes when its server begins to answer
        assert [(tab["tab_id"], tab.get("active")) for tab in told["tabs"]] == [
            ("t1", True),
            ("t2", None),
        ]
        told = await it.state("switch_tab", tab_id="t2")
        assert told["tabs"][1] == {
            "tab_id": "t2",
            "title": "Other",
            "url": it.site.url("/other"),
            "active": True,
        }
        assert "Order" in await it.do("read_page", tab_id="t1")
        told = await it.state("new_tab")
        assert told["state_changes"] == [{"type": "tab_opened", "tab_id": "t3"}]
        assert [tab["tab_id"] for tab in told["tabs"] if tab.get("active")] == ["t3"]
        told = await it.state("close_tab", tab_id="t3")
        assert [tab["tab_id"] for tab in told["tabs"]] == ["t1", "t2"]
        assert "there is no tab 't3'" in await it.fails("screenshot", tab_id="t3")
        for each in ("t1", "t2"):
            told = await it.state("close_tab", tab_id=each)
        assert len(told["tabs"]) == 1, "there is always one"


async def test_input_that_does_not_fit_names_the_field_h22(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        described = (await it.place.service.describe(pb.DescribeRequest())).types
        kind = next(each for each in described if each.type == "browser")
        assert len(kind.tools) == 31
        with pytest.raises(CarpalError, match="is the largest"):
            await it.place.hand(type="browser", viewport={"width": 1568, "height": 1568})
        with pytest.raises(CarpalError, match="at least"):
            await it.place.hand(type="browser", limits={"memory_bytes": 128 << 20})
        for given in ({}, {"url": 5}, {"url": "x", "more": 1}):
            with pytest.raises(Exception, match=r"url|more"):
                await it.result("navigate", **given)
