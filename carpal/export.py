"""The file of an exported session, line by line. Pure.

JSON lines in this order: `{"carpal_export":1,"session":…}`, the events, the
blobs that they name as `{"blob":…}` in parts, and at last
`{"head":…,"events":N,"blobs":N,"signed_head":…}`, without which the file is cut
short. Here it is seen that a file is whole and well formed, and its blobs true;
that its events are true is for `carpal.verified` to say.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from carpal.errors import CarpalError, refuse
from carpal.event_lines import (
    Malformed,
    base64_bytes,
    dumps,
    event_object,
    event_of,
    hex_bytes,
    loads,
    member,
    number,
)
from carpal.status import Reason
from carpal.v1 import types_pb2

VERSION = 1
PART_BYTES = 256 * 1024
"""Of a blob in one line."""
LINE_BYTES = 16 * 1024 * 1024
"""More than any event makes: 1 MiB of data, escaped, and once more in base64."""
_BLOB_NAME = re.compile(rb"sha256:([0-9a-f]{64})(?![0-9a-f])")


@dataclass(frozen=True)
class BlobPart:
    """Some of a blob's bytes, from `offset` on; a blob's parts follow each other."""

    digest: bytes
    size: int
    media_type: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class End:
    """What the file should have held."""

    head: types_pb2.ChainHead
    events: int
    blobs: int
    signed: types_pb2.SignedBytes | None = None
    """A SignedHead, by the sessiond that was asked."""


Entry: TypeAlias = types_pb2.SessionInfo | types_pb2.Event | BlobPart | End


def blobs_named(data: bytes) -> list[bytes]:
    """Digests of the blobs that an event's data names, as `sha256:` and 64 digits."""
    return [bytes.fromhex(match.decode()) for match in _BLOB_NAME.findall(data)]


def line_of(entry: Entry) -> bytes:
    """One line of the file, with its newline."""
    return dumps(_object_of(entry)) + b"\n"


def _object_of(entry: Entry) -> dict[str, Any]:
    match entry:
        case types_pb2.Event():
            return event_object(entry)
        case types_pb2.SessionInfo():
            return {"carpal_export": VERSION, "session": _session_object(entry)}
        case BlobPart():
            return {
                "blob": {
                    "digest": entry.digest.hex(),
                    "size": entry.size,
                    "media_type": entry.media_type,
                    "offset": entry.offset,
                    "data": base64.b64encode(entry.data).decode(),
                }
            }
        case End():
            fields: dict[str, Any] = {
                "head": head_object(entry.head),
                "events": entry.events,
                "blobs": entry.blobs,
            }
            if entry.signed is not None:
                fields["signed_head"] = signed_text(entry.signed)
            return fields


def head_object(head: types_pb2.ChainHead) -> dict[str, Any]:
    """The last link of a chain, for JSON."""
    return {"position": head.position, "hash": head.hash.hex()}


def signed_text(signed: types_pb2.SignedBytes) -> str:
    """A SignedBytes in base64."""
    return base64.b64encode(signed.SerializeToString(deterministic=True)).decode()


def signed_of(fields: Any, name: str) -> types_pb2.SignedBytes:
    """A SignedBytes in base64, member of an object; Malformed when it is none."""
    try:
        return types_pb2.SignedBytes.FromString(base64_bytes(fields, name))
    except DecodeError:
        raise Malformed(f"has a `{name}` that is not signed bytes") from None


def read(lines: Iterable[bytes], name: str) -> Iterator[Entry]:
    """The entries of a file, in order: first the session, last the `End`.

    `lines` keep their newlines; `name` is the file's. Raises EXPORT_MALFORMED,
    naming the line, where the file is not what it should be.
    """
    reader = _Reader()
    at = 0
    for at, line in enumerate(lines, start=1):
        try:
            entry = reader.entry(line)
        except Malformed as problem:
            raise malformed(f"line {at} of {name} {problem}", at) from None
        yield entry
    if not reader.ended:
        raise malformed(f"{name} is cut short after line {at}", at)


def malformed(what: str, line: int) -> CarpalError:
    """EXPORT_MALFORMED, found at a line."""
    return refuse(Reason.EXPORT_MALFORMED, what, line=str(line))


class _Reader:
    """What may come next, given what came."""

    def __init__(self) -> None:
        self.ended = False
        self._started = False
        self._events = 0
        self._blobs = 0
        self._blob: _Blob | None = None
        """The last one begun."""

    def entry(self, line: bytes) -> Entry:
        """The entry of the next line; Malformed when it is none, or not its turn."""
        if self.ended:
            raise Malformed("follows the end")
        if len(line) > LINE_BYTES:
            raise Malformed("is longer than any line of an export")
        fields = loads(line)
        if not isinstance(fields, dict):
            raise Malformed("is not an object")
        if not self._started:
            self._started = True
            return _session_of(fields)
        if "blob" in fields:
            return self._part(_part_of(member(fields, "blob", dict)))
        if self._blob and not self._blob.whole:
            raise Malformed("comes before a blob is whole")
        if "events" in fields:
            return self._end(_end_of(fields))
        if self._blobs:
            raise Malformed("is an event among blobs")
        self._events += 1
        return event_of(fields)

    def _part(self, part: BlobPart) -> BlobPart:
        if self._blob is None or self._blob.whole:
            self._blob = _Blob(part.digest, part.size)
            self._blobs += 1
        self._blob.take(part)
        return part

    def _end(self, end: End) -> End:
        for what, said, found in (
            ("events", end.events, self._events),
            ("blobs", end.blobs, self._blobs),
        ):
            if said != found:
                raise Malformed(f"says that there are {said} {what}: there are {found}")
        self.ended = True
        return end


class _Blob:
    """A blob as its parts come."""

    def __init__(self, digest: bytes, size: int) -> None:
        self._digest = digest
        self._size = size
        self._offset = 0
        self._hash = sha256()
        self.whole = False

    def take(self, part: BlobPart) -> None:
        """The next part, or Malformed."""
        if (part.digest, part.size, part.offset) != (self._digest, self._size, self._offset):
            raise Malformed("is not the next part of its blob")
        self._hash.update(part.data)
        self._offset += len(part.data)
        if self._offset > self._size or (not part.data and self._size):
            raise Malformed("does not fit in its blob")
        self.whole = self._offset == self._size
        if self.whole and self._hash.digest() != self._digest:
            raise Malformed("ends a blob whose bytes do not have its digest")


def _session_object(info: types_pb2.SessionInfo) -> dict[str, Any]:
    """As protobuf writes it, but for who drives it: that is no part of an export."""
    kept = types_pb2.SessionInfo()
    kept.CopyFrom(info)
    kept.ClearField("lease")
    return json_format.MessageToDict(kept, preserving_proto_field_name=True)


def _session_of(fields: dict[str, Any]) -> types_pb2.SessionInfo:
    if "carpal_export" not in fields:
        raise Malformed("does not begin an export: it has no `carpal_export`")
    version = number(fields, "carpal_export")
    if version != VERSION:
        raise Malformed(f"is of version {version}, which a newer carpal wrote")
    try:
        info = json_format.ParseDict(
            member(fields, "session", dict), types_pb2.SessionInfo(), ignore_unknown_fields=True
        )
    except (json_format.ParseError, RecursionError):
        raise Malformed("does not describe a session") from None
    if not info.session_id:
        raise Malformed("has a session without an id")
    return info


def _part_of(fields: dict[str, Any]) -> BlobPart:
    part = BlobPart(
        digest=hex_bytes(fields, "digest"),
        size=number(fields, "size"),
        media_type=member(fields, "media_type", str),
        offset=number(fields, "offset"),
        data=base64_bytes(fields, "data"),
    )
    if len(part.data) > PART_BYTES:
        raise Malformed(f"has more than {PART_BYTES} bytes of a blob")
    return part


def _end_of(fields: dict[str, Any]) -> End:
    head = member(fields, "head", dict)
    return End(
        types_pb2.ChainHead(position=number(head, "position"), hash=hex_bytes(head, "hash")),
        number(fields, "events"),
        number(fields, "blobs"),
        signed_of(fields, "signed_head") if "signed_head" in fields else None,
    )
