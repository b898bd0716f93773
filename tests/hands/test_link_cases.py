"""Cases of the link where they bite a daemon: over real gRPC, with a brain that does the worst."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.server import Context, caller
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.builtin.process import ProcessType
from hands.contract import Order, Provisioned, Result
from tests.faults import supervisors
from tests.hands.fake_brain import FakeBrain, brain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, until
from tests.pki import Pki


async def result(replies: AsyncIterator[pb.Reply]) -> hand_pb2.Result:
    """A call's end."""
    async with asyncio.timeout(PATIENCE):
        async for reply in replies:
            last = reply
    return last.execute.result


async def test_l05_a_brain_that_restarts_knowing_nothing_is_told_all_of_the_daemon_anew(
    machine: Machine, pki: Pki
) -> None:
    """L05: the daemon says hello again, with all it has, and goes on nowhere else."""
    async with AsyncExitStack() as first_life:
        first = await first_life.enter_async_context(brain(pki, "brain-1"))
        machine.dials(first.address)
        async with machine.daemon():
            asked = await first.link()
            await asked.provision("h")
            asked.link.end(None)
            asked = await first.link()
            before = asked.link.hello
            first.admits = False
            asked.link.end(None)
            await first_life.aclose()
            async with brain(pki, "brain-1", first.address) as anew:
                anew.epoch = first.epoch
                again = await anew.link()
                hello = again.link.hello
                assert hello.last_epoch == first.epoch
                assert (hello.capacity.hands, len(hello.types)) == (1, 1)
                for field in ("journal_id", "boot_id", "instance_id"):
                    assert getattr(hello, field) == getattr(before, field)
                listed = await again.ask(list_hands=hand_pb2.ListHandsRequest())
                assert [info.hand_id for info in listed.list_hands.hands] == ["h"]


class Gated(ProcessType):
    """Makes a hand when it is let."""

    def __init__(self) -> None:
        super().__init__(sandbox="off")
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.made = 0

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        self.began.set()
        await self.gate.wait()
        self.made += 1
        return await super().provision(order, progress)


async def test_l09_a_link_that_drops_after_accept_and_before_the_reply_makes_one_hand(
    machine: Machine, one: FakeBrain
) -> None:
    """L09: who asks again by the same id gets the one hand, and the first answer."""
    gated = Gated()
    async with machine.daemon(hand_type=gated):
        asked = await one.link()
        lost = asyncio.ensure_future(asked.provision("h"))
        await gated.began.wait()
        asked.link.end(None)
        with pytest.raises(CarpalError):
            await lost
        again = await one.link()
        asking = asyncio.ensure_future(again.provision("h"))
        await again.ask(list_hands=hand_pb2.ListHandsRequest())  # that came after the other
        gated.gate.set()
        made = await asking
        assert made == await again.provision("h")
        assert gated.made == 1
        assert len(supervisors(machine.files.hands)) == 1


async def test_a_hand_released_while_it_is_made_is_not_there_afterwards(
    machine: Machine, one: FakeBrain
) -> None:
    """A driver that lost patience with it releases it, and it would belong to nobody."""
    gated = Gated()
    async with machine.daemon(hand_type=gated):
        asked = await one.link()
        made = asyncio.ensure_future(asked.provision("h"))
        await gated.began.wait()
        release = hand_pb2.ReleaseRequest(driver=asked.driver, hand_id="h")
        released = asyncio.ensure_future(asked.ask(release=release))
        await asked.ask(list_hands=hand_pb2.ListHandsRequest())  # that came after the other
        gated.gate.set()
        await asyncio.wait({made})
        assert (await released).release.ended
        assert not supervisors(machine.files.hands)
        listed = await asked.ask(list_hands=hand_pb2.ListHandsRequest())
        assert not listed.list_hands.hands
        with pytest.raises(CarpalError) as caught:
            await asked.provision("h")
        assert caught.value.reason is Reason.HAND_GONE


async def test_l09_a_link_that_drops_after_accept_and_before_the_reply_starts_one_process(
    machine: Machine, one: FakeBrain
) -> None:
    """L09: the same of a call."""
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        machine.fifo()
        command = "echo began >> log; read x < go; cat log"
        lost = asyncio.ensure_future(result(asked.execute("h", "c", command)))
        log = machine.files.hands / "h/workspace/log"
        await until(log.exists, "it did not begin")
        asked.link.end(None)
        with pytest.raises(CarpalError):
            await lost
        again = await one.link()
        asking = asyncio.ensure_future(result(again.execute("h", "c", command)))
        await again.ask(list_hands=hand_pb2.ListHandsRequest())
        await machine.let_go()
        assert (await asking).content == "began\n"


async def test_l11_a_cancel_that_overtakes_its_call_on_the_link_leaves_the_hand_idle(
    machine: Machine, one: FakeBrain
) -> None:
    """L11: the hand is idle, says so, and takes the next."""
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        execute = asyncio.ensure_future(result(asked.execute("h", "c", "touch ran; sleep 60")))
        cancel = hand_pb2.CancelRequest(driver=asked.driver, hand_id="h", call_id="c")
        cancelled = await asked.ask(cancel=cancel)
        assert cancelled.cancel.state == hand_pb2.CALL_STATE_TOMBSTONE
        with pytest.raises(CarpalError) as caught:
            await execute
        assert caught.value.reason is Reason.CALL_CANCELLED
        listed = await asked.ask(list_hands=hand_pb2.ListHandsRequest())
        assert [list(info.open_call_ids) for info in listed.list_hands.hands] == [[]]
        assert (await result(asked.execute("h", "c2", "ls; echo on"))).content == "on\n"


class Huge(ProcessType):
    """Its calls end with more than any stream carries."""

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        made = await super().provision(order, progress)
        return replace(made, hand=HugeHand(made.hand))


class HugeHand:
    """A hand with a lot to say at the end."""

    def __init__(self, hand: Any) -> None:
        self._hand = hand

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hand, name)

    async def execute(self, call: Any) -> AsyncIterator[Any]:
        async for step in self._hand.execute(call):
            if isinstance(step, Result):
                yield replace(step, content="a" + "x" * 5_000_000 + "z")
            else:
                yield step


async def test_l21_a_result_that_no_link_can_carry_ends_its_call_truly_and_is_not_asked_for_ever(
    machine: Machine, one: FakeBrain
) -> None:
    """L21: it is cut with a word about it, at once and whenever it is asked for again."""
    async with machine.daemon(hand_type=Huge()):
        asked = await one.link()
        await asked.provision("h")
        came = await result(asked.execute("h", "c", "exit 3"))
        assert (came.outcome, came.exit_code) == (hand_pb2.OUTCOME_ERROR, 3)
        assert (came.content[0], came.content[-1]) == ("a", "z")
        assert "4868930 bytes left out: too large for the link" in came.content
        assert asked.link.open, "the link it came on goes on"
        asked.link.end(None)
        again = await one.link()
        assert await result(again.execute("h", "c", "exit 3")) == came
        assert again.link.open


class Deaf(FakeBrain):
    """Asks, and reads nothing of what is answered."""

    requests: Sequence[pb.Request] = ()

    def hears_again(self) -> None:
        """From the next link on."""
        self.over.set()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.over = asyncio.Event()

    async def Connect(  # type: ignore[override] # it writes by context
        self, request_iterator: Any, context: Context
    ) -> None:
        if not self.requests or self.over.is_set():
            await super().Connect(request_iterator, context)
            return
        said = await anext(aiter(request_iterator))
        self.epoch += 1
        welcome = pb.Welcome(protocol=1, epoch=self.epoch, brain=self.name)
        welcome.silence_limit.FromSeconds(int(PATIENCE))
        self.introduce(caller(context), said.messages[0].hello, welcome)
        messages = [pb.BrainMessage(welcome=welcome)]
        messages += [pb.BrainMessage(request=request) for request in self.requests]
        await context.write(pb.ConnectResponse(messages=messages))
        await self.over.wait()


async def test_l36_what_was_pulled_from_the_outbox_when_the_stream_dropped_is_not_lost(
    machine: Machine, pki: Pki
) -> None:
    """L36: the journal, not the queue, is the source: each answer is there on the next link."""
    calls = [f"c{number}" for number in range(20)]
    async with brain(pki, "brain-1", kind=Deaf) as deaf:
        assert isinstance(deaf, Deaf)
        machine.dials(deaf.address)
        async with machine.daemon():
            asked = await deaf.link()
            await asked.provision("h")
            deaf.requests = [
                pb.Request(request_id=n, execute=asked.call("h", call, f"echo {call} >> log"))
                for n, call in enumerate(calls, 1)
            ]
            asked.link.end(None)
            log = machine.files.hands / "h/workspace/log"
            await until(
                lambda: log.exists() and len(log.read_text().split()) == len(calls), "not all ran"
            )
            deaf.hears_again()
            again = await deaf.link()
            for call in calls:
                came = await result(again.execute("h", call, f"echo {call} >> log"))
                assert came.outcome == hand_pb2.OUTCOME_OK
            assert log.read_text().split() == calls
