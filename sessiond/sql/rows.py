"""Session and lease rows to and from SQL values. The order of columns is said once, here."""

from typing import Any

import msgspec

from sessiond.rows import LeaseRow, LeaseState, SessionRow

CARD_COLUMNS = (
    "session_id, workspace, title, metadata, labels, request, created, chain_id, forked_from, "
    "lineage, imported_to, importing, archived, deleted"
)
"""Of a session: what seldom changes."""
LOG_COLUMNS = "head, hash, changed, wake, progressed, chunk"
"""Of a session: what an append changes."""
DRIVE_COLUMNS = "processed, wake_at, driven, attempts, failures, not_before, parked"
"""Of a session: what a lease changes."""
SESSION_COLUMNS = f"number, {CARD_COLUMNS}, {LOG_COLUMNS}, {DRIVE_COLUMNS}"
LEASE_COLUMNS = "resource, epoch, holder, address, workspace, attributes, term, expires, state"

_strings = msgspec.json.Decoder(dict[str, str])
_lineage = msgspec.json.Decoder(tuple[tuple[int, int], ...])


def session_row(values: tuple[Any, ...]) -> SessionRow:
    """From SESSION_COLUMNS."""
    return SessionRow(
        number=values[0],
        session_id=values[1],
        workspace=values[2],
        title=values[3],
        metadata=_strings.decode(values[4]),
        labels=_strings.decode(values[5]),
        request=values[6],
        created=values[7],
        chain_id=values[8],
        forked_from=values[9],
        lineage=_lineage.decode(values[10]),
        imported_to=values[11],
        importing=bool(values[12]),
        archived=values[13],
        deleted=values[14],
        head=values[15],
        hash=values[16],
        changed=values[17],
        wake=values[18],
        progressed=bool(values[19]),
        chunk=values[20],
        processed=values[21],
        wake_at=values[22],
        driven=bool(values[23]),
        attempts=values[24],
        failures=values[25],
        not_before=values[26],
        parked=values[27],
    )


def card_values(row: SessionRow) -> tuple[Any, ...]:
    """In the order of CARD_COLUMNS."""
    return (
        row.session_id,
        row.workspace,
        row.title,
        msgspec.json.encode(row.metadata),
        msgspec.json.encode(row.labels),
        row.request,
        row.created,
        row.chain_id,
        row.forked_from,
        msgspec.json.encode(row.lineage),
        row.imported_to,
        int(row.importing),
        row.archived,
        row.deleted,
    )


def same_but_log(row: SessionRow, other: SessionRow) -> bool:
    """Whether they differ in LOG_COLUMNS at most, as after an append: by far the most often."""
    extended = msgspec.structs.replace(
        other,
        head=row.head,
        hash=row.hash,
        changed=row.changed,
        wake=row.wake,
        progressed=row.progressed,
        chunk=row.chunk,
    )
    return extended == row


def log_values(row: SessionRow) -> tuple[Any, ...]:
    """In the order of LOG_COLUMNS."""
    return row.head, row.hash, row.changed, row.wake, int(row.progressed), row.chunk


def drive_values(row: SessionRow) -> tuple[Any, ...]:
    """In the order of DRIVE_COLUMNS."""
    return (
        row.processed,
        row.wake_at,
        int(row.driven),
        row.attempts,
        row.failures,
        row.not_before,
        row.parked,
    )


def lease_row(values: tuple[Any, ...]) -> LeaseRow:
    """From LEASE_COLUMNS."""
    return LeaseRow(
        resource=values[0],
        epoch=values[1],
        holder=values[2],
        address=values[3],
        workspace=values[4],
        attributes=_strings.decode(values[5]),
        term=values[6],
        expires=values[7],
        state=LeaseState(values[8]),
    )


def lease_values(row: LeaseRow) -> tuple[Any, ...]:
    """In the order of LEASE_COLUMNS."""
    return (
        row.resource,
        row.epoch,
        row.holder,
        row.address,
        row.workspace,
        msgspec.json.encode(row.attributes),
        row.term,
        row.expires,
        int(row.state),
    )
