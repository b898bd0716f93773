"""A person signs in where the agent's browser is, by `carpal hand view` against `carpal dev`.

All of it is real: the commands, their page in a browser of the person's own, the agent's browser.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from hands.builtin.browser import PROGRAM
from tests.hands.browser.parts import needs_browser
from tests.pace import SCALE
from tests.test_dev import Up, dev
from tests.watcher import SECONDS, watcher

pytestmark = [needs_browser, pytest.mark.slow]

SECRET = "canarypassphrase"
FORM = (
    "<!doctype html><title>Sign in</title><form method=post action=/in>"
    "<input type=password name=word autofocus autocomplete=off></form>"
)
INSIDE = "<!doctype html><title>Inside</title><p>You are signed in</p>"


@dataclass
class Site:
    """Where one signs in."""

    port: int = 0
    signed_in: list[str] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                lines = head.decode().lower().split("\r\n")
                (length,) = (int(each[15:]) for each in lines if each.startswith("content-length:"))
                self.signed_in.append((await reader.readexactly(length)).decode())
                self.came.set()
            body = (INSIDE if head.startswith(b"POST") else FORM).encode()
            kind = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
            writer.write(kind + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """It serves while the block lasts."""
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


def played(there: Site) -> str:
    """What the practice model does: it goes to the site, and reads there when it is told to."""
    given = {"url": f"http://127.0.0.1:{there.port}/"}
    turns = [
        {"when": "[go]", "tools": [{"name": "navigate", "input": given}]},
        {"when": "[go]", "text": "There."},
        {"when": "[read]", "tools": [{"name": "get_page_text", "input": {}}]},
        {"when": "[read]", "text": "Read."},
    ]
    return json.dumps({"match": "[go]", "turns": turns})


async def log_of(up: Up, session_id: str, kind: str, count: int) -> list[dict[str, Any]]:
    """A session's log, once it has so many events of that type."""
    async with asyncio.timeout(SECONDS):
        while True:
            told = await up.carpal("session", "tail", session_id, "--no-follow", "--json")
            log = [json.loads(line) for line in told.stdout.splitlines()]
            if len(of(log, kind)) >= count:
                return log


def of(log: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The data of events of one type."""
    return [each["data"] for each in log if each["type"] == kind]


@asynccontextmanager
async def browser_at(address: str) -> AsyncIterator[Page]:
    """A person's own browser, which opened the address."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(PROGRAM), args=["--no-sandbox"]
        )
        try:
            page = await browser.new_page()
            await page.goto(address)
            yield page
        finally:
            await browser.close()


async def shows(page: Page, text: str) -> None:
    """Until it is on the page."""
    await page.get_by_text(text).wait_for(timeout=SECONDS * 1000)


async def sign_in(up: Up, session_id: str, there: Site) -> None:
    """Watch, take control, type while a call waits, and give it back."""
    async with (
        watcher(up.carpal, session_id, opens=False) as command,
        browser_at(command.address) as page,
    ):
        await shows(page, "you watch")
        async with asyncio.timeout(SECONDS):
            # What the page allows to run leaves no other way to ask.
            while await page.evaluate("document.getElementById('screen').naturalWidth") < 500:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await page.get_by_role("button", name="Take control").click()
        await shows(page, "you have control")
        sent = await up.carpal("session", "send", session_id, "[read]")
        assert sent.code == 0, sent.stderr
        await log_of(up, session_id, "agent.tool_use", 2)
        await page.keyboard.type(SECRET)
        await page.keyboard.press("Enter")
        async with asyncio.timeout(SECONDS):
            await there.came.wait()
        log = await log_of(up, session_id, "hand.entered", 2)
        assert len(of(log, "agent.tool_result")) == 1, "the call waits while they have control"
        assert of(log, "hand.left") == []
        await page.get_by_role("button", name="Give back").click()
        await log_of(up, session_id, "agent.tool_result", 2)
        await shows(page, "you watch")


def holding(folder: Path, text: str) -> list[str]:
    """Files in which it is."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path) for path in files if text.encode() in path.read_bytes()]


@pytest.mark.timeout(int(240 * SCALE))
async def test_a_person_signs_in_at_the_agents_browser_while_its_call_waits_and_nothing_keeps_it(
    tmp_path: Path,
) -> None:
    async with site() as there:
        script, agent = tmp_path / "sign-in.yaml", tmp_path / "agent.yaml"
        script.write_text(played(there))
        web = {"type": "browser", "config": {"egress": [{"host": f"127.0.0.1:{there.port}"}]}}
        agent.write_text(json.dumps({"name": "web", "hands": {"web": web}}))
        async with dev(tmp_path, "--script", str(script)) as up:
            ran = await up.carpal("run", "[go]", "--agent", str(agent), "--json")
            assert ran.code == 0, (ran.stdout, ran.stderr)
            session_id = json.loads(ran.stdout)["session_id"]
            await sign_in(up, session_id, there)
            log = await log_of(up, session_id, "hand.left", 2)
            shown = await up.carpal("session", "show", session_id)
    assert there.signed_in == [f"word={SECRET}"]
    assert "You are signed in" in json.dumps(of(log, "agent.tool_result")[1])
    view, control = of(log, "hand.entered")
    assert (view["kind"], view["control"]) == ("view", False)
    assert (control["kind"], control["control"]) == ("control", True)
    gave, ended = of(log, "hand.left")
    assert (gave["tunnel_id"], gave["because"]) == (control["tunnel_id"], "they left")
    assert ended["tunnel_id"] == view["tunnel_id"]
    assert SECRET not in shown.stdout + shown.stderr
    state = tmp_path / "state"
    for part in ("sessiond", "hand"):
        assert holding(state / part, session_id), "what is there can be found so"
    assert holding(tmp_path, SECRET) == []
