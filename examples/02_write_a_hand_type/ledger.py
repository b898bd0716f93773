"""A hand type: ledgers, to which lines are added and from which they are read.

It has no process of its own, so there is little to lose and little to kill. A hand is one file in
the folder that the daemon gives it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from carpal.errors import invalid, refuse
from carpal.status import Reason
from hands.contract import (
    Call,
    Description,
    HandLost,
    Health,
    Order,
    Outcome,
    Provisioned,
    Result,
    Step,
    Tool,
)

_TOOLS = [
    Tool(
        "add",
        "Add a line to the ledger.",
        {
            "type": "object",
            "properties": {"line": {"type": "string", "minLength": 1}},
            "required": ["line"],
            "additionalProperties": False,
        },
    ),
    Tool(
        "lines",
        "Give every line of the ledger, oldest first.",
        {"type": "object", "properties": {}, "additionalProperties": False},
    ),
]


class Ledger:
    """One hand. The daemon gives it one call at a time, and each call_id once."""

    held: frozenset[str] = frozenset()
    """Calls that outlived the daemon: here none does, for they run inside it."""
    quiet = 0.0

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ledger"
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        if call.tool == "add":
            with self._file.open("a", encoding="utf-8") as file:
                file.write(call.input["line"].replace("\n", " ") + "\n")
            yield Result(Outcome.OK, "added")
        else:
            text = self._file.read_text(encoding="utf-8")
            yield Result(Outcome.OK, text or "[the ledger is empty]")

    async def attach(self, call_id: str) -> AsyncIterator[Step]:
        raise HandLost(f"call {call_id} did not outlive its daemon")
        yield  # never: it makes this a generator, as `execute` is

    async def cancel(self, call_id: str, grace: float) -> None:
        """Nothing here takes long enough to be stopped."""

    async def acknowledge(self, call_id: str) -> None:
        """Nothing is kept of a call."""

    async def contact(self) -> None:
        """Nothing runs that would have to end without a brain."""

    async def wait_lost(self) -> str:
        return await self._lost  # it never dies by itself

    async def release(self) -> None:
        """The daemon removes the folder, and with it all there is."""

    async def detach(self) -> None:
        """The file stays, for `adopt`."""


class LedgerType:
    """Makes ledgers."""

    def describe(self) -> Description:
        return Description(
            type="ledger",
            description="A ledger: lines are added and read, and never changed.",
            tools=_TOOLS,
            config_schema={"type": "object", "properties": {}, "additionalProperties": False},
            capabilities=("adopt",),
        )

    async def probe(self) -> Health:
        limits = ("memory_bytes", "disk_bytes", "processes", "cpus")
        return Health(ready=True, not_enforceable=limits)

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        for name in order.config:
            raise invalid(f"config.{name}", "is not known; a ledger has nothing to choose")
        if order.limits:
            names = ", ".join(order.limits)
            raise refuse(Reason.LIMIT_NOT_ENFORCEABLE, f"a ledger cannot enforce {names}")
        (order.folder / "ledger").touch()
        return Provisioned(Ledger(order.folder), {}, "The ledger is empty.")

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> Ledger:
        if not (folder / "ledger").is_file():
            raise HandLost("its file is gone")
        return Ledger(folder)

    async def reap(self, hand_id: str, folder: Path) -> int:
        return 0  # no process was started

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        return {}
