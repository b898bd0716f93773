"""From an allowed name to an address. Case H38 of the hands."""

import asyncio
import socket
import threading
from collections.abc import Sequence

import pytest

from hands.forwarder import guard, hosts
from hands.forwarder.heads import Refused
from tests.hands.place import PATIENCE


def at(*addresses: str) -> guard.Resolve:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


def nothing(_address: str) -> bool:
    return False


async def why(host: str, resolve: guard.Resolve) -> Refused:
    with pytest.raises(Refused) as raised:
        await guard.addresses(host, 80, nothing, resolve)
    return raised.value


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "fe80::1", "0.0.0.0"],
)
async def test_h38_a_name_that_leads_into_this_machine_or_its_network_is_refused(
    address: str,
) -> None:
    refused = await why("example.com", at(address))
    assert refused.status == 403
    assert f"example.com is at {address}" in refused.why


async def test_h38_one_private_address_among_public_ones_refuses_them_all() -> None:
    await why("example.com", at("8.8.8.8", "10.0.0.1"))


async def test_an_address_that_is_not_public_is_dialled_when_a_rule_names_that_very_one() -> None:
    found = await guard.addresses("a.b", 80, lambda text: text == "10.0.0.1", at("10.0.0.1"))
    assert [str(one) for one in found] == ["10.0.0.1"]
    with pytest.raises(Refused, match=r"10\.0\.0\.2"):
        await guard.addresses(
            "a.b", 80, lambda text: text == "10.0.0.1", at("10.0.0.1", "10.0.0.2")
        )


async def test_a_link_local_address_with_its_link_is_never_dialled() -> None:
    with pytest.raises(Refused, match="one link"):
        await guard.addresses("a.b", 80, lambda _: True, at("fe80::1%lo"))


async def test_a_name_is_resolved_once_and_what_came_of_it_is_dialled() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    asked = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.99"]  # as who rebinds does

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(PATIENCE):
            dialled, address = await guard.dial("a.b", port, lambda _: True, resolve)
        with dialled:
            assert dialled.getpeername() == ("127.0.0.1", port)
        assert address == "127.0.0.1"
    assert asked == [("a.b", port)]


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        async with asyncio.timeout(PATIENCE):
            dialled, address = await guard.dial(
                "a.b", port, lambda _: True, at("127.0.0.7", "127.0.0.1")
            )
        dialled.close()
    assert address == "127.0.0.1"


async def test_a_name_without_an_address_and_one_nobody_listens_at_are_told_apart() -> None:
    assert (await why("a.b", at())).status == 502
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Refused, match="is not reached: connection refused"):
        await guard.dial("a.b", port, lambda _: True, at("127.0.0.1"))


async def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_host: str, _port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(guard, "RESOLVE_LIMIT", 0.05)
    assert (await why("a.b", hang)).status == 504


async def test_what_this_machines_resolver_says_is_what_localhost_is() -> None:
    assert set(await guard.Resolver()("localhost", 80)) <= {"127.0.0.1", "::1"}
    with pytest.raises(OSError, match=r"."):
        await guard.Resolver()("no-such-name.invalid", 80)


async def test_a_name_server_that_never_answers_holds_up_only_the_hand_that_asks_it() -> None:
    answers = threading.Event()

    def never(_host: str, _port: int) -> list[str]:
        answers.wait(PATIENCE)
        return ["127.0.0.1"]

    hostile = guard.Resolver(never)
    asking = [asyncio.create_task(hostile("a.b", 80)) for _ in range(guard._QUESTIONS + 1)]
    async with asyncio.timeout(PATIENCE):
        assert await guard.Resolver()("127.0.0.1", 80) == ["127.0.0.1"]
        assert not (await asyncio.wait(asking, timeout=0.05))[0]
        asking[0].cancel()  # given up: its thread waits on, and its room is still taken
        answers.set()
        found = await asyncio.gather(*asking[1:])
    assert found == [["127.0.0.1"]] * guard._QUESTIONS


async def test_h38_this_machine_is_refused_under_its_public_address_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "public", lambda _: True)  # as if it had one
    assert "the daemon's own machine" in (await why("a.b", at("127.0.0.1"))).why
