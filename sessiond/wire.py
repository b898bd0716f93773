"""Protobuf messages from rows and rows from messages. Pure."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from carpal.errors import invalid
from carpal.v1 import types_pb2
from sessiond.clock import SECOND
from sessiond.rows import EventRow, Group, LeaseRow, NewEvent, Redaction, SessionRow

_LAST = 7_258_118_400 * SECOND
"""The year 2200, well within the store's 64 bits."""


def timestamp(ns: int) -> Timestamp:
    """From nanoseconds since 1970."""
    return Timestamp(seconds=ns // SECOND, nanos=ns % SECOND)


def nanoseconds(value: Timestamp | Duration) -> int:
    """Since 1970, or long."""
    return value.seconds * SECOND + value.nanos


def time_of(value: Timestamp, field: str) -> int:
    """Nanoseconds since 1970; INVALID_FIELD when it is not a time in this era."""
    ns = nanoseconds(value)
    if not 0 <= ns < _LAST:
        raise invalid(field, "must be a time from 1970 to 2200")
    return ns


def duration(ns: int) -> Duration:
    """From nanoseconds, not negative."""
    return Duration(seconds=ns // SECOND, nanos=ns % SECOND)


def event(row: EventRow) -> types_pb2.Event:
    """An event as it is read."""
    message = types_pb2.Event(
        id=row.id,
        position=row.position,
        time=timestamp(row.time),
        type=row.type,
        source=row.source,
        data=row.data,
        must_understand=row.must_understand,
        data_digest=row.digest,
        hash=row.hash,
    )
    if row.redaction is not None:
        message.redaction.CopyFrom(
            types_pb2.Redaction(
                by=row.redaction.by,
                time=timestamp(row.redaction.time),
                reason=row.redaction.reason,
            )
        )
    return message


def event_row(message: types_pb2.Event) -> EventRow:
    """An event as it was read once, with its place in the chain."""
    redaction = None
    if message.HasField("redaction"):
        redaction = Redaction(
            message.redaction.by,
            time_of(message.redaction.time, "events.redaction.time"),
            message.redaction.reason,
        )
    return EventRow(
        message.id,
        message.position,
        time_of(message.time, "events.time"),
        message.type,
        message.source,
        message.must_understand,
        message.data,
        message.data_digest,
        message.hash,
        redaction,
    )


def session_info(row: SessionRow, lease: LeaseRow | None, *, steady: int) -> types_pb2.SessionInfo:
    """A session and its lease, live or last."""
    info = types_pb2.SessionInfo(
        session_id=row.session_id,
        workspace=row.workspace,
        title=row.title,
        metadata=row.metadata,
        labels=row.labels,
        created=timestamp(row.created),
        head=types_pb2.ChainHead(position=row.head, hash=row.hash),
        wake=row.wake,
        processed=row.processed,
        parked_reason=row.parked,
        chain_id=row.chain_id,
        forked_from=row.forked_from,
        forked_at=row.inherited,
        imported_to=row.imported_to,
    )
    if row.archived is not None:
        info.archived.CopyFrom(timestamp(row.archived))
    if row.wake_at is not None:
        info.wake_at.CopyFrom(timestamp(row.wake_at))
    if lease is not None:
        info.lease.CopyFrom(lease_info(lease, steady))
    return info


def lease_info(row: LeaseRow, steady: int) -> types_pb2.LeaseInfo:
    """A lease; one that is not live has no holder and no time left."""
    live = row.live(steady)
    return types_pb2.LeaseInfo(
        resource=row.resource,
        epoch=row.epoch,
        holder=row.holder if live else "",
        address=row.address,
        expires_in=duration(row.expires - steady) if live else None,
        workspace=row.workspace,
        attributes=row.attributes,
    )


def new_event(message: types_pb2.NewEvent) -> NewEvent:
    """An event as the appender chose it."""
    return NewEvent(message.id, message.type, message.data, message.must_understand)


def new_events(messages: Iterable[types_pb2.NewEvent]) -> tuple[NewEvent, ...]:
    """Several of them."""
    return tuple([new_event(message) for message in messages])


def group(message: types_pb2.AppendGroup) -> Group:
    """One session's events to append."""
    epoch = message.epoch if message.HasField("epoch") else None
    return Group(message.session_id, new_events(message.events), epoch, message.wake)


def limit(value: int, *, default: int = 100, most: int = 1000) -> int:
    """A page or slice size; 0 means the default."""
    if value > most:
        raise invalid("limit", f"must be at most {most}")
    return value or default
