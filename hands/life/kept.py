"""Contents of files that a call changed, and what its result has attached, put where the log is.

Before the result is told, so that what the log names is there. What cannot be put there is told
without its content: a link that is away for long holds up no call for ever. What was put there
is removed only once the journal has the result: a daemon killed between would find nothing to
put, and deny what is there.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO

from carpal.errors import CarpalError, Denied
from carpal.status import Reason
from carpal.v1 import types_pb2
from hands.blobs import Blobs
from hands.contract import Attachment, FileChange, Result
from hands.inside.history import KEPT
from hands.pictures import fitting
from hands.stopping import Stoppable

log = logging.getLogger(__name__)

LIMIT = 30.0
"""Seconds for all contents of one result."""
_FITTING = 2 / 3
"""Of them, for making pictures fit, waiting for a turn included: the store has the rest."""
_GONE = "its hand was gone before it was in the session's store"
_NAME_MAX = 100
"""Characters of a name in a line about it."""
_NAMES_MAX = 10_000
"""Names removed at once; a call of ours keeps a thousand."""


class Keeping:
    """The contents of one result, on their way."""

    def __init__(
        self,
        result: Result,
        hand_folder: Path,
        blobs: Blobs,
        sessions: Sequence[str],
        limit: float = LIMIT,
    ) -> None:
        """`limit` is in seconds, for all of them."""
        self._result = result
        self._hand_folder = hand_folder
        self._blobs = blobs
        self._sessions = sessions
        self._stoppable = Stoppable(limit)
        self._there: set[bytes] = set()
        self._attached: list[Attachment] = []
        """Those that are blobs, as these are."""
        self._said: list[str] = []
        """What was done to pictures, and why some are left out: a line each."""
        self._left_out = 0
        """Of these lines, those of attachments that are not there."""
        self._whys: list[str] = []
        """Why others are not there, each."""
        self._otherwise = _GONE if sessions else "its hand is no session's any more"
        """Why those are not there of which nothing is known yet."""
        self._limit = limit
        self._fitted_by = 0.0
        self.any = any(each.kept for each in result.files) or bool(result.attachments)
        """There are contents."""

    @property
    def result(self) -> Result:
        """The result as it may be told now, with those files kept that are blobs by now."""
        if not self.any:
            return self._result
        known = len(self._attached) + self._left_out + len(self._whys)
        unknown = len(self._result.attachments) - known
        whys = [*self._whys, *[self._otherwise] * unknown]
        return _with(self._result, self._there, self._attached, self._said, whys)

    async def put(self) -> None:
        """Put them where the log is, as far as that goes in time, and until `stop`."""
        if not self.any or not self._sessions:
            return
        self._fitted_by = asyncio.get_running_loop().time() + _FITTING * self._limit
        try:
            async with self._stoppable.running():
                # What is attached is what the call was for, so it goes first.
                for one in self._result.attachments:
                    await self._attach(one)
                changed = {each.digest: each for each in self._result.files if each.kept}
                for digest, change in changed.items():
                    if not await self._put(change):
                        self._there.add(digest)
        except (CarpalError, TimeoutError) as error:
            # No more is tried: each may cost the whole wait for a link.
            if not self._stoppable.stopped:
                self._otherwise = _untaken(error, self._limit)
            why = str(error) or "there was no time"
            log.warning("contents not kept", extra={"folder": str(self._hand_folder), "why": why})

    async def _attach(self, one: Attachment) -> None:
        """Put a picture as the model takes it, and anything else as it is."""
        if not one.media_type.startswith("image/"):
            self._note(one, await self._put(one))
            return
        try:
            data = await asyncio.to_thread(_content, self._hand_folder, one)
        except OSError as error:
            self._note(one, _misses(one.name, error))
            return
        made = await self._fit(data)
        called = _called(one.name)
        if isinstance(made, fitting.LeftOut):
            self._left_out += 1
            self._said.append(f"[{called} is left out: {made.why}]")
            return
        digest = hashlib.sha256(made.data).digest()
        fits = Attachment(digest, len(made.data), made.media_type, one.name)
        why = await self._put(fits, BytesIO(made.data))
        self._note(fits, why)
        if made.remark and not why:
            self._said.append(f"[{called}: {made.remark}]")

    async def _fit(self, data: bytes) -> fitting.Fitted | fitting.LeftOut:
        try:
            async with asyncio.timeout_at(self._fitted_by):
                return await fitting.fitted(data, str(self._hand_folder))
        except TimeoutError:
            seconds = _FITTING * self._limit
            return fitting.LeftOut(f"all pictures of a result are scaled within {seconds:g} s")

    def _note(self, one: Attachment, why: str) -> None:
        if why:
            self._whys.append(why)
        else:
            self._attached.append(one)

    async def _put(self, told: FileChange | Attachment, data: IO[bytes] | None = None) -> str:
        """Why it is no blob now; empty when it is one. It is no more than what it says."""
        info = types_pb2.BlobInfo(digest=told.digest, size=told.size)
        of = told.path if isinstance(told, FileChange) else told.name
        try:
            with _opened(self._hand_folder, told.digest) if data is None else data as content:
                await self._blobs.write(self._sessions[0], content, info)
        except OSError as error:
            return _misses(of, error)
        except Denied as error:
            log.warning("content not kept", extra={"path": of[:200], "why": str(error)})
            if error.reason is Reason.POLICY_FORBIDS:
                return "the machine's owner does not let it leave"
            return f"it may not be put into the session's store: {error.message}"
        return ""

    def stop(self) -> None:
        """What is not a blob by now will be none."""
        self._stoppable.stop()

    def clear(self) -> None:
        """The result is in the journal: what was put is needed no more, and the rest never will be.

        Calls come one at a time, so all that is there is of this one, or of one before.
        """
        try:
            with _folder(self._hand_folder) as folder:
                with os.scandir(folder) as entries:
                    names = [entry.name for entry in islice(entries, _NAMES_MAX)]
                for name in names:
                    with contextlib.suppress(OSError):  # what a hand planted goes with the hand
                        os.unlink(name, dir_fd=folder)
        except OSError as error:
            log.info("contents not removed", extra={"why": str(error)})


def without(result: Result) -> Result:
    """A result whose contents nobody will put anywhere."""
    return _with(result, set(), [], [], [_GONE] * len(result.attachments))


def _with(
    result: Result,
    there: set[bytes],
    attached: Sequence[Attachment],
    said: Sequence[str],
    whys: Sequence[str],
) -> Result:
    files = [
        dataclasses.replace(each, kept=each.kept and each.digest in there) for each in result.files
    ]
    lines = [
        f"[{count} {'attachment' if count == 1 else 'attachments'} left out: {why}]"
        for why, count in Counter(whys).items()
    ]
    content = "\n".join([result.content, *said, *lines])
    return dataclasses.replace(result, files=files, attachments=tuple(attached), content=content)


def _misses(name: str, error: OSError) -> str:
    log.warning("content not kept", extra={"path": name[:200], "why": str(error)})
    return "what lies in the hand is not what the call said of it"


def _untaken(error: CarpalError | TimeoutError, limit: float) -> str:
    if isinstance(error, CarpalError):
        return f"the session's store did not take it: {error.message}"
    return f"the session's store had not all of the result within {limit:g} s"


def _called(name: str) -> str:
    """A name that a hand chose, in a line of ours."""
    plain = "".join(each if each.isprintable() and each not in "[]" else "?" for each in name)
    return plain[:_NAME_MAX] or "a picture"


def _content(hand_folder: Path, told: Attachment) -> bytes:
    """The bytes of a picture. OSError when they are not there, or others."""
    with _opened(hand_folder, told.digest) as file:
        data = file.read(fitting.TAKEN_MAX + 1)
    if len(data) > fitting.TAKEN_MAX or hashlib.sha256(data).digest() != told.digest:
        raise OSError(f"it has other bytes, or more than {fitting.TAKEN_MAX}")
    return data


@contextmanager
def _opened(hand_folder: Path, digest: bytes) -> Iterator[IO[bytes]]:
    with _folder(hand_folder) as folder, _regular(folder, digest.hex()) as content:
        yield content


@contextmanager
def _folder(hand_folder: Path) -> Iterator[int]:
    """Never what a link in its place leads to: a hand would have files of others removed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(hand_folder / KEPT, flags)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _regular(folder: int, name: str) -> Iterator[IO[bytes]]:
    """A file, and no link, pipe or device in its place."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{name} is no file")
        yield file
