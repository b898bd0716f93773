"""What the checks wait for: each wait has a bound, and is said in words when it passes.

Who writes a hand server learns from a check that hung what to change, and not that it hung.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc

from carpal.verdict import Failed

ANSWER = 10.0
"""Seconds for an RPC that makes nothing."""
RESULT = 45.0
"""Seconds for a hand to be made, and between the steps of a call."""
END = 5.0
"""Seconds for a stream to end after its result."""


class Wait(NamedTuple):
    """A wait that did not come to its end."""

    otherwise: str
    """What did not happen."""
    change: str
    """What the type's author must change."""


class Waits:
    """Those of one check."""

    def __init__(self, scale: float) -> None:
        """`scale` is how much slower the machine is taken to be."""
        self.cut: Wait | None = None
        """The one during which the check's own time was over."""
        self._scale = scale
        self._failed: list[tuple[grpc.RpcError, str]] = []

    @asynccontextmanager
    async def within(self, seconds: float, otherwise: str, change: str) -> AsyncIterator[None]:
        """Failed when the block takes longer than so many seconds: `otherwise` says what is."""
        most = seconds * self._scale
        try:
            async with asyncio.timeout(most):
                yield
        except TimeoutError:
            raise Failed(f"{otherwise} within {most:g} s", change) from None
        except asyncio.CancelledError:
            self.cut = self.cut or Wait(otherwise, change)
            raise

    @asynccontextmanager
    async def answer(self, rpc: str) -> AsyncIterator[None]:
        """An RPC of one answer; what it is refused with is noted as that RPC's."""
        change = f"Answer {rpc} at once, and let what takes long go on beside it."
        async with self.within(ANSWER, f"{rpc} was not answered", change):
            with self.of(rpc):
                yield

    def of(self, rpc: str) -> "_Noting":
        """Note what goes wrong in the block as that RPC's."""
        return _Noting(self._failed, rpc)

    def rpc_of(self, error: BaseException) -> str:
        """The RPC that was refused with this; empty when it is not known."""
        return next((rpc for failed, rpc in self._failed if failed is error), "")


class _Noting:
    def __init__(self, failed: list[tuple[grpc.RpcError, str]], rpc: str) -> None:
        self._failed = failed
        self._rpc = rpc

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, grpc.RpcError):
            self._failed.append((error, self._rpc))
