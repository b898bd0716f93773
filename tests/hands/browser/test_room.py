"""What pages keep and download is bounded while it comes, and the model is told.

Tests of the case H35 of hands.
"""

import asyncio
import os
import re
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.browser.weighed import ALL_MAX, SIZE_MAX, Weighed
from hands.isolation import cgroups
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import Browsing, browsing
from tests.hands.browser.site import MIB, site
from tests.hands.place import PATIENCE

limited = pytest.mark.skipif("memory" not in cgroups.bases(), reason="no control group for memory")
FILL = """(async () => {
  const kept = await caches.open('all');
  for (let n = 0; n < 400; n++) {
    try { await kept.put('/' + n, new Response(new Uint8Array(1 << 20).fill(n))); }
    catch (error) { return 'full at ' + n; }
  }
  return 'never full';
})()"""
KEEP = """(async () => {
  const kept = await caches.open('more');
  for (let n = 0; n < 20; n++) await kept.put('/' + n, new Response(new Uint8Array(1 << 20)));
  return localStorage.getItem('who');
})()"""


async def downloaded(it: Browsing, query: str) -> pb.Result:
    """What is told of a download, some of it with a call after."""
    result = await it.result("left_click", target=await it.ref(query))
    async with asyncio.timeout(PATIENCE * 2):
        while not any(each in result.content for each in ("_completed", "_failed")):
            result = await it.result("wait", duration=0.1)
    return result


def on_the_disk(folder: Path) -> int:
    """Bytes of files below it, on its own file system."""
    device = folder.stat().st_dev
    found = (path.lstat() for path in folder.rglob("*"))
    return sum(each.st_blocks * 512 for each in found if each.st_dev == device)


@needs_browser
@limited
async def test_h35_a_page_that_fills_the_disk_fills_its_own_and_is_told_and_the_hand_recovers(
    tmp_path: Path,
) -> None:
    async with site() as other, site() as third, browsing(tmp_path) as it:
        await it.place.release(it.hand)
        sites = (it.site, other, third)
        it.hand = await it.place.hand(
            type="browser",
            limits={"memory_bytes": 800 * MIB},
            egress=[each.rule for each in sites],
            allow=["javascript_exec"],
        )
        said = ""
        for each in sites:
            await it.do("navigate", url=each.url("/"))
            await it.do("javascript_exec", text="localStorage.setItem('who', 'me'); 1")
            said = await it.do("javascript_exec", text=FILL)
            assert "full at" in said, "a site has a part of it alone"
        told = re.search(
            r"^\[the browser's disk of 200 MiB was nearly full: what (\S+) kept there, \d+ MiB, "
            r"was removed, but for its sign-ins]$",
            said,
            re.M,
        )
        assert told, said
        assert on_the_disk(tmp_path / "state" / "hands" / it.hand) < MIB, "none is the machine's"
        await it.do("navigate", url=told[1])
        assert await it.do("javascript_exec", text=KEEP) == '"me"', "there is room again"
        await it.go("/form")
        assert "Order" in await it.do("get_page_text")


@needs_browser
async def test_a_download_without_end_is_stopped_while_it_comes(tmp_path: Path) -> None:
    async with browsing(tmp_path, allow=["downloads"]) as it:
        await it.go("/download")
        said = (await downloaded(it, "without end")).content
        assert "it was stopped: one may have at most 64 MiB" in said
        assert SIZE_MAX < it.site.sent < ALL_MAX
        assert '"download_completed"' in (await downloaded(it, "Get it")).content
        said = (await downloaded(it, "Get a part")).content
        assert "it was cut off: its server ended it" in said


@needs_browser
@pytest.mark.slow
async def test_all_downloads_of_a_hand_together_are_bounded_and_one_that_is_gone_makes_room(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    if os.geteuid() == 0:
        os.chown(workspace, 4321, 4321)
        tmp_path.chmod(0o755)
    async with browsing(tmp_path, allow=["downloads"], workspace=str(workspace)) as it:
        await it.go("/download")
        for _ in range(ALL_MAX // (60 * MIB)):
            assert '"download_completed"' in (await downloaded(it, "a large one")).content
        said = (await downloaded(it, "a large one")).content
        assert "in the workspace still 256 MiB" in said
        kept = sorted((workspace / "downloads").iterdir())
        assert sum(path.stat().st_size for path in kept) == 240 * MIB
        kept[0].unlink()
        assert '"download_completed"' in (await downloaded(it, "a large one")).content


@needs_browser
async def test_a_download_that_cannot_be_put_into_the_workspace_is_told(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "downloads").write_text("it is a file")
    if os.geteuid() == 0:
        os.chown(workspace, 4321, 4321)
        tmp_path.chmod(0o755)
    async with browsing(tmp_path, allow=["downloads"], workspace=str(workspace)) as it:
        await it.go("/download")
        said = (await downloaded(it, "Get it")).content
        assert "it could not be put into the workspace: File exists" in said
        assert (workspace / "downloads").read_text() == "it is a file"
        assert "Home" in await it.go("/")


async def test_of_downloads_that_come_at_once_the_largest_are_stopped_until_all_have_room(
    tmp_path: Path,
) -> None:
    stopped: list[str] = []
    done = asyncio.Event()

    async def cancel(name: str) -> None:
        stopped.append(name)
        (tmp_path / f"{name}.crdownload").unlink()
        done.set()

    weighed = Weighed(tmp_path, lambda: ALL_MAX - 50 * MIB, cancel)
    for name, size in (("small", 10), ("medium", 20), ("large", 40)):
        with (tmp_path / f"{name}.crdownload").open("wb") as file:
            file.truncate(size * MIB)
    async with weighed.coming(), asyncio.timeout(PATIENCE):
        await done.wait()
    assert stopped == ["large"]
    assert "it was stopped" in weighed.why()
    assert "it was cut off" in weighed.why()
