"""Agents as sessiond keeps them: documents of the kind `agent`, every version of each."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from carpal.agent import Agent, read_agent
from carpal.client import rpc_errors
from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_id
from carpal.mistake import SIZE_MAX, Mistake
from carpal.operator.agent import agent_of, bad
from carpal.operator.changing import change
from carpal.operator.connection import ANSWER_SECONDS, Operator
from carpal.operator.said import said
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2

KIND = "agent"
_PAGE = 100
STDIN = "-"


@dataclass(frozen=True)
class Document:
    """One version of an agent."""

    name: str
    version: int
    created: datetime
    """Of this version."""
    data: dict[str, Any]
    """As it was written; whoever wrote it may not have checked it."""

    def agent(self) -> Agent:
        """The agent, its version in it; CONFIG_INVALID."""
        try:
            return msgspec.structs.replace(read_agent(self.data), version=self.version)
        except Mistake as mistake:
            raise bad(f"agent {self.name}, version {self.version}", mistake) from None


def is_file(argument: str) -> bool:
    """Whether NAME|FILE is a file: with a dot or a slash in it, or `-` for stdin.

    A name has neither.
    """
    return argument == STDIN or "." in argument or "/" in argument


def read_text(argument: str) -> str:
    """The text of a file, or of stdin for `-`; INVALID_FIELD, also when it is larger than one is.

    No more of it is read: it may be a device without an end.
    """
    if argument == STDIN:
        return said(STDIN, "stdin")
    try:
        with Path(argument).open("rb") as file:
            data = file.read(SIZE_MAX + 1)
        if len(data) > SIZE_MAX:
            raise invalid(argument, f"has more than the {SIZE_MAX} bytes that an agent may have")
        return data.decode()
    except OSError as error:
        raise invalid(argument, (error.strerror or str(error)).lower()) from None
    except UnicodeDecodeError:
        raise invalid(argument, "is not text in UTF-8") from None


def source_name(argument: str) -> str:
    """How messages call it."""
    return "stdin" if argument == STDIN else argument


def agent_in(argument: str) -> Agent:
    """The agent of a file."""
    return agent_of(read_text(argument), source_name(argument))


async def get(operator: Operator, name: str, version: int = 0) -> Document:
    """An agent's newest version, or one; DOCUMENT_NOT_FOUND says how to find another."""
    check_id(name, "NAME")
    request = session_pb2.GetDocumentRequest(kind=KIND, name=name, version=version)
    try:
        with rpc_errors(operator.sessiond):
            answer = await operator.sessions.GetDocument(request, timeout=ANSWER_SECONDS)
    except CarpalError as error:
        if error.reason is not Reason.DOCUMENT_NOT_FOUND:
            raise
        what = f"agent {name!r} has no version {version}" if version else f"no agent {name!r}"
        how = "list them with `carpal agent ls`; a file is named with its suffix or as ./FILE"
        raise refuse(error.reason, what, action=how) from None
    return _document(answer.document)


async def put(operator: Operator, name: str, data: bytes, replaces: int) -> Document:
    """Write an agent's next version, over version `replaces`; 0 to create it.

    VERSION_CONFLICT when that is not the newest.
    """
    request = session_pb2.PutDocumentRequest(
        kind=KIND, name=check_id(name, "name"), expected_version=replaces, data=data
    )
    answer = await change(
        operator,
        lambda timeout: operator.sessions.PutDocument(request, timeout=timeout),
        look=f"it may have been written: look with `carpal agent show {name}`",
    )
    return _document(answer.document)


async def every(operator: Operator) -> AsyncIterator[Document]:
    """The newest version of every agent, by name."""
    token = ""
    while True:
        request = session_pb2.ListDocumentsRequest(kind=KIND, limit=_PAGE, page_token=token)
        with rpc_errors(operator.sessiond):
            page = await operator.sessions.ListDocuments(request, timeout=ANSWER_SECONDS)
        for info in page.documents:
            yield _document(info)
        token = page.next_page_token
        if not token:
            return


def _document(info: types_pb2.DocumentInfo) -> Document:
    try:
        data = json.loads(info.data)
    except (ValueError, RecursionError):
        data = None
    created = info.time.ToDatetime(tzinfo=UTC)
    return Document(info.name, info.version, created, data if isinstance(data, dict) else {})
