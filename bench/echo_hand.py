"""A hand that echoes, without a process: what is measured with it is the way there and back."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from hands.api import (
    Call,
    Description,
    Hand,
    Health,
    Order,
    Outcome,
    Output,
    Provisioned,
    Result,
    Step,
    Tool,
)

_BLOCK = bytes(range(33, 97)) * 1024
"""64 KiB of a flood."""


class EchoHand:
    """Answers at once; `flood` gives as many bytes as it is asked for first."""

    held: frozenset[str] = frozenset()

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        """See hands.api."""
        size = 0
        for _ in range(int(call.input.get("blocks", 0))):
            yield Output(size, _BLOCK)
            size += len(_BLOCK)
        text = str(call.input.get("text", "")) or "done"
        yield Result(Outcome.OK, text, output_bytes=size)

    def attach(self, call_id: str) -> AsyncIterator[Step]:
        """It holds none."""
        raise NotImplementedError

    async def cancel(self, call_id: str, grace: float) -> None:
        """It is over before that comes."""

    async def acknowledge(self, call_id: str) -> None:
        """It keeps nothing."""

    async def contact(self) -> None:
        """It ends with the daemon anyway."""

    async def wait_lost(self) -> str:
        """Never."""
        import asyncio

        await asyncio.Event().wait()
        return ""

    async def release(self) -> None:
        """Nothing is there."""

    async def detach(self) -> None:
        """Nothing goes on."""


class EchoType:
    """Makes echo hands."""

    def describe(self) -> Description:
        """See hands.api."""
        text = {"type": "string"}
        tools = [
            Tool("echo", "Says it again.", _object({"text": text})),
            Tool("flood", "Says much.", _object({"blocks": {"type": "integer"}})),
        ]
        return Description("echo", "Echoes.", tools, _object({}))

    async def probe(self) -> Health:
        """See hands.api."""
        return Health(ready=True)

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """See hands.api."""
        return Provisioned(EchoHand(), {}, "an echo")

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> Hand:
        """See hands.api."""
        return EchoHand()

    async def reap(self, hand_id: str, folder: Path) -> int:
        """See hands.api."""
        return 0


def _object(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": dict(properties)}
