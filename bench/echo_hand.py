"""A hand that echoes, without a process: what is measured with it is the way there and back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from hands.contract import (
    Call,
    Description,
    Hand,
    HandLost,
    Health,
    Order,
    Outcome,
    Provisioned,
    Result,
    Step,
    Tool,
)


class EchoHand:
    """Answers at once."""

    held: frozenset[str] = frozenset()
    quiet = 0.0

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        """See hands.contract."""
        yield Result(Outcome.OK, str(call.input["text"]))

    def attach(self, call_id: str) -> AsyncIterator[Step]:
        """It holds none."""
        raise HandLost("an echo holds no call")

    async def cancel(self, call_id: str, grace: float) -> None:
        """It is over before that comes."""

    async def acknowledge(self, call_id: str) -> None:
        """It keeps nothing."""

    async def contact(self) -> None:
        """It ends with the daemon anyway."""

    async def wait_lost(self) -> str:
        """Never."""
        await asyncio.Event().wait()
        return ""

    async def release(self) -> None:
        """Nothing is there."""

    async def detach(self) -> None:
        """Nothing goes on."""


class EchoType:
    """Makes echo hands."""

    def describe(self) -> Description:
        """See hands.contract."""
        given = {"type": "object", "properties": {"text": {"type": "string"}}}
        tool = Tool("echo", "Says it again.", given)
        return Description("echo", "Echoes.", [tool], {"type": "object"})

    async def probe(self) -> Health:
        """See hands.contract."""
        return Health(ready=True)

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """See hands.contract."""
        return Provisioned(EchoHand(), {}, "an echo")

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> Hand:
        """See hands.contract."""
        return EchoHand()

    async def reap(self, hand_id: str, folder: Path) -> int:
        """See hands.contract."""
        return 0

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """See hands.contract."""
        return {}
