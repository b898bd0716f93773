"""Removes what is to go: deleted sessions' bytes, sessions too old, imports and uploads given up.

Woken by commits that made a tombstone, and by uploads that were dropped; what a restart left
undone it finds in the store. It works in small steps, each a job among the writer's others,
so that nobody waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from carpal.errors import CarpalError
from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.readers import Readers
from sessiond.rows import Needs, SessionRow
from sessiond.rules import removal
from sessiond.rules.retention import KIND, NAME, Retention
from sessiond.store import Reader, Store, StoreUnavailable, Transaction
from sessiond.writer import Writer

_log = logging.getLogger(__name__)

ROUND = 3600 * SECOND
"""Between looks at what has become too old."""
PAUSE = 5 * SECOND
"""After a step that could not be written."""
AT_ONCE = 100
"""Sessions deleted, or uploads given up, in one transaction."""
UPLOAD_PATIENCE = 24 * 3600 * SECOND
"""How long an upload may stand still before it is given up."""
_LATER = {Reason.STORE_FULL, Reason.UNAVAILABLE, Reason.DATA_CORRUPT, Reason.INTERNAL}
PIECES = 16
"""Pieces of a blob removed in one transaction: 4 MiB."""


class Sweeper:
    """Runs until cancelled, beside the server."""

    def __init__(self, store: Store, writer: Writer, readers: Readers) -> None:
        self._store = store
        self._clock = store.clock
        self._writer = writer
        self._readers = readers
        self._wanted = asyncio.Event()
        self._busy = asyncio.Lock()
        self._owing = False
        """It is known that erased bytes are still somewhere on the disk."""
        self._next_round = store.clock.steady()

    def update(self, sessions: Iterable[SessionRow]) -> None:
        """Sessions as a commit left them."""
        owing = self._store.erasing and not self._owing
        if owing or any(session.deleted is not None for session in sessions):
            self._owing = self._owing or owing
            self._wanted.set()

    def wake(self) -> None:
        """A blob was dropped."""
        self._wanted.set()

    async def run(self) -> None:
        """Act when there is something to do, and once a round."""
        while True:
            self._wanted.clear()
            swept = await self.act()
            wait = max(0, self._next_round - self._clock.steady()) if swept else PAUSE
            try:
                async with asyncio.timeout(wait / SECOND):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def act(self) -> bool:
        """Remove all that is to go by now; False when that has to be tried again soon."""
        async with self._busy:
            try:
                if self._clock.steady() >= self._next_round:
                    await self._age()
                    await self._give_up_imports()
                    await self._give_up_uploads()
                    self._next_round = self._clock.steady() + ROUND
                await self._purge()
                await self._purge_blobs()
                for _ in range(2 if self._store.erasing else 0):
                    # The store sees to it after a commit, so before the next one's answer.
                    await self._writer.run(lambda _: None)
            except CarpalError as error:
                # Damage in one place keeps what lies there from being removed, and no more.
                if error.reason not in _LATER:
                    raise
                _log.error("nothing removed", extra={"problem": error.message})
                return False
            except StoreUnavailable as error:
                _log.warning("nothing removed", extra={"problem": str(error)})
                return False
            self._owing = self._store.erasing
            return not self._owing

    async def _age(self) -> None:
        """Delete the sessions that their workspace's rules no longer keep."""
        for workspace in await self._readers.run(lambda reader: reader.erasable.ruled()):
            try:
                rules = await self._readers.run(partial(_rules, workspace))
            except CarpalError as error:
                _log.error(
                    "retention rules not understood",
                    extra={"workspace": workspace, "problem": error.message},
                )
                continue
            oldest = rules.oldest(self._clock.wall())
            if oldest is not None:
                await self._age_workspace(workspace, oldest)

    async def _age_workspace(self, workspace: str, oldest: int) -> None:
        found: list[tuple[int, str]] = [(0, "")]
        while found:
            above, _ = found[-1]
            found = await self._readers.run(partial(_aged, workspace, oldest, above))
            ids = [session_id for _, session_id in found]
            reason = "older than the workspace keeps them"
            needs = removal.needs_of(ids, workspace)
            await self._delete(ids, needs, removal.delete_aged, reason)

    async def _give_up_imports(self) -> None:
        before = self._clock.wall() - removal.IMPORT_PATIENCE
        while ids := await self._readers.run(lambda r: r.erasable.stalled(before, AT_ONCE)):
            reason = "its import stood still for a day"
            needs = Needs(sessions=tuple(ids))
            if not await self._delete(ids, needs, removal.give_up_imports, reason):
                return  # it went on just now

    async def _give_up_uploads(self) -> None:
        before = self._clock.wall() - UPLOAD_PATIENCE
        dropped = AT_ONCE
        while dropped == AT_ONCE:
            dropped = await self._writer.run(lambda tx: tx.blobs.drop_unfinished(before, AT_ONCE))
            if dropped:
                _log.info("uploads given up", extra={"blobs": dropped})

    async def _delete(
        self,
        ids: list[str],
        needs: Needs,
        rule: Callable[[Transaction, list[str]], list[SessionRow]],
        reason: str,
    ) -> list[SessionRow]:
        if not ids:
            return []
        gone = await self._writer.run(lambda tx: rule(tx, ids), needs=needs)
        for session in gone:
            _log.info(
                "session deleted",
                extra={
                    "session_id": session.session_id,
                    "workspace": session.workspace,
                    "reason": reason,
                },
            )
        return gone

    async def _purge(self) -> None:
        """Remove the bytes of tombstones, step by step, until none are left that may go."""
        while ids := await self._readers.run(lambda reader: reader.erasable.purges(AT_ONCE)):
            for session_id in ids:
                while not await self._step(session_id):
                    pass

    async def _purge_blobs(self) -> None:
        """Remove the bytes of dropped blobs, a few pieces at a time."""
        left = await self._readers.run(lambda reader: reader.blobs.dropped())
        while left:
            left = await self._writer.run(lambda tx: tx.blobs.purge(PIECES))

    async def _step(self, session_id: str) -> bool:
        needs = Needs(sessions=(session_id,))
        return await self._writer.run(lambda tx: removal.purge(tx, session_id), needs=needs)


def _aged(workspace: str, oldest: int, above: int, reader: Reader) -> list[tuple[int, str]]:
    return reader.erasable.aged(workspace, oldest, above, AT_ONCE)


def _rules(workspace: str, reader: Reader) -> Retention:
    document = reader.documents.newest(workspace, KIND, NAME)
    return Retention() if document is None else Retention.parse(document.data)
