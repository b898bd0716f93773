"""Rows to and from SQLite's values. The order of columns is said once, here."""

from typing import Any

import msgspec

from sessiond.rows import LeaseRow, LeaseState, SessionRow

CARD_COLUMNS = "session_id, workspace, title, metadata, labels, request, created"
"""Of a session: what seldom changes."""
STATE_COLUMNS = (
    "archived, head, hash, wake, processed, wake_at, driven, progressed, attempts, failures, "
    "not_before, parked"
)
"""Of a session: what most transactions change."""
SESSION_COLUMNS = f"number, {CARD_COLUMNS}, {STATE_COLUMNS}"
LEASE_COLUMNS = "resource, epoch, holder, address, workspace, attributes, term, expires, state"
EVENT_COLUMNS = "id, position, time, type, source, must_understand, data, digest, hash"
"""As the fields of EventRow; type and source are numbers in the table."""

_strings = msgspec.json.Decoder(dict[str, str])


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
        archived=values[8],
        head=values[9],
        hash=values[10],
        wake=values[11],
        processed=values[12],
        wake_at=values[13],
        driven=bool(values[14]),
        progressed=bool(values[15]),
        attempts=values[16],
        failures=values[17],
        not_before=values[18],
        parked=values[19],
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
    )


def state_values(row: SessionRow) -> tuple[Any, ...]:
    """In the order of STATE_COLUMNS."""
    return (
        row.archived,
        row.head,
        row.hash,
        row.wake,
        row.processed,
        row.wake_at,
        row.driven,
        row.progressed,
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
