"""The hash chain of a session's log. Pure.

Each event's hash covers the hash before it and a digest of its data, not the
data: so a log whose data was redacted still verifies, and any other edit
shows against a head that was noted or signed.
"""

import struct
from functools import lru_cache
from hashlib import sha256

_DOMAIN = b"carpal/v1/chain\0"
_length = struct.Struct(">I").pack
_NUMBERS = struct.Struct(">IQIq")
_FLAG = {False: _length(1) + b"\0", True: _length(1) + b"\1"}


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
    name = id.encode()
    parts = (
        previous,
        _length(len(name)),
        name,
        _NUMBERS.pack(8, position, 8, time_ns),
        _field(type),
        _field(source),
        _FLAG[must_understand],
        _length(len(digest)),
        digest,
    )
    return sha256(b"".join(parts)).digest()


@lru_cache(maxsize=1024)
def _field(text: str) -> bytes:
    """Types and sources repeat."""
    value = text.encode()
    return _length(len(value)) + value
