"""A process of a browser ends, between calls or in one: the next answer says so, and what is left.

Tests of the cases H30, H42 and H46 of hands, as far as a browser has them.
"""

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import Browsing, browser_place, browsing
from tests.hands.browser.running import browsers, processes
from tests.hands.browser.site import site
from tests.hands.place import PATIENCE, until
from tests.leftovers import nothing_orphaned

pytestmark = needs_browser


def kill(it: Browsing, kind: str) -> None:
    """All of a kind, as `renderer`; the browser itself where it is none."""
    for pid in browsers(it.place.supervisor(it.hand), kind):
        with contextlib.suppress(ProcessLookupError):  # it went with another
            os.kill(pid, signal.SIGKILL)


async def under_way(it: Browsing, name: str, **given: object) -> asyncio.Task[pb.Result]:
    """A call that a page is at."""
    request = it.place.request(it.hand, name, **given)
    running = asyncio.create_task(it.place.begin(request).result())
    call = request.call_id
    await until(lambda: it.place.journal.call(it.hand, call), "it did not begin")
    return running


async def says_gone(it: Browsing) -> str:
    """What a call says on a hand that is gone, or just about to be."""
    try:
        result = await it.result("screenshot")
    except CarpalError as error:
        return error.message
    assert result.outcome == pb.OUTCOME_LOST
    return result.content


async def replaced(it: Browsing) -> None:
    """Another hand is made, and is as good."""
    await it.place.release(it.hand)
    it.hand = await it.place.hand(type="browser", egress=[it.site.rule])
    assert "Home" in await it.go("/")


async def test_h46_a_page_whose_process_was_killed_between_calls_is_told_and_the_hand_goes_on(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/form")
        await it.state("new_tab")
        await it.go("/other")
        kill(it, "renderer")
        for tab in ("t2", "t1"):
            said = await it.fails("get_page_text", tab_id=tab)
            assert "crashed" in said
            assert f"Its tab {tab} was closed" in said
        assert "Home" in await it.go("/")


async def test_h46_a_page_whose_process_is_killed_in_a_call_ends_it_and_the_hand_goes_on(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        for name, given in (
            ("wait", {"duration": 30}),
            ("hold_key", {"text": "a", "duration": 30}),
            ("find", {"query": "x"}),
        ):
            await it.go("/keys" if name == "hold_key" else "/never-found")
            if name == "find":
                await it.go("/many")
            running = await under_way(it, name, **given)
            kill(it, "renderer")
            async with asyncio.timeout(PATIENCE / 2):
                result = await running
            if name == "find" and result.outcome == pb.OUTCOME_OK:
                continue  # it was done before
            assert result.outcome == pb.OUTCOME_ERROR, name
            assert "crashed" in result.content
            assert ("may have partly happened" in result.content) == (name == "hold_key")
        assert "Home" in await it.go("/")


@pytest.mark.parametrize("kind", ["zygote", "gpu-process", "utility"])
async def test_whichever_of_its_processes_is_killed_the_hand_says_so_and_goes_on_or_is_replaced(
    tmp_path: Path, kind: str
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        kill(it, kind)
        async with asyncio.timeout(PATIENCE):
            result = await it.result("navigate", url=it.site.url("/form"))
            if result.outcome == pb.OUTCOME_ERROR:
                result = await it.result("navigate", url=it.site.url("/form"))
        if result.outcome == pb.OUTCOME_OK:
            assert "Order" in await it.do("get_page_text")
        else:
            assert result.outcome == pb.OUTCOME_LOST
            await replaced(it)


async def test_h46_a_browser_that_is_killed_in_a_call_makes_it_lost_within_seconds(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        running = await under_way(it, "wait", duration=30)
        kill(it, "")
        async with asyncio.timeout(4):
            result = await running
        assert result.outcome == pb.OUTCOME_LOST
        assert "the browser ended: its tabs are gone" in result.content
        await replaced(it)
    await nothing_orphaned(tmp_path / "state")


async def test_h46_a_browser_that_is_killed_between_calls_is_a_lost_hand_and_the_next_call_says_so(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        supervisor = it.place.supervisor(it.hand)
        kill(it, "")
        await until(lambda: not Path(f"/proc/{supervisor}").exists(), "the hand lives on")
        assert "the browser ended: its tabs are gone" in await says_gone(it)
        await replaced(it)
    await nothing_orphaned(tmp_path / "state")


async def test_the_driver_that_is_killed_between_calls_is_a_lost_hand(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        supervisor = it.place.supervisor(it.hand)
        (driver,) = (
            pid for pid, line in processes(supervisor).items() if line[0].endswith("driver/node")
        )
        os.kill(driver, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{supervisor}").exists(), "the hand lives on")
        assert "the browser ended" in await says_gone(it)
        await replaced(it)
    await nothing_orphaned(tmp_path / "state")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("wait", {"duration": 30}),
        ("hold_key", {"text": "shift+a", "duration": 30}),
        ("javascript_exec", {"text": "while(true){}"}),
    ],
)
async def test_h30_a_call_whose_time_is_over_ends_within_a_second_and_the_hand_is_usable(
    tmp_path: Path, name: str, given: dict[str, object]
) -> None:
    async with browsing(tmp_path, allow=["javascript_exec"]) as it:
        await it.go("/keys")
        running = await under_way(it, name, limit=1.5, **given)
        async with asyncio.timeout(2.5 * PATIENCE / 20):
            result = await running
        assert result.outcome == pb.OUTCOME_TIMED_OUT
        assert ("may have partly happened" in result.content) == (name != "wait")
        if name == "javascript_exec":
            assert "does not answer" in await it.fails("get_page_text")
        else:
            before = await it.do("get_page_text")
            await it.do("type", text="b")
            assert (await it.do("get_page_text")).removeprefix(before).split() == ["b"]
        assert "Home" in await it.go("/")


async def test_text_and_keys_whose_time_is_over_say_how_much_may_have_been_typed(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/keys-slow")
        result = await it.result("type", text="x" * 2000, limit=1.5)
        assert result.outcome == pb.OUTCOME_TIMED_OUT
        said = result.content.split()
        sure, most = int(said[0]), int(said[0]) + int(said[said.index("to") + 1])
        assert result.content.startswith(f"{sure} of the 2000 characters were typed, and up to ")
        assert 0 < sure < 2000
        result = await it.result("key", text="a b", repeat=100, limit=1.5)
        assert result.outcome == pb.OUTCOME_TIMED_OUT
        presses = int(result.content.split()[0])
        assert f"{presses} of 200 presses were done, and one more may have been" in result.content
        async with asyncio.timeout(PATIENCE):
            while (typed := await it.do("find", query="typed counter")) != await it.do(
                "find", query="typed counter"
            ):
                pass
        x, other = (int(each) for each in re.findall(r"typed: (\d+) (\d+)", typed)[0])
        assert sure <= x <= most, "nothing is typed after the call ended"
        assert presses <= other <= presses + 1


async def test_h42_calls_at_once_run_in_order_unmixed(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/keys")
        texts = [letter * 30 for letter in "abcdef"]
        calls = [it.place.begin(it.place.request(it.hand, "type", text=text)) for text in texts]
        for call in calls:
            assert (await call.result()).content == "Typed."
        pressed = "".join((await it.do("get_page_text")).split())
        assert pressed.endswith("".join(texts)), "one after the other, in their order"


async def test_h42_two_hands_share_neither_sign_ins_nor_tabs_nor_files(tmp_path: Path) -> None:
    async with site() as there, browser_place(tmp_path / "state") as (place, blobs):
        allow = ["javascript_exec"]
        hands = [
            await place.hand(type="browser", egress=[there.rule], allow=allow) for _ in range(2)
        ]
        one, other = (Browsing(place, hand, there, blobs) for hand in hands)
        for it in (one, other):
            await it.go("/")
        keep = "document.cookie = 'who=me'; localStorage.setItem('who', 'me'); 1"
        await one.do("javascript_exec", text=keep)
        await one.state("new_tab")
        kept = "document.cookie + '/' + localStorage.getItem('who')"
        assert await one.do("javascript_exec", text=kept, tab_id="t1") == '"who=me/me"'
        assert await other.do("javascript_exec", text=kept) == '"/null"'
        assert len((await other.state())["tabs"]) == 1
