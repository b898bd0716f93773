"""The audit as the rest of the vault uses it: say what you are about to do, do it, say how it went.

    async with audit.intent("mcp.call", actor=uri, credential="c1", host="h", port=443) as record:
        ...                                   # durable by now: only here may a secret be opened
        record.outcome("ok", bytes=1234)

Without a word the outcome is `ok`, of an exception `error` with its reason, of a cancellation
`cancelled`. What cannot be written is refused before the block begins: AUDIT_NOT_WRITTEN.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from carpal.audit_chain import Head
from carpal.errors import CarpalError
from vault.audit.facts import Fact, checked
from vault.audit.writer import AuditWriter, not_written

WAIT = 30.0
"""Seconds for a line to be durable; a disk that takes longer is stuck."""


class Record:
    """One thing that is being done; its intent is durable."""

    def __init__(self, number: int) -> None:
        self.number = number
        """Of the intent's line."""
        self._said: dict[str, Fact] = {}

    def outcome(self, status: str, **facts: Fact | None) -> None:
        """How it went; the last word counts, and what was said before is kept beside it."""
        self._said |= checked({"status": status, **facts})

    def add(self, **facts: Fact | None) -> None:
        """More of what the outcome's line is to say."""
        self._said |= checked(facts)

    @property
    def said(self) -> dict[str, Fact]:
        """What was said of the outcome."""
        return self._said


class Audit:
    """One vault's. From any thread, and from the event loop."""

    def __init__(self, writer: AuditWriter) -> None:
        self._writer = writer

    @asynccontextmanager
    async def intent(
        self, action: str, *, actor: str, **facts: Fact | None
    ) -> AsyncIterator[Record]:
        """Do what the block does, once it is written that it will be done."""
        said = checked({"action": action, "actor": actor, **facts})
        head = await _soon(self._writer.must(("intent", said)))
        with self._outcome(Record(head.number), action) as record:
            yield record

    @contextmanager
    def intent_now(self, action: str, *, actor: str, **facts: Fact | None) -> Iterator[Record]:
        """As `intent`, for a command or a thread: waits for the disk."""
        said = checked({"action": action, "actor": actor, **facts})
        head = _now(self._writer.must(("intent", said)))
        with self._outcome(Record(head.number), action) as record:
            yield record

    def denied(self, action: str, reason: str, *, actor: str, **facts: Fact | None) -> None:
        """It was refused, and this is the full reason, which the caller is not told."""
        said = {"action": action, "actor": actor, "reason": reason, **facts}
        self._writer.will(("denied", checked(said)))

    def event(self, action: str, **facts: Fact | None) -> None:
        """Something was seen that nobody asked for: `secret_reflected`, `credential_corrupt`."""
        self._writer.will(("event", checked({"action": action, **facts})))

    def written(self, action: str, **facts: Fact | None) -> Head:
        """As `event`, and durable when it returns. Raises AUDIT_NOT_WRITTEN."""
        return _now(self._writer.must(("event", checked({"action": action, **facts}))))

    def flush(self) -> bool:
        """Wait until all that was said is durable; whether it is."""
        return self._writer.flush()

    @property
    def problem(self) -> str:
        """Why it cannot be written; empty while it can."""
        return self._writer.problem

    def close(self) -> None:
        """Write what waits, and end."""
        self._writer.close()

    @contextmanager
    def _outcome(self, record: Record, action: str) -> Iterator[Record]:
        began = time.monotonic()
        how: dict[str, Fact] = {"status": "ok"}
        try:
            yield record
        except CarpalError as error:
            how = {"status": "error", "reason": str(error.reason)}
            raise
        except (asyncio.CancelledError, GeneratorExit):
            how = {"status": "cancelled"}
            raise
        except BaseException:
            how = {"status": "error", "reason": "INTERNAL"}
            raise
        finally:
            took = int((time.monotonic() - began) * 1000)
            said = {"action": action, "of": record.number, **how, **record.said, "ms": took}
            self._writer.will(("outcome", checked(said)), soon=False)


def _now(told: Future[Head]) -> Head:
    try:
        return told.result(WAIT)
    except TimeoutError:
        told.cancel()
        raise not_written(f"the disk took longer than {WAIT:g} s") from None


async def _soon(told: Future[Head]) -> Head:
    """Also when its caller leaves: then the line is there, and says nothing of an outcome."""
    try:
        async with asyncio.timeout(WAIT):
            return await asyncio.wrap_future(told)
    except TimeoutError:
        # Whoever asks must not take it for somebody else's silence: nothing was done.
        raise not_written(f"the disk took longer than {WAIT:g} s") from None
