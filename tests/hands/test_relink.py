"""With a new certificate, a new link comes first; the old one is ended, and no call notices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from brain.daemons.daemon_link import DaemonLink
from carpal.errors import CarpalError, Denied, Unreachable
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import Held, IdentityFiles, Shown
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.daemon import Daemon
from tests.hands.fake_brain import Asked, FakeBrain, brain, next_reply
from tests.hands.place import PATIENCE, Place, let_go, until
from tests.pace import SCALE
from tests.pki import Pki


class Linking:
    """A daemon that dials, and what it was refused."""

    def __init__(self, place: Place, shown: Shown, *brains: FakeBrain) -> None:
        self.refused: list[CarpalError] = []
        self.brains = [one.address for one in brains]
        self.daemon = Daemon(
            lambda: shown,
            place.service,
            place.inventory,
            labels={},
            brains=lambda: self.brains,
            on_brains=lambda _: None,
            welcomed=lambda _: None,
            refused=self.refused.append,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Daemon]:
        """Dialling until the end of the block."""
        task = asyncio.create_task(self.daemon.run())
        try:
            yield self.daemon
        finally:
            self.daemon.stop("the test ends")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def renewed(pki: Pki, folder: str) -> IdentityFiles:
    """The daemon's next identity."""
    return pki.issue(Role.DAEMON, "d", directory=pki.root / folder)


async def test_when_the_certificate_is_rotated_a_new_link_is_first_and_the_old_is_drained_l30(
    place: Place, pki: Pki, one: FakeBrain
) -> None:
    """L30: grpc cannot swap a client certificate in place."""
    old, new = renewed(pki, "old"), renewed(pki, "new")
    async with Linking(place, old, one).running() as daemon:
        first = await one.link()
        await first.provision("h")
        workspace = Path((await _said(first, "c1", "mkfifo go; pwd")).strip())
        replies = first.execute("h", "c2", "echo up; read x < go; echo ran >> log; cat log")
        assert (await next_reply(replies)).execute.output.data == b"up\n"
        async with asyncio.timeout(PATIENCE):
            await daemon.relink(new)
        second = await one.link()
        assert first.link.identity.serial == old.identity().serial
        assert second.link.identity.serial == new.identity().serial
        with pytest.raises(CarpalError):  # the old link ends, in good order
            await next_reply(replies)
        assert first.link.draining
        assert second.link.hello.instance_id == first.link.hello.instance_id
        again = second.execute("h", "c2", "echo up; read x < go; echo ran >> log; cat log")
        assert (await next_reply(again)).execute.output.data == b"up\n"
        await let_go(workspace / "go")
        async for reply in again:
            last = reply
        assert last.execute.result.content == "up\nran\n"
        await until(one.links.empty, "a third link came")


async def _said(asked: Asked, call_id: str, command: str) -> str:
    async with asyncio.timeout(PATIENCE):
        async for reply in asked.execute("h", call_id, command):
            last = reply
    return last.execute.result.content


async def test_the_old_link_serves_until_the_new_one_is_welcomed(
    place: Place, pki: Pki, one: FakeBrain
) -> None:
    async with Linking(place, renewed(pki, "old"), one).running() as daemon:
        first = await one.link()
        one.admits = False
        with pytest.raises(Unreachable):
            await daemon.relink(renewed(pki, "new"))
        assert first.link.open
        assert not first.link.draining
        await first.ask(list_hands=hand_pb2.ListHandsRequest())


async def test_a_link_that_the_brain_ends_as_superseded_is_not_dialled_again(
    place: Place, pki: Pki, one: FakeBrain
) -> None:
    """A brain ends the older link before it welcomes the newer."""
    linking = Linking(place, renewed(pki, "old"), one)
    async with linking.running() as daemon:
        first = await one.link()
        one.supersedes = first.link
        async with asyncio.timeout(PATIENCE):
            await daemon.relink(renewed(pki, "new"))
        second = await one.link()
        await second.ask(list_hands=hand_pb2.ListHandsRequest())
        assert one.links.empty()
        assert linking.refused == []


async def test_a_link_is_made_with_the_new_one_where_the_old_one_cannot(
    place: Place, pki: Pki, one: FakeBrain, tmp_path: Path
) -> None:
    """L26: what expired while the machine slept dials no brain, its successor does."""
    stranger = Pki(tmp_path / "other").issue(Role.DAEMON, "d")
    linking = Linking(place, stranger, one)
    async with linking.running() as daemon:
        await until(lambda: linking.refused, "it was not refused")
        async with asyncio.timeout(PATIENCE):
            await daemon.relink(Held(renewed(pki, "new").load()))
        asked = await one.link()
        await asked.ask(list_hands=hand_pb2.ListHandsRequest())


async def test_another_brain_is_asked_when_the_linked_one_does_not_answer(
    place: Place, pki: Pki, one: FakeBrain
) -> None:
    linking = Linking(place, renewed(pki, "old"), one)
    async with brain(pki, "brain-2") as two, linking.running() as daemon:
        await one.link()
        linking.brains.append(two.address)
        one.admits = False
        two.epoch = one.epoch
        async with asyncio.timeout(PATIENCE):
            await daemon.relink(renewed(pki, "new"))
        await (await two.link()).ask(list_hands=hand_pb2.ListHandsRequest())


async def test_where_every_brain_refuses_the_new_one_the_refusal_is_the_answer(
    place: Place, pki: Pki, one: FakeBrain
) -> None:
    async with Linking(place, renewed(pki, "old"), one).running() as daemon:
        first = await one.link()
        with pytest.raises(Denied) as refused:
            await daemon.relink(pki.issue(Role.OPERATOR, "eve"))
        assert refused.value.reason is Reason.ROLE_NOT_ALLOWED
        await first.ask(list_hands=hand_pb2.ListHandsRequest())


class SlowToWelcome(FakeBrain):
    """Remembers each hello, and welcomes once it may."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.hellos: list[pb.Hello] = []
        self.may = asyncio.Event()

    async def _admit(self, link: DaemonLink, hello: pb.Hello, protocol: int) -> pb.Welcome:
        self.hellos.append(hello)
        await self.may.wait()
        return await super()._admit(link, hello, protocol)


async def test_a_second_hello_waits_for_the_first_ones_welcome_so_it_is_no_clones(
    place: Place, pki: Pki
) -> None:
    """A brain takes for a copy whoever does not know of the link there is."""
    async with (
        brain(pki, "brain-1", kind=SlowToWelcome) as slow,
        Linking(place, renewed(pki, "old"), slow).running() as daemon,
    ):
        assert isinstance(slow, SlowToWelcome)
        await until(lambda: slow.hellos, "no hello came")
        relinking = asyncio.create_task(daemon.relink(renewed(pki, "new")))
        await asyncio.wait({relinking}, timeout=0.5 * SCALE)
        assert len(slow.hellos) == 1
        slow.may.set()
        async with asyncio.timeout(PATIENCE):
            await relinking
        assert [hello.last_epoch for hello in slow.hellos] == [0, 1]


async def test_without_a_link_there_is_none_to_renew_and_the_next_one_is_made_with_the_new_one(
    place: Place, pki: Pki
) -> None:
    async with brain(pki, "brain-1") as one:
        one.admits = False
        linking = Linking(place, renewed(pki, "new"), one)
        async with linking.running() as daemon:
            await until(lambda: linking.refused, "it was not refused")
            async with asyncio.timeout(PATIENCE):
                await daemon.refresh(renewed(pki, "newer"))
