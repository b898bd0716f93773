"""What a call did to the workspace's files: a look before, a look after, and the difference.

A file counts as changed when its change time, size or inode differ; only those are read, for
their digests. What ran in the background since the last look counts for the call that ends.
A workspace that is too large to look at is said to be unknown, not unchanged. Where contents are
asked for, what is read for a digest is copied too, so that the two are of one moment.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KEPT = "kept"
"""The folder, in the hand's, with contents the daemon has not taken yet, by digest."""
ENTRIES = 20_000
"""Files and folders beyond which a workspace is not followed."""
_LOOK_SECONDS = 2.0
"""Seconds a look may take: the hand's other calls wait meanwhile."""
_CHANGES = 1000
"""Changes told of one call; the rest is counted."""
_PATH_BYTES = 256 * 1024
"""Bytes of their paths together: a result must fit on the link."""
_FILE_BYTES = 8 * 1024 * 1024
_CALL_BYTES = 64 * 1024 * 1024
"""Bytes read of one file, and of one call's, for their digests."""
_KEPT_SHARE = 3
"""Of the disk that contents are kept on, one in so many bytes is theirs: a hand whose disk is
limited has one of 24 MiB for them, its output, the shell's state and results."""
_GRAIN = 20_000_000
"""Nanoseconds by which two change times may differ and look the same, and room."""

Seen = tuple[int, int, int]
"""A file's change time in ns, inode and size."""


class History:
    """The workspace as it was at the last look."""

    def __init__(self, workspace: Path, keep: Path | None = None, entries: int = ENTRIES) -> None:
        """`keep` is where contents go, by their digest; `entries` are followed at most."""
        self._workspace = workspace
        self._keep = keep
        self._entries = entries
        self._keep_room = 0
        """Bytes of contents that are still kept of this call."""
        self._fresh: dict[str, str] = {}
        """Digests of files that changed just before the last look: within the clock's grain a
        second change could look like none."""
        self._known = self._look()

    def changes(self) -> Mapping[str, Any]:
        """What happened since the last look, as fields of a result; empty when nothing did."""
        if self._known is None:
            return {"files_unknown": True}  # once too large, it is looked at no more
        looked = time.time_ns()
        before, self._known = self._known, self._look()
        if self._known is None:
            return {"files_unknown": True}
        now, fresh = self._known, self._fresh
        self._fresh = {}
        differ = sorted(
            path
            for path in before.keys() | now.keys()
            if before.get(path) != now.get(path)
            or (path in fresh and fresh[path] != self._digest(path, _FILE_BYTES)[1])
        )
        told = list(_first(differ))
        room, self._keep_room = _CALL_BYTES, self._share()
        files: list[dict[str, Any]] = []
        for path in told:
            if path not in now:
                files.append({"path": path, "kind": "removed"})
                continue
            size, digest = self._digest(path, min(room, _FILE_BYTES), self._keep)
            room -= size if digest else 0
            kind = "changed" if path in before else "created"
            file = {"path": path, "kind": kind, "size": size, "digest": digest}
            if self._keep and digest:
                file["kept"] = (self._keep / digest).exists()
            files.append(file)
            if digest and now[path][0] > looked - _GRAIN:
                self._fresh[path] = digest
        return {"files": files, "files_omitted": len(differ) - len(told)} if differ else {}

    def _look(self) -> dict[str, Seen] | None:
        """Every regular file, by its path from the workspace on; None when it is too much."""
        found: dict[str, Seen] = {}
        left, ends = self._entries, time.monotonic() + _LOOK_SECONDS
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                # Through no link: `folder` was no link when it was listed, and what it may be
                # now is no more than the hand itself can read.
                with os.scandir(self._workspace / folder) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0 or time.monotonic() > ends:
                            return None
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(path)
                        elif entry.is_file(follow_symlinks=False):
                            found[path] = _seen(entry.stat(follow_symlinks=False))
            except OSError:
                continue  # gone meanwhile, or not to be read: its files count as removed
        return found

    def _share(self) -> int:
        """Bytes that the contents of one call may have; the daemon takes them before the next."""
        if not self._keep:
            return 0
        disk = os.statvfs(self._keep.parent)
        return min(_CALL_BYTES, disk.f_blocks * disk.f_frsize // _KEPT_SHARE)

    def _digest(self, path: str, most: int, keep: Path | None = None) -> tuple[int, str]:
        """A file's size, and its SHA-256 in hex, empty when it has more than `most` bytes."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(self._workspace / path, flags)
        except OSError:
            return 0, ""
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return status.st_size, ""
            try:
                data = file.read(most + 1)
            except OSError:
                return status.st_size, ""
        if len(data) > most:
            return len(data), ""
        import hashlib  # loads OpenSSL: a hand is ready sooner without

        digest = hashlib.sha256(data).hexdigest()
        if keep and len(data) <= self._keep_room:
            self._keep_room -= len(data)
            put(data, keep / digest)
        return len(data), digest


def put(data: bytes, to: Path) -> bool:
    """Have a content in the hand's folder; false where there is no room for it."""
    if to.exists():
        return True
    new = to.with_suffix(".new")
    try:
        to.parent.mkdir(mode=0o700, exist_ok=True)
        new.unlink(missing_ok=True)
        with new.open("xb") as file:
            file.write(data)
        new.rename(to)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        return False
    return True


def _seen(status: os.stat_result) -> Seen:
    return status.st_ctime_ns, status.st_ino, status.st_size


def _first(paths: list[str]) -> Iterator[str]:
    """As many as one result tells."""
    room = _PATH_BYTES
    for path in paths[:_CHANGES]:
        room -= len(os.fsencode(path))
        if room < 0:
            return
        yield path
