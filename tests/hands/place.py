"""A daemon's hand service over real supervisors, and short ways to ask it things."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carpal.hand_mark import mark
from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.builtin.process import ProcessType
from hands.contract import HandType
from hands.inside import tree
from hands.inventory import Inventory, open_inventory
from hands.isolation import disk
from hands.journal import Journal
from hands.owner.gate import Gate
from hands.service import HandService
from tests.pace import SCALE

BOOT = "boot-1"
PATIENCE = 20.0 * SCALE
"""Seconds no wait in these tests exceeds."""


class Place:
    """One daemon's service, driven by session `s` at epoch 1 unless said otherwise."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.journal = inventory.journal
        self.service = HandService(inventory, "d", "default")
        self._ids = 0

    def driver(self, session_id: str = "s", epoch: int = 1) -> pb.Driver:
        """Who asks."""
        return pb.Driver(session_id=session_id, epoch=epoch, workspace="default")

    def new_id(self, prefix: str) -> str:
        """An id not used here yet."""
        self._ids += 1
        return f"{prefix}{self._ids}-{id(self):x}"

    async def provision(self, request: pb.ProvisionRequest) -> pb.ProvisionResult:
        """The result of a provision."""
        async with asyncio.timeout(PATIENCE):
            steps = [step async for step in self.service.provision(request)]
        assert all(step.HasField("progress") for step in steps[:-1])
        return steps[-1].result

    async def hand(
        self,
        deadline: float = 60.0,
        *,
        type: str = "process",
        limits: Mapping[str, float] | None = None,
        **config: object,
    ) -> str:
        """A new hand's id."""
        request = pb.ProvisionRequest(
            driver=self.driver(),
            hand_id=self.new_id("h"),
            type=type,
            limits=pb.Limits(**(limits or {})),  # type: ignore[arg-type]
            config=json.dumps(config).encode(),
        )
        request.orphan_deadline.FromNanoseconds(int(deadline * 1e9))
        await self.provision(request)
        return request.hand_id

    def request(self, hand_id: str, name: str = "bash", **given: object) -> pb.ExecuteRequest:
        """A call with a fresh id. `limit` (seconds), `call_id` and `offset` are the request's."""
        limit = given.pop("limit", None)
        call_id = str(given.pop("call_id", "") or self.new_id("c"))
        offset = given.pop("offset", 0)
        request = pb.ExecuteRequest(
            driver=self.driver(),
            hand_id=hand_id,
            call_id=call_id,
            name=name,
            input=json.dumps(given).encode(),
            output_offset=offset,  # type: ignore[arg-type]
        )
        if limit is not None:
            request.time_limit.FromNanoseconds(int(float(limit) * 1e9))  # type: ignore[arg-type]
        return request

    async def execute(self, request: pb.ExecuteRequest) -> AsyncIterator[pb.ExecuteResponse]:
        """What a call gives, as it comes."""
        async for step in self.service.execute(request).watch(request.output_offset):
            yield step

    async def steps(self, request: pb.ExecuteRequest) -> list[pb.ExecuteResponse]:
        """All a call gives."""
        async with asyncio.timeout(PATIENCE):
            return [step async for step in self.execute(request)]

    async def run(self, hand_id: str, name: str = "bash", **given: Any) -> pb.Result:
        """A call's result."""
        return (await self.steps(self.request(hand_id, name, **given)))[-1].result

    async def sh(self, hand_id: str, command: str, **given: Any) -> pb.Result:
        """A bash call's result."""
        return await self.run(hand_id, command=command, **given)

    def begin(self, request: pb.ExecuteRequest) -> "Watched":
        """A call under way."""
        return Watched(self, request)

    async def release(self, hand_id: str) -> bool:
        """End a hand."""
        request = pb.ReleaseRequest(driver=self.driver(), hand_id=hand_id)
        async with asyncio.timeout(PATIENCE):
            return (await self.service.release(request)).ended

    def supervisor(self, hand_id: str) -> int:
        """The pid of a hand's supervisor."""
        row = self.journal.hand(hand_id)
        assert row is not None
        return int(row.facts["pid"])


class Watched:
    """A call being watched, whose output can be waited for."""

    def __init__(self, place: Place, request: pb.ExecuteRequest) -> None:
        self.call_id = request.call_id
        self._steps: asyncio.Queue[pb.ExecuteResponse] = asyncio.Queue()
        self._place = place
        self._task = asyncio.create_task(self._watch(request))

    async def _watch(self, request: pb.ExecuteRequest) -> pb.Result:
        async for step in self._place.execute(request):
            self._steps.put_nowait(step)
        return step.result

    async def output(self) -> bytes:
        """The next output."""
        async with asyncio.timeout(PATIENCE):
            step = await self._steps.get()
        assert step.HasField("output"), step
        return step.output.data

    async def result(self) -> pb.Result:
        """Its end."""
        async with asyncio.timeout(PATIENCE):
            return await self._task

    async def leave(self) -> None:
        """Stop watching, as a link that is cut does."""
        self._task.cancel()
        await asyncio.wait({self._task})


@asynccontextmanager
async def open_place(
    state: Path,
    *,
    boot_id: str = BOOT,
    hands_max: int = 8,
    end: bool = True,
    process: ProcessType | None = None,
    more: Mapping[str, HandType] | None = None,
    blobs: Blobs | None = None,
    gate: Gate | None = None,
) -> AsyncIterator[Place]:
    """A service on a state folder. With `end`, every hand's processes are killed afterwards."""
    state.mkdir(exist_ok=True)
    journal = Journal(state / "journal.db")
    try:
        async with open_inventory(
            journal=journal,
            types={"process": process or ProcessType(sandbox="off"), **(more or {})},
            folder=state / "hands",
            boot_id=boot_id,
            hands_max=hands_max,
            blobs=blobs,
            gate=gate,
        ) as inventory:
            yield Place(inventory)
    finally:
        if end:
            for row in journal.hands():
                folder = state / "hands" / row.hand_id
                tree.kill_marked(mark(folder))
                if process is not None:
                    async with asyncio.timeout(PATIENCE):
                        await process.reap(row.hand_id, folder)  # what a sandbox has besides
                    disk.unmount_below(folder)
        journal.close()


async def until(condition: Any, what: str) -> None:
    """Wait for a condition that nothing announces, looking often."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(what) from None


async def let_go(pipe: Path) -> None:
    """Write a line to what waits at a named pipe; never waits for ever for it to be there."""
    ends: list[int] = []

    def opened() -> bool:
        try:
            ends.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        return bool(ends)

    await until(opened, f"nobody waits at {pipe}")
    os.write(ends[0], b"x\n")
    os.close(ends[0])
