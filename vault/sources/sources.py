"""All secret managers of one vault: who may use which for what, and one fetch for all who ask.

What is fetched is handed to those who asked while it was being fetched, and kept by nobody: the
next request fetches it anew, so that the owner's rotation holds from then on.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from carpal.errors import CarpalError, invalid
from vault.guard.errors import GuardError
from vault.guard.transport import Guard
from vault.secret import LEAST, MOST, Secret, storable
from vault.sources.reference import Reference, within
from vault.sources.source import Failure, Source, SourceFailed

SECONDS = 15.0
"""Of one fetch, with the wait for its turn, whatever a plug-in does."""
AT_ONCE = 8
"""Fetches of one source at a time."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A source, and what of it may be used by whom."""

    source: Source
    workspaces: tuple[str, ...]
    paths: tuple[str, ...]
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[Secret]
    waiting: int = 0


class Sources:
    """Of one vault process."""

    def __init__(self, configured: Mapping[str, Configured] | None = None) -> None:
        self._configured = dict(configured or {})
        self._flights: dict[Reference, _Flight] = {}

    def check(self, workspace: str, reference: Reference, field: str) -> None:
        """INVALID_FIELD for one that may not be used, by which nobody learns what there is."""
        try:
            self._allowed(workspace, reference)
        except SourceFailed:
            raise invalid(
                field,
                f"is in no source that the workspace {workspace!r} may use: the vault's own "
                "settings say which there are, for whom, and for which paths",
            ) from None

    async def fetch(self, workspace: str, reference: Reference, guard: Guard) -> Secret:
        """The value of now. Raises SourceFailed."""
        there = self._allowed(workspace, reference)
        flight = self._flights.get(reference)
        if flight is None:
            flight = _Flight(asyncio.create_task(_fetched(there, reference, guard)))
            self._flights[reference] = flight
            flight.task.add_done_callback(lambda _: self._landed(reference, flight))
        flight.waiting += 1
        try:
            # Shielded: one that leaves ends it for nobody, the last one for all.
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._landed(reference, flight)
                flight.task.cancel()

    def _landed(self, reference: Reference, flight: _Flight) -> None:
        if self._flights.get(reference) is flight:
            del self._flights[reference]
        if flight.task.done() and not flight.task.cancelled():
            flight.task.exception()  # all who asked may have left

    def _allowed(self, workspace: str, reference: Reference) -> Configured:
        there = self._configured.get(reference.source)
        if there is None:
            raise SourceFailed(Failure.NOT_CONFIGURED, "the vault has no source of that name")
        if workspace not in there.workspaces:
            raise SourceFailed(Failure.NOT_ALLOWED, "the source is not for this workspace")
        if not within(reference.path, there.paths):
            raise SourceFailed(Failure.NOT_ALLOWED, "the source is not for this path")
        return there


async def _fetched(there: Configured, reference: Reference, guard: Guard) -> Secret:
    try:
        async with asyncio.timeout(SECONDS), there.turns:
            value = await there.source.fetch(reference, guard)
    except TimeoutError:
        raise SourceFailed(Failure.TIMEOUT, f"no value within {SECONDS:.0f} s") from None
    except GuardError as error:  # of a plug-in that does not say it in its own words
        failure = Failure.FAILED if error.sent else Failure.UNREACHABLE
        raise SourceFailed(failure, error.code) from None
    except SourceFailed:
        raise
    except Exception as error:  # noqa: BLE001 - of a plug-in, whose words may be the secret
        detail = f"its plug-in failed by {type(error).__name__}"
        raise SourceFailed(Failure.FAILED, detail) from None
    try:
        storable(value.reveal())
    except CarpalError:
        raise SourceFailed(
            Failure.UNUSABLE, f"the value is not {LEAST} to {MOST} bytes of visible ASCII"
        ) from None
    return value
