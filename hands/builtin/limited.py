"""A supervised hand whose memory is limited by a control group: what runs out of it is said so."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

from carpal import hand_mark
from hands.builtin.supervised import PULSE, Pulse, SupervisedHand
from hands.contract import Result, Step
from hands.inside import tree
from hands.isolation import cgroups, uids
from hands.isolation.cgroups import Group
from hands.results import OUT_OF_MEMORY

_MIB = 1024 * 1024


class LimitedHand(SupervisedHand):
    """One hand, and the group it is in."""

    group = Group()
    memory_bytes = 0
    """Its limit; 0 for none."""
    _killed = 0

    @classmethod
    async def limited(
        cls,
        folder: Path,
        pulse: Pulse = PULSE,
        *,
        group: Group,
        memory_bytes: float,
        known: tuple[int, int] | None = None,
    ) -> "LimitedHand":
        """The hand whose supervisor, the one that is `known`, listens in `folder`.

        Raises HandLost.
        """
        hand = await cls.connect(folder, pulse, known)
        assert isinstance(hand, cls)
        hand.memory_bytes = int(memory_bytes)
        hand.follow(group)
        return hand

    def follow(self, group: Group) -> None:
        """It is in this group; what was killed in it before is of no call to come."""
        self.group = group
        self._killed = group.out_of_memory()

    async def attach(self, call_id: str) -> AsyncIterator[Step]:
        """As every hand's; a result says when the kernel killed for want of memory meanwhile."""
        async for step in super().attach(call_id):
            yield self._told(step) if isinstance(step, Result) else step

    async def wait_lost(self) -> str:
        """The reason, once it died by itself; all in its namespace is dead then too."""
        reason = await super().wait_lost()
        # Whoever made it lost may live on in there: that it is lost must not be told before.
        await asyncio.to_thread(tree.kill_namespace, self.pid, self.start)
        if self.memory_bytes and self.group.out_of_memory() > self._killed:
            return f"{reason}; {self._limit}"
        return reason

    @property
    def _limit(self) -> str:
        return f"{OUT_OF_MEMORY}{self.memory_bytes / _MIB:g} MiB"

    def _told(self, result: Result) -> Result:
        before, self._killed = self._killed, self.group.out_of_memory()
        if not self.memory_bytes or self._killed == before:
            return result
        line = "" if result.content.endswith("\n") else "\n"
        content = f"{result.content}{line}[{self._limit}]"
        return dataclasses.replace(result, content=content, out_of_memory=True)


async def remove(group: Group) -> None:
    """Kill what is in it, and remove it."""
    await asyncio.to_thread(group.kill)
    await asyncio.to_thread(group.remove)


async def reap(folder: Path) -> int:
    """Kill what is in the group of the hand in `folder`, or carries its mark; how many that was."""
    # It may have been made when the machine's owner had said otherwise about the sandbox.
    group = await asyncio.to_thread(lambda: cgroups.find(cgroups.name_of(folder), cgroups.seen()))
    # First: nothing in it can hide, or make this slow.
    killed = await asyncio.to_thread(group.kill)
    killed += await asyncio.to_thread(
        tree.kill_marked, hand_mark.mark(folder), uids.anothers(folder)
    )
    await remove(group)
    return killed
