"""A daemon's service that has browser hands, and short ways to use one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carpal.v1 import hand_pb2 as pb
from hands.browser.state import BEGINS
from hands.builtin.browser import BrowserType
from tests.hands.browser.site import Site, site
from tests.hands.life.test_mounts import Kept
from tests.hands.place import Place, open_place


class Browsing:
    """One hand, and what it may reach."""

    def __init__(self, place: Place, hand: str, there: Site, blobs: Kept) -> None:
        self.place, self.hand, self.site, self.blobs = place, hand, there, blobs

    async def result(self, name: str, **given: Any) -> pb.Result:
        """Of a member."""
        return await self.place.run(self.hand, name, **given)

    async def do(self, name: str, **given: Any) -> str:
        """What a member gives, which must be well; without what it says of the tabs."""
        result = await self.result(name, **given)
        assert result.outcome == pb.OUTCOME_OK, result.content
        return "\n".join(each for each in result.content.splitlines() if BEGINS not in each)

    async def fails(self, name: str, **given: Any) -> str:
        """What a member that fails says."""
        result = await self.result(name, **given)
        assert result.outcome == pb.OUTCOME_ERROR, result.content
        return result.content

    async def state(self, name: str = "list_tabs", **given: Any) -> dict[str, Any]:
        """What a member says of the tabs."""
        result = await self.result(name, **given)
        assert result.outcome == pb.OUTCOME_OK, result.content
        line = result.content.splitlines()[-1]
        assert line.startswith(BEGINS), result.content
        told: dict[str, Any] = json.loads(line.removeprefix("[browser_state ").removesuffix("]"))
        return told

    async def go(self, path: str) -> str:
        """To a page of the site."""
        return await self.do("navigate", url=self.site.url(path))

    async def ref(self, query: str) -> dict[str, str]:
        """The element that fits best."""
        first = (await self.do("find", query=query)).splitlines()[0]
        return {"type": "ref", "ref": first.partition("[ref=")[2].partition("]")[0]}

    async def click(self, query: str, **given: Any) -> str:
        """On the element that fits best."""
        return await self.do("left_click", target=await self.ref(query), **given)


@asynccontextmanager
async def browser_place(state: Path, **more: Any) -> AsyncIterator[tuple[Place, Kept]]:
    """A service; what is left of its hands is killed at its end."""
    kind, blobs = BrowserType(), Kept()
    try:
        async with open_place(state, more={"browser": kind}, blobs=blobs, **more) as place:
            yield place, blobs
    finally:
        for folder in (state / "hands").iterdir() if more.get("end", True) else ():
            await kind.reap(folder.name, folder)


@asynccontextmanager
async def browsing(tmp_path: Path, limits: Any = None, **config: Any) -> AsyncIterator[Browsing]:
    """A browser hand that may reach a site."""
    async with site() as there, browser_place(tmp_path / "state") as (place, blobs):
        rules = {"egress": [there.rule], **config}
        hand = await place.hand(type="browser", limits=limits, **rules)
        yield Browsing(place, hand, there, blobs)
