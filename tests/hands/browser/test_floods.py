"""Pages that send without end: they lose their tab, with what they did, and others go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.browser import flood
from hands.browser.flood import Floods, Seen
from tests.hands.browser.floods import FLOODS
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import Browsing, browsing
from tests.hands.place import PATIENCE

MOST = "pages sent the browser more than it could take in"
SAYS = {
    "alerts": "shows dialogs again and again",
    "long-addresses": MOST,
    "reload": "goes elsewhere or reloads again and again",
    "refresh": "goes elsewhere or reloads again and again",
}
"""What is said of those that no machine is fast enough for."""
QUICK = ("hashes", "console", "alerts")


async def answer(it: Browsing, name: str, **given: Any) -> pb.Result:
    """Of a call that may take all the time that it has."""
    request = it.place.request(it.hand, name, **given)
    async with asyncio.timeout(PATIENCE * 4):
        return await it.place.begin(request)._task


@needs_browser
@pytest.mark.parametrize(
    "kind",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in FLOODS],
)
async def test_a_page_that_does_something_without_end_loses_its_tab_at_most(
    tmp_path: Path, kind: str
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        await it.state("new_tab")
        said = []
        calls: list[tuple[str, dict[str, Any]]] = [
            ("navigate", {"url": it.site.url(f"/flood/{kind}")}),
            ("wait", {"duration": 3}),
            *[("read_page", {"tab_id": "t2"})] * (6 if kind in SAYS else 2),
        ]
        for name, given in calls:
            result = await answer(it, name, **given)
            assert result.outcome in (pb.OUTCOME_OK, pb.OUTCOME_ERROR), result.content
            said.append(result.content)
            if "Its tab t2 was closed" in result.content:
                break
        if kind in SAYS:
            assert SAYS[kind] in said[-1]
            assert "Its tab t2 was closed; the others go on, and t1 is active" in said[-1]
        told = await answer(it, "get_page_text", tab_id="t1")
        assert told.content.startswith("Hello\nThe form"), told.content
        if "was closed" not in said[-1]:
            told = await answer(it, "close_tab", tab_id="t2")
            # It may be ended just then.
            assert told.outcome == pb.OUTCOME_OK or "was closed" in told.content, told.content
        told = await answer(it, "navigate", url=it.site.url("/other"), tab_id="t1")
        assert "Other (HTTP 200)" in told.content


def seen(at: float, used: dict[int, float], waited: float = 0.0, **more: Any) -> Seen:
    """With a driver, process 1, that holds little and does little."""
    return Seen(at, more.get("held", {1: 100}), more.get("worked", {1: 0.0}), used, waited)


def test_the_busiest_page_is_ended_when_what_it_sends_fills_what_all_share() -> None:
    floods = Floods()
    assert floods.look(seen(0, {7: 50.0, 8: 0.0})) is None
    assert floods.look(seen(1, {7: 50.1, 8: 0.9})) is None
    much = {1: flood.HELD_MAX + 1}
    assert floods.look(seen(2, {7: 50.1, 8: 1.9}, held=much)) == 8
    assert floods.look(seen(3, {7: 50.9}, held={1: flood.HELD_MAX + 9000})) is None
    assert floods.look(seen(9, {7: 56.9}, held=much)) is None, "what is held is of the last"
    more = {1: flood.HELD_MAX * 2}
    assert floods.look(seen(10, {7: 57.9}, held=more)) == 7


def test_a_machine_that_is_busy_with_other_things_ends_no_page_soon() -> None:
    floods = Floods()
    assert floods.look(seen(0, {7: 0.0})) is None
    assert floods.look(seen(3, {7: 2.0}, 3.0)) is None
    assert floods.look(seen(6, {7: 2.1}, 6.0)) is None, "the page did as little"
    floods = Floods()
    assert floods.look(seen(0, {7: 0.0}, worked={1: 0.0})) is None
    assert floods.look(seen(3, {7: 2.0}, 3.0, worked={1: 2.9})) == 7
    assert floods.look(seen(4, {8: 1.0}, 4.0, worked={1: 3.9})) is None, "it takes in the rest"
