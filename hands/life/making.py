"""A hand being made, as those who wait for it see it: progress, then the result or a refusal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.stopping import Stoppable

_MESSAGES_MAX = 1000
"""Told of one provision: who says more says nothing, and each is kept until the hand is there."""


class Making:
    """One provision under way; it goes on whoever watches."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._outcome: pb.ProvisionResult | CarpalError | None = None
        self._change = asyncio.Event()
        self._mounting = Stoppable()
        self.begun = False
        """Its type was asked for it, and may have left something of it."""

    @property
    def released(self) -> bool:
        """A release came meanwhile."""
        return self._mounting.stopped

    def release(self) -> None:
        """Its release came: what may be left out of making it is."""
        self._mounting.stop()

    @asynccontextmanager
    async def until_released(self) -> AsyncIterator[None]:
        """Around what a release cuts short. Raises HAND_GONE then."""
        try:
            async with self._mounting.running():
                yield
        except TimeoutError as error:
            if not self.released:
                raise
            raise refuse(Reason.HAND_GONE, "the hand was released while it was made") from error

    def progress(self, message: str) -> None:
        """Something happened on the way."""
        if len(self._messages) > _MESSAGES_MAX:
            return
        left_out = len(self._messages) == _MESSAGES_MAX
        self._messages.append("[it says more, which is left out]" if left_out else message)
        self._changed()

    def finish(self, outcome: pb.ProvisionResult | CarpalError) -> None:
        """It is there, or failed."""
        self._outcome = outcome
        self._changed()

    async def watch(self) -> AsyncIterator[pb.ProvisionResponse]:
        """Progress from the start, then the result. Raises what it failed with."""
        told = 0
        while True:
            change = self._change
            for message in self._messages[told:]:
                yield pb.ProvisionResponse(progress=pb.ProvisionProgress(message=message))
                told += 1
            if isinstance(self._outcome, CarpalError):
                raise self._outcome
            if self._outcome is not None:
                yield pb.ProvisionResponse(result=self._outcome)
                return
            if told == len(self._messages):
                await change.wait()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
