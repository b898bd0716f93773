"""Playwright's MCP server as a hand: a browser that a server starts, held by the hand's sandbox."""

import asyncio
import os
import re
import signal

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.inside import tree
from tests import mcp_servers
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.running import processes
from tests.hands.browser.site import Site, site
from tests.hands.mcp.conftest import Servers
from tests.hands.mcp.test_page import HANDS
from tests.hands.place import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_browser]


async def made(servers: Servers, there: Site, *more: str, namespaces: bool) -> str:
    """A hand as the page has it, which may reach the site."""
    start = await asyncio.to_thread(mcp_servers.command, "playwright")
    command = [*start, *HANDS["pages"]["config"]["command"][len(start) :], *more]
    return await servers.hand(command=command, namespaces=namespaces, egress=[there.rule])


async def test_a_page_is_looked_at_and_used_by_the_forwarder_alone_in_chromium_s_own_sandbox(
    servers: Servers,
) -> None:
    async with site() as there:
        hand = await made(servers, there, namespaces=True)
        run = servers.place.run
        went = await run(hand, "browser_navigate", url=there.url("/form"))
        assert (went.outcome, "Page Title: A form" in went.content) == (pb.OUTCOME_OK, True), went
        shown = await run(hand, "browser_snapshot")
        (field,) = re.findall(r'textbox "Name" \[ref=(\w+)\]', shown.content)
        typed = await run(hand, "browser_type", target=field, text="Ada", submit=True)
        assert (typed.outcome, "name=Ada" in typed.content) == (pb.OUTCOME_OK, True), typed
        beyond = await run(hand, "browser_navigate", url="http://127.0.0.2:8000/")
        assert "HTTP status: 403" in beyond.content
        picture = await run(hand, "browser_take_screenshot", scale="css", type="png")
        assert [each.media_type for each in picture.attachments] == ["image/png"], picture
        await run(hand, "browser_navigate", url="chrome://sandbox")
        told = await run(hand, "browser_snapshot")
        assert "You are adequately sandboxed" in told.content


async def test_without_leave_chromium_makes_no_sandbox_and_says_so_and_goes_without_one_if_told_to(
    servers: Servers,
) -> None:
    async with site() as there:
        hand = await made(servers, there, namespaces=False)
        failed = await servers.place.run(hand, "browser_navigate", url=there.url("/form"))
        assert failed.outcome == pb.OUTCOME_ERROR
        assert "Failed to move to new namespace" in failed.content
        hand = await made(servers, there, "--no-sandbox", namespaces=False)
        went = await servers.place.run(hand, "browser_navigate", url=there.url("/form"))
        assert (went.outcome, "Page Title: A form" in went.content) == (pb.OUTCOME_OK, True), went


@pytest.mark.parametrize("which", ["hands.plugins.host", "cli.js"])
async def test_h21_a_client_or_a_server_that_is_killed_leaves_no_chromium_after_five_seconds(
    servers: Servers, which: str
) -> None:
    async with site() as there:
        hand = await made(servers, there, namespaces=True)
        await servers.place.run(hand, "browser_navigate", url=there.url("/form"))
        began = processes(servers.place.supervisor(hand))
        chromium = {pid for pid, told in began.items() if "/chromium/" in told[0]}
        (killed,) = [
            pid for pid, told in began.items() if any(each.endswith(which) for each in told)
        ]
        assert len(chromium) > 3
        os.kill(killed, signal.SIGKILL)
        async with asyncio.timeout(5):
            await until(lambda: not any(map(tree.find, chromium)), "some of it is left")
        result = await servers.place.run(
            await made(servers, there, namespaces=True), "browser_tabs", action="list"
        )
        assert result.outcome == pb.OUTCOME_OK
