"""One thread writes the audit: lines that come at once share one wait for the disk.

How a thing went waits a moment for the intent of the next, which waits for the disk anyway; whoever
waits is told once the file is durable, before the table beside it is filled.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from carpal.audit_chain import Head
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.audit.log import AuditLog, Said

_log = logging.getLogger(__name__)

_WAITING_MAX = 10_000
"""Lines of what was done that wait for a disk; more are counted only."""
LATER = 0.1
"""Seconds that an outcome waits for something else that is to be written."""
_TOGETHER = 1_000
"""Outcomes that wait no longer."""
_AGAIN = 1.0
"""Seconds after which what could not be written is tried again."""


@dataclass(frozen=True, slots=True)
class _Entry:
    said: Said
    told: Future[Head] | None
    """Who waits for it. Without one it is of what was done, and is kept until it can be written."""


class AuditWriter:
    """Takes lines from any thread."""

    def __init__(self, log: AuditLog) -> None:
        self._audit = log
        self._entries: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._writing = self._closed = self._hurry = self._asleep = False
        self._waited_for = 0
        """Entries that somebody waits for."""
        self._left_out = self._refused = 0
        self.problem = ""
        """Why it cannot be written; empty while it can."""
        self._thread = threading.Thread(target=self._run, name="vault-audit", daemon=True)
        self._thread.start()

    def must(self, said: Said) -> Future[Head]:
        """Before it is done: the head once it is durable, or AUDIT_NOT_WRITTEN."""
        told: Future[Head] = Future()
        with self._changed:
            if self._closed:
                raise not_written("it was closed")
            self._entries.append(_Entry(said, told))
            self._waited_for += 1
            self._changed.notify_all()
        return told

    def will(self, said: Said, *, soon: bool = True) -> None:
        """It was done: written at once, or else in a moment; or once that is possible again."""
        with self._changed:
            if self._closed or len(self._entries) >= _WAITING_MAX:
                self._left_out += 1
                return
            self._entries.append(_Entry(said, None))
            self._hurry |= soon
            if soon or self._asleep:
                self._changed.notify_all()

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all is written; whether it is."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done() or bool(self.problem), seconds)
            return self._done()

    def _done(self) -> bool:
        return not self._entries and not self._writing

    def close(self) -> None:
        """Write what waits, as far as that is possible, and end."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._thread.join(10.0)
        self._audit.settle()
        self._audit.let_go()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait()
                # Whoever left before it was written does nothing; from here on nobody can.
                entries = [
                    each
                    for each in self._entries
                    if each.told is None or each.told.set_running_or_notify_cancel()
                ]
                self._entries.clear()
                self._waited_for, self._hurry = 0, False
                closed, self._writing = self._closed, True
            if entries:
                self._write(entries)
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                if closed and (self.problem or not self._entries):
                    return

    def _wait(self) -> None:
        """Until something must be written now, or what was done has waited long enough."""
        if self.problem:
            # A full disk is not asked again at once for what nobody waits for.
            self._changed.wait_for(lambda: self._closed or bool(self._waited_for), _AGAIN)
            return
        if not self._changed.wait_for(self._must_now, LATER) and not self._entries:
            self._asleep = True
            self._changed.wait_for(lambda: self._must_now() or bool(self._entries))
            self._asleep = False
            self._changed.wait_for(self._must_now, LATER)

    def _must_now(self) -> bool:
        urgent = self._closed or self._hurry or bool(self._waited_for)
        return urgent or len(self._entries) >= _TOGETHER

    def _write(self, entries: Sequence[_Entry]) -> None:
        said = [each.said for each in entries]
        lost = {"refused": self._refused, "left_out": self._left_out}
        if self._refused or self._left_out:
            said.insert(0, ("resumed", lost))
        try:
            heads = self._audit.append(said)
        except (OSError, CarpalError) as error:
            self._broke(entries, error)
            return
        if len(said) > len(entries):
            self._refused -= lost["refused"]
            self._left_out -= lost["left_out"]
        self.problem = ""
        for entry, head in zip(entries, heads[-len(entries) :], strict=True):
            if entry.told is not None:
                entry.told.set_result(head)
        if not self._waited_for or self._audit.behind > _TOGETHER:
            self._audit.settle()

    def _broke(self, entries: Sequence[_Entry], error: OSError | CarpalError) -> None:
        why = error.message if isinstance(error, CarpalError) else error.strerror or str(error)
        if not self.problem:
            _log.error("the audit cannot be written: requests are refused", extra={"why": why})
        with self._changed:
            self.problem = why
            kept = [each for each in entries if each.told is None]
            self._entries.extendleft(reversed(kept))
        for entry in entries:
            if entry.told is not None:
                self._refused += 1
                entry.told.set_exception(not_written(why))


def not_written(why: str) -> CarpalError:
    """AUDIT_NOT_WRITTEN."""
    return refuse(
        Reason.AUDIT_NOT_WRITTEN,
        f"the vault's audit cannot be written, so nothing is done ({why})",
        action="give the disk of the vault's state folder room",
    )
