"""`carpal session import`: an exported session taken in as it was.

The file is read twice: once to see that it is whole and true, so that nothing
is sent in vain, and once to send it. The last events go after all blobs, so
that a session is there only with what it names.
"""

import json

import click

from carpal.client import rpc_errors
from carpal.errors import refuse
from carpal.export import BlobPart, End
from carpal.ids import check_id
from carpal.operator.asking import run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.export_file import ExportFile, open_export
from carpal.operator.exporting import STREAM_SECONDS
from carpal.operator.outcome import DONE
from carpal.status import Reason
from carpal.upload import Upload
from carpal.v1 import session_pb2, types_pb2
from carpal.verified import Verified

FRAME_BYTES = 3 * 1024 * 1024
"""Of events in one message: one event more fits below its limit of 4 MiB."""
FRAME_EVENTS = 1000


@click.command("import")
@click.argument("file")
@click.option("--as", "as_id", metavar="ID", help="Another id than it was exported with.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def import_(*, found: Found, file: str, as_id: str | None, as_json: bool) -> int:
    """Take in an exported session (`-` reads it from stdin) and print its id."""
    if as_id is not None:
        check_id(as_id, "--as")
    with open_export(file) as export:
        info, end = _check(export)
        info.chain_id = info.chain_id or info.session_id
        info.session_id = as_id or info.session_id
        info.workspace = ""  # the caller's own

        async def main(operator: Operator) -> int:
            await _send(operator, info, export)
            shown = {
                "session_id": info.session_id,
                "events": end.events,
                "blobs": end.blobs,
                "head": end.head.position,
            }
            click.echo(json.dumps(shown) if as_json else info.session_id)
            return DONE

        return run(found, main)


def _check(export: ExportFile) -> tuple[types_pb2.SessionInfo, End]:
    """The first and the last entry of a file that is whole and true, or CHAIN_BROKEN."""
    info, end = types_pb2.SessionInfo(), None
    verified = Verified("")
    for entry in export.entries():
        match entry:
            case types_pb2.SessionInfo():
                info = entry
                verified = Verified(info.chain_id or info.session_id)
            case types_pb2.Event():
                verified.take(entry)
            case End():
                verified.end(entry.head)
                end = entry
    if end is None:
        raise AssertionError("an export without an end is malformed")
    info.head.CopyFrom(end.head)
    return info, end


async def _send(operator: Operator, info: types_pb2.SessionInfo, export: ExportFile) -> None:
    """Stream the events, and each blob by a call of its own."""
    upload = Upload(operator.sessions.ImportSession(timeout=STREAM_SECONDS))
    blobs = _Blobs(operator)
    frame, size = session_pb2.ImportSessionRequest(session=info), 0
    try:
        with rpc_errors(operator.sessiond):
            for entry in export.entries():
                if isinstance(entry, BlobPart):
                    await blobs.take(entry)
                elif isinstance(entry, types_pb2.Event):
                    if size + entry.ByteSize() > FRAME_BYTES or len(frame.events) == FRAME_EVENTS:
                        if not await upload.send(frame):
                            await upload.answer()  # refused; or all of it is there already
                        frame, size = session_pb2.ImportSessionRequest(), 0
                    frame.events.append(entry)
                    size += entry.ByteSize()
            await upload.send(frame)
            await upload.answer()
    finally:
        upload.close()
        blobs.close()


class _Blobs:
    """Uploads blobs, one after the other, from parts that follow each other."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._upload: Upload[session_pb2.PutBlobRequest, session_pb2.PutBlobResponse] | None = None

    async def take(self, part: BlobPart) -> None:
        """Send the next part; with a blob's last one, wait until sessiond has it."""
        request = session_pb2.PutBlobRequest(offset=part.offset, data=part.data)
        if self._upload is None:
            self._upload = Upload(self._operator.sessions.PutBlob(timeout=STREAM_SECONDS))
            request.info.digest = part.digest
            request.info.size = part.size
            request.info.media_type = part.media_type
        await self._upload.send(request)
        if part.offset + len(part.data) < part.size:
            return
        answer = await self._upload.answer()
        self._upload = None
        if answer.offset != part.size:
            raise refuse(
                Reason.UNAVAILABLE,
                f"{self._operator.sessiond} took {answer.offset} of {part.size} bytes of a blob",
            )

    def close(self) -> None:
        """Give up what is under way."""
        if self._upload is not None:
            self._upload.close()
