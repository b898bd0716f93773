"""Harnesses: how one is found, and how its steps are taken.

A harness is somebody's code: it may raise, yield what is no effect, end without
saying that it is done, or not come back. Each ends the drive with a reason that
names the harness; none holds up the sessions that this brain drives beside it.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from functools import cache
from importlib.metadata import entry_points
from typing import Any, get_args

from brain.effects import AsyncHarness, Effect, Finish, Harness, HarnessType
from brain.session.transcript import Transcript
from brain.stuck import Stuck, interrupting
from carpal.errors import CarpalError, refuse
from carpal.status import Reason

DEFAULT = "tool_loop"
GROUP = "carpal.harnesses"
STEP_LIMIT = 2.0
"""Seconds of the event loop that a harness may take to decide what is next."""
_EFFECTS = get_args(Effect)


@cache
def load(name: str) -> HarnessType:
    """The harness an agent names, by entry point `carpal.harnesses`. CONFIG_INVALID else."""
    # Cached: reading the entry points of every installed package takes 5 ms.
    found = entry_points(group=GROUP)
    for entry in found:
        if entry.name == name:
            loaded = entry.load()
            if isinstance(loaded, HarnessType):
                return loaded
            raise refuse(
                Reason.CONFIG_INVALID,
                f"the entry point {name!r} of {GROUP} names no HarnessType",
                action="have it name one, as docs/how-to/write-a-harness.md says",
            )
    known = ", ".join(sorted(entry.name for entry in found))
    raise refuse(
        Reason.CONFIG_INVALID,
        f"the agent names the harness {name!r}, which is not installed here",
        action=f"use one of: {known}",
    )


class Steps:
    """One harness at work: send it a result, get the next effect."""

    def __init__(self, name: str, kind: HarnessType, transcript: Transcript) -> None:
        """`name` is for what is said of it."""
        self._name = name
        self._wait_limit = kind.wait_limit
        self._harness: Harness | AsyncHarness = self._guarded(lambda: kind.start(transcript))
        if not isinstance(self._harness, Generator | AsyncGenerator):
            raise self._at_fault(f"it is no generator but a {type(self._harness).__name__}")

    async def next(self, result: Any = None) -> Effect:
        """The next effect, given the result of the last one. HARNESS_FAILED for all else."""
        harness = self._harness
        if isinstance(harness, Generator):
            effect = self._guarded(lambda: harness.send(result))
        else:
            effect = await self._waited(harness, result)
        if not isinstance(effect, _EFFECTS):
            raise self._at_fault(f"it yielded no effect but a {type(effect).__name__}")
        taken: Effect = effect
        return taken

    async def close(self) -> None:
        """The harness is let go, whatever it was at."""
        harness = self._harness
        try:
            if isinstance(harness, Generator):
                self._guarded(harness.close)
            else:
                await harness.aclose()
        except CarpalError:
            raise
        except Exception as error:
            raise self._at_fault(_told(error)) from error

    def _guarded(self, step: Any) -> Any:
        try:
            with interrupting(STEP_LIMIT):
                return step()
        except StopIteration:
            raise self._at_fault(f"it ended without a {Finish.__name__}") from None
        except Stuck:
            raise self._at_fault(f"it did not come back within {STEP_LIMIT:.0f} s") from None
        except CarpalError:
            raise
        except Exception as error:
            raise self._at_fault(_told(error)) from error

    async def _waited(self, harness: AsyncHarness, result: Any) -> Any:
        try:
            async with asyncio.timeout(self._wait_limit):
                return await harness.asend(result)
        except StopAsyncIteration:
            raise self._at_fault(f"it ended without a {Finish.__name__}") from None
        except TimeoutError:
            raise self._at_fault(f"it asked for nothing for {self._wait_limit:g} s") from None
        except CarpalError:
            raise
        except Exception as error:
            raise self._at_fault(_told(error)) from error

    def _at_fault(self, what: str) -> CarpalError:
        return refuse(
            Reason.HARNESS_FAILED,
            f"the harness {self._name!r} is at fault: {what}",
            action="correct the harness, or have the agent name another",
        )


def _told(error: Exception) -> str:
    return f"it raised {type(error).__name__}: {error}"
