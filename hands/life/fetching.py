"""Blobs that a call's input names: they are in the hand's workspace before the call begins.

A tool says by the format `blob` that a field of its input is the SHA-256 of something that the
session's log has attached. So what one hand gave, another takes, also in a fork. What cannot be
had is left to the tool, which may have it of its own and else says that it is not there.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from carpal.errors import CarpalError
from hands.blobs import Blobs
from hands.contract import Call, Description, Hand, Mountable, MountFailed, Placing, Result

log = logging.getLogger(__name__)

FORMAT = "blob"
FOLDER = "blobs"
"""Of the workspace; each is a file there, named by its digest in hex."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Fetching:
    """Of one hand."""

    def __init__(self, description: Description, blobs: Blobs, allowed: Callable[[], bool]) -> None:
        """`allowed` says whether the machine's owner lets blobs into hands."""
        self._fields = dict(_fields(description))
        self._blobs = blobs
        self._allowed = allowed
        self._there: set[str] = set()

    def needs(self, call: Call) -> bool:
        """Whether there may be something to put there before it begins."""
        return any(digest not in self._there for digest in self._named(call))

    def gave(self, result: Result) -> None:
        """What the hand itself attached it need not be given."""
        self._there.update(each.digest.hex() for each in result.attachments)

    async def before(self, hand: Hand, call: Call, sessions: Sequence[str]) -> None:
        """Put there what the call names; `sessions` are those that the hand is of.

        Raises HandLost.
        """
        for digest in self._named(call):
            if digest in self._there or not isinstance(hand, Mountable) or not self._allowed():
                continue
            if await self._fetch(hand, digest, sessions):
                self._there.add(digest)

    def _named(self, call: Call) -> list[str]:
        values = (call.input.get(field) for field in self._fields.get(call.tool, ()))
        return [each for each in values if isinstance(each, str) and _DIGEST.fullmatch(each)]

    async def _fetch(self, hand: Mountable, digest: str, sessions: Sequence[str]) -> bool:
        for session_id in sessions:
            data = self._blobs.read(session_id, bytes.fromhex(digest))
            try:
                await hand.place(Placing("file", f"{FOLDER}/{digest}"), data)
            except (CarpalError, MountFailed) as error:
                log.info("blob not given to a hand", extra={"blob": digest, "why": str(error)})
            else:
                return True
        return False


def _fields(description: Description) -> Iterator[tuple[str, list[str]]]:
    """Tools that take blobs, and the fields that are some."""
    if "mounts" not in description.capabilities:
        return
    for tool in description.tools:
        properties = tool.input_schema.get("properties")
        parts = properties.items() if isinstance(properties, Mapping) else ()
        found = [
            name
            for name, part in parts  # anyone's schema: a part may be no object
            if isinstance(part, Mapping) and part.get("format") == FORMAT
        ]
        if found:
            yield tool.name, found
