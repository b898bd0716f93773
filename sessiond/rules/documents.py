"""The rules of documents: what may be written, by whom, over what; and pages of them. Pure."""

import base64
import binascii
import re
from hashlib import sha256

import msgspec

from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity, Role
from carpal.ids import check_id
from carpal.status import Reason
from carpal.v1 import session_pb2
from sessiond import wire
from sessiond.rules import retention
from sessiond.rules.reads import DEFAULT_BYTES
from sessiond.store import Reader, Transaction
from sessiond.store_documents import DocumentRow

DOCUMENT_BYTES = 256 * 1024
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_LAST = 2**62
"""Versions beyond it do not exist, and would not fit the store's integers."""


def check_kind(kind: str) -> str:
    """`kind`, or INVALID_FIELD."""
    if not _KIND.match(kind):
        raise invalid("kind", "must be 1 to 64 of a-z, 0-9 and '_', a letter first")
    return kind


def check_put(caller: Identity, request: session_pb2.PutDocumentRequest) -> None:
    """INVALID_FIELD, or ROLE_NOT_ALLOWED when the kind is not the caller's to write."""
    check_kind(request.kind)
    check_id(request.name, "name")
    if len(request.data) > DOCUMENT_BYTES:
        size = len(request.data)
        raise invalid("data", f"{size} bytes; a document has at most {DOCUMENT_BYTES}")
    try:
        msgspec.json.decode(request.data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise invalid("data", f"is not JSON: {error}") from None
    if request.kind == retention.KIND:
        if caller.role is not Role.OPERATOR:
            raise refuse(
                Reason.ROLE_NOT_ALLOWED,
                f"a {caller.role} may not write retention",
                action="ask an operator",
            )
        if request.name != "default":
            raise invalid("name", "must be 'default', the workspace's one document of retention")
        retention.Retention.parse(request.data)


def put(tx: Transaction, workspace: str, request: session_pb2.PutDocumentRequest) -> DocumentRow:
    """The next version; of one that was written just so, the answer of then."""
    key = (workspace, request.kind, request.name)
    newest = tx.documents.newest(*key)
    current = newest.version if newest is not None else 0
    expected = request.expected_version
    if expected != current:
        written = tx.documents.version(*key, expected + 1) if expected < current else None
        if written is None or written.data != request.data:
            raise refuse(
                Reason.VERSION_CONFLICT,
                f"{request.kind} {request.name!r} is at version {current}, not {expected}",
                version=str(current),
            )
        return written
    row = DocumentRow(
        workspace=workspace,
        kind=request.kind,
        name=request.name,
        version=current + 1,
        time=tx.wall,
        data=request.data,
    )
    tx.documents.add(row)
    return row


def find(reader: Reader, workspace: str, request: session_pb2.GetDocumentRequest) -> DocumentRow:
    """The version asked for, or DOCUMENT_NOT_FOUND."""
    key = (workspace, check_kind(request.kind), check_id(request.name, "name"))
    if request.version == 0:
        row = reader.documents.newest(*key)
    else:
        row = reader.documents.version(*key, min(request.version, _LAST))
    if row is None:
        raise _not_found(request)
    return row


def page_of(
    reader: Reader, workspace: str, request: session_pb2.ListDocumentsRequest
) -> tuple[list[DocumentRow], str]:
    """A page of a kind's newest versions, and the token of the next or an empty one.

    It is shorter than asked for when they would not fit in a message.
    """
    kind = check_kind(request.kind)
    limit = wire.limit(request.limit)
    above = _cursor(workspace, request)
    page: list[DocumentRow] = []
    size = 0
    with reader.snapshot():
        names = reader.documents.names(workspace, kind, above, limit + 1)
        for name, version in names[:limit]:
            row = reader.documents.version(workspace, kind, name, version)
            assert row is not None  # in the same snapshot
            size += len(row.data) + len(name) + len(workspace) + 128
            if page and size > DEFAULT_BYTES:
                break
            page.append(row)
    more = len(names) > len(page)
    return page, _token(workspace, kind, page[-1].name) if more else ""


def _not_found(request: session_pb2.GetDocumentRequest) -> CarpalError:
    version = f" version {request.version}" if request.version else ""
    return refuse(
        Reason.DOCUMENT_NOT_FOUND,
        f"no {request.kind} {request.name!r}{version}",
        kind=request.kind,
        name=request.name,
    )


def _digest(workspace: str, kind: str) -> bytes:
    return sha256(msgspec.json.encode([workspace, kind])).digest()[:8]


def _token(workspace: str, kind: str, name: str) -> str:
    return base64.urlsafe_b64encode(_digest(workspace, kind) + name.encode()).decode()


def _cursor(workspace: str, request: session_pb2.ListDocumentsRequest) -> str:
    """The name above which the page begins."""
    if not request.page_token:
        return ""
    try:
        raw = base64.b64decode(request.page_token, altchars=b"-_", validate=True)
        name = check_id(raw[8:].decode("ascii"), "page_token")
    except (binascii.Error, ValueError, CarpalError):
        raw, name = b"", ""
    if raw[:8] != _digest(workspace, request.kind):
        raise invalid("page_token", "is not of this query; start from the first page")
    return name
