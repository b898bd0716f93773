"""The lock file: which process has the store, and how far its write-ahead log is known to reach.

SQLite drops the tail of a write-ahead log from the first damaged frame on, as it must
after a power cut, and says nothing. So after each commit the writer notes here, in shared
memory that outlives it, how many frames were made durable. A log that has fewer when it
is opened lost what was acknowledged. The note is not synced: a power cut may leave an
older one, which claims less.
"""

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path
from zlib import crc32

from carpal.errors import BadInput, CarpalError, refuse
from carpal.status import Reason

_NOTE = struct.Struct("<4sIQI")
"""Mark, the log's salt, frames, and a sum of both against torn or flipped notes."""
_HEADER = struct.Struct(">8I")
"""Of the write-ahead log: magic, version, page size, checkpoint, two salts, two checksums."""
_MAGIC = 0x377F0682
_NEVER, _ALL_IN_FILE, _FRAMES, _CUT_SHORT = b"none", b"file", b"wal ", b"cut "


WAIT_SECONDS = 2.0
_AGAIN_SECONDS = 0.05


class LockHeld(BadInput):
    """Another process has the store."""


class StoreLock:
    """Held from opening the store until it is closed; the kernel lets go at the process's end."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the store at `path`; CONFIG_INVALID when another process has it."""
        self._wal = path.with_name(path.name + "-wal")
        self._path = path
        self._salt: int | None = None
        self._frames = 0
        self._may_have_started_over = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(path, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._file).st_size < _NOTE.size:
                os.pwrite(self._file, _packed(_NEVER, 0, 0), 0)
            self._note = mmap.mmap(self._file, _NOTE.size)
        except BlockingIOError:
            os.close(self._file)
            raise LockHeld(
                Reason.CONFIG_INVALID,
                f"{path} is in use by another sessiond, or a restore",
                action="stop it, or choose another --state-dir",
            ) from None
        except OSError as error:
            os.close(self._file)
            raise _unusable(path, error) from None

    @classmethod
    def soon(cls, path: Path) -> "StoreLock":
        """The lock, once a backup that begins has let go of it: that takes it for a moment."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return cls(path)
            except LockHeld:
                if time.monotonic() > until:
                    raise
            time.sleep(_AGAIN_SECONDS)

    @classmethod
    def if_free(cls, path: Path) -> "StoreLock | None":
        """The lock, unless another process has it."""
        try:
            return cls(path)
        except LockHeld:
            return None

    def committed(self, frames: int) -> None:
        """The write-ahead log has so many frames, all durable."""
        if self._may_have_started_over or frames <= self._frames:
            self._may_have_started_over = False
            self._salt = _salt(self._wal)
        self._frames = frames
        if self._salt is not None:
            self._note[:] = _packed(_FRAMES, self._salt, frames)

    def copied_back(self) -> None:
        """All of the write-ahead log is in the file: a commit may soon begin it anew."""
        self._may_have_started_over = True

    def check_restored(self) -> None:
        """CONFIG_INVALID when a restore was cut short: what is there, or is not, is no store."""
        if self._note[:] == _packed(_CUT_SHORT, 0, 0):
            raise refuse(
                Reason.CONFIG_INVALID,
                f"a restore of {self._path} was cut short",
                action="run it again: `carpal sessiond restore --from FILE --replace`",
            )

    def check_never_there(self) -> None:
        """DATA_CORRUPT when it was noted that there was a store, which is missing."""
        mark, salt, noted, _ = _NOTE.unpack(self._note[:])
        if mark not in (_FRAMES, _ALL_IN_FILE) or self._note[:] != _packed(mark, salt, noted):
            return
        if not self._wal.exists():  # or that says it by itself
            raise refuse(
                Reason.DATA_CORRUPT,
                f"{self._path} is missing, and was there before",
                action="restore a backup: `carpal sessiond restore --from FILE`; "
                f"or remove {lock_path(self._path).name} to begin anew",
            )

    def check(self, frames: int) -> None:
        """DATA_CORRUPT when a log of so many whole frames is less than was noted.

        A log that started over since the note, or was copied back whole and removed by a
        tool, has nothing to answer for.
        """
        mark, salt, noted, _ = _NOTE.unpack(self._note[:])
        if self._note[:] != _packed(mark, salt, noted):
            return  # torn or flipped: it claims nothing
        if mark != _FRAMES:
            return
        if not self._wal.exists():
            self.nothing_noted()  # whoever reads the file next makes an empty one
            return
        now = _salt(self._wal)
        started_over = now is not None and 0 < (now - salt) % 2**32 < 2**31
        if started_over or (now == salt and frames >= noted):
            return
        have = "no whole frame" if now != salt else f"{frames} whole frames"
        raise damaged(self._wal, f"it has {have}, and {noted} were written")

    def nothing_noted(self, *, cut_short: bool = False) -> None:
        """Claim nothing of the write-ahead log: it is about to go. Synced.

        `cut_short`: and refuse to open what is there until this is called again.
        """
        self._frames = 0
        self._may_have_started_over = True
        self._note[:] = _packed(_CUT_SHORT if cut_short else _ALL_IN_FILE, 0, 0)
        self._note.flush()

    def close(self) -> None:
        """Let go."""
        self._note.close()
        os.close(self._file)


def lock_path(path: Path) -> Path:
    """Where the lock of a store is."""
    return path.with_name(path.name + ".lock")


def damaged(path: Path, how: str) -> CarpalError:
    """DATA_CORRUPT of one file, before anything is served from it."""
    return refuse(
        Reason.DATA_CORRUPT,
        f"{path} is damaged: {how}",
        action="restore a backup that is whole: `carpal sessiond restore --from FILE --replace`",
    )


def _unusable(path: Path, error: OSError) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        f"{lock_path(path)} cannot be written: {error.strerror}",
        action="check the folder's owner, and that its disk has room",
    )


def _packed(mark: bytes, salt: int, frames: int) -> bytes:
    return _NOTE.pack(mark, salt, frames, crc32(_NOTE.pack(mark, salt, frames, 0)))


def _salt(wal: Path) -> int | None:
    """The first salt, which counts how often the log started over; None without a whole header."""
    with wal.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    words = _HEADER.unpack(header)
    whole = words[0] & ~1 == _MAGIC and _sums(header[:24], words[0]) == words[6:]
    return words[4] if whole else None


def _sums(data: bytes, magic: int) -> tuple[int, int]:
    """SQLite's checksum of a header, in the byte order that its magic names."""
    one = two = 0
    for first, second in struct.iter_unpack(">2I" if magic & 1 else "<2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
