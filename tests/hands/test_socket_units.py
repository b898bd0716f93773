"""Units of a server of somebody's own, on a unix socket: named in Describe, reset by ResetUnit."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.builtin import kept_units
from hands.builtin.socket import SocketType
from hands.commands.units import text
from hands.life import units
from tests.command import ROOT
from tests.hands.hand_server import Least, Replaying, serving
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.test_restart import DRIVER, child
from tests.hands.test_service import provision, refused

Reset = grpc.aio.ServicerContext[pb.ResetUnitRequest, pb.ResetUnitResponse]


class Phones(Replaying):
    """One with two phones, which notes what is done to them."""

    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("units")
        for each in ("a", "b"):
            self.info.units.append(pb.UnitInfo(unit_id=each, labels={"name": each}))
        self.log: list[str] = []
        self.fails = ""
        self.hangs = False
        self.left_off = 0

    async def ResetUnit(self, request: pb.ResetUnitRequest, context: Reset) -> pb.ResetUnitResponse:
        if self.hangs and request.unit_id == "a":
            try:
                await asyncio.Event().wait()
            finally:
                self.left_off += 1
        if self.fails and request.unit_id == "a":
            await context.abort(grpc.StatusCode.INTERNAL, self.fails)
        self.log.append(f"reset {request.unit_id}")
        return pb.ResetUnitResponse()

    async def Provision(
        self, request: pb.ProvisionRequest, context: object
    ) -> AsyncIterator[pb.ProvisionResponse]:
        self.log.append(f"made {request.unit_id}")
        async for step in super().Provision(request, context):
            yield step

    async def Release(self, request: pb.ReleaseRequest, context: object) -> pb.ReleaseResponse:
        if request.hand_id in self.hands:
            self.log.append(f"over {self.hands[request.hand_id].unit_id}")
        return await super().Release(request, context)


@asynccontextmanager
async def place(folder: Path, server: Least) -> AsyncIterator[Place]:
    at = folder / "hand.sock"
    more = {"echo": SocketType("echo", at)}
    async with (
        serving(at, server),
        open_place(folder / "state", more=more, blobs=Blobs(0.0)) as one,
    ):
        yield one


@pytest.fixture
def phones(monkeypatch: pytest.MonkeyPatch) -> Phones:
    monkeypatch.setattr(kept_units, "AGAIN", 0.05)
    return Phones()


async def take(here: Place, hand_id: str, **config: object) -> None:
    config_ = json.dumps(config).encode()
    await here.provision(provision(here, hand_id, type="echo", config=config_))


async def not_taken(here: Place, hand_id: str, **more: object) -> CarpalError:
    request = provision(here, hand_id, type="echo", **{"config": b"{}", **more})
    async with asyncio.timeout(PATIENCE):
        return await refused(here.service.provision(request))


def shown(here: Place) -> dict[str, tuple[str, str]]:
    return {each.unit_id: (each.holder, each.reason) for each in here.inventory.units.infos("echo")}


async def test_a_hand_has_a_unit_alone_that_its_server_is_told_and_resets_before_and_after(
    tmp_path: Path, phones: Phones
) -> None:
    async with place(tmp_path, phones) as here:
        await take(here, "h1", unit={"name": "b"})
        await take(here, "h2")
        assert shown(here) == {"a": ("h2", ""), "b": ("h1", "")}
        error = await not_taken(here, "h3")
        assert error.reason is Reason.AT_CAPACITY
        assert "2 held, 0 quarantined" in error.message
        await here.release("h1")
        assert shown(here) == {"a": ("h2", ""), "b": ("", "")}
    assert phones.log[:6] == ["reset b", "made b", "reset a", "made a", "over b", "reset b"]


async def test_a_server_that_describes_itself_as_the_page_shows_has_that_unit(
    tmp_path: Path,
) -> None:
    page = (ROOT / "docs/how-to/write-a-hand-type-in-another-language.md").read_text()
    (shown_,) = re.findall(r"^```json\n(.*?)^```$", page, re.M | re.S)
    server, at = Phones(), tmp_path / "hand.sock"
    tools = server.info.tools
    server.info = ParseDict(json.loads(shown_), pb.HandTypeInfo(tools=tools, description="A rack."))
    more = {"phone": SocketType("phone", at)}
    async with (
        serving(at, server),
        open_place(tmp_path / "state", more=more, blobs=Blobs(0.0)) as here,
    ):
        (info,) = here.inventory.units.infos("phone")
        assert (info.unit_id, dict(info.labels)) == ("pixel-1", {"os": "android"})
        await here.provision(provision(here, "h", type="phone", config=b'{"unit": {}}'))
    assert server.log[:2] == ["reset pixel-1", "made pixel-1"]


async def test_two_hands_that_want_one_unit_at_once_are_one_that_has_it(
    tmp_path: Path, phones: Phones
) -> None:
    async with place(tmp_path, phones) as here:
        came = await asyncio.gather(
            *(take(here, each, unit={"name": "a"}) for each in ("h1", "h2")), return_exceptions=True
        )
        (error,) = [each for each in came if isinstance(each, CarpalError)]
        assert error.reason is Reason.AT_CAPACITY
        assert phones.log == ["reset a", "made a"]


async def test_a_reset_that_fails_or_hangs_quarantines_its_unit_until_it_is_cleared(
    tmp_path: Path, phones: Phones, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place(tmp_path, phones) as here:
        phones.fails = "its screen is broken"
        assert "its screen is broken" in (await not_taken(here, "h")).message
        assert "its screen is broken" in shown(here)["a"][1]
        phones.fails, phones.hangs = "", True
        monkeypatch.setattr(units, "RESET_LIMIT", 0.2)
        await here.inventory.units.clear("a")
        assert "longer than 0.2 s" in shown(here)["a"][1]
        await until(lambda: phones.left_off == 1, "the server is not told to leave off")
        await take(here, "h")
        assert shown(here)["b"] == ("h", "")
        phones.hangs = False
        await here.inventory.units.clear("a")
        assert shown(here)["a"] == ("", "")


async def test_a_server_that_claims_units_and_resets_none_has_them_in_quarantine(
    tmp_path: Path,
) -> None:
    server = Least()
    server.info.capabilities.append("units")
    server.info.units.append(pb.UnitInfo(unit_id="a"))
    async with place(tmp_path, server) as here:
        assert "this server has not that" in (await not_taken(here, "h")).message
        assert "0 held, 1 quarantined" in (await not_taken(here, "h")).message


async def test_a_server_that_names_units_and_does_not_claim_them_has_none(tmp_path: Path) -> None:
    server = Least()
    server.info.units.append(pb.UnitInfo(unit_id="a"))
    async with place(tmp_path, server) as here:
        await take(here, "h")
        assert server.hands["h"].unit_id == ""
        assert shown(here) == {}


def kept(here: Place) -> bool:
    row = here.inventory.units.rows()[0]
    return not row["resetting"] and "could not be ended" in (row["reason"] or "")


A = {"config": b'{"unit": {"name": "a"}}'}


async def test_a_unit_whose_server_is_down_says_what_to_do_and_is_free_once_that_is_back(
    tmp_path: Path, phones: Phones
) -> None:
    at = tmp_path / "hand.sock"
    more = {"echo": SocketType("echo", at)}
    async with AsyncExitStack() as up:
        await up.enter_async_context(serving(at, phones))
        async with open_place(tmp_path / "state", more=more, blobs=Blobs(0.0)) as here:
            await take(here, "h")
            await up.aclose()
            assert (await here.run("h", "say", text="?")).outcome == pb.OUTCOME_LOST
            await until(lambda: kept(here), "it is not said")
            line = text(here.inventory.units.rows()[0])
            assert "held by h; its hand is lost and could not be ended: its server did not" in line
            assert "start it), and it is tried again when a hand wants a unit" in line
            assert (await not_taken(here, "h2", **A)).reason is Reason.AT_CAPACITY
            await until(lambda: kept(here), "it is not said")
            phones.hands.clear()  # of a new process
            async with serving(at, phones):
                assert (await not_taken(here, "h2", **A)).reason is Reason.AT_CAPACITY
                await until(lambda: shown(here)["a"] == ("", ""), "its unit is not freed")
                await take(here, "h2", unit={"name": "a"})
    assert phones.log[:4] == ["reset a", "made a", "reset a", "reset a"]


async def test_a_unit_that_a_server_which_is_down_cannot_reset_says_to_start_it_and_loses_no_hand(
    tmp_path: Path, phones: Phones
) -> None:
    at = tmp_path / "hand.sock"
    more = {"echo": SocketType("echo", at)}
    async with AsyncExitStack() as up:
        await up.enter_async_context(serving(at, phones))
        async with open_place(tmp_path / "state", more=more, blobs=Blobs(0.0)) as here:
            await up.aclose()
            error = await not_taken(here, "h")
            assert f"start the server at {at}" in error.message
            assert not (await here.service.list_hands(pb.ListHandsRequest())).hands


async def test_units_that_are_named_wrongly_are_said_and_those_before_stay(
    tmp_path: Path, phones: Phones
) -> None:
    async with place(tmp_path, phones) as here:
        phones.info.units.append(pb.UnitInfo(unit_id="../a"))
        request = pb.ProbeRequest(type="echo")
        async with asyncio.timeout(PATIENCE):
            said = ""
            while "the id of a unit is not" not in said:
                await asyncio.sleep(0.02)  # nothing announces it
                said = (await here.service.probe(request)).reason
        assert set(shown(here)) == {"a", "b"}
        phones.info.units[2].unit_id = "c"
        await until(lambda: set(shown(here)) == {"a", "b", "c"}, "it is not named")


async def test_a_brain_chooses_no_unit_by_its_id(tmp_path: Path, phones: Phones) -> None:
    async with place(tmp_path, phones) as here:
        error = await not_taken(here, "h", unit_id="a")
        assert (error.reason, error.fields["field"]) == (Reason.INVALID_FIELD, "unit_id")


@pytest.mark.slow
async def test_a_daemon_killed_while_a_unit_is_held_finds_it_held_by_the_same_hand(
    tmp_path: Path, phones: Phones
) -> None:
    at, state = tmp_path / "hand.sock", tmp_path / "state"
    async with serving(at, phones):
        async with child(state, {"CARPAL_TEST_SOCKET": f"echo={at}"}) as daemon:
            daemon.ask(provision=pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="echo"))
            while not (await daemon.reply()).last:
                pass
        more = {"echo": SocketType("echo", at)}
        async with open_place(state, more=more, blobs=Blobs(0.0)) as here:
            assert shown(here) == {"a": ("h", ""), "b": ("", "")}
            await take(here, "h2")
            assert shown(here)["b"] == ("h2", "")
            await here.release("h")
            assert shown(here)["a"] == ("", "")
    assert phones.log[:6] == ["reset a", "made a", "reset b", "made b", "over a", "reset a"]
