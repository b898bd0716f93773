"""A brain asks the vault's real proxy, in front of a real server; and what is no vault."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brain.mcp.proxy import Proxy, Unanswered
from brain.mcp.wire import CALL_ID, Refused
from carpal.identity import Role
from carpal.revocations import Revocations
from tests.vault.mcp.servers import Server
from tests.vault.mcp.world import CANARY, Brain, World, served, world
from vault.http.exchange import Exchange
from vault.http.server import serve_https

LIMIT = 30.0


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


@pytest.fixture
async def brain(there: World) -> AsyncIterator[Brain]:
    async with served(there.authority, Server(CANARY)) as port:
        yield there.grant(port)


def proxy(there: World, address: str = "") -> Proxy:
    return Proxy(address or there.address, there.brains["brain-1"])


async def test_a_call_is_answered_and_sent_again_by_its_id_it_is_refused(brain: Brain) -> None:
    params = {"name": "add", "arguments": {"a": 2, "b": 3}}
    async with proxy(brain.world) as asked:
        told = await asked.ask("a", brain.token, "tools/list", {})
        assert "add" in {tool["name"] for tool in told["tools"]}
        done = await asked.ask("a", brain.token, "tools/call", params, **{CALL_ID: "c1"})
        assert done["content"] == [{"type": "text", "text": "5"}]
        with pytest.raises(Refused) as caught:
            await asked.ask("a", brain.token, "tools/call", params, **{CALL_ID: "c1"})
    assert (caught.value.reason, caught.value.data["outcome"]) == ("CALL_SENT", "ok")


async def test_a_large_answer_comes_whole(brain: Brain) -> None:
    params = {"name": "many", "arguments": {"size": 3_000_000}}
    async with proxy(brain.world) as asked:
        done = await asked.ask("a", brain.token, "tools/call", params, **{CALL_ID: "c1"})
    assert len(done["content"][0]["text"]) == 3_000_000


async def test_a_brain_whose_certificate_was_renewed_shows_the_new_one(brain: Brain) -> None:
    files = brain.world.brains["brain-1"]
    async with proxy(brain.world) as asked:
        await asked.ask("a", brain.token, "ping", {})
        before = asked._line
        brain.world.pki.issue(Role.BRAIN, "brain-1", directory=files.directory)
        await asyncio.gather(*(asked.ask("a", brain.token, "ping", {}) for _ in range(5)))
        assert before is not None
        assert asked._line is not before
        assert before.client.is_closed


async def test_a_vault_that_is_not_there_or_stands_still_was_told_nothing(brain: Brain) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with proxy(brain.world, address) as asked:
            for _ in ("not there", "stands still"):
                async with asyncio.timeout(LIMIT):
                    with pytest.raises(Unanswered) as caught:
                        await asked.ask("a", brain.token, "ping", {})
                assert not caught.value.sent
                nobody.listen()


async def test_what_is_no_vault_hears_no_grant(brain: Brain) -> None:
    heard: list[Exchange] = []

    async def handle(exchange: Exchange) -> None:
        heard.append(exchange)

    other = brain.world.pki.issue(Role.BRAIN, "brain-2")
    async with (
        serve_https("127.0.0.1:0", other, "mcp", handle, revocations=Revocations()) as address,
        proxy(brain.world, address) as asked,
    ):
        with pytest.raises(Unanswered) as caught:
            await asked.ask("a", brain.token, "ping", {})
    assert not caught.value.sent
    assert heard == []
