"""Waking a session: from the newest checkpoint in its log that can be gone by, else from its start.

What was cut from the window is not read again, so a session of a hundred
thousand events wakes as fast as one of a thousand.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from brain.session.checkpoint import checkpoint, restored, usable
from brain.session.entries import COMPACTED, Entry
from brain.session.store_reads import read_events
from brain.session.transcript import Transcript
from carpal.errors import CarpalError

if TYPE_CHECKING:
    from carpal.v1 import session_pb2_grpc

log = logging.getLogger(__name__)

Json = dict[str, Any]
Read = Callable[..., Awaitable[list[Entry]]]
"""A slice of the session's log, as `read_events` has it."""

SHORT = 200
"""A log up to here is read whole: to look for a checkpoint would take longer."""
_HELD = ("session.updated", "context.tools", "hand.provision_requested", "hand.provisioned")
"""Events whose data stays in a checkpoint as it was: agent, hands, tools."""
_LOOKED_AT = 4
"""Cuts that are looked at, the newest first."""


class Waking:
    """The checkpoints of one session, while it is driven."""

    def __init__(
        self,
        stub: "session_pb2_grpc.SessionAsyncStub",
        session_id: str,
        *,
        inherited: int = 0,
        imported_to: int = 0,
    ) -> None:
        """`inherited`, `imported_to`: up to where the log is another session's, or imported."""
        self._stub = stub
        self._session_id = session_id
        self._inherited = inherited
        self._imported_to = imported_to
        self._base: Json | None = None
        """The newest checkpoint that is known to be good."""
        self._looked = False
        """Whether one was looked for: who goes on with a fold of its own had no need to."""

    async def transcript(self, head: int) -> Transcript:
        """What to follow the log from: the fold up to a cut, or nothing yet. `head` is the log's.

        A sessiond that does not answer now will when the log is followed.
        """
        before, self._looked = 0, True
        for _ in range(_LOOKED_AT if head > SHORT else 0):
            try:
                found = await read_events(
                    self._stub,
                    self._session_id,
                    before=before,
                    limit=1,
                    types=(COMPACTED,),
                    newest_first=True,
                )
            except CarpalError as error:
                log.info("no checkpoint read", extra={"error": str(error)})
                break
            if not found:
                break
            (entry,) = found
            transcript = usable(entry, self._inherited, self._imported_to)
            if transcript is not None and not await self._erased(transcript.head):
                self._base = entry.data["state"]
                return transcript
            before = entry.position
        return Transcript(self._inherited)

    async def _erased(self, through: int) -> bool:
        """Whether an event whose data a checkpoint up to there holds was redacted.

        True too when sessiond does not say. `carpal session redact` erases such checkpoints
        itself; another caller of RedactEvent may not have.
        """
        after = 0
        while after < through:
            try:
                found = await read_events(
                    self._stub, self._session_id, after=after, limit=1000, types=_HELD
                )
            except CarpalError as error:
                log.info("no checkpoint read", extra={"error": str(error)})
                return True
            if any(entry.redacted and entry.position <= through for entry in found):
                return True
            after = found[-1].position if found else through
        return False

    async def state(self, through: int, read: Read) -> Json | None:
        """The checkpoint of the log up to a cut; None when it would be too large.

        Reads the log from the checkpoint before, by `read`, and raises what that does.
        """
        if not self._looked:
            await self.transcript(through)
        fold = Transcript(self._inherited)
        if self._base is not None and self._base["through"] <= through:
            fold = restored(self._base, self._inherited)
        while fold.head < through:
            entries = await read(after=fold.head, limit=1000)
            for entry in entries:
                if entry.position <= through:
                    fold.apply(entry)
        try:
            state = checkpoint(fold)
        except TypeError:
            # A mistake of ours: the transcript holds what checkpoint.py has no table for.
            log.exception("no checkpoint made", extra={"session": self._session_id})
            return None
        self._base = state or self._base
        return state
