"""Logs with true hash chains, made without a store."""

from google.protobuf.timestamp_pb2 import Timestamp

from carpal.chain import data_digest, event_hash, genesis
from carpal.event_lines import nanoseconds
from carpal.v1 import types_pb2

OPERATOR = "spiffe://carpal.internal/operator/ann"
START = 1_800_000_000_123_456_789
"""Nanoseconds since 1970 of the first event."""


def log(*datas: bytes, chain_id: str = "sesn_1") -> list[types_pb2.Event]:
    """An event for each data, a millisecond apart."""
    events = []
    for position, data in enumerate(datas, start=1):
        ns = START + position * 1_000_000
        events.append(
            types_pb2.Event(
                id=f"sevt_{position}",
                position=position,
                time=Timestamp(seconds=ns // 10**9, nanos=ns % 10**9),
                type="user.message",
                source=OPERATOR,
                data=data,
                data_digest=data_digest(data),
            )
        )
    chain(events, chain_id)
    return events


def chain(events: list[types_pb2.Event], chain_id: str = "sesn_1") -> None:
    """Give events the hashes that they would have had."""
    previous = genesis(chain_id)
    for event in events:
        event.hash = previous = event_hash(
            previous,
            id=event.id,
            position=event.position,
            time_ns=nanoseconds(event.time),
            type=event.type,
            source=event.source,
            must_understand=event.must_understand,
            digest=event.data_digest,
        )


def head(events: list[types_pb2.Event]) -> types_pb2.ChainHead:
    """The last link of their chain."""
    return types_pb2.ChainHead(position=len(events), hash=events[-1].hash)


def redact(event: types_pb2.Event, reason: str = "a name") -> None:
    """Erase an event's data as the store does."""
    event.data = b""
    event.redaction.by = OPERATOR
    event.redaction.time.FromMilliseconds(1_800_000_100_000)
    event.redaction.reason = reason
