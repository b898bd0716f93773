"""What the service's messages say of what it keeps."""

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from carpal.audit_chain import Head, record_of
from carpal.errors import invalid
from carpal.v1 import vault_pb2 as pb
from carpal.v1.types_pb2 import ChainHead
from vault.audit.table import Row
from vault.store.rows import TokenRow


def timedelta_of(value: Duration, field: str) -> timedelta:
    """From its message. INVALID_FIELD."""
    try:
        return value.ToTimedelta()
    except (ValueError, OverflowError):
        raise invalid(field, "is not a duration") from None


def duration(value: timedelta) -> Duration:
    """As a message."""
    duration = Duration()
    duration.FromTimedelta(value)
    return duration


def token_info(row: TokenRow) -> pb.TokenInfo:
    """Without its secret."""
    return pb.TokenInfo(
        token_id=row.token_id,
        name=row.name,
        pool=row.pool,
        workspace=row.workspace,
        expires=Timestamp(seconds=row.expires),
        used=None if row.used is None else Timestamp(seconds=row.used),
    )


def chain_head(head: Head) -> ChainHead:
    """The last line."""
    return ChainHead(position=head.number, hash=bytes.fromhex(head.hash))


def audit_entry(row: Row) -> pb.AuditEntry:
    """One line; `detail` is all of it, as it was written."""
    said = record_of(row.line.encode()) or {}
    when = Timestamp()
    when.FromJsonString(str(said.get("time", "1970-01-01T00:00:00Z")))
    return pb.AuditEntry(
        sequence=row.number,
        time=when,
        actor=str(said.get("actor", "")),
        action=str(said.get("action", said.get("what", ""))),
        detail=row.line.encode(),
        hash=bytes.fromhex(row.hash),
    )
