"""A call's output on disk: one process writes it, another reads and frees it, and either may die.

A spool is a folder of pieces, files named by the offset of their first byte.
So it says by itself what is in it, whoever looks and whenever: nothing else
has to be kept. It holds a bounded number of bytes; what does not fit is left
out, and the hole before the next piece is how much that was.

It lies where the hand's own commands may write. What they plant in it, a pipe
or a folder under a piece's name, is left out like what a broken disk does not
give back: it holds up neither process and ends none. Nor does a symlink in the
way lead anywhere: below the hand's folder, which is two above a spool, none is
followed, for the daemon may have rights that the hand has not.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = 8 * 1024 * 1024
"""Bytes a spool holds at most."""
PIECE = LIMIT // 8
"""Bytes after which a new piece is begun: what is freed is freed by the piece."""
_ROOM = 2 * PIECE
"""Bytes that must be free again before a full spool takes more: few long holes, not many short."""
_LOOK = 0.02
"""Seconds between looks at whether a full spool has room again."""
_PIECES_MAX = 1000
"""Names in a spool that are looked at; a writer of ours makes a few dozen."""
_SPOOLS_MAX = 10_000
"""Spools of a hand that are looked at."""
_OFFSET_DIGITS = 18
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ONLY_A_FILE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe in its place would be waited for; not so."""


class Writer:
    """The one writer of a spool; the folder is made with the first piece."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._end = self._piece = self._held = 0
        self._full_until = 0.0

    def write(self, offset: int, data: bytes) -> None:
        """Keep `data`, which begins at `offset` of the output, or leave it out for want of room.

        Never raises for want of room, in the spool or on the disk: the call goes on.
        """
        if not self._room(len(data)):
            return
        try:
            if self._file < 0 or offset != self._end or self._piece >= PIECE:
                self._begin(offset)
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:  # the disk is full, for one: what is in the piece is true all the same
            self.close()
            self._full_until = time.monotonic() + _LOOK
            return
        self._end = offset + len(data)
        self._piece += len(data)
        self._held += len(data)

    def close(self) -> None:
        """Let go of the piece; the next write begins another."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _room(self, size: int) -> bool:
        if self._full_until:
            if time.monotonic() < self._full_until:
                return False
            self._held = held(self._folder)
            if self._held > LIMIT - _ROOM:
                self._full_until = time.monotonic() + _LOOK
                return False
            self._full_until = 0.0
        elif self._held + size > LIMIT:
            self._held = held(self._folder)  # some may have been freed meanwhile
            if self._held + size > LIMIT:
                self.close()
                self._full_until = time.monotonic() + _LOOK
                return False
        return True

    def _begin(self, offset: int) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _ONLY_A_FILE
        with _opened(self._folder, make=True) as spool:
            self._file = os.open(str(offset), flags, 0o600, dir_fd=spool)
        self._piece = 0


def read(folder: Path, offset: int, most: int) -> tuple[int, bytes]:
    """The first bytes kept at or after `offset`, up to `most`: where they begin, and they.

    No bytes when nothing is kept from there on.
    """
    try:
        with _opened(folder) as spool:
            starts = _starts(spool)
            before = [start for start in starts if start <= offset]
            for start in [*before[-1:], *starts[len(before) :]]:
                begin = max(start, offset)
                if data := _read_piece(spool, start, begin - start, most):
                    return begin, data
    except OSError:
        pass  # there is none, or another thing in its place
    return offset, b""


def free(folder: Path, offset: int) -> None:
    """Remove pieces that are wholly below `offset`, oldest first, while more than half is used.

    The rest stays for who comes later and asks from the beginning.
    """
    # What resists, a folder say, goes with the hand.
    with contextlib.suppress(OSError), _opened(folder) as spool:
        sizes = {start: _size(spool, start) for start in _starts(spool)}
        used = sum(sizes.values())
        # The newest piece is being written.
        for start, size in list(sizes.items())[:-1]:
            if start + size > offset or used - size < LIMIT // 2:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(str(start), dir_fd=spool)
            used -= size


def remove(folder: Path) -> None:
    """Remove the spool, if there is one; what of it resists goes with the hand.

    No more than a writer of ours puts there: commands of a hand that lives may fill it
    faster than anyone removes.
    """
    with contextlib.suppress(OSError), _above(folder) as spools:
        with _opened(folder) as spool:
            for start in _starts(spool):
                with contextlib.suppress(OSError):
                    os.unlink(str(start), dir_fd=spool)
        os.rmdir(folder.name, dir_fd=spools)


def names(spools: Path) -> list[str]:
    """The spools in a folder of them."""
    try:
        with _above(spools / "any") as handle, os.scandir(handle) as entries:
            return [entry.name for entry, _ in zip(entries, range(_SPOOLS_MAX), strict=False)]
    except OSError:
        return []


def held(folder: Path) -> int:
    """Bytes in the spool."""
    try:
        with _opened(folder) as spool:
            return sum(_size(spool, start) for start in _starts(spool))
    except OSError:
        return 0


@contextlib.contextmanager
def _above(folder: Path, *, make: bool = False) -> Iterator[int]:
    """The folder of all of a hand's spools. Raises OSError, for a symlink in its place too."""
    hand = os.open(folder.parent.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        spools = _enter(hand, folder.parent.name, make=make)
    finally:
        os.close(hand)
    try:
        yield spools
    finally:
        os.close(spools)


@contextlib.contextmanager
def _opened(folder: Path, *, make: bool = False) -> Iterator[int]:
    """A spool. Raises OSError, for a symlink in the way too."""
    with _above(folder, make=make) as spools:
        spool = _enter(spools, folder.name, make=make)
    try:
        yield spool
    finally:
        os.close(spool)


def _enter(above: int, name: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def _starts(spool: int) -> list[int]:
    names = []
    with os.scandir(spool) as entries:
        for entry, _ in zip(entries, range(_PIECES_MAX), strict=False):
            if entry.name.isascii() and entry.name.isdecimal():
                names.append(entry.name)
    return sorted(int(name) for name in names if len(name) <= _OFFSET_DIGITS)


def _size(spool: int, start: int) -> int:
    try:
        return os.stat(str(start), dir_fd=spool, follow_symlinks=False).st_size
    except OSError:
        return 0


def _read_piece(spool: int, start: int, at: int, most: int) -> bytes:
    try:
        file = os.open(str(start), os.O_RDONLY | _ONLY_A_FILE, dir_fd=spool)
    except OSError:
        return b""  # freed just now
    try:
        return os.pread(file, most, at)
    except OSError:
        return b""  # what a broken disk does not give back is left out
    finally:
        os.close(file)
