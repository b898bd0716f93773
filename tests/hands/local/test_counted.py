"""Each number of `/metrics` is what docs/reference/daemon.md says it is, of a daemon at work."""

import asyncio
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from carpal import __version__, renewal
from carpal.identity import BACKDATE, Role
from carpal.v1 import hand_pb2 as pb
from hands import counts
from hands.builtin.process import ProcessType
from hands.contract import Order, Provisioned
from hands.local import asking
from tests.hands.fake_brain import Asked, FakeBrain
from tests.hands.local.test_server import values
from tests.hands.local.test_status import until as stands
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, until
from tests.pki import Pki
from vault.authority.ca import LEAF_LIFETIME

Values = dict[str, float]


async def counted(machine: Machine) -> Values:
    """The daemon's numbers, without the `carpal_hand_` that all have."""
    _, body = await asyncio.to_thread(asking.exchange, machine.files.folder, "/metrics")
    found = values(body.decode())
    return {name.removeprefix("carpal_hand_"): value for name, value in found.items()}


async def until_counted(machine: Machine, so: Callable[[Values], bool]) -> Values:
    """The numbers, once they are so."""
    async with asyncio.timeout(PATIENCE):
        while not so(found := await counted(machine)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # nothing announces it
    return found


async def ran(asked: Asked, call_id: str, command: str, **more: Any) -> "pb.Outcome.ValueType":
    """How a bash call of hand `h` ended."""
    request = asked.call("h", call_id, command)
    request.MergeFrom(pb.ExecuteRequest(**more))
    return (await asked.ask(execute=request)).execute.result.outcome


async def test_counters_begin_at_0_with_each_start_and_gauges_are_what_is(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        await ran(asked, "c", "echo hello")
        found = await counted(machine)
        assert found['calls_total{outcome="ok"}'] == 1
        for name in ("start_time_seconds", "link_since_seconds"):
            assert abs(found[name] - time.time()) < PATIENCE, "seconds since 1970"
        assert found["hands_max"] == 4
        about = f'build_info{{version="{__version__}",python='
        assert [value for name, value in found.items() if name.startswith(about)] == [1]
    async with machine.daemon():
        await one.link()
        again = await until_counted(machine, lambda found: found["linked"] == 1)
    assert again["start_time_seconds"] > found["start_time_seconds"]
    counters = {name: value for name, value in again.items() if "_total" in name}
    assert {name for name, value in counters.items() if value} == {"links_total"}
    assert len(counters) >= 12
    assert again['hands{state="live"}'] == 1
    assert again["unsettled"] == 1, "no brain said that it has the result"


async def test_calls_are_counted_by_how_they_ended_and_stand_until_they_are_settled(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        size = len(asked.call("h", "c1", "echo ok").input)
        await ran(asked, "c1", "echo ok")
        found = await counted(machine)
        assert found["call_input_bytes_total"] == size
        assert found["call_output_bytes_total"] == len("ok\n")
        assert found["unsettled"] == 1
        taken = pb.AcknowledgeRequest(driver=asked.driver, hand_id="h", call_ids=["c1"])
        await asked.ask(acknowledge=taken)
        assert (await counted(machine))["unsettled"] == 0

        machine.fifo()
        both = [ran(asked, "c2", "read x <go"), ran(asked, "c3", "true")]
        running = [asyncio.create_task(each) for each in both]
        found = await until_counted(machine, lambda found: found["calls_open"] == 2)
        assert found["call_input_bytes_total"] > 2 * size, "of the one that waits too"
        (row,) = (await asyncio.to_thread(asking.ask, machine.files.folder, "/hands"))["hands"]
        assert sorted(row["calls"]) == ["c2", "c3"]
        for call_id in ("c3", "c2"):
            cancel = pb.CancelRequest(driver=asked.driver, hand_id="h", call_id=call_id)
            await asked.ask(cancel=cancel)
        await asyncio.gather(*running)
        found = await counted(machine)
        assert (found["calls_open"], found['calls_total{outcome="cancelled"}']) == (0, 2)

        limit = timedelta(seconds=0.2)
        assert await ran(asked, "c4", "sleep 600", time_limit=limit) == pb.OUTCOME_TIMED_OUT
        wrong = pb.ExecuteRequest(driver=asked.driver, hand_id="h", call_id="c5", name="read")
        wrong.input = b'{"file_path": "nothing"}'
        await asked.ask(execute=wrong)
        dies = asyncio.create_task(ran(asked, "c6", "touch up; sleep 600"))
        await until((machine.files.hands / "h/workspace/up").exists, "it does not begin")
        await asyncio.to_thread(machine.kill_hands)
        assert await dies == pb.OUTCOME_LOST
        found = await counted(machine)
        names = ("ok", "error", "cancelled", "timed_out", "interrupted", "lost")
        ended = [found[f'calls_total{{outcome="{name}"}}'] for name in names]
        assert ended == [1, 1, 2, 1, 0, 1]
        assert found["unsettled"] == 6, "five calls, and a hand that is lost"


async def test_a_call_of_a_hand_that_is_stopped_is_counted_as_interrupted(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        call = asyncio.create_task(ran(asked, "c", "touch up; sleep 600"))
        await until((machine.files.hands / "h/workspace/up").exists, "it does not begin")
        await asyncio.to_thread(asking.ask, machine.files.folder, "/stop", {"hand_id": "h"})
        assert await call == pb.OUTCOME_INTERRUPTED
        assert (await counted(machine))['calls_total{outcome="interrupted"}'] == 1


class Slow(ProcessType):
    """Hands that are being made until the test says so."""

    def __init__(self) -> None:
        super().__init__(sandbox="off")
        self.go = asyncio.Event()

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        await self.go.wait()
        return await super().provision(order, progress)


async def test_hands_are_counted_as_making_and_then_as_live_and_a_drain_is_a_1(
    machine: Machine, one: FakeBrain
) -> None:
    slow = Slow()
    async with machine.daemon(hand_type=slow):
        making = asyncio.create_task((await one.link()).provision("h"))
        found = await until_counted(machine, lambda found: found['hands{state="making"}'] == 1)
        assert (found['hands{state="live"}'], found["draining"]) == (0, 0)
        (row,) = (await asyncio.to_thread(asking.ask, machine.files.folder, "/hands"))["hands"]
        assert (row["hand_id"], row["state"]) == ("h", "making")
        slow.go.set()
        await making
        await asyncio.to_thread(asking.ask, machine.files.folder, "/drain", {})
        found = await counted(machine)
    assert found['hands{state="making"}'] == 0
    assert (found['hands{state="live"}'], found["draining"]) == (1, 1)


async def test_a_link_with_a_new_certificate_is_one_more_and_no_reconnect(
    machine: Machine, one: FakeBrain, pki: Pki
) -> None:
    async with machine.process() as child:
        await one.link()
        first = await until_counted(machine, lambda found: found["linked"] == 1)
        later = datetime.now(UTC) + timedelta(hours=30)
        pki.issue(Role.DAEMON, "d", pool="p", directory=machine.files.identity_dir, not_after=later)
        child.process.send_signal(signal.SIGHUP)
        await one.link()
        found = await until_counted(machine, lambda found: found["links_total"] == 2)
        assert found["reconnects_total"] == 0
        assert found["link_since_seconds"] > first["link_since_seconds"]
        left = (later - datetime.now(UTC)).total_seconds()
        assert found["certificate_expiry_seconds"] == pytest.approx(left, abs=PATIENCE)


async def test_of_a_certificate_that_is_over_the_seconds_are_below_0_and_there_is_no_link(
    machine: Machine, pki: Pki
) -> None:
    begun = datetime.now(UTC) - timedelta(days=2)
    ended, me = begun + timedelta(days=1), machine.files.identity_dir
    pki.issue(Role.DAEMON, "d", directory=me, not_before=begun, not_after=ended)
    async with machine.daemon():
        await stands(machine, reason="CERTIFICATE_EXPIRED")
        found = await counted(machine)
    assert found["certificate_expiry_seconds"] == pytest.approx(-86_400, abs=PATIENCE)
    assert found["linked"] == 0


def test_a_certificate_that_renews_has_more_left_than_the_page_says(pki: Pki) -> None:
    now = datetime.now(UTC)
    issued = pki.issue(
        Role.DAEMON, "x", not_before=now - BACKDATE, not_after=now + LEAF_LIFETIME
    ).identity()
    latest = now + renewal.due(issued, now, spread=1.0)
    assert 36_000 < (issued.not_after - latest).total_seconds() < 43_200


async def test_how_late_the_loop_was_is_known_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_LOOK", 0.01)
    assert counts._LOOKS == 60, "with a look a second"
    lag = counts.LoopLag()
    looking = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 - what is to be seen
    async with asyncio.timeout(PATIENCE):
        while lag.worst < 0.1:  # noqa: ASYNC110 - it looks by itself
            await asyncio.sleep(0.01)
        while lag.worst >= 0.1:  # noqa: ASYNC110 - it is forgotten
            await asyncio.sleep(0.01)
    looking.cancel()
