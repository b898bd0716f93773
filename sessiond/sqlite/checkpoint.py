"""Copying the write-ahead log back to the file, beside the writer.

A checkpoint inside a commit makes that commit wait for it; so it has a connection and
a thread of its own, and the writer only starts the log over when that costs no wait.
"""

import logging
import math
import threading
import time
from collections.abc import Callable

import apsw

from sessiond.sqlite.connection import BUSY_MS, open_raw, sqlite_errors

_log = logging.getLogger(__name__)

_CHECKPOINT_PAGES = 2_000
"""16 MiB: whenever the write-ahead log grew by so many pages they are copied back. A copy
syncs the disk that commits wait for, so not after each of them."""
RESET_PAGES = 4_000
"""32 MiB. Under constant load a checkpoint never finds the log at rest, so it would grow; and
a commit that makes a file longer takes twice as long to sync as one that writes it over."""
_FEW_PAGES = 250
"""The writer copies the last itself. Were there more, commits would have to wait for it."""
_MANY_TIMES = 8
"""So many times RESET_PAGES: copying does not keep up, and the writer waits for it."""

ERASE_AGAIN = 1.0
"""Seconds between tries to cut the log off, each of which commits may have to wait for."""


class Checkpointer:
    """Follows a writer's commits by its `wal_grew`, and copies in a thread."""

    def __init__(
        self, path: str, committed: Callable[[int], None], copied_back: Callable[[], None]
    ) -> None:
        """`committed` is told the log's length in frames after each commit; `copied_back` that
        all of it is in the file. The first in the writing thread, the second in another.

        StoreBroken or StoreFull when there is no second connection to the file.
        """
        self.pages = 0
        """In the log, as of the last commit."""
        self.erasing = True
        """What went may still be in the log, as it may after a crash: it is to be cut off."""
        self._tried = -math.inf
        self._committed = committed
        self._copied_back = copied_back
        self._copied = 0
        """Of those in the log, as of the last copy."""
        self._asked_at = 0
        """How many there were when a copy was last asked for."""
        self._retry_at = RESET_PAGES
        self._copy_at = _CHECKPOINT_PAGES
        self._connection = open_raw(path)
        with sqlite_errors(self._connection):
            self._connection.pragma("schema_version")  # unread, it knows of no log to copy
        self._wanted = threading.Event()
        self._copying = False
        self._stopped = False
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def wal_grew(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """SQLite calls this after each commit."""
        if pages < self.pages:
            self._begun_anew()
        self.pages = pages
        self._committed(pages)
        if pages >= self._copy_at:
            self._copy_at = pages + _CHECKPOINT_PAGES
            self._copy()
        return apsw.SQLITE_OK

    def start_over(self, writer: apsw.Connection) -> None:
        """Between the writer's transactions: keep the log short, but wait for nobody.

        A long read, such as a backup, keeps what it sees; the log grows until it is done.
        """
        if self.pages < RESET_PAGES:
            self._retry_at = RESET_PAGES
            return
        if self.pages < self._retry_at:
            return
        behind = self._copying or self.pages > self._copied + _FEW_PAGES
        if behind and self.pages < _MANY_TIMES * RESET_PAGES:
            # Not after each commit: what somebody reads cannot be copied, however often asked.
            if not self._copying and self.pages >= self._asked_at + _FEW_PAGES:
                self._copy()
            return
        self._retry_at = self.pages + _FEW_PAGES
        writer.set_busy_timeout(0)
        try:
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._begun_anew()  # at the next commit
            self._copied_back()
        except (apsw.BusyError, apsw.LockedError):
            _log.debug("the write-ahead log is being read, and grows")
        except apsw.Error as error:
            self._say_failed(error)
        finally:
            writer.set_busy_timeout(BUSY_MS)

    def erase_soon(self) -> None:
        """A commit took bytes away that must not stay in the log."""
        self.erasing = True

    def erase(self, writer: apsw.Connection, nothing_noted: Callable[[], None]) -> None:
        """Between the writer's transactions: cut the log off if it must be, but wait for nobody.

        `nothing_noted` is told before the log goes.
        """
        now = time.monotonic()
        if not self.erasing or now < self._tried + ERASE_AGAIN:
            return
        self._tried = now
        nothing_noted()
        writer.set_busy_timeout(0)
        try:
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self.erasing = False
            self.pages = 0
            self._begun_anew()
        except (apsw.BusyError, apsw.LockedError):
            _log.debug("the write-ahead log is being read, and is not cut off")
        except apsw.Error as error:
            self._say_failed(error)
        finally:
            writer.set_busy_timeout(BUSY_MS)

    def stop(self) -> None:
        """Finish the checkpoint that runs, if one does."""
        self._stopped = True
        self._wanted.set()
        self._thread.join()
        self._connection.close()

    def _begun_anew(self) -> None:
        """The log has nothing of what it had."""
        self._copied = self._asked_at = 0
        self._copy_at = _CHECKPOINT_PAGES

    def _copy(self) -> None:
        """Have the thread copy what there is."""
        self._asked_at = self.pages
        self._copying = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._stopped:
                return
            self._wanted.clear()
            try:
                frames, copied = self._connection.wal_checkpoint(
                    mode=apsw.SQLITE_CHECKPOINT_PASSIVE
                )
            except (apsw.BusyError, apsw.LockedError):
                _log.debug("checkpoint postponed")
            except apsw.Error as error:
                self._say_failed(error)
            else:
                self._failed = False
                self._copied = copied
                if frames == copied:
                    self._copied_back()
            self._copying = self._wanted.is_set()

    def _say_failed(self, error: apsw.Error) -> None:
        """Nothing is lost: the log holds it. On a full disk it goes on once there is room."""
        if not self._failed:  # once, not after each commit
            _log.error("checkpoint failed", extra={"error": str(error)})
        self._failed = True
