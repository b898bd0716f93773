"""The hash chain of a session's log. Pure.

Each event's hash covers the hash before it and a digest of its data, not the
data: so a log whose data was redacted still verifies, and any other edit
shows against a head that was noted or signed.
"""

from hashlib import sha256

_DOMAIN = b"carpal/v1/chain\0"


def genesis(session_id: str) -> bytes:
    """What the first event of a session chains over; 32 bytes."""
    return sha256(_DOMAIN + session_id.encode()).digest()


def data_digest(data: bytes) -> bytes:
    """SHA-256 of an event's data; stays when the data is redacted."""
    return sha256(data).digest()


def event_hash(
    previous: bytes,
    *,
    id: str,
    position: int,
    time_ns: int,
    type: str,
    source: str,
    must_understand: bool,
    digest: bytes,
) -> bytes:
    """The hash of an event that follows one of hash `previous`.

    SHA-256 over `previous` and then each field behind its u32 length, so that
    no two events have the same bytes. Integers are 8 bytes, big-endian.
    """
    fields = (
        id.encode(),
        position.to_bytes(8, "big"),
        time_ns.to_bytes(8, "big", signed=True),
        type.encode(),
        source.encode(),
        b"\1" if must_understand else b"\0",
        digest,
    )
    parts = [previous]
    for field in fields:
        parts.append(len(field).to_bytes(4, "big"))
        parts.append(field)
    return sha256(b"".join(parts)).digest()
