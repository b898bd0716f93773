"""A person who watches a hand: the command, and what its page asks of it, without a browser."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from tests.command import Command
from tests.pace import SCALE

SECONDS = 30.0 * SCALE
HOST = "127.0.0.1"


@dataclass
class Reply:
    """What was answered."""

    status: int
    head: dict[str, str]
    body: bytes

    @property
    def row(self) -> dict[str, Any]:
        """The JSON in it."""
        row: dict[str, Any] = json.loads(self.body)
        return row


@dataclass
class Watcher:
    """One page."""

    process: asyncio.subprocess.Process
    address: str
    key: str = ""
    now: dict[str, Any] = field(default_factory=lambda: {"change": 0})
    """How the screen was last."""

    @property
    def port(self) -> int:
        """Of the page."""
        return int(self.address.split("/")[2].rpartition(":")[2])

    @property
    def once(self) -> str:
        """What opens the page, once."""
        return self.address.partition("#")[2]

    async def ask(self, method: str, path: str, body: object = None, **head: str | None) -> Reply:
        """One request, as the page makes it but for `head`; None leaves a line of it out."""
        origin = f"http://{HOST}:{self.port}"
        lines: dict[str, str | None] = {"Host": f"{HOST}:{self.port}", "X-Carpal-Key": self.key}
        if method == "POST":
            lines["Origin"] = origin
        data = b"" if body is None else json.dumps(body).encode()
        lines |= {name.replace("_", "-"): text for name, text in head.items()}
        text = "".join(f"{name}: {said}\r\n" for name, said in lines.items() if said is not None)
        asked = f"{method} {path} HTTP/1.1\r\n{text}Content-Length: {len(data)}\r\n\r\n"
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(HOST, self.port)
            writer.write(asked.encode() + data)
            whole = await reader.read()
            writer.close()
        above, _, said_body = whole.partition(b"\r\n\r\n")
        first, *rest = above.decode().split("\r\n")
        return Reply(
            int(first.split()[1]),
            {name.lower(): said for name, _, said in (each.partition(": ") for each in rest)},
            said_body,
        )

    async def open(self) -> None:
        """As a browser does that has the address."""
        said = await self.ask("POST", "/open", {"once": self.once})
        assert said.status == 200, said
        self.key = said.row["key"]

    async def until(self, **wanted: object) -> dict[str, Any]:
        """Until the screen is so."""
        async with asyncio.timeout(SECONDS):
            while any(self.now.get(name) != value for name, value in wanted.items()):
                self.now = (await self.ask("GET", f"/screen?after={self.now['change']}")).row
        return self.now

    async def hears(self, words: str) -> None:
        """Until that is said."""
        async with asyncio.timeout(SECONDS):
            while words not in self.now.get("words", ""):
                self.now = (await self.ask("GET", f"/screen?after={self.now['change']}")).row

    async def sees(self, number: int = 0) -> Image.Image:
        """The first picture after that number."""
        async with asyncio.timeout(SECONDS):
            while self.now.get("picture", 0) <= number:
                self.now = (await self.ask("GET", f"/screen?after={self.now['change']}")).row
        said = await self.ask("GET", "/picture")
        assert said.status == 200, said
        with Image.open(io.BytesIO(said.body)) as picture:
            return picture.convert("RGB")

    async def take(self, *, wanted: bool = True) -> None:
        """Take control, or give it back, and wait until it is so."""
        assert (await self.ask("POST", "/control", {"take": wanted})).status == 200
        await self.until(control=wanted)

    async def does(self, *events: dict[str, object]) -> Reply:
        """Do something."""
        return await self.ask("POST", "/events", {"events": list(events)})

    async def ends(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            said = await self.process.stderr.read()
            return await self.process.wait(), said.decode()


def key(name: str, *, repeats: int = 0) -> list[dict[str, object]]:
    """A key goes down, is still down so many times, and up."""
    down: dict[str, object] = {"type": "key", "key": name, "down": True}
    return [down, *[{**down, "repeat": True}] * repeats, {**down, "down": False}]


@asynccontextmanager
async def watcher(carpal: Command, where: str, *, opens: bool = True) -> AsyncIterator[Watcher]:
    """A person who watches, while the block lasts."""
    async with carpal.start("hand", "view", where) as process:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            assert process.stderr is not None
            raise AssertionError((await process.stderr.read()).decode())
        person = Watcher(process, address)
        if opens:
            await person.open()
        yield person
