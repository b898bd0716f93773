"""Forks, redactions, deletions and imports on a desk, one transaction each."""

from collections.abc import Sequence

import msgspec

from carpal.chain import event_hash, genesis
from carpal.identity import Identity
from sessiond.rows import EventRow, SessionRow
from sessiond.rules import forks, imports, redaction, removal
from sessiond.store import Store
from tests.sessiond.desk import ADA, Desk


def fork(
    desk: Desk, source: str, position: int, fork_id: str, *, who: Identity = ADA, title: str = ""
) -> SessionRow:
    """A fork of `source` at a position."""
    request = repr((source, position, fork_id, title)).encode()
    new = forks.NewFork(source, position, fork_id, title, request)
    return desk.run(lambda tx: forks.fork(tx, who, new))


def delete(desk: Desk, session_id: str, *, who: Identity = ADA) -> SessionRow:
    """A tombstone."""
    return desk.run(lambda tx: removal.delete(tx, who, session_id))


def redact(
    desk: Desk,
    session_id: str,
    position: int,
    *,
    who: Identity = ADA,
    reason: str = "it was a secret",
) -> EventRow:
    """An event without its data."""
    return desk.run(lambda tx: redaction.redact(tx, who, session_id, position, reason))


def purges(desk: Desk) -> list[str]:
    """Tombstones with bytes that are to go."""
    reader = desk.store.reader()
    try:
        return reader.erasable.purges(100)
    finally:
        reader.close()


def sweep(desk: Desk) -> int:
    """What the sweeper does with tombstones; in how many steps."""
    steps = 0
    while ids := purges(desk):
        for session_id in ids:
            done = False
            while not done:
                done = desk.run(lambda tx, id=session_id: removal.purge(tx, id))  # type: ignore[misc]
                steps += 1
    return steps


def owes(store: Store) -> bool:
    """Whether erased bytes are still somewhere on the disk."""
    return store.erasing


def chained(log: Sequence[EventRow], chain_id: str) -> bytes:
    """The head of the chain recomputed from the events alone, redacted ones too."""
    chain = genesis(chain_id)
    for position, event in enumerate(log, start=1):
        assert event.position == position
        chain = event_hash(
            chain,
            id=event.id,
            position=position,
            time_ns=event.time,
            type=event.type,
            source=event.source,
            must_understand=event.must_understand,
            digest=event.digest,
        )
        assert chain == event.hash
    return chain


def import_of(
    session: SessionRow, log: Sequence[EventRow], session_id: str = "sesn_copy"
) -> imports.NewImport:
    """A request to take the log of a session in under another id."""
    request = b"import " + session.chain_id.encode() + (log[-1].hash if log else b"")
    return imports.NewImport(
        session_id=session_id,
        workspace="default",
        title=session.title,
        metadata=session.metadata,
        labels={"from": "afar"},
        created=session.created,
        chain_id=session.chain_id,
        head=len(log),
        hash=log[-1].hash if log else genesis(session.chain_id),
        request=request,
    )


def begin(desk: Desk, new: imports.NewImport, *, who: Identity = ADA) -> SessionRow:
    """The first message of an import."""
    return desk.run(lambda tx: imports.begin(tx, who, new))


def take(desk: Desk, new: imports.NewImport, events: Sequence[EventRow]) -> SessionRow:
    """Some events of it."""
    return desk.run(lambda tx: imports.take(tx, new, events))


def rehashed(log: Sequence[EventRow], chain_id: str) -> list[EventRow]:
    """The same events as a chain that is whole in itself, whatever was done to them."""
    chain, events = genesis(chain_id), []
    for event in log:
        chain = event_hash(
            chain,
            id=event.id,
            position=event.position,
            time_ns=event.time,
            type=event.type,
            source=event.source,
            must_understand=event.must_understand,
            digest=event.digest,
        )
        events.append(msgspec.structs.replace(event, hash=chain))
    return events
