"""A hand type with two units, for tests: what is done to them is in a file, whoever is killed.

Its folder has `log`, of the lines `reset UNIT`, `made HAND UNIT`, `over HAND UNIT`; and what a test
puts there: `fails-UNIT`, whose text a reset fails with, `hangs-UNIT`, `breaks`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hands.contract import (
    Call,
    Description,
    HandLost,
    Health,
    Order,
    Outcome,
    Provisioned,
    ProvisionFailed,
    Result,
    Step,
    Unit,
)

UNITS = (
    Unit("left", {"kind": "bench", "side": "left"}),
    Unit("right", {"kind": "bench", "side": "right"}),
)


class BenchHand:
    """One that does nothing, for as long as it is not said to be lost."""

    held: frozenset[str] = frozenset()
    quiet = 0.0

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self.died = asyncio.Event()

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        yield Result(Outcome.OK, f"did {call.tool}")

    def attach(self, call_id: str) -> AsyncIterator[Step]:
        raise HandLost(f"no call {call_id}")

    async def cancel(self, call_id: str, grace: float) -> None:
        """Nothing runs."""

    async def acknowledge(self, call_id: str) -> None:
        """Nothing is kept."""

    async def contact(self) -> None:
        """It has no deadline."""

    async def wait_lost(self) -> str:
        await self.died.wait()
        return "somebody took it away"

    async def release(self) -> None:
        self._end()

    async def detach(self) -> None:
        """It stays what it is."""


class BenchType:
    """See the top of the file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.hands: dict[str, BenchHand] = {}
        self.there: Sequence[Unit] = UNITS
        self.configs: list[Mapping[str, Any]] = []

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def describe(self) -> Description:
        schema = {"type": "object", "properties": {"speed": {"type": "integer"}}}
        return Description("bench", "A bench.", (), schema, ("units",))

    async def probe(self) -> Health:
        return Health(ready=True)

    def units(self) -> Sequence[Unit]:
        return self.there

    async def reset(self, unit_id: str) -> None:
        if (self.folder / f"hangs-{unit_id}").exists():
            await asyncio.Event().wait()
        if (fails := self.folder / f"fails-{unit_id}").exists():
            raise RuntimeError(fails.read_text(encoding="utf-8"))
        self._note(f"reset {unit_id}")

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        if (self.folder / "breaks").exists():
            raise ProvisionFailed("it breaks")
        self.configs.append(order.config)
        (order.folder / "unit").write_text(order.unit, encoding="utf-8")
        self._note(f"made {order.hand_id} {order.unit}")
        return Provisioned(self._hand(order.hand_id, order.folder), {}, "a bench")

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> BenchHand:
        if not (folder / "unit").exists():
            raise HandLost("it is over")
        return self._hand(hand_id, folder)

    async def reap(self, hand_id: str, folder: Path) -> int:
        if (self.folder / "resists").exists():
            raise RuntimeError("it resists")
        self._end(hand_id, folder)
        return 0

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        return {}

    def _hand(self, hand_id: str, folder: Path) -> BenchHand:
        hand = self.hands[hand_id] = BenchHand(lambda: self._end(hand_id, folder))
        return hand

    def _end(self, hand_id: str, folder: Path) -> None:
        path = folder / "unit"
        if path.exists():
            self._note(f"over {hand_id} {path.read_text(encoding='utf-8')}")
            path.unlink()

    def _note(self, line: str) -> None:
        file = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)
