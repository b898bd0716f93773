"""The page of who watches: nobody but the one browser that was given its address gets anything."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from hands import controls
from hands.inside import view_frames
from hands.visit.view_page import serving
from hands.visit.view_state import Screen, picture
from tests.png import png
from tests.watcher import HOST, Watcher


class Watched:
    """What a page is about, and what it asked."""

    def __init__(self) -> None:
        self.screen = Screen("game")
        self.asked: list[object] = []

    def seen(self) -> None:
        """It has a picture."""
        self.asked.append("seen")

    def heard(self) -> None:
        """It is there."""

    async def take(self) -> None:
        """Take control."""
        self.asked.append("take")

    async def give_back(self) -> None:
        """Give it back."""
        self.asked.append("give back")

    async def do(self, event: controls.Event) -> None:
        """Something."""
        self.asked.append(event)


@pytest.fixture
def watched() -> Watched:
    """With a picture."""
    watched = Watched()
    watched.screen.show(picture(view_frames.PNG, png(4, 3)))
    return watched


@pytest.fixture
async def page(watched: Watched) -> AsyncIterator[Watcher]:
    """Its page, that nobody opened yet."""
    async with serving(watched) as served:
        yield Watcher(None, served.address)  # type: ignore[arg-type]  # no command runs


async def test_the_address_opens_one_page_once(page: Watcher) -> None:
    assert (await page.ask("POST", "/open", {"once": "x" * 43})).status == 403
    await page.open()
    key = page.key
    assert (await page.ask("POST", "/open", {"once": page.once})).status == 403, "one viewer"
    assert page.key == key
    assert (await page.ask("GET", "/screen?after=0")).row["hand"] == "game"


@pytest.mark.parametrize(
    "head",
    [
        {"Host": "evil.example"},
        {"Host": "localhost"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X_Carpal_Key": "wrong"},
        {"X_Carpal_Key": None},
        {"X_Carpal_Key": ""},
    ],
)
async def test_who_names_another_host_or_origin_or_has_no_key_gets_nothing(
    page: Watcher, watched: Watched, head: dict[str, str | None]
) -> None:
    await page.open()
    for method, path, body in (
        ("GET", "/screen?after=0", None),
        ("GET", "/picture", None),
        ("POST", "/control", {"take": True}),
        ("POST", "/events", {"events": []}),
    ):
        said = await page.ask(method, path, body, **head)
        assert said.status == 403, (path, said)
        assert b"PNG" not in said.body
        assert b"game" not in said.body
    assert watched.asked == []


async def test_before_it_is_opened_no_key_at_all_is_right(page: Watcher, watched: Watched) -> None:
    assert (await page.ask("GET", "/picture")).status == 403
    assert (await page.ask("POST", "/control", {"take": True}, Origin=None)).status == 403
    assert watched.asked == []


async def test_a_name_that_leads_here_opens_nothing(page: Watcher) -> None:
    head = {"Host": f"evil.example:{page.port}", "Origin": f"http://evil.example:{page.port}"}
    assert (await page.ask("GET", "/", **head)).status == 403
    assert (await page.ask("POST", "/open", {"once": page.once}, **head)).status == 403
    await page.open()  # it was not used up


async def test_a_host_named_twice_is_none(page: Watcher) -> None:
    host = f"{HOST}:{page.port}"
    assert (await page.ask("GET", "/", Host=f"{host}\r\nHost: {host}")).status == 403


async def test_the_page_runs_only_what_is_in_it_and_keeps_no_secret(page: Watcher) -> None:
    said = await page.ask("GET", "/")
    policy = said.head["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert said.head["cache-control"] == "no-store"
    assert page.once.encode() not in said.body
    assert b"http" not in said.body.replace(b"http-equiv", b""), "it loads nothing of others"


async def test_what_the_page_does_is_checked_before_any_of_it_is_done(
    page: Watcher, watched: Watched
) -> None:
    await page.open()
    good = {"type": "key", "key": "a", "down": True}
    for bad in ({"type": "key"}, {**good, "key": "a" * 100}, "x", None, {**good, "more": 1}):
        assert (await page.does(good, bad)).status == 400  # type: ignore[arg-type]
    assert (await page.does(*[good] * 101)).status == 400
    assert (await page.ask("POST", "/events", {"events": 7})).status == 400
    assert (await page.ask("GET", "/screen?after=x")).status == 400
    assert (await page.ask("GET", "/nothing")).status == 404
    assert watched.asked == []
    assert (await page.does(good)).status == 200
    assert watched.asked == [controls.Key("a", down=True)]


async def test_who_looks_hears_of_a_change_at_once_and_of_the_end(
    page: Watcher, watched: Watched
) -> None:
    await page.open()
    now = (await page.ask("GET", "/screen?after=0")).row
    waiting = asyncio.create_task(page.ask("GET", f"/screen?after={now['change']}"))
    await asyncio.sleep(0)
    watched.screen.set(words="hello")
    assert (await waiting).row["words"] == "hello"
    watched.screen.end("it was released")
    row = (await page.ask("GET", "/screen?after=0")).row
    assert (row["over"], row["control"], row["words"]) == (True, False, "it was released")
    assert json.dumps(row)
    said = await page.ask("GET", "/picture")
    assert said.head["content-type"] == "image/png"
    assert said.head["x-content-type-options"] == "nosniff"


async def test_connections_that_say_nothing_keep_nobody_from_the_page(page: Watcher) -> None:
    await page.open()
    waiting = asyncio.create_task(page.ask("GET", "/screen?after=1000000"))
    silent = []
    try:
        for begun in (b"", b"GET /scr") * 48:
            _, writer = await asyncio.open_connection(HOST, page.port)
            writer.write(begun)
            silent.append(writer)
        async with asyncio.timeout(2):  # less than a silence may last
            for _ in range(5):
                assert (await page.ask("GET", "/screen?after=0")).row["hand"] == "game"
        assert (await waiting).status == 200, "one that is being answered is not closed for them"
    finally:
        for each in silent:
            each.close()
