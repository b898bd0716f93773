"""What a result says of what was done: never that nothing was, where something may have been."""

import asyncio
from pathlib import Path

from carpal.v1 import hand_pb2 as pb
from hands.browser.act import MAY
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import Browsing, browser_place, browsing
from tests.hands.browser.site import site
from tests.hands.place import PATIENCE, until

pytestmark = needs_browser


async def at_the_server(it: Browsing, **given: float) -> asyncio.Task[pb.Result]:
    """A navigation whose request a server has, and does not answer."""
    await it.go("/")
    request = it.place.request(it.hand, "navigate", url=it.site.url("/never"), **given)
    running = asyncio.create_task(it.place.begin(request).result())
    await until(lambda: "/never" in it.site.asked, "it did not ask")
    return running


async def test_h44_a_navigation_that_the_end_of_the_daemon_cuts_may_have_happened(
    tmp_path: Path,
) -> None:
    async with site() as there:
        async with browser_place(tmp_path / "state", end=False) as (place, blobs):
            hand = await place.hand(type="browser", egress=[there.rule])
            it = Browsing(place, hand, there, blobs)
            await it.go("/")
            request = place.request(hand, "navigate", url=there.url("/never"))
            call = place.begin(request)
            await until(lambda: "/never" in there.asked, "it did not ask")
            await call.leave()
        async with browser_place(tmp_path / "state") as (place, _):
            result = await place.begin(request).result()
            assert result.outcome == pb.OUTCOME_ERROR
            assert "gave no page" in result.content
            assert MAY in result.content
            assert "was not gone to" not in result.content


async def test_a_navigation_that_no_server_got_did_not_happen_and_one_by_a_redirect_may_have(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        said = await it.fails("navigate", url="https://example.com/")
        assert "https://example.com/ was not gone to: no egress rule" in said
        assert MAY not in said
        for path in ("/to-file", "/round"):
            assert MAY in await it.fails("navigate", url=it.site.url(path)), path


async def test_a_navigation_whose_time_is_over_may_have_happened(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        running = await at_the_server(it, limit=3.0)
        result = await running
        assert result.outcome == pb.OUTCOME_TIMED_OUT
        assert MAY in result.content
        said = await it.fails("navigate", url=it.site.url("/never"))
        assert "did not answer in time" in said
        assert MAY in said


async def test_a_script_says_what_became_of_it(tmp_path: Path) -> None:
    async with browsing(tmp_path, allow=["javascript_exec"]) as it:
        await it.go("/")
        said = await it.fails("javascript_exec", text="window.did = 1; const a = {}; a.a = a; a")
        assert "the script ran, and its value cannot be told: it holds itself" in said
        assert await it.do("javascript_exec", text="window.did") == "1"
        said = await it.fails("javascript_exec", text="window.did = 2; throw new Error('boom')")
        assert "boom" in said
        assert MAY in said
        script = "new Promise(() => { location = '/other' })"
        assert MAY in await it.fails("javascript_exec", text=script)


async def test_frames_that_are_never_answered_hold_up_no_reading_for_long(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.result("navigate", url=it.site.url("/hung-frames"))
        async with asyncio.timeout(PATIENCE):
            assert "above" in (await it.result("read_page")).content


async def test_a_link_to_a_host_that_no_rule_allows_is_told_where_it_was_clicked(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        for query, url in (
            ("There", "https://example.com/a"),
            ("In a tab", "https://example.com/b"),
        ):
            await it.go("/beyond")
            said = (await it.result("left_click", target=await it.ref(query))).content
            async with asyncio.timeout(PATIENCE):
                while "came to nothing" not in said:
                    said = (await it.result("wait", duration=0.1)).content
            assert f"A navigation to {url} came to nothing: no egress rule of this hand" in said
        assert "came to nothing" not in (await it.result("wait", duration=0.1)).content
        refused = await it.fails("navigate", url="https://example.com/")
        assert "came to nothing" not in refused
